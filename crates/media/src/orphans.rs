//! Removing outputs that no asset will ever name.
//!
//! An output is published before the transaction that records it, and that transaction may be refused: the task was
//! cancelled, its deadline passed, another attempt was quicker, or the process died in between. What lies there then
//! belongs to nobody.

use std::{collections::HashSet, fs, io, path::Path, sync::atomic::Ordering, time::Duration};

use pg::PgError;

use crate::{
    Media,
    error::StorageError,
    key::{OUTPUTS, StorageKey},
};

/// Keys that are asked about together.
const PAGE: usize = 1_000;

/// Why orphans were not looked for to the end. What was removed before stays removed.
#[derive(Debug, thiserror::Error)]
pub enum OrphanError {
    /// The folder could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Without PostgreSQL nobody knows what is recorded.
    #[error(transparent)]
    Database(#[from] PgError),
}

impl Media {
    /// Removes published outputs that are older than `older_than` and that no row names, also none that says that its
    /// object is gone. Returns how many.
    ///
    /// Each pass looks at one of the 256 output folders; passes take them in turn. `older_than` must be far longer than
    /// a published output may wait for its record, which ends with the task's deadline.
    ///
    /// # Errors
    /// [`OrphanError`].
    pub async fn remove_orphans(&self, older_than: Duration) -> Result<u64, OrphanError> {
        let turn = self.shared.searched.fetch_add(1, Ordering::Relaxed);
        let name = format!("{OUTPUTS}/{turn:02x}");
        let folder = self.storage().root().join(&name);
        let read = blocking(move || old_objects(&folder, &name, older_than));
        let old = read.await.map_err(|error| StorageError::io("looked for orphans", error))?;
        let mut removed = 0;
        for page in old.chunks(PAGE) {
            let recorded =
                sqlx::query_scalar!("SELECT storage_key FROM assets WHERE storage_key = ANY ($1)", page);
            let recorded = recorded.fetch_all(&self.shared.pool).await.map_err(PgError::from)?;
            let recorded: HashSet<String> = recorded.into_iter().collect();
            let orphans = page.iter().filter(|key| !recorded.contains(*key));
            let orphans: Vec<_> = orphans.map(|key| self.storage().root().join(key)).collect();
            // A file that is gone by now was somebody else's to remove.
            let gone =
                blocking(move || Ok(orphans.iter().filter(|path| fs::remove_file(path).is_ok()).count()));
            removed += gone.await.map_err(|error| StorageError::io("removed orphans", error))?;
        }
        Ok(removed as u64)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The keys of whole objects of that age. Temporary files have names that are no keys.
fn old_objects(folder: &Path, name: &str, older_than: Duration) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut old = Vec::new();
    for entry in entries {
        let entry = entry?;
        let key = format!("{name}/{}", entry.file_name().to_string_lossy());
        let Ok(key) = StorageKey::parse(&key) else { continue };
        // One whose age cannot be told stays.
        let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        if written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= older_than) {
            old.push(key.as_str().to_owned());
        }
    }
    Ok(old)
}
