//! The one video that every job delivers: a second of moving colour, H.264 baseline in an MP4 whose index comes
//! first, so that browsers play it while it loads. It is compiled in, so the provider needs no files of its own.
//!
//! Made with: `ffmpeg -f lavfi -i gradients=s=320x180:r=24:d=1:n=3:seed=7:… -c:v libx264 -profile:v baseline
//! -pix_fmt yuv420p -crf 28 -movflags +faststart -fflags +bitexact clip.mp4`

/// The file's bytes.
pub(crate) static CLIP: &[u8] = include_bytes!("../assets/clip.mp4");

#[cfg(test)]
mod tests {
    use super::CLIP;

    #[test]
    fn the_index_stands_before_the_pictures() {
        let position = |name: &[u8]| CLIP.windows(4).position(|w| w == name).expect("box present");
        assert_eq!(&CLIP[4..8], b"ftyp");
        assert!(position(b"moov") < position(b"mdat"), "a browser could not start before the end");
        assert!(CLIP.len() <= 30_000);
    }
}
