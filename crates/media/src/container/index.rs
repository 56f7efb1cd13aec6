//! The index of an MP4 (`moov`): which tracks there are and where their samples lie.

use super::ContainerError;

/// The first video track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Video {
    /// How many samples (pictures) it has.
    pub(super) samples: u32,
    /// How many bytes they have together.
    pub(super) sample_bytes: u64,
    /// Where in the file the last chunk of samples begins.
    pub(super) last_chunk: u64,
    /// Whether samples may come in fragments behind the index.
    pub(super) fragmented: bool,
}

/// Finds the first video track of an index.
pub(super) fn video_of(moov: &[u8]) -> Result<Option<Video>, ContainerError> {
    let fragmented = child(moov, b"mvex")?.is_some();
    for item in boxes(moov) {
        let (kind, track) = item?;
        if kind != b"trak" {
            continue;
        }
        let Some(media) = child(track, b"mdia")? else { continue };
        let Some(handler) = child(media, b"hdlr")? else { continue };
        // Version and flags, a reserved word, then what the track is.
        if handler.get(8..12) != Some(b"vide") {
            continue;
        }
        let Some(information) = child(media, b"minf")? else { continue };
        let Some(table) = child(information, b"stbl")? else { continue };
        let (samples, sample_bytes) = sizes(table)?;
        return Ok(Some(Video { samples, sample_bytes, last_chunk: last_chunk(table)?, fragmented }));
    }
    Ok(None)
}

/// The number of samples and their bytes, from `stsz`. The rare compact form (`stz2`) is only counted.
fn sizes(table: &[u8]) -> Result<(u32, u64), ContainerError> {
    let short = ContainerError::Malformed("the table of sample sizes is short");
    if let Some(compact) = child(table, b"stz2")? {
        return Ok((word(compact, 8).ok_or(short)?, 0));
    }
    let Some(sizes) = child(table, b"stsz")? else { return Ok((0, 0)) };
    let (uniform, count) = (word(sizes, 4).ok_or(short)?, word(sizes, 8).ok_or(short)?);
    if uniform != 0 {
        return Ok((count, u64::from(uniform) * u64::from(count)));
    }
    let entries = entries::<4>(sizes, 12, count).ok_or(short)?;
    Ok((count, entries.iter().map(|size| u64::from(u32::from_be_bytes(*size))).sum()))
}

/// The largest chunk offset, from `stco` or `co64`.
fn last_chunk(table: &[u8]) -> Result<u64, ContainerError> {
    let short = ContainerError::Malformed("the table of chunks is short");
    if let Some(chunks) = child(table, b"stco")? {
        let entries = entries::<4>(chunks, 8, word(chunks, 4).ok_or(short)?).ok_or(short)?;
        return Ok(entries.iter().map(|offset| u64::from(u32::from_be_bytes(*offset))).max().unwrap_or(0));
    }
    if let Some(chunks) = child(table, b"co64")? {
        let entries = entries::<8>(chunks, 8, word(chunks, 4).ok_or(short)?).ok_or(short)?;
        return Ok(entries.iter().map(|offset| u64::from_be_bytes(*offset)).max().unwrap_or(0));
    }
    Ok(0)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// The first `count` entries of `SIZE` bytes from `at` on, or `None` when they are not all there.
fn entries<const SIZE: usize>(bytes: &[u8], at: usize, count: u32) -> Option<&[[u8; SIZE]]> {
    bytes.get(at..)?.as_chunks().0.get(..usize::try_from(count).ok()?)
}

/// The first child of a type.
fn child<'a>(parent: &'a [u8], wanted: &[u8; 4]) -> Result<Option<&'a [u8]>, ContainerError> {
    for item in boxes(parent) {
        let (kind, body) = item?;
        if kind == wanted {
            return Ok(Some(body));
        }
    }
    Ok(None)
}

/// The children of a box, in order. Ends after the first one that does not fit into its parent.
fn boxes(parent: &[u8]) -> impl Iterator<Item = Result<(&[u8; 4], &[u8]), ContainerError>> {
    let mut rest = parent;
    std::iter::from_fn(move || {
        // Some writers pad a box with fewer bytes than a header has.
        if rest.len() < 8 {
            return None;
        }
        let item = split_box(rest);
        rest = item.map_or(&[], |(_, _, rest)| rest);
        Some(
            item.map(|(kind, body, _)| (kind, body))
                .ok_or(ContainerError::Malformed("a box leaves its parent")),
        )
    })
}

fn split_box(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (size, header, rest) = match u32::from_be_bytes(*size) {
        0 => return Some((kind, rest, &[])),
        1 => {
            let (size, rest) = rest.split_first_chunk::<8>()?;
            (u64::from_be_bytes(*size), 16, rest)
        }
        size => (u64::from(size), 8, rest),
    };
    let (body, rest) = rest.split_at_checked(usize::try_from(size.checked_sub(header)?).ok()?)?;
    Some((kind, body, rest))
}
