//! Files without a name until they are whole, where the file system has such.
//!
//! Nobody can see half of one, and a crash leaves nothing of it: no temporary name is made, found by a sweep, or taken
//! away again. A third of what storing a small video costs is saved with that.

use std::{io, path::Path};

use crate::storage::Taken;

/// Writes a whole file, on the disk, and gives it its name if nobody has that. The folder is not synced yet. None where
/// the file system knows no files without a name, or the folder does not exist; nothing is left behind then.
///
/// It waits for the disk.
///
/// # Errors
/// When the content could not be written.
#[cfg(target_os = "linux")]
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<Option<Taken>> {
    use std::{fs::File, io::Write, os::fd::AsRawFd};

    use rustix::{
        fs::{AtFlags, CWD, Mode, OFlags},
        io::Errno,
    };

    let Some(folder) = path.parent() else { return Ok(None) };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => File::from(file),
        // How file systems, and kernels, say that they have no such thing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    file.write_all(content)?;
    file.sync_all()?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(Some(Taken::Now)),
        Err(Errno::EXIST) => Ok(Some(Taken::Before)),
        // There is no way to name it here, such as without /proc.
        Err(_) => Ok(None),
    }
}

/// The same where there are none.
#[cfg(not(target_os = "linux"))]
pub(crate) fn write_new(_: &Path, _: &[u8]) -> io::Result<Option<Taken>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_gets_its_name_once_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.mp4");
        let first = write_new(&path, b"first").unwrap();
        // On a file system without unnamed files there is nothing to see.
        if first.is_none() {
            return;
        }
        assert_eq!(first, Some(Taken::Now));
        assert_eq!(write_new(&path, b"second").unwrap(), Some(Taken::Before));
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(write_new(&folder.path().join("absent/one.mp4"), b"first").unwrap(), None);
    }
}
