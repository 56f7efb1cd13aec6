//! Making new names in a folder last: one sync serves all who wait for the same folder.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

/// From one sync, of whatever folder, to the next. Who comes later than that after the last never waits.
const REST: Duration = Duration::from_millis(5);

type Answer = Result<(), Arc<io::Error>>;

/// Syncs folders. Cheap to clone; all clones share their syncs.
#[derive(Debug, Clone, Default)]
pub(crate) struct FolderSync(Arc<Mutex<Folders>>);

#[derive(Debug, Default)]
struct Folders {
    /// Who waits for the next sync, by folder; a folder that is here has a task that looks after it.
    waiting: HashMap<PathBuf, Vec<oneshot::Sender<Answer>>>,
    /// When the last sync began.
    last: Option<Instant>,
}

impl FolderSync {
    /// Returns when the names that the folder has now are on the disk.
    ///
    /// # Errors
    /// When the folder could not be synced. Whether it was, nobody knows then.
    pub(crate) async fn sync(&self, folder: &Path) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        let comes_first = {
            let mut folders = self.folders();
            let waiting = folders.waiting.get_mut(folder);
            let comes_first = waiting.is_none();
            match waiting {
                Some(waiting) => waiting.push(answer),
                None => drop(folders.waiting.insert(folder.to_owned(), vec![answer])),
            }
            comes_first
        };
        if comes_first {
            // In a task of its own: whoever came first may go away, the others still wait.
            let caretaker = Caretaker { sync: self.clone(), folder: folder.to_owned(), on_duty: true };
            tokio::spawn(caretaker.look_after());
        }
        match answered.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(io::Error::new(error.kind(), error)),
            Err(_) => Err(io::Error::other("the runtime ended before a folder was synced")),
        }
    }

    fn folders(&self) -> MutexGuard<'_, Folders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks after a folder for which somebody waits. When it goes before its work is done, such as with its runtime, those who
/// wait hear of it.
struct Caretaker {
    sync: FolderSync,
    folder: PathBuf,
    on_duty: bool,
}

impl Caretaker {
    /// Syncs the folder until nobody waits for it.
    async fn look_after(mut self) {
        loop {
            let rested = self.sync.folders().last.map(|last| last + REST);
            if let Some(rested) = rested {
                tokio::time::sleep_until(rested).await;
            }
            let waiting = {
                let mut folders = self.sync.folders();
                let Some(waiting) = folders.waiting.get_mut(&self.folder) else { return };
                if waiting.is_empty() {
                    // Under the same lock: whoever comes next finds nobody and begins anew.
                    folders.waiting.remove(&self.folder);
                    self.on_duty = false;
                    return;
                }
                let waiting = std::mem::take(waiting);
                folders.last = Some(Instant::now());
                waiting
            };
            let opened = self.folder.clone();
            let synced = tokio::task::spawn_blocking(move || File::open(opened)?.sync_all()).await;
            let answer = synced.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Arc::new);
            for waiter in waiting {
                // Who has gone wants no answer.
                let _ = waiter.send(answer.clone());
            }
        }
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        if self.on_duty {
            self.sync.folders().waiting.remove(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wait_are_answered_and_nothing_is_left() {
        let (sync, folder) = (FolderSync::default(), tempfile::tempdir().unwrap());
        let waiting = (0..100).map(|_| sync.sync(folder.path()));
        assert!(futures::future::join_all(waiting).await.into_iter().all(|synced| synced.is_ok()));
        sync.sync(folder.path()).await.unwrap();
        tokio::time::sleep(2 * REST).await;
        assert!(sync.folders().waiting.is_empty());
    }

    #[tokio::test]
    async fn the_first_to_ask_may_go_away() {
        let (sync, folder) = (FolderSync::default(), tempfile::tempdir().unwrap());
        let mut first = Box::pin(sync.sync(folder.path()));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(sync.sync(folder.path()));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        second.await.unwrap();
    }

    #[test]
    fn the_end_of_a_runtime_is_an_error_and_the_next_one_serves() {
        let (sync, folder) = (FolderSync::default(), tempfile::tempdir().unwrap());
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ending, next) = (runtime(), runtime());
        let mut waiting = Box::pin(sync.sync(folder.path()));
        ending.block_on(async { assert!(futures::poll!(&mut waiting).is_pending()) });
        drop(ending);
        assert_eq!(next.block_on(waiting).unwrap_err().kind(), io::ErrorKind::Other);
        next.block_on(sync.sync(folder.path())).unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_synced_is_an_error_for_all() {
        let (sync, folder) = (FolderSync::default(), tempfile::tempdir().unwrap());
        let absent = folder.path().join("absent");
        let (one, other) = tokio::join!(sync.sync(&absent), sync.sync(&absent));
        assert_eq!(one.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::NotFound);
        sync.sync(folder.path()).await.unwrap();
    }
}
