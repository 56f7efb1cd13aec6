//! `aivideo demo`: what stays between starts, and who may use its folder.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use http::Method;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::harness::{Client, Demo, Folder, command, run, variables};

/// A start that finds its data.
const LATER_START_MAX: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_stop_ends_everything_and_a_later_start_finds_data_ids_and_keys() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    let (first, client) = (demo.ready.clone(), demo.client());
    let mode = fs::metadata(&first.env_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others can read the secrets");
    let task = client.submit("mock-fast", "a cat").await;
    let begun = Instant::now();
    assert_eq!(client.end_of(&task, Duration::from_secs(30)).await["status"], "SUCCEEDED");
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    assert_plays(&client, &task, folder.path()).await;
    assert_eq!(Demo::servers(folder.path()).len(), 3);
    assert_eq!(demo.stop().await, Some(0));
    assert!(Demo::servers(folder.path()).is_empty(), "servers were left behind");

    let demo = Demo::start_within(folder.path(), LATER_START_MAX, &[]).await;
    let ready = &demo.ready;
    assert_eq!(
        (&ready.tenant_id, &ready.user_id, &ready.api_key, &ready.admin_key),
        (&first.tenant_id, &first.user_id, &first.api_key, &first.admin_key)
    );
    let snapshot = demo.client().get(&format!("/tasks/{task}")).await;
    assert_eq!(snapshot["status"], "SUCCEEDED");
    let credits = demo.client().get("/credits").await;
    assert_eq!((&credits["granted"], &credits["captured"]), (&1_000_000.into(), &10.into()));
    demo.assert_audit().await;
    demo.stop().await;
}

/// The output is a video, by the judgement of a program that is not ours.
async fn assert_plays(client: &Client, task: &str, folder: &Path) {
    let link = client.get(&format!("/tasks/{task}")).await["output_url"].as_str().expect("a link").to_owned();
    let (status, bytes) = client.ask_bytes(Method::GET, &link, None).await;
    assert_eq!(status, 200);
    let file = folder.join("output.mp4");
    fs::write(&file, bytes).expect("writable");
    let probe = tokio::process::Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", "v", "-show_entries", "stream=codec_type", "-of", "csv=p=0"])
        .arg(&file)
        .output()
        .await
        .expect("ffprobe: scripts/install.sh test");
    let said = String::from_utf8_lossy(&probe.stdout);
    assert!(probe.status.success() && said.contains("video") && probe.stderr.is_empty(), "{probe:?}");
}

#[tokio::test]
async fn a_signal_during_the_start_leaves_nothing_behind() {
    let folder = Folder::new();
    let data_dir = folder.path().to_str().unwrap();
    let arguments = ["demo", "--json", "--http-addr", "127.0.0.1:0", "--data-dir", data_dir];
    let mut demo = command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = async || !Demo::servers(folder.path()).is_empty();
    testkit::wait_until("a first server", Duration::from_secs(30), begun).await;
    kill(Pid::from_raw(demo.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), demo.wait()).await;
    assert_eq!(ended.expect("it did not stop").unwrap().code(), Some(0));
    assert!(Demo::servers(folder.path()).is_empty(), "servers were left behind");
    // And the next start is not confused by what is half there.
    let demo = Demo::start(folder.path()).await;
    demo.client().get("/me").await;
    demo.stop().await;
}

#[tokio::test]
async fn after_a_crash_living_servers_are_adopted_and_dead_ones_replaced_where_they_were() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    let first = demo.ready.clone();
    demo.kill().await;
    let left = Demo::servers(folder.path());
    assert_eq!(left.len(), 3, "the servers died with the demo");

    let demo = Demo::start_within(folder.path(), LATER_START_MAX, &[]).await;
    let adopted = |servers: &[i32]| {
        let (mut servers, mut left) = (servers.to_vec(), left.clone());
        servers.sort_unstable();
        left.sort_unstable();
        servers == left
    };
    assert!(adopted(&Demo::servers(folder.path())), "servers were started again");
    demo.kill().await;

    for pid in &left {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    let demo = Demo::start_within(folder.path(), LATER_START_MAX, &[]).await;
    let again = &demo.ready;
    assert_eq!(
        (&again.database_url, &again.redis_url, &again.mock_provider_url),
        (&first.database_url, &first.redis_url, &first.mock_provider_url)
    );
    let task = demo.client().submit("mock-fast", "a dog").await;
    assert_eq!(demo.client().end_of(&task, Duration::from_secs(30)).await["status"], "SUCCEEDED");
    demo.stop().await;
}

#[tokio::test]
async fn a_second_demo_on_the_same_folder_is_refused_and_the_first_goes_on() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    let data_dir = folder.path().to_str().unwrap();
    let second =
        run(&mut command(&["demo", "--json", "--http-addr", "127.0.0.1:0", "--data-dir", data_dir])).await;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("another demo") && said.contains(&demo.pid().to_string()), "{said}");
    assert_eq!(Demo::servers(folder.path()).len(), 3);
    demo.client().get("/me").await;
    demo.stop().await;
}

#[tokio::test]
async fn a_taken_address_is_named_before_anything_is_started() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data_dir = folder.path().to_str().unwrap();
    let refused = run(&mut command(&["demo", "--http-addr", &address, "--data-dir", data_dir])).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(&address), "{said}");
    assert!(!folder.path().join("postgres").exists());
}

#[tokio::test]
async fn a_folder_that_others_cannot_enter_serves_too() {
    let folder = Folder::new();
    let inside = folder.path().join("closed");
    fs::create_dir(&inside).unwrap();
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o700)).unwrap();
    let demo = Demo::start(&inside).await;
    let root = nix::unistd::geteuid().is_root();
    assert_eq!(inside.join("postgres").exists(), !root);
    let task = demo.client().submit("mock-fast", "a bird").await;
    assert_eq!(demo.client().end_of(&task, Duration::from_secs(30)).await["status"], "SUCCEEDED");
    let home: std::path::PathBuf =
        serde_json::from_str(&fs::read_to_string(inside.join("postgres-home.json")).unwrap()).unwrap();
    if root {
        let log = fs::read_to_string(inside.join("demo.log")).unwrap();
        assert!(log.contains(home.to_str().unwrap()), "nobody was told where the files lie: {log}");
    }
    demo.stop().await;
    if root {
        fs::remove_dir_all(home).unwrap();
    }
}

#[tokio::test]
async fn only_the_roles_that_were_asked_for_are_run() {
    let folder = Folder::new();
    let demo = Demo::start_within(folder.path(), Duration::from_secs(60), &["--roles", "api"]).await;
    let task = demo.client().submit("mock-fast", "nobody takes it").await;
    // Longer than a scheduler would need, and it is the absence that has to last.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let snapshot = demo.client().get(&format!("/tasks/{task}")).await;
    assert_eq!(snapshot["status"], "QUEUED", "{snapshot}");
    assert_eq!(demo.provider().get("/_control/stats").await["submits"], 0);
    let names = variables(&demo.ready.env_file);
    assert!(names.iter().all(|(name, _)| name != "AIVIDEO_HTTP_ADDR"), "{names:?}");
    demo.stop().await;
}
