//! The gate between a verified file and everybody's eyes.

use domain::AssetId;
use futures::TryStreamExt;
use sha2::{Digest, Sha256};

use crate::{
    Media,
    error::StorageError,
    ingest::{Place, Staged},
    key::StorageKey,
    storage::Taken,
};

/// An object under its final key, on the disk. It becomes an asset when [`crate::record()`] commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The id that its row will have.
    pub asset: AssetId,
    /// Where it lies.
    pub storage_key: StorageKey,
    /// What it is served as.
    pub content_type: &'static str,
    /// Its length.
    pub size_bytes: u64,
    /// The hash of its content.
    pub sha256: [u8; 32],
}

impl Media {
    /// Moves a staged file to the one key that its attempt has. The object is whole and on the disk when this
    /// returns.
    ///
    /// The key is taken once: a second publication of the same attempt (a repeated step, a worker that lost its
    /// lease) changes nothing and describes the object that lies there, so a row written by the first keeps telling
    /// the truth. Attempts do not share a key.
    ///
    /// # Errors
    /// [`StorageError`]; then the object was not published, or (when only the answer was lost) publishing again
    /// finds it.
    pub async fn publish(&self, staged: Staged) -> Result<Published, StorageError> {
        let key = StorageKey::of_output(staged.attempt);
        let taken = match &staged.place {
            Place::Memory(content) => self.storage().put_new(&key, content.clone()).await?,
            Place::Object(object) => self.storage().move_new(&object.key, &key).await?,
        };
        let (size_bytes, sha256) = match taken {
            Taken::Now => (staged.size_bytes, staged.sha256),
            Taken::Before => self.describe(&key).await?,
        };
        Ok(Published {
            asset: AssetId::generate(),
            storage_key: key,
            content_type: "video/mp4",
            size_bytes,
            sha256,
        })
    }

    /// Length and hash of an object that lies there.
    async fn describe(&self, key: &StorageKey) -> Result<(u64, [u8; 32]), StorageError> {
        let gone = || StorageError::io("described an object", std::io::ErrorKind::NotFound.into());
        let size = self.storage().head(key).await?.ok_or_else(gone)?.size;
        let mut stream = self.stream(key, 0..size).await?.ok_or_else(gone)?;
        let mut hash = Sha256::new();
        while let Some(piece) = stream.try_next().await? {
            hash.update(&piece);
        }
        Ok((size, hash.finalize().into()))
    }
}
