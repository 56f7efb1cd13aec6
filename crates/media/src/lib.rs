//! Stored files: byte streams in, verified objects out.
//!
//! An output is worth money only once it lies safely in our storage, so the way in has gates: the stream is checked
//! while it arrives ([`Media::ingest`]), published under a key that names the attempt and can be taken only once
//! ([`Media::publish`]), and noted in `assets` inside the transaction that ends its task ([`record()`]). A half
//! download, an error page with status 200 or a superseded attempt never gets through to a reader.
//!
//! This crate owns the table `assets` and the object storage. It knows no provider and fetches nothing: whoever
//! holds the stream hands it in.

mod asset;
mod audit;
mod config;
mod container;
mod error;
mod folder_sync;
mod ingest;
mod key;
mod link;
mod open;
mod orphans;
mod publish;
mod record;
mod storage;
mod sweep;
mod unnamed;

use std::sync::{Arc, atomic::AtomicU8};

pub use asset::{Asset, outputs_of};
pub use config::{ConfigError, LinkKeys, MediaConfig, MediaLimits};
pub use container::ContainerError;
pub use error::StorageError;
pub use ingest::{IngestError, Staged};
pub use key::{BadKey, StorageKey};
pub use link::LinkCheck;
pub use open::{Content, OpenError};
pub use orphans::OrphanError;
use pg::PgPool;
pub use publish::Published;
pub use record::{AssetKind, NewAsset, record};
use storage::Storage;

/// The owner of stored files. A cheap handle.
#[derive(Clone)]
pub struct Media {
    shared: Arc<Shared>,
}

struct Shared {
    storage: Storage,
    pool: PgPool,
    config: MediaConfig,
    /// Which folder is searched for orphans next.
    searched: AtomicU8,
    /// Which folder the sweep looks at next.
    swept: AtomicU8,
}

impl Media {
    /// Opens the storage; a folder that does not exist yet is made.
    ///
    /// # Errors
    /// When the address names no storage that this build can use, or the folder cannot be made or written.
    pub fn new(config: MediaConfig, pool: PgPool) -> Result<Self, ConfigError> {
        let storage = Storage::open(&config.storage_url)?;
        Ok(Self {
            shared: Arc::new(Shared {
                storage,
                pool,
                config,
                swept: AtomicU8::new(0),
                searched: AtomicU8::new(0),
            }),
        })
    }

    fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    fn config(&self) -> &MediaConfig {
        &self.shared.config
    }
}

impl std::fmt::Debug for Media {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Media").field("config", self.config()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    /// A handle on an empty folder, without a database behind it.
    pub(crate) fn media_with(change: impl FnOnce(&mut MediaConfig)) -> (Media, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let mut config = MediaConfig {
            storage_url: Url::from_directory_path(folder.path()).unwrap(),
            public_url: None,
            link_keys: LinkKeys { current: [1; 32], previous: None },
            limits: MediaLimits::default(),
        };
        change(&mut config);
        let pool = PgPool::connect_lazy("postgres://127.0.0.1:1/nowhere").unwrap();
        (Media::new(config, pool).unwrap(), folder)
    }

    #[tokio::test]
    async fn a_storage_that_cannot_be_used_is_refused_at_the_start() {
        let open = |url: &str| Storage::open(&url.parse().unwrap());
        assert!(matches!(open("s3://bucket"), Err(ConfigError::UnknownStorage { scheme }) if scheme == "s3"));
        assert!(matches!(open("file:///dev/null/folder"), Err(ConfigError::Folder { .. })));
    }

    #[tokio::test]
    async fn keys_do_not_show_in_debug_output() {
        let (media, _folder) = media_with(|config| config.link_keys.current = [0xab; 32]);
        let shown = format!("{media:?}");
        assert!(!shown.contains("171") && !shown.contains("ab, ab"), "{shown}");
    }
}
