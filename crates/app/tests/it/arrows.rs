//! The design, kept by a test: which crate may name which, and what must stay absent.
//!
//! The table is complete. A dependency that it does not list is an error, and changing the table is a change of
//! the architecture: it needs its line in ARCHITECTURE.md. Development dependencies are free.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Each crate of ours and those of ours that it may depend on. Crates that do not exist yet are listed too.
const ARROWS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("pg", &[]),
    ("mock-provider", &[]),
    ("fetch", &["domain"]),
    ("control", &["domain"]),
    ("ledger", &["domain", "pg"]),
    ("outbox", &["domain", "pg"]),
    ("media", &["domain", "pg"]),
    ("bus", &["domain", "pg", "outbox"]),
    ("provider-adapter", &["domain", "fetch"]),
    ("tenancy", &["domain", "pg", "control"]),
    ("catalogue", &["domain", "pg", "control"]),
    ("task-state", &["domain", "pg", "control", "ledger", "outbox", "media"]),
    ("generation", &["domain", "pg", "control", "tenancy", "catalogue", "ledger", "media", "task-state"]),
    (
        "scheduler",
        &["domain", "bus", "control", "tenancy", "catalogue", "provider-adapter", "media", "task-state"],
    ),
    ("commerce", &["domain", "pg", "control", "tenancy", "ledger", "outbox"]),
    ("webhooks", &["domain", "pg", "fetch", "tenancy", "task-state"]),
    (
        "operator",
        &["domain", "pg", "control", "tenancy", "catalogue", "ledger", "outbox", "task-state", "commerce"],
    ),
    (
        "api",
        &[
            "domain",
            "control",
            "tenancy",
            "catalogue",
            "ledger",
            "task-state",
            "generation",
            "media",
            "commerce",
            "webhooks",
            "operator",
        ],
    ),
    ("testkit", &["domain", "pg", "control"]),
    // Knows the platform from outside alone: as processes and over HTTP.
    ("chaos", &["fetch"]),
];

/// Those that no shipped crate may name.
const FOR_TESTS: &[&str] = &["testkit", "chaos"];

/// The crate that puts the others together and may name all of them but those for tests.
const COMPOSER: &str = "app";

/// Who alone may name these libraries. The absences are the design: api knows no SQL, the scheduler neither,
/// adapters have no storage, and one crate each speaks to Redis and to addresses from outside.
const WRAPPERS: &[(&str, &[&str])] = &[
    (
        "sqlx",
        &[
            "pg",
            "ledger",
            "outbox",
            "media",
            "bus",
            "tenancy",
            "catalogue",
            "task-state",
            "generation",
            "commerce",
            "webhooks",
            "operator",
            "app",
            "testkit",
        ],
    ),
    ("redis", &["control", "testkit"]),
    ("bb8", &["control"]),
    ("bb8-redis", &["control"]),
    ("rdkafka", &["bus", "scheduler", "app"]),
    ("reqwest", &["fetch"]),
    ("axum", &["api", "app", "mock-provider"]),
    ("object_store", &["media"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn workspace() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata")
}

/// The names that each crate's shipped code depends on, build scripts included.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let workspace = workspace();
    let named = |package: &cargo_metadata::Package| {
        let shipped = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        (package.name.to_string(), shipped.map(|d| d.name.clone()).collect())
    };
    workspace.workspace_packages().into_iter().map(named).collect()
}

#[test]
fn every_arrow_between_our_crates_is_in_the_table() {
    let dependencies = dependencies();
    let ours: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    let table: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, named) in &dependencies {
        if name == COMPOSER {
            wrong.extend(FOR_TESTS.iter().filter(|d| named.contains(**d)).map(|d| format!("{name} -> {d}")));
            continue;
        }
        let Some(allowed) = table.get(name.as_str()) else {
            wrong.push(format!("{name} has no row in the table"));
            continue;
        };
        let extra = named.iter().filter(|d| ours.contains(d.as_str()) && !allowed.contains(&d.as_str()));
        wrong.extend(extra.map(|d| format!("{name} -> {d}")));
    }
    assert!(wrong.is_empty(), "arrows that the architecture does not have: {wrong:#?}");
    assert!(dependencies.len() > 15, "the workspace was not read: {ours:?}");
}

#[test]
fn the_table_has_no_cycle() {
    let mut known = BTreeSet::new();
    loop {
        let settled: Vec<_> = ARROWS
            .iter()
            .filter(|(name, to)| !known.contains(name) && to.iter().all(|to| known.contains(to)))
            .map(|(name, _)| *name)
            .collect();
        if settled.is_empty() {
            break;
        }
        known.extend(settled);
    }
    let stuck: Vec<_> = ARROWS.iter().map(|(name, _)| name).filter(|name| !known.contains(*name)).collect();
    assert!(stuck.is_empty(), "these depend on each other or on an unknown crate: {stuck:?}");
}

#[test]
fn libraries_stay_with_their_wrappers() {
    let dependencies = dependencies();
    let mut wrong = Vec::new();
    for (library, wrappers) in WRAPPERS {
        let users = dependencies.iter().filter(|(_, named)| named.contains(*library)).map(|(name, _)| name);
        wrong.extend(
            users
                .filter(|name| !wrappers.contains(&name.as_str()))
                .map(|name| format!("{name} -> {library}")),
        );
    }
    assert!(wrong.is_empty(), "absences that are no longer absent: {wrong:#?}");
}

#[test]
fn every_source_file_says_first_why_it_exists() {
    let mut sources = Vec::new();
    let crates = fs::read_dir(root().join("crates")).expect("crates");
    let crates = crates.map(|package| package.expect("entry").path());
    for package in crates.chain([root().join("e2e/chaos")]) {
        for folder in ["src", "tests", "benches", "examples"] {
            rust_files(&package.join(folder), &mut sources).expect("readable");
        }
    }
    let silent: Vec<_> =
        sources.iter().filter(|file| !fs::read_to_string(file).expect("UTF-8").starts_with("//!")).collect();
    assert!(silent.is_empty(), "these files do not open with //!: {silent:#?}");
    assert!(sources.len() > 50, "only {} files were found", sources.len());
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}
