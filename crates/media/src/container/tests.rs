//! The check against the mock provider's clip, every cut of it, and files made to mislead.

use proptest::prelude::*;

use super::*;

const CLIP: &[u8] = include_bytes!("../../../mock-provider/assets/clip.mp4");
const INDEX_MAX: u64 = 1 << 20;

fn check(file: &[u8]) -> Result<(), ContainerError> {
    check_in_pieces(file, file.len().max(1))
}

fn check_in_pieces(file: &[u8], size: usize) -> Result<(), ContainerError> {
    let mut check = ContainerCheck::new(INDEX_MAX);
    for piece in file.chunks(size) {
        check.push(piece)?;
    }
    check.finish()
}

fn a_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len() + 8).unwrap();
    [&size.to_be_bytes(), kind.as_slice(), body].concat()
}

fn nested(kinds: &[&[u8; 4]], body: &[u8]) -> Vec<u8> {
    kinds.iter().rev().fold(body.to_vec(), |inner, kind| a_box(kind, &inner))
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// A file with one track: what it is, its sample sizes, its chunk offsets, and the bytes of `mdat`.
fn file(handler: &[u8; 4], sizes: &[u32], chunks: &[u32], data: usize) -> Vec<u8> {
    let count = |values: &[u32]| u32::try_from(values.len()).unwrap();
    let hdlr = a_box(b"hdlr", &[&[0; 8], handler.as_slice(), &[0; 12]].concat());
    let stsz = a_box(b"stsz", &[words(&[0, 0, count(sizes)]), words(sizes)].concat());
    let stco = a_box(b"stco", &[words(&[0, count(chunks)]), words(chunks)].concat());
    let minf = nested(&[b"minf", b"stbl"], &[stsz, stco].concat());
    let moov = nested(&[b"moov", b"trak", b"mdia"], &[hdlr, minf].concat());
    [a_box(b"ftyp", b"isom\0\0\0\0"), moov, a_box(b"mdat", &vec![7; data])].concat()
}

#[test]
fn a_real_clip_passes_in_pieces_of_any_size() {
    for size in [1, 2, 7, 8, 16, 1_000, CLIP.len()] {
        assert_eq!(check_in_pieces(CLIP, size), Ok(()), "{size}");
    }
}

#[test]
fn every_cut_of_a_real_clip_is_refused() {
    for length in 0..CLIP.len() {
        assert!(check(&CLIP[..length]).is_err(), "{length} of {} bytes", CLIP.len());
    }
}

#[test]
fn an_error_page_is_refused_at_its_first_bytes() {
    let mut check = ContainerCheck::new(INDEX_MAX);
    assert_eq!(check.push(b"<!DOCTYPE html><html>"), Err(ContainerError::NotMp4));
    assert_eq!(super::tests::check(b""), Err(ContainerError::NotMp4));
    assert_eq!(super::tests::check(b"\0\0"), Err(ContainerError::NotMp4));
}

#[test]
fn a_video_needs_pictures_and_their_data() {
    assert_eq!(check(&file(b"vide", &[10, 20], &[8], 30)), Ok(()));
    assert_eq!(check(&file(b"soun", &[10, 20], &[8], 30)), Err(ContainerError::NoVideo));
    assert_eq!(check(&file(b"vide", &[], &[], 30)), Err(ContainerError::NoVideo));
    assert_eq!(check(&file(b"vide", &[10, 20], &[8], 0)), Err(ContainerError::NoData));
    assert_eq!(check(&file(b"vide", &[10, 20], &[8], 29)), Err(ContainerError::Cut));
    assert_eq!(check(&file(b"vide", &[10, 20], &[8, 5_000], 30)), Err(ContainerError::Cut));
    let no_index = [a_box(b"ftyp", b"isom\0\0\0\0"), a_box(b"mdat", b"data")].concat();
    assert_eq!(check(&no_index), Err(ContainerError::NoIndex));
}

#[test]
fn data_that_claims_to_reach_the_end_is_measured_by_the_index() {
    let mut whole = file(b"vide", &[10, 20], &[8], 30);
    let at = whole.len() - 38;
    whole[at..at + 4].copy_from_slice(&[0; 4]);
    assert_eq!(check(&whole), Ok(()));
    assert_eq!(check(&whole[..whole.len() - 1]), Err(ContainerError::Cut));
}

#[test]
fn a_fragmented_file_needs_a_fragment() {
    let hdlr = a_box(b"hdlr", b"\0\0\0\0\0\0\0\0vide\0\0\0\0");
    let stbl = nested(&[b"minf", b"stbl"], &a_box(b"stsz", &words(&[0, 0, 0])));
    let track = nested(&[b"trak", b"mdia"], &[hdlr, stbl].concat());
    let moov = a_box(b"moov", &[track, a_box(b"mvex", b"")].concat());
    let head = [a_box(b"ftyp", b"iso5\0\0\0\0"), moov].concat();
    let mdat = a_box(b"mdat", b"pictures");
    assert_eq!(check(&[head.clone(), mdat.clone()].concat()), Err(ContainerError::NoVideo));
    assert_eq!(check(&[head, a_box(b"moof", b"x"), mdat].concat()), Ok(()));
}

#[test]
fn lengths_that_lie_take_no_memory() {
    let huge = |kind: &[u8; 4]| {
        let size = [&[0, 0, 0, 1], kind.as_slice(), &u64::MAX.to_be_bytes()].concat();
        [a_box(b"ftyp", b"isom\0\0\0\0"), size].concat()
    };
    assert_eq!(check(&huge(b"moov")), Err(ContainerError::IndexTooLarge { limit: INDEX_MAX }));
    assert_eq!(check(&huge(b"mdat")), Err(ContainerError::Cut));
    let tiny = [a_box(b"ftyp", b"isom\0\0\0\0"), b"\0\0\0\x04moov".to_vec()].concat();
    assert_eq!(check(&tiny), Err(ContainerError::Malformed("a box is shorter than its header")));
    // A table that names 2^32 - 1 entries and has none.
    let mut lying = file(b"vide", &[], &[], 30);
    let at = lying.windows(4).position(|kind| kind == b"stsz").unwrap() + 12;
    lying[at..at + 4].copy_from_slice(&[0xff; 4]);
    assert!(matches!(check(&lying), Err(ContainerError::Malformed(_))));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(start in 0..CLIP.len(), noise in proptest::collection::vec(any::<u8>(), 1..64)) {
        let mut file = CLIP.to_vec();
        let end = file.len().min(start + noise.len());
        file[start..end].copy_from_slice(&noise[..end - start]);
        // Whatever the verdict is, it does not depend on how the file arrived.
        prop_assert_eq!(check(&file).is_ok(), check_in_pieces(&file, 13).is_ok());
    }
}
