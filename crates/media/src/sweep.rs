//! Removing what crashes left behind: files that were being received or written when the process died.

use std::{ffi::OsStr, fs, io, path::Path, sync::atomic::Ordering, time::Duration};

use crate::{
    Media,
    error::StorageError,
    key::{OUTPUTS, STAGING},
};

/// Files removed in one pass at most.
const REMOVED_MAX: u64 = 1_000;

impl Media {
    /// Removes temporary files that nobody has written to for `older_than`, which must be longer than any
    /// reception takes. Returns how many.
    ///
    /// Each pass looks at all files being received and at one of the 256 output folders, where a crash in mid-write
    /// may have left a file of its own; passes take the folders in turn. Published objects are never touched.
    ///
    /// # Errors
    /// [`StorageError`] when the folder cannot be read.
    pub async fn sweep(&self, older_than: Duration) -> Result<u64, StorageError> {
        let folder = self.shared.swept.fetch_add(1, Ordering::Relaxed);
        let staging = self.storage().root().join(STAGING);
        let outputs = self.storage().root().join(OUTPUTS).join(format!("{folder:02x}"));
        let swept = tokio::task::spawn_blocking(move || {
            let removed = remove_stale(&staging, older_than, |_| true)?;
            // Where there are no files without a name, the storage writes `<name>#<n>` first and links it when it is whole.
            Ok(removed + remove_stale(&outputs, older_than, |name| name.as_encoded_bytes().contains(&b'#'))?)
        });
        swept
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| StorageError::io("swept temporary files", error))
    }
}

fn remove_stale(folder: &Path, older_than: Duration, temporary: impl Fn(&OsStr) -> bool) -> io::Result<u64> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        if !temporary(&entry.file_name()) {
            continue;
        }
        // A file that is gone by now needs no sweeping; one whose age cannot be told stays.
        let age =
            entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age >= older_than) && fs::remove_file(entry.path()).is_ok() {
            removed += 1;
            if removed == REMOVED_MAX {
                break;
            }
        }
    }
    Ok(removed)
}
