//! The way in: what is not a whole video leaves nothing behind, and a key is taken once.

use std::time::Duration;

use super::*;

async fn ingest(
    world: &World,
    source: impl Stream<Item = Result<Bytes, Reset>> + Send,
    content_type: Option<&str>,
    length: Option<u64>,
) -> Result<Staged, IngestError<Reset>> {
    world.media.ingest(attempt(1), source, content_type, length).await
}

#[tokio::test]
async fn a_whole_file_is_published_under_its_attempt_and_not_before() {
    let world = World::new().await;
    let attempt = attempt(3);
    let length = Some(CLIP.len() as u64);
    let staged =
        world.media.ingest(attempt, pieces(CLIP), Some("video/mp4; codecs=\"avc1\""), length).await.unwrap();
    assert_eq!((staged.attempt(), staged.size_bytes()), (attempt, CLIP.len() as u64));
    assert_eq!(world.files(), [""; 0]);

    let published = world.media.publish(staged).await.unwrap();
    assert!(
        published.storage_key.as_str().ends_with(&format!("/{attempt}.mp4")),
        "{}",
        published.storage_key
    );
    assert_eq!(published.size_bytes, CLIP.len() as u64);
    assert_eq!(published.content_type, "video/mp4");
    assert_eq!(world.files(), [published.storage_key.as_str()]);
    assert_eq!(fs::read(world.folder.path().join(published.storage_key.as_str())).unwrap(), CLIP);
    assert!(world.media.exists(&published.storage_key).await.unwrap());
}

/// Case C26: half a file, then an error page with status 200.
#[tokio::test]
async fn half_files_and_error_pages_are_never_published() {
    let world = World::new().await;
    let length = Some(CLIP.len() as u64);
    let half = || pieces(&CLIP[..CLIP.len() / 2]);
    let page = || pieces(b"<!doctype html><html><body>This link has expired.</body></html>");

    let refused = ingest(&world, half(), Some("video/mp4"), length).await.unwrap_err();
    assert!(
        matches!(refused, IngestError::Truncated { received: 5_302, announced: Some(10_604) }),
        "{refused:?}"
    );
    let refused = ingest(&world, half(), None, None).await.unwrap_err();
    assert!(matches!(refused, IngestError::Truncated { announced: None, .. }), "{refused:?}");
    let refused = ingest(&world, page(), Some("text/html; charset=utf-8"), None).await.unwrap_err();
    assert!(matches!(&refused, IngestError::WrongType(essence) if essence == "text/html"), "{refused:?}");
    let refused = ingest(&world, page(), Some("video/mp4"), None).await.unwrap_err();
    assert!(matches!(refused, IngestError::NotAVideo(_)), "{refused:?}");
    let refused = ingest(&world, pieces(b""), None, Some(0)).await.unwrap_err();
    assert!(refused.is_bad_output(), "{refused:?}");
    let broken = half().chain(stream::once(std::future::ready(Err(Reset))));
    let refused = ingest(&world, broken, None, length).await.unwrap_err();
    assert!(matches!(refused, IngestError::Source(Reset)) && !refused.is_bad_output(), "{refused:?}");
    assert_eq!(world.files(), [""; 0]);
}

#[tokio::test]
async fn the_limits_hold_whatever_the_header_says() {
    let limits = MediaLimits { output_bytes_max: 20_000, ..MediaLimits::default() };
    let world = World::with(limits).await;
    // Announced too long: not a byte is read.
    let untouched = stream::once(async { panic!("the source was read") });
    let refused = ingest(&world, untouched, None, Some(20_001)).await.unwrap_err();
    assert!(matches!(refused, IngestError::TooLarge { limit: 20_000 }), "{refused:?}");
    // Not announced, or longer than announced: read up to the limit.
    let file = large(10_000);
    let endless = pieces(&file).chain(stream::repeat_with(|| Ok(Bytes::from_static(&[0; 1_000]))));
    let refused = ingest(&world, endless, None, None).await.unwrap_err();
    assert!(matches!(refused, IngestError::TooLarge { limit: 20_000 }), "{refused:?}");
    let refused = ingest(&world, pieces(CLIP), None, Some(10_000)).await.unwrap_err();
    assert!(matches!(refused, IngestError::TooLarge { limit: 10_000 }), "{refused:?}");
    let small_index = MediaLimits { index_bytes_max: 100, ..MediaLimits::default() };
    let refused = ingest(&World::with(small_index).await, pieces(CLIP), None, None).await.unwrap_err();
    assert!(
        matches!(refused, IngestError::NotAVideo(media::ContainerError::IndexTooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(world.files(), [""; 0]);
}

#[tokio::test]
async fn large_files_go_through_a_temporary_key() {
    let limits = MediaLimits { memory_bytes_max: 4_096, ..MediaLimits::default() };
    let world = World::with(limits).await;
    let file = large(50_000);
    for cut in [file.len() - 1, 30_000] {
        let refused = ingest(&world, pieces(&file[..cut]), None, None).await.unwrap_err();
        assert!(matches!(refused, IngestError::Truncated { .. }), "{refused:?}");
    }
    let nothing_left = || async { world.files().is_empty() };
    testkit::wait_until("the cut files are removed", Duration::from_secs(5), nothing_left).await;

    let attempt = attempt(1);
    let staged = world.media.ingest(attempt, pieces(&file), None, Some(file.len() as u64)).await.unwrap();
    let files = world.files();
    assert!(matches!(files.as_slice(), [one] if one.starts_with("staging/")), "{files:?}");
    let published = world.media.publish(staged).await.unwrap();
    testkit::wait_until("the temporary file is gone", Duration::from_secs(5), || async {
        world.files() == [published.storage_key.as_str()]
    })
    .await;
    assert_eq!(fs::read(world.folder.path().join(published.storage_key.as_str())).unwrap(), file);

    drop(world.media.ingest(self::attempt(1), pieces(&file), None, None).await.unwrap());
    testkit::wait_until("a dropped file is removed", Duration::from_secs(5), || async {
        world.files().len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_reception_that_is_dropped_leaves_nothing() {
    let limits = MediaLimits { memory_bytes_max: 4_096, ..MediaLimits::default() };
    let world = World::with(limits).await;
    let stuck = pieces(&large(50_000)[..40_000]).chain(stream::pending());
    let reception = world.media.ingest(attempt(1), stuck, None, None);
    assert!(tokio::time::timeout(Duration::from_millis(300), reception).await.is_err());
    let nothing_left = || async { world.files().is_empty() };
    testkit::wait_until("the half file is removed", Duration::from_secs(5), nothing_left).await;
}

#[tokio::test]
async fn a_key_is_taken_once_and_then_described_as_it_is() {
    for memory_bytes_max in [1 << 20, 4_096] {
        let world = World::with(MediaLimits { memory_bytes_max, ..MediaLimits::default() }).await;
        let (first, second) = (attempt(1), large(20_000));
        let published = world.publish(first, CLIP).await;
        let again = world.publish(first, CLIP).await;
        assert_eq!(Published { asset: published.asset, ..again }, published);
        // The same attempt with other bytes: the row that may exist by now stays true.
        let other = world.publish(first, &second).await;
        assert_eq!((other.size_bytes, other.sha256), (published.size_bytes, published.sha256));
        assert_eq!(fs::read(world.folder.path().join(published.storage_key.as_str())).unwrap(), CLIP);
        // Another attempt of the same task has a place of its own.
        let retry = world.publish(AttemptRef { attempt_no: 2, ..first }, &second).await;
        assert_ne!(retry.storage_key, published.storage_key);
        assert_eq!(retry.size_bytes, second.len() as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_at_the_same_time_agree() {
    let world = World::new().await;
    let attempt = attempt(1);
    let files = [CLIP.to_vec(), large(1_000), large(2_000), large(3_000)];
    let published = futures::future::join_all(files.iter().map(|file| world.publish(attempt, file))).await;
    let described: Vec<_> = published.iter().map(|one| (one.size_bytes, one.sha256)).collect();
    assert!(described.iter().all(|one| *one == described[0]), "{described:?}");
    assert_eq!(world.files(), [published[0].storage_key.as_str()]);
}

#[tokio::test]
async fn the_sweep_takes_what_crashes_left_and_nothing_else() {
    let world = World::new().await;
    let published = world.publish(attempt(1), CLIP).await;
    let path = world.folder.path().join(published.storage_key.as_str());
    fs::write(world.folder.path().join("staging/left"), b"half").unwrap();
    fs::write(path.with_extension("mp4#1"), b"half").unwrap();

    for _ in 0..256 {
        assert_eq!(
            world.media.sweep(Duration::from_secs(3_600)).await.unwrap(),
            0,
            "they may still be written"
        );
    }
    let mut removed = 0;
    for _ in 0..256 {
        removed += world.media.sweep(Duration::ZERO).await.unwrap();
    }
    assert_eq!(removed, 2);
    assert_eq!(world.files(), [published.storage_key.as_str()]);
}

#[tokio::test]
async fn an_output_that_no_row_names_is_removed_when_it_is_old_and_one_with_a_row_never() {
    let world = World::new().await;
    let task = TaskId::generate();
    let recorded = world.publish(AttemptRef { task, attempt_no: 2 }, CLIP).await;
    world.record(vec![output(task, recorded.clone())]).await.unwrap();
    let deleted = world.publish(attempt(1), CLIP).await;
    world.record(vec![output(TaskId::generate(), deleted.clone())]).await.unwrap();
    let gone = "UPDATE assets SET deleted_at = now() WHERE id = $1";
    sqlx::query(gone).bind(deleted.asset.as_uuid()).execute(&world.db.pool).await.unwrap();
    // The attempt before, which was superseded, and a task that ended otherwise.
    let orphans = [AttemptRef { task, attempt_no: 1 }, attempt(1)];
    for attempt in orphans {
        world.publish(attempt, CLIP).await;
    }
    let everywhere = async |older_than| {
        let mut removed = 0;
        for _ in 0..256 {
            removed += world.media.remove_orphans(older_than).await.unwrap();
        }
        removed
    };
    assert_eq!(everywhere(Duration::from_secs(3_600)).await, 0, "they may still be recorded");
    assert_eq!(everywhere(Duration::ZERO).await, 2);
    let mut kept = [recorded.storage_key.to_string(), deleted.storage_key.to_string()];
    kept.sort();
    assert_eq!(world.files(), kept);
}

#[tokio::test]
async fn a_full_storage_is_an_error_and_not_a_file() {
    let world = World::new().await;
    let staged = world.media.ingest(attempt(1), pieces(CLIP), None, None).await.unwrap();
    fs::remove_dir_all(world.folder.path()).unwrap();
    // Something that is no folder in its place: nothing can be written there.
    fs::write(world.folder.path(), b"").unwrap();
    let refused = world.media.publish(staged).await;
    assert!(refused.is_err(), "{refused:?}");
    fs::remove_file(world.folder.path()).unwrap();
    fs::create_dir(world.folder.path()).unwrap();
}
