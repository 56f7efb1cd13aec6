//! Whom PostgreSQL runs as. It refuses to be root, and so do we: root lends it the package's own user.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, bail};
use nix::unistd::{User, geteuid};
use sha2::{Digest, Sha256};
use tokio::process::Command;

/// Whom a server runs as.
#[derive(Clone, Debug)]
pub(super) enum ServerUser {
    /// Ourselves, an ordinary user.
    Ourselves,
    /// Somebody else, because we are root.
    Other { uid: u32, gid: u32 },
}

impl ServerUser {
    /// The user for PostgreSQL.
    ///
    /// # Errors
    /// When we are root and the package's user does not exist.
    pub(super) fn for_postgres() -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let user = User::from_name("postgres")?.context(
            "PostgreSQL does not run as root, and the user `postgres` does not exist: install the package \
             (scripts/install.sh demo) or run the demo as an ordinary user",
        )?;
        Ok(Self::Other { uid: user.uid.as_raw(), gid: user.gid.as_raw() })
    }

    /// Makes the command run as this user. It starts in `/`, since our own folder may be closed to it.
    pub(super) fn run_as<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Self::Other { uid, gid } = *self {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/")
    }

    /// Gives a file or folder to this user.
    pub(super) fn give(&self, path: &Path) -> anyhow::Result<()> {
        match *self {
            Self::Ourselves => Ok(()),
            Self::Other { uid, gid } => chown(path, Some(uid), Some(gid))
                .with_context(|| format!("cannot give {} to PostgreSQL's user", path.display())),
        }
    }

    /// Whether this user gets into the folder, through all its parents.
    async fn can_enter(&self, folder: &Path) -> bool {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "cd -- \"$1\"", "sh"]).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.run_as(&mut command).status().await.is_ok_and(|status| status.success())
    }

    /// The folder for this user's files: `wanted`, or one in the temporary directory where `wanted` or a parent of
    /// it is closed to the user. The name of the latter comes from the path alone, so the next start finds it again.
    ///
    /// # Errors
    /// When neither will do.
    pub(super) async fn home(&self, wanted: &Path) -> anyhow::Result<PathBuf> {
        if matches!(self, Self::Ourselves) || self.can_enter(wanted).await {
            return Ok(wanted.to_owned());
        }
        let digest = hex::encode(Sha256::digest(wanted.as_os_str().as_encoded_bytes()));
        // The caller's own temporary directory may be as closed as the folder itself.
        for parent in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()] {
            if self.can_enter(&parent).await {
                let home = parent.join(format!("aivideo-{}", &digest[..16]));
                make_own_folder(&home)?;
                return Ok(home);
            }
        }
        bail!("PostgreSQL's user can enter neither {} nor a temporary directory", wanted.display())
    }
}

/// Makes the folder, or checks that the one that is there is ours: anybody can make names in a temporary directory.
fn make_own_folder(path: &Path) -> anyhow::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
    }
    let found = fs::symlink_metadata(path)?;
    let ours = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    if !ours {
        bail!("{} is there already and belongs to somebody else", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_somebody_else_put_there_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        make_own_folder(&target).unwrap();
        make_own_folder(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(make_own_folder(&link).is_err(), "a link leads where its maker wants");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_own_folder(&target).is_err(), "anybody may write into it");
    }

    #[tokio::test]
    async fn a_closed_parent_sends_the_files_to_the_same_temporary_folder_each_time() {
        let Ok(user @ ServerUser::Other { .. }) = ServerUser::for_postgres() else {
            return; // only root has anybody to lend
        };
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let inside = closed.path().join("data");
        fs::create_dir(&inside).unwrap();
        let home = user.home(&inside).await.unwrap();
        assert_ne!(home, inside);
        assert_eq!(user.home(&inside).await.unwrap(), home);
        fs::remove_dir(&home).unwrap();
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(user.home(&inside).await.unwrap(), inside);
    }
}
