//! The way in: a stream becomes a staged file, or nothing.

use std::{fmt, pin::pin, sync::Arc};

use bytes::{Bytes, BytesMut};
use domain::AttemptRef;
use futures::{Stream, StreamExt};
use object_store::{MultipartUpload, PutPayload};
use sha2::{Digest, Sha256};

use crate::{
    Media, Shared,
    container::{ContainerCheck, ContainerError},
    error::StorageError,
    key::StorageKey,
};

/// Types under which an MP4 may arrive. Storage services often know no better than "octets"; what counts is what
/// the boxes say.
const TYPES: [&str; 4] = ["video/mp4", "application/mp4", "application/octet-stream", "binary/octet-stream"];

/// Why a stream did not become a file. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum IngestError<E> {
    /// It ended early, by its announced length or by what its boxes say. Fetching it again may help.
    #[error("the file was cut short after {received} bytes")]
    Truncated {
        /// How many bytes came.
        received: u64,
        /// How many were announced.
        announced: Option<u64>,
    },
    /// It was announced as something else, such as an HTML page.
    #[error("the file was announced as {0:?}")]
    WrongType(String),
    /// It is longer than announced, or than we store.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Its bytes are not a video.
    #[error("the file is not a video")]
    NotAVideo(#[source] ContainerError),
    /// The source failed.
    #[error("the source failed")]
    Source(#[source] E),
    /// Our storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl<E> IngestError<E> {
    /// Whether the fault lies in the file, and not in the way to it or in our storage.
    #[must_use]
    pub const fn is_bad_output(&self) -> bool {
        matches!(
            self,
            Self::Truncated { .. } | Self::WrongType(_) | Self::TooLarge { .. } | Self::NotAVideo(_)
        )
    }
}

/// A verified file that no reader can see yet. Dropped unpublished, it is removed.
#[must_use = "a staged file that is not published is removed"]
pub struct Staged {
    pub(crate) attempt: AttemptRef,
    pub(crate) place: Place,
    pub(crate) size_bytes: u64,
    pub(crate) sha256: [u8; 32],
}

pub(crate) enum Place {
    Memory(Bytes),
    Object(StagedObject),
}

/// An object under a temporary key, which goes with this value.
pub(crate) struct StagedObject {
    shared: Arc<Shared>,
    pub(crate) key: StorageKey,
}

impl Drop for StagedObject {
    fn drop(&mut self) {
        self.shared.storage.discard(&self.key);
    }
}

impl Staged {
    /// The attempt whose output it is.
    #[must_use]
    pub const fn attempt(&self) -> AttemptRef {
        self.attempt
    }

    /// Its length.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempt, size_bytes, .. } = self;
        f.debug_struct("Staged")
            .field("attempt", attempt)
            .field("size_bytes", size_bytes)
            .finish_non_exhaustive()
    }
}

impl Media {
    /// Receives an attempt's output: checks the announced type and length, the container and the limits while the
    /// bytes arrive, and takes their SHA-256.
    ///
    /// `length` is the announced length, if any. The source must have time limits of its own. Small files are held
    /// in memory until they are published; larger ones go to a temporary key in parts, one at a time, so a slow
    /// disk slows the source down and memory stays bounded.
    ///
    /// # Errors
    /// [`IngestError`]; whatever was written is removed. Dropping the future does the same.
    pub async fn ingest<S, E>(
        &self,
        attempt: AttemptRef,
        source: S,
        content_type: Option<&str>,
        length: Option<u64>,
    ) -> Result<Staged, IngestError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Send,
    {
        let limits = self.config().limits;
        check_type(content_type)?;
        let limit = length.unwrap_or(limits.output_bytes_max);
        if limit > limits.output_bytes_max {
            return Err(IngestError::TooLarge { limit: limits.output_bytes_max });
        }

        let mut received = 0_u64;
        let bad = |error, received| match error {
            ContainerError::Cut => IngestError::Truncated { received, announced: length },
            error => IngestError::NotAVideo(error),
        };
        let mut container = ContainerCheck::new(limits.index_bytes_max);
        let mut hash = Sha256::new();
        let mut sink = Sink::new(self, attempt, limit);
        let mut source = pin!(source);
        while let Some(piece) = source.next().await {
            let piece = piece.map_err(IngestError::Source)?;
            received += piece.len() as u64;
            if received > limit {
                return Err(IngestError::TooLarge { limit });
            }
            container.push(&piece).map_err(|error| bad(error, received))?;
            hash.update(&piece);
            sink.write(&piece).await?;
        }
        if length.is_some_and(|length| received < length) {
            return Err(IngestError::Truncated { received, announced: length });
        }
        container.finish().map_err(|error| bad(error, received))?;
        let place = sink.finish().await?;
        Ok(Staged { attempt, place, size_bytes: received, sha256: hash.finalize().into() })
    }
}

fn check_type<E>(announced: Option<&str>) -> Result<(), IngestError<E>> {
    let Some(announced) = announced else { return Ok(()) };
    let essence = announced.split(';').next().unwrap_or_default().trim();
    if TYPES.iter().any(|known| known.eq_ignore_ascii_case(essence)) {
        Ok(())
    } else {
        // It is a header from outside and goes into messages: only its beginning, and only if it is harmless.
        let shown = essence.chars().filter(|c| !c.is_control()).take(80).collect();
        Err(IngestError::WrongType(shown))
    }
}

/// Where the bytes go: into memory, and from a certain length on into an object.
struct Sink<'a> {
    media: &'a Media,
    attempt: AttemptRef,
    buffer: BytesMut,
    /// Dropping it before it is completed removes its temporary file.
    upload: Option<(Box<dyn MultipartUpload>, StorageKey)>,
}

impl<'a> Sink<'a> {
    fn new(media: &'a Media, attempt: AttemptRef, limit: u64) -> Self {
        let part = media.config().limits.memory_bytes_max;
        // Room for what was announced, but never more than a part on the word of a header.
        let room = usize::try_from(limit).map_or(part, |limit| limit.min(part));
        Self { media, attempt, buffer: BytesMut::with_capacity(room.min(64 << 10)), upload: None }
    }

    async fn write(&mut self, mut piece: &[u8]) -> Result<(), StorageError> {
        let part = self.media.config().limits.memory_bytes_max;
        while self.buffer.len() + piece.len() > part {
            let (now, later) = piece.split_at(part - self.buffer.len());
            self.buffer.extend_from_slice(now);
            piece = later;
            self.put_part().await?;
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    async fn put_part(&mut self) -> Result<(), StorageError> {
        let (upload, _) = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let key = StorageKey::for_staging(self.attempt);
                none.insert((self.media.storage().begin(&key).await?, key))
            }
        };
        let part = PutPayload::from_bytes(self.buffer.split().freeze());
        upload.put_part(part).await.map_err(StorageError::during("wrote a part"))
    }

    async fn finish(mut self) -> Result<Place, StorageError> {
        if self.upload.is_none() {
            return Ok(Place::Memory(self.buffer.freeze()));
        }
        if !self.buffer.is_empty() {
            self.put_part().await?;
        }
        let Some((mut upload, key)) = self.upload.take() else { return Ok(Place::Memory(Bytes::new())) };
        upload.complete().await.map_err(StorageError::during("completed an object"))?;
        Ok(Place::Object(StagedObject { shared: Arc::clone(&self.media.shared), key }))
    }
}
