//! Is this really a whole, playable MP4? Answered while the bytes pass by, in this process.
//!
//! A video that is cut short or was never one is what providers and proxies in between deliver on a bad day, with
//! status 200 and often with a plausible length. An MP4 (ISO base media file) is a row of boxes, each with its
//! length in front, so one pass tells: the boxes must fill the file to the byte, there must be an index (`moov`)
//! with a video track, and the media data (`mdat`) that the index points to must be there.
//!
//! Nothing is decoded. Memory is bounded by the index, whose size has a limit; everything else is only counted.

mod index;

/// Why a file is not a video that we would serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// It does not begin like an MP4. An HTML page ends here, with its first bytes.
    #[error("the file is not an MP4")]
    NotMp4,
    /// It ends inside a box, or before the data that its index points to.
    #[error("the file is cut short")]
    Cut,
    /// A box contradicts itself.
    #[error("the file is malformed: {0}")]
    Malformed(&'static str),
    /// The index is larger than we would hold in memory.
    #[error("the index is larger than {limit} bytes")]
    IndexTooLarge {
        /// The limit.
        limit: u64,
    },
    /// There is no index.
    #[error("the file has no index")]
    NoIndex,
    /// There is no media data.
    #[error("the file has no media data")]
    NoData,
    /// There is no video track, or it has no pictures.
    #[error("the file has no video track")]
    NoVideo,
}

/// The longest header of a box: size, type, and the size in 64 bits.
const HEADER_MAX: usize = 16;

type Kind = [u8; 4];

#[derive(Debug)]
enum State {
    /// Collecting a header.
    Header { bytes: [u8; HEADER_MAX], have: usize },
    /// Inside a box of which `left` bytes are to come; `None`: it reaches to the end of the file.
    Body { kind: Kind, left: Option<u64> },
}

const NEXT_BOX: State = State::Header { bytes: [0; HEADER_MAX], have: 0 };

/// Checks a file that is pushed through it piece by piece.
#[derive(Debug)]
pub(crate) struct ContainerCheck {
    state: State,
    index_bytes_max: u64,
    index: Option<Vec<u8>>,
    boxes: u64,
    fragments: u64,
    data_bytes: u64,
    file_bytes: u64,
}

impl ContainerCheck {
    pub(crate) const fn new(index_bytes_max: u64) -> Self {
        Self {
            state: NEXT_BOX,
            index_bytes_max,
            index: None,
            boxes: 0,
            fragments: 0,
            data_bytes: 0,
            file_bytes: 0,
        }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> Result<(), ContainerError> {
        self.file_bytes += piece.len() as u64;
        while !piece.is_empty() {
            match &mut self.state {
                State::Header { bytes, have } => {
                    bytes[*have] = piece[0];
                    *have += 1;
                    piece = &piece[1..];
                    if let Some((kind, left)) = read_header(&bytes[..*have])? {
                        self.enter(kind, left)?;
                    }
                }
                State::Body { kind, left } => {
                    let take = left.map_or(piece.len(), |left| {
                        usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()))
                    });
                    let (inside, rest) = piece.split_at(take);
                    match &*kind {
                        b"mdat" => self.data_bytes += take as u64,
                        b"moov" => {
                            let index = self.index.get_or_insert_default();
                            if (index.len() + take) as u64 > self.index_bytes_max {
                                return Err(ContainerError::IndexTooLarge { limit: self.index_bytes_max });
                            }
                            index.extend_from_slice(inside);
                        }
                        _ => {}
                    }
                    if let Some(left) = left {
                        *left -= take as u64;
                        if *left == 0 {
                            self.state = NEXT_BOX;
                        }
                    }
                    piece = rest;
                }
            }
        }
        Ok(())
    }

    /// The file has ended: is it whole, and a video?
    pub(crate) fn finish(self) -> Result<(), ContainerError> {
        match self.state {
            State::Header { have: 0, .. } | State::Body { left: None, .. } if self.boxes > 0 => {}
            State::Header { .. } if self.boxes == 0 => return Err(ContainerError::NotMp4),
            _ => return Err(ContainerError::Cut),
        }
        let index = self.index.ok_or(ContainerError::NoIndex)?;
        if self.data_bytes == 0 {
            return Err(ContainerError::NoData);
        }
        let video = index::video_of(&index)?.ok_or(ContainerError::NoVideo)?;
        if video.samples == 0 && !(video.fragmented && self.fragments > 0) {
            return Err(ContainerError::NoVideo);
        }
        if video.sample_bytes > self.data_bytes || video.last_chunk >= self.file_bytes {
            return Err(ContainerError::Cut);
        }
        Ok(())
    }

    fn enter(&mut self, kind: Kind, left: Option<u64>) -> Result<(), ContainerError> {
        if self.boxes == 0 && &kind != b"ftyp" {
            return Err(ContainerError::NotMp4);
        }
        self.boxes += 1;
        match &kind {
            b"moof" => self.fragments += 1,
            b"moov" if self.index.is_some() => return Err(ContainerError::Malformed("two indexes")),
            b"moov" if left.is_some_and(|left| left > self.index_bytes_max) => {
                return Err(ContainerError::IndexTooLarge { limit: self.index_bytes_max });
            }
            b"moov" => self.index = Some(Vec::new()),
            _ => {}
        }
        self.state = if left == Some(0) { NEXT_BOX } else { State::Body { kind, left } };
        Ok(())
    }
}

/// Reads a box's header: its type and the bytes that follow, or `None` while it is incomplete.
fn read_header(bytes: &[u8]) -> Result<Option<(Kind, Option<u64>)>, ContainerError> {
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let Some((kind, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let (size, header) = match u32::from_be_bytes(*size) {
        // To the end of the file.
        0 => return Ok(Some((*kind, None))),
        1 => match rest.first_chunk::<8>() {
            None => return Ok(None),
            Some(size) => (u64::from_be_bytes(*size), 16),
        },
        size => (u64::from(size), 8),
    };
    let left =
        size.checked_sub(header).ok_or(ContainerError::Malformed("a box is shorter than its header"))?;
    Ok(Some((*kind, Some(left))))
}

#[cfg(test)]
mod tests;
