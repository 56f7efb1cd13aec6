//! Where objects lie, what links are signed with, and how large things may be.

use std::path::PathBuf;

use url::Url;

/// Settings of this crate.
#[derive(Clone, Debug)]
pub struct MediaConfig {
    /// Where objects lie: `file:///absolute/folder`. (`s3://…` is refused until its issue.)
    pub storage_url: Url,
    /// Below which address links are made; without it they are paths.
    pub public_url: Option<Url>,
    /// What links are signed with.
    pub link_keys: LinkKeys,
    /// How large things may be.
    pub limits: MediaLimits,
}

/// The keys of signed links: new links carry the first, links of either are good, so that keys can be changed
/// without breaking those that are out.
#[derive(Clone)]
pub struct LinkKeys {
    /// Signs, and checks.
    pub current: [u8; 32],
    /// Only checks.
    pub previous: Option<[u8; 32]>,
}

impl std::fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkKeys").field("previous", &self.previous.is_some()).finish_non_exhaustive()
    }
}

/// How large things may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MediaLimits {
    /// The largest output.
    pub output_bytes_max: u64,
    /// Up to this size a file is kept in memory until it is published, which spares it the way over a temporary
    /// file. Also the size of the parts in which larger files are written, so one ingestion holds twice as much.
    pub memory_bytes_max: usize,
    /// The largest index (`moov` box) that a container may have; it is held in memory to be read.
    pub index_bytes_max: u64,
}

impl Default for MediaLimits {
    fn default() -> Self {
        Self { output_bytes_max: 2 << 30, memory_bytes_max: 1 << 20, index_bytes_max: 16 << 20 }
    }
}

/// Why the storage cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// This build has no such storage.
    #[error("storage {scheme}:// is not supported, use file:///absolute/folder")]
    UnknownStorage {
        /// The address's scheme.
        scheme: String,
    },
    /// The address names no folder of this machine.
    #[error("the storage address names no absolute folder of this machine")]
    NotAFolder,
    /// The folder cannot be made or written.
    #[error("the storage folder {} cannot be used", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The folder cannot be opened as a storage.
    #[error("the storage cannot be opened")]
    Storage(#[source] object_store::Error),
}
