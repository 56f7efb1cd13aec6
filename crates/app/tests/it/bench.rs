//! `aivideo bench` as a person runs it. How fast anything is is nobody's business here: only that every figure comes,
//! that counts agree with each other and with the database, and that nothing is left behind.

use std::{fs, process::Output, time::Duration};

use serde_json::Value;

use crate::harness::{Demo, Folder, command};

/// Three deployments are made and removed meanwhile.
const RUN_MAX: Duration = Duration::from_secs(300);
/// As little as there can be of everything.
const LITTLE: &[&str] = &[
    "--json",
    "--seconds",
    "1",
    "--connections",
    "4",
    "--in-flight",
    "6",
    "--tasks",
    "12",
    "--ids",
    "20",
    "--warm-up",
    "5",
    "--generation-ms",
    "20",
];

async fn bench(args: &[&str], temporary: &Folder) -> (Output, Value) {
    let mut command = command(&[&["bench"], LITTLE, args].concat());
    command.env("TMPDIR", temporary.path()).kill_on_drop(true);
    let output =
        tokio::time::timeout(RUN_MAX, command.output()).await.expect("it never ended").expect("it runs");
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, json)
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Figure and variant of every run, in order.
fn figures(json: &Value) -> Vec<String> {
    let runs = json["runs"].as_array().expect("runs").iter();
    let name = |run: &Value| Some(format!("{}, {}", run["figure"].as_str()?, run["variant"].as_str()?));
    runs.map(|run| name(run).expect("names")).collect()
}

#[tokio::test]
async fn every_figure_comes_from_private_services_that_are_gone_afterwards() {
    let (temporary, plots) = (Folder::new(), Folder::new());
    let plot = plots.path().join("figures.svg");
    let (output, json) = bench(&["--plot", plot.to_str().unwrap()], &temporary).await;
    // A machine that is busy with other tests may make some requests fail; then the command fails, and says so.
    let good = json["good"] == true;
    assert_eq!(output.status.code(), Some(i32::from(!good)), "{}", said(&output));
    assert_eq!(json["complete"], true, "{}", said(&output));
    assert_eq!(
        figures(&json),
        [
            "submit, scheduler on",
            "submit, scheduler off",
            "end-to-end, 6 in flight",
            "start-latency, 6 in flight",
            "read, one task",
            "read, 20 tasks",
        ]
    );
    let runs = json["runs"].as_array().unwrap();
    for run in runs {
        assert!(run["count"].as_u64() > Some(0) && run["latency_ms"]["max"].as_f64() > Some(0.0), "{run}");
    }
    // No task can be over before its generation is.
    assert!(runs[2]["latency_ms"]["p50"].as_f64() >= Some(20.0), "{}", runs[2]);
    assert_eq!(runs[2]["double_submits"], 0);
    assert!(runs[2]["rss_anon_bytes"].as_u64() > Some(1 << 20), "{}", runs[2]);
    // What was accepted is stored. Exactly: both floods, and in each deployment the warm-up; the end-to-end run; what
    // reads lacked.
    let (accepted, stored) = (json["accepted"].as_u64().unwrap(), json["stored"].as_u64().unwrap());
    assert!(accepted <= stored, "{json}");
    if good {
        let floods = runs[0]["count"].as_u64().unwrap() + runs[1]["count"].as_u64().unwrap();
        assert_eq!((accepted, stored), (floods + 3 * 5 + 12 + 3, accepted), "{json}");
        assert_eq!((&runs[2]["count"], &runs[3]["count"]), (&12.into(), &12.into()));
    }
    assert_eq!(json["versions"]["postgres"]["fsync"], "on");
    assert!(json["versions"]["redis"].is_string() && json["machine"]["cores"].as_u64() > Some(0), "{json}");

    let svg = fs::read_to_string(plot).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    assert!(document.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg")));
    let left: Vec<_> =
        fs::read_dir(temporary.path()).unwrap().filter_map(Result::ok).map(|e| e.path()).collect();
    assert!(left.is_empty(), "it left {left:?}");
}

#[tokio::test]
async fn a_given_deployment_is_measured_and_left_as_it_was() {
    let (folder, temporary) = (Folder::new(), Folder::new());
    let demo = Demo::start(folder.path()).await;
    let provider = ["--provider-url", &demo.ready.mock_provider_url];
    let given =
        |key| [&["submit", "start-latency", "--url", &demo.ready.url, "--key", key], &provider[..]].concat();
    let (output, json) = bench(&given(&demo.ready.api_key), &temporary).await;
    // The demo has limits, so some submits may be refused; then the command fails, and says how many.
    let errors: u64 =
        json["runs"].as_array().unwrap().iter().map(|run| run["errors"].as_u64().unwrap()).sum();
    let good = errors == 0 && json["faults"].as_array().unwrap().is_empty();
    assert_eq!(output.status.code(), Some(i32::from(!good)), "{}", said(&output));
    assert_eq!(figures(&json), ["submit, as deployed", "start-latency, 6 in flight"]);
    let pool = sqlx::PgPool::connect(&demo.ready.database_url).await.unwrap();
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM generation_tasks").fetch_one(&pool).await.unwrap();
    assert_eq!(json["accepted"].as_i64(), Some(rows), "{json}");
    assert!(json["stored"].is_null(), "that database is not ours to ask");
    let models = demo.provider().get("/_control/models").await;
    let fast = models.as_array().unwrap().iter().find(|model| model["model"] == "mock-fast").unwrap();
    assert_eq!(fast["duration_ms"], 1_000, "the provider was not set back");

    let (output, json) = bench(&given("avk_wrong"), &temporary).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let submit = &json["runs"][0];
    assert!(submit["errors"].as_u64() > Some(0) && submit["count"] == 0, "{submit}");
    assert!(submit["failures"].as_object().unwrap().keys().any(|kind| kind.starts_with('4')), "{submit}");
    demo.stop().await;
}

#[tokio::test]
async fn load_that_would_leave_the_machine_is_refused_before_anything_is_sent() {
    let temporary = Folder::new();
    let (output, _) = bench(&["--url", "http://192.0.2.1:8080", "--key", "k"], &temporary).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("--allow-remote"), "{}", said(&output));
}
