//! The way out: ranges, bounded pieces, and objects that are not there.

use media::{Asset, OpenError};

use super::*;

async fn stored(world: &World, file: &[u8]) -> Asset {
    let attempt = attempt(1);
    let published = world.publish(attempt, file).await;
    let id = published.asset;
    world.record(vec![output(attempt.task, published)]).await.unwrap();
    world.media.asset(id).await.unwrap().unwrap()
}

#[tokio::test]
async fn content_and_ranges_of_it_come_byte_for_byte() {
    let world = World::new().await;
    for file in [CLIP.to_vec(), large(1_000_000)] {
        let asset = stored(&world, &file).await;
        let size = file.len() as u64;
        for range in [0..size, 0..1, size - 1..size, 7..8_000, size / 2..size] {
            let content = world.media.open(&asset, Some(range.clone())).await.unwrap();
            assert_eq!((content.range.clone(), content.size_bytes), (range.clone(), size));
            let (start, end) = (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap());
            assert!(read(content).await == file[start..end], "{range:?} of {size}");
        }
        assert!(read(world.media.open(&asset, None).await.unwrap()).await == file);
    }
}

#[tokio::test]
async fn a_slow_reader_holds_a_bounded_piece() {
    let world = World::new().await;
    let asset = stored(&world, &large(2_000_000)).await;
    let mut stream = world.media.open(&asset, None).await.unwrap().stream;
    while let Some(piece) = stream.try_next().await.unwrap() {
        assert!(piece.len() <= 256 << 10, "{}", piece.len());
    }
}

#[tokio::test]
async fn a_range_outside_of_the_object_is_refused() {
    let world = World::new().await;
    let asset = stored(&world, CLIP).await;
    let size = asset.size_bytes;
    #[expect(clippy::reversed_empty_ranges, reason = "that is what a client may ask for")]
    for range in [0..size + 1, size..size + 1, 5..5, 9..3] {
        let refused = world.media.open(&asset, Some(range.clone())).await.unwrap_err();
        assert!(
            matches!(refused, OpenError::BadRange { size_bytes } if size_bytes == size),
            "{range:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_missing_object_is_told_from_a_failing_storage() {
    let world = World::new().await;
    for file in [CLIP.to_vec(), large(1_000_000)] {
        let asset = stored(&world, &file).await;
        fs::remove_file(world.folder.path().join(asset.storage_key.as_str())).unwrap();
        let refused = world.media.open(&asset, None).await.unwrap_err();
        assert!(matches!(refused, OpenError::Missing(_)), "{refused:?}");
        assert!(!world.media.exists(&asset.storage_key).await.unwrap());
    }
}
