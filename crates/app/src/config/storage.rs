//! Where stored files lie.

use media::MediaLimits;
use serde::{Deserialize, Serialize};
use url::Url;

use super::fault::Faults;

/// Section `storage`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StorageConfig {
    /// `file:///absolute/folder` (`AIVIDEO_STORAGE_URL`), the same for every process. Required.
    pub(crate) url: String,
    /// The largest output, in bytes.
    pub(crate) output_bytes_max: u64,
    /// Up to this size a file is kept in memory until it is published, in bytes.
    pub(crate) memory_bytes_max: usize,
    /// The largest index that a video file may have, in bytes.
    pub(crate) index_bytes_max: u64,
}

impl Default for StorageConfig {
    fn default() -> Self {
        let limits = MediaLimits::default();
        Self {
            url: String::new(),
            output_bytes_max: limits.output_bytes_max,
            memory_bytes_max: limits.memory_bytes_max,
            index_bytes_max: limits.index_bytes_max,
        }
    }
}

impl StorageConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        let parsed = Url::parse(&self.url);
        match parsed.as_ref().map(Url::scheme) {
            _ if self.url.is_empty() => {
                faults.add("storage.url", "is required, such as file:///var/lib/aivideo/assets");
            }
            Ok("file") => {
                let absolute = parsed.is_ok_and(|url| url.host().is_none() && url.to_file_path().is_ok());
                faults.require(absolute, "storage.url", "names no absolute folder: file:///absolute/folder");
            }
            Ok("s3") => faults.add("storage.url", "s3:// is not served yet; use file:///absolute/folder"),
            _ => faults.add("storage.url", "must be file:///absolute/folder"),
        }
        for (key, bytes) in [
            ("output_bytes_max", self.output_bytes_max),
            ("memory_bytes_max", self.memory_bytes_max as u64),
            ("index_bytes_max", self.index_bytes_max),
        ] {
            faults.require(bytes > 0, format!("storage.{key}"), "must be at least 1");
        }
    }

    pub(crate) fn limits(&self) -> MediaLimits {
        MediaLimits {
            output_bytes_max: self.output_bytes_max,
            memory_bytes_max: self.memory_bytes_max,
            index_bytes_max: self.index_bytes_max,
        }
    }
}
