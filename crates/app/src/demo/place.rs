//! The demo's folder: who uses it, and what is kept in it.
//!
//! Everything that must be the same at the next start lies here: pid and port files of the servers, secrets, and
//! the seeded ids and keys. One demo at a time may use the folder.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde::{Serialize, de::DeserializeOwned};

use super::process::Process;

/// Where ports are taken from: below the range that the kernel gives to outgoing connections, one of which could sit on
/// the port of a server that is just down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Ports tried before there is said to be none.
const TRIES_MAX: usize = 200;

/// A folder that this process alone uses.
pub(super) struct Place {
    root: PathBuf,
    /// Locked until the process ends, however it ends.
    _lock: File,
}

impl Place {
    /// Makes the folder where it is missing, and takes it.
    ///
    /// # Errors
    /// When another demo has it.
    pub(super) fn take(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let root = folder.canonicalize().with_context(|| format!("cannot enter {}", folder.display()))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(root.join("lock"))
            .with_context(|| format!("cannot write in {}", root.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Without the number the message is still true.
                let _ = lock.read_to_string(&mut holder);
                bail!(
                    "another demo (pid {}) uses {}: stop it, or give this one its own --data-dir",
                    holder.trim(),
                    root.display()
                );
            }
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the data folder"),
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Self { root, _lock: lock })
    }

    /// The folder itself, absolute and without links.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn pid_file(&self, server: &str) -> PathBuf {
        self.path(&format!("{server}.pid"))
    }

    /// The server that an earlier run or this one has started, if it lives.
    pub(super) fn server(&self, name: &str) -> Option<Process> {
        Process::read(&self.pid_file(name))
    }

    /// The port of the server's last life, while nobody else has taken it, else a free one; kept for the next time.
    pub(super) fn port(&self, server: &str) -> anyhow::Result<u16> {
        let file = self.path(&format!("{server}.port"));
        let last = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u16>().ok());
        if let Some(port) = last
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        {
            return Ok(port);
        }
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let free = (0..TRIES_MAX).map(|_| rand::random_range(PORTS)).find(is_free).context("no free port")?;
        fs::write(&file, format!("{free}\n"))?;
        Ok(free)
    }

    /// The port that the living server was started with.
    pub(super) fn last_port(&self, server: &str) -> Option<u16> {
        fs::read_to_string(self.path(&format!("{server}.port"))).ok()?.trim().parse().ok()
    }

    /// Makes the next [`Place::port`] choose anew: somebody was quicker.
    pub(super) fn forget_port(&self, server: &str) {
        let _ = fs::remove_file(self.path(&format!("{server}.port")));
    }

    /// Reads what [`Place::keep`] wrote, or None.
    ///
    /// # Errors
    /// When the file is there and cannot be understood; it is not written over, because its secrets open the data.
    pub(super) fn kept<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let path = self.path(name);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let value = serde_json::from_str(&text)
                    .with_context(|| format!("{} cannot be understood", path.display()))?;
                Ok(Some(value))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes a value that only we may read.
    pub(super) fn keep<T: Serialize>(&self, name: &str, value: &T) -> anyhow::Result<()> {
        self.write_private(name, &serde_json::to_string_pretty(value)?).map(drop)
    }

    /// Writes a file that only we may read, whole or not at all, and returns its path.
    pub(super) fn write_private(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        write_private(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Makes a folder that only we may enter, and returns its path.
    pub(super) fn private_folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }
}

/// Writes beside the target and renames, with mode 0600 from the first byte on.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push("~");
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_used_by_one_demo_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Place::take(dir.path()).unwrap();
        let refused = Place::take(dir.path()).err().expect("two at once").to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        Place::take(dir.path()).unwrap();
    }

    #[test]
    fn a_port_is_kept_until_somebody_else_takes_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(dir.path()).unwrap();
        let port = place.port("redis").unwrap();
        assert_eq!(place.port("redis").unwrap(), port);
        let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let next = place.port("redis").unwrap();
        assert_ne!(next, port);
        assert_eq!(place.last_port("redis"), Some(next));
    }

    #[test]
    fn what_is_kept_is_for_our_eyes_only() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(dir.path()).unwrap();
        assert_eq!(place.kept::<String>("secrets.json").unwrap(), None);
        place.keep("secrets.json", &"hidden").unwrap();
        assert_eq!(place.kept::<String>("secrets.json").unwrap().as_deref(), Some("hidden"));
        let mode = fs::metadata(place.path("secrets.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(place.path("secrets.json"), "{").unwrap();
        assert!(place.kept::<String>("secrets.json").is_err());
    }
}
