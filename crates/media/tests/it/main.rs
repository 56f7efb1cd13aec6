//! Media against a real folder and a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod assets;
mod intake;
mod reading;

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use domain::{AttemptRef, TaskId, TenantId, UserId, principal::Owner};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use media::{
    AssetKind, Content, IngestError, LinkKeys, Media, MediaConfig, MediaLimits, NewAsset, Published, Staged,
};
use pg::PgPool;
use tempfile::TempDir;
use testkit::TestDb;

const CLIP: &[u8] = include_bytes!("../../../mock-provider/assets/clip.mp4");

/// A storage folder and a database of its own.
struct World {
    media: Media,
    folder: TempDir,
    db: TestDb,
}

impl World {
    async fn new() -> Self {
        Self::with(MediaLimits::default()).await
    }

    async fn with(limits: MediaLimits) -> Self {
        let (folder, db) = (tempfile::tempdir().unwrap(), TestDb::new().await);
        let media = open(folder.path(), db.pool.clone(), limits);
        Self { media, folder, db }
    }

    /// Every file in the storage, relative to its root.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders: Vec<PathBuf> = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(self.folder.path()).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }

    /// Receives and publishes a file.
    async fn publish(&self, attempt: AttemptRef, file: &[u8]) -> Published {
        let staged = self.media.ingest(attempt, pieces(file), None, None).await.unwrap();
        self.media.publish(staged).await.unwrap()
    }

    async fn record(&self, assets: Vec<NewAsset>) -> Result<(), pg::PgError> {
        pg::transact(&self.db.pool, move |conn| Box::pin(async move { media::record(conn, &assets).await }))
            .await
    }
}

fn open(folder: &Path, pool: PgPool, limits: MediaLimits) -> Media {
    let config = MediaConfig {
        storage_url: url::Url::from_directory_path(folder).unwrap(),
        public_url: None,
        link_keys: LinkKeys { current: [1; 32], previous: None },
        limits,
    };
    Media::new(config, pool).unwrap()
}

#[derive(Debug, thiserror::Error)]
#[error("the connection was reset")]
struct Reset;

/// A file as it comes from a network.
fn pieces(file: &[u8]) -> impl Stream<Item = Result<Bytes, Reset>> + Send + use<> {
    stream::iter(file.chunks(1_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect::<Vec<_>>())
}

fn attempt(attempt_no: i32) -> AttemptRef {
    AttemptRef { task: TaskId::generate(), attempt_no }
}

fn owner() -> Owner {
    Owner { tenant: TenantId::generate(), user: UserId::generate(), project: None }
}

fn output(task: TaskId, published: Published) -> NewAsset {
    NewAsset { published, owner: owner(), task, kind: AssetKind::Output }
}

/// A valid file of more than `size` bytes: the clip, and a box that players skip.
fn large(size: usize) -> Vec<u8> {
    let length = u32::try_from(size + 8).unwrap();
    let mut filler: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut file = CLIP.to_vec();
    file.extend_from_slice(&length.to_be_bytes());
    file.extend_from_slice(b"free");
    file.append(&mut filler);
    file
}

async fn read(content: Content) -> Vec<u8> {
    content.stream.try_collect::<Vec<_>>().await.unwrap().concat()
}
