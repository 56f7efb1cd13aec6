//! The way out: an object's bytes as a bounded stream.

use std::{fmt, fs::File, ops::Range, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use object_store::GetResultPayload;

use crate::{Asset, Media, StorageKey, error::StorageError};

/// How much is read at once, and so held per reader. Shorter ranges are read in one go.
const CHUNK_BYTES: u64 = 256 << 10;

pub(crate) type ByteStream = BoxStream<'static, Result<Bytes, StorageError>>;

/// The content of an asset, or a range of it.
pub struct Content {
    /// Which bytes these are.
    pub range: Range<u64>,
    /// How many there are in all.
    pub size_bytes: u64,
    /// The bytes: nothing is read before it is asked for, and at most 256 KiB wait for a slow reader.
    pub stream: BoxStream<'static, Result<Bytes, StorageError>>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, size_bytes, .. } = self;
        f.debug_struct("Content")
            .field("range", range)
            .field("size_bytes", size_bytes)
            .finish_non_exhaustive()
    }
}

/// Why content cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The range is empty, or does not lie within the object.
    #[error("the range does not lie within the {size_bytes} bytes")]
    BadRange {
        /// The object's length.
        size_bytes: u64,
    },
    /// There is no such object although its row exists.
    #[error("the object {0} is missing")]
    Missing(StorageKey),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Media {
    /// Opens an asset's content, or the range `start..end` of it.
    ///
    /// # Errors
    /// [`OpenError`]. Faults after the first bytes come through the stream.
    pub async fn open(&self, asset: &Asset, range: Option<Range<u64>>) -> Result<Content, OpenError> {
        let size_bytes = asset.size_bytes;
        let range = range.unwrap_or(0..size_bytes);
        if range.start >= range.end || range.end > size_bytes {
            return Err(OpenError::BadRange { size_bytes });
        }
        let stream = self.stream(&asset.storage_key, range.clone()).await?;
        let stream = stream.ok_or_else(|| OpenError::Missing(asset.storage_key.clone()))?;
        Ok(Content { range, size_bytes, stream })
    }

    /// Whether the object lies in the storage.
    ///
    /// # Errors
    /// [`StorageError`] when that cannot be said.
    pub async fn exists(&self, key: &StorageKey) -> Result<bool, StorageError> {
        Ok(self.storage().head(key).await?.is_some())
    }

    pub(crate) async fn stream(
        &self,
        key: &StorageKey,
        range: Range<u64>,
    ) -> Result<Option<ByteStream>, StorageError> {
        if range.end - range.start <= CHUNK_BYTES {
            let read = self.storage().read(key, range).await?;
            return Ok(read.map(|bytes| stream::once(std::future::ready(Ok(bytes))).boxed()));
        }
        let Some(found) = self.storage().get(key, range).await? else { return Ok(None) };
        Ok(Some(match found.payload {
            GetResultPayload::File(file, _) => from_file(Arc::new(file), found.range),
            GetResultPayload::Stream(stream) => {
                stream.map_err(StorageError::during("read an object")).boxed()
            }
        }))
    }
}

/// Reads a file in large chunks, each in one visit to the blocking threads.
fn from_file(file: Arc<File>, range: Range<u64>) -> ByteStream {
    stream::try_unfold((file, range), |(file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let end = range.end.min(range.start + CHUNK_BYTES);
        let reader = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; usize::try_from(end - range.start).unwrap_or(0)];
            reader.read_exact_at(&mut chunk, range.start).map(|()| chunk)
        });
        let chunk = read
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| StorageError::io("read an object", error))?;
        Ok(Some((Bytes::from(chunk), (file, end..range.end))))
    })
    .boxed()
}
