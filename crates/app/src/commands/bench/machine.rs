//! What a figure is worth nothing without: the machine, the versions, the settings.

use std::{fs, process::Command};

use serde::Serialize;

/// Where it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) cpu: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) kernel: Option<String>,
    /// Processes that wanted a core in the last minute before the first run.
    pub(super) load_1m: Option<f64>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Versions {
    pub(super) aivideo: &'static str,
    /// Whether it was built as releases are.
    pub(super) optimised: bool,
    /// Of the private services; a given deployment keeps these to itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) postgres: Option<Postgres>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redis: Option<String>,
}

/// What PostgreSQL says of its version and of what makes commits durable or cheap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Postgres {
    pub(super) version: String,
    pub(super) fsync: String,
    pub(super) synchronous_commit: String,
    pub(super) full_page_writes: String,
    pub(super) shared_buffers: String,
    pub(super) max_wal_size: String,
}

impl Machine {
    /// This one, as far as it tells.
    pub(super) fn look() -> Self {
        let read = |path| fs::read_to_string(path).ok();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: read("/proc/cpuinfo").and_then(|text| value_of(&text, "model name")),
            memory_bytes: read("/proc/meminfo").and_then(|text| {
                let kib: u64 = value_of(&text, "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
                Some(kib * 1_024)
            }),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            load_1m: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}

impl Versions {
    /// Of this program alone.
    pub(super) fn own() -> Self {
        let optimised = !cfg!(debug_assertions);
        Self { aivideo: env!("CARGO_PKG_VERSION"), optimised, postgres: None, redis: None }
    }
}

/// `7.0.15` of `Redis server v=7.0.15 sha=…`, of the program that the demo starts.
pub(super) fn redis_version() -> Option<String> {
    let output = Command::new(crate::demo::redis_server().ok()?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().find_map(|word| word.strip_prefix("v=")).map(str::to_owned)
}

/// The first value of a key in a file of `key : value` lines.
fn value_of(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_what_it_is() {
        let machine = Machine::look();
        assert!(
            machine.cores > 0 && machine.kernel.is_some() && machine.memory_bytes > Some(1 << 20),
            "{machine:?}"
        );
        let version = redis_version().unwrap();
        assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    }

    #[test]
    fn values_are_found_by_their_whole_key() {
        let text = "model\t\t: 49\nmodel name\t: Some CPU: fast\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("Some CPU: fast"));
        assert_eq!(value_of(text, "name"), None);
    }
}
