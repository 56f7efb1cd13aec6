//! Rows: one per task and kind, in the caller's transaction, and the audit that compares them with the objects.

use domain::AssetId;

use super::*;

#[tokio::test]
async fn an_asset_exists_when_its_transaction_commits() {
    let world = World::new().await;
    let task = TaskId::generate();
    let published = world.publish(AttemptRef { task, attempt_no: 1 }, CLIP).await;
    let id = published.asset;
    assert_eq!(world.media.asset(id).await.unwrap(), None);

    let new = output(task, published.clone());
    let owner = new.owner;
    world.record(vec![new]).await.unwrap();
    let asset = world.media.asset(id).await.unwrap().unwrap();
    assert_eq!((asset.id, asset.owner, asset.task), (id, owner, Some(task)));
    assert_eq!(
        (asset.storage_key, asset.size_bytes, asset.sha256),
        (published.storage_key, published.size_bytes, published.sha256)
    );
    assert_eq!(asset.content_type, "video/mp4");
    assert_eq!(world.media.asset(AssetId::generate()).await.unwrap(), None);

    sqlx::query("UPDATE assets SET deleted_at = now()").execute(&world.db.pool).await.unwrap();
    assert_eq!(world.media.asset(id).await.unwrap(), None, "what was deleted is not found");
}

#[tokio::test]
async fn a_task_has_one_output_and_a_batch_is_one_statement() {
    let world = World::new().await;
    let tasks: Vec<TaskId> = (0..5).map(|_| TaskId::generate()).collect();
    let mut assets = Vec::new();
    for task in &tasks {
        assets.push(output(*task, world.publish(AttemptRef { task: *task, attempt_no: 1 }, CLIP).await));
    }
    world.record(assets.clone()).await.unwrap();

    let second = world.publish(AttemptRef { task: tasks[0], attempt_no: 2 }, CLIP).await;
    let refused = world.record(vec![output(tasks[0], second)]).await.unwrap_err();
    assert_eq!(refused.constraint(), Some("assets_one_per_task_and_kind"));

    let mut asked = tasks.clone();
    asked.push(TaskId::generate());
    let mut conn = world.db.pool.acquire().await.unwrap();
    let outputs = media::outputs_of(&mut conn, &asked).await.unwrap();
    assert_eq!(outputs.len(), 5);
    assert!(assets.iter().all(|asset| outputs[&asset.task] == asset.published.asset));
}

#[tokio::test]
async fn the_audit_finds_assets_whose_object_is_missing_or_another() {
    let world = World::new().await;
    let mut keys = Vec::new();
    for _ in 0..4 {
        let attempt = attempt(1);
        let published = world.publish(attempt, CLIP).await;
        keys.push((published.asset, world.folder.path().join(published.storage_key.as_str())));
        world.record(vec![output(attempt.task, published)]).await.unwrap();
    }
    let audit = || async {
        let media = world.media.clone();
        let found =
            pg::read_snapshot(&world.db.pool, move |conn| Box::pin(async move { media.audit(conn).await }));
        let mut found: Vec<_> = found.await.unwrap().into_iter().map(|v| (v.rule, v.subject)).collect();
        found.sort();
        found
    };
    assert_eq!(audit().await, []);

    fs::remove_file(&keys[0].1).unwrap();
    fs::write(&keys[1].1, b"short").unwrap();
    fs::remove_file(&keys[2].1).unwrap();
    sqlx::query("UPDATE assets SET deleted_at = now() WHERE id = $1")
        .bind(keys[2].0.as_uuid())
        .execute(&world.db.pool)
        .await
        .unwrap();
    let mut expected: Vec<_> =
        keys[..2].iter().map(|(id, _)| ("asset_object_exists", id.to_string())).collect();
    expected.sort();
    assert_eq!(audit().await, expected);
}

/// Case C46: a row that somebody tampered with reaches no other file.
#[tokio::test]
async fn a_key_that_is_a_path_is_refused() {
    let world = World::new().await;
    let attempt = attempt(1);
    let published = world.publish(attempt, CLIP).await;
    let id = published.asset;
    world.record(vec![output(attempt.task, published)]).await.unwrap();
    for key in ["../../../../etc/passwd", "/etc/passwd", "outputs/../../x"] {
        sqlx::query("UPDATE assets SET storage_key = $1").bind(key).execute(&world.db.pool).await.unwrap();
        let refused = world.media.asset(id).await.unwrap_err();
        assert!(matches!(refused, pg::PgError::BadRow { column: "storage_key", .. }), "{refused:?}");
    }
}
