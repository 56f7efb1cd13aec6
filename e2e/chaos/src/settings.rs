//! What a run is told.

use std::path::PathBuf;

use clap::ValueEnum;

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Every kind of fault at random: kills, rolling restarts, an emptied or frozen Redis, a provider that
    /// misbehaves, clients that hang up, cancels.
    Storm,
    /// Two processes with every role, one killed in the middle and restarted, then an emptied Redis: all tasks
    /// succeed. On Kafka where `--queue` names it.
    KafkaTwoProcesses,
    /// A broker that is killed and away for a minute under a steady load: every submit is accepted at once, and all
    /// tasks succeed.
    KafkaOutage,
    /// The same with a broker that only stops answering.
    KafkaFreeze,
    /// A provider with fifty places and processes with every role. Two of them are killed, Redis is emptied and later
    /// comes back empty from a kill: never more than fifty jobs at once, and all tasks succeed.
    FiftyPlaces,
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary.
    pub aivideo: PathBuf,
    /// What is to happen.
    pub scenario: Scenario,
    /// How many tasks are submitted.
    pub tasks: usize,
    /// The roles of each process, as `serve --roles` takes them.
    pub processes: Vec<String>,
    /// How many times a process is killed with -9.
    pub kills: usize,
    /// For how long tasks are submitted and faults happen, in seconds.
    pub seconds: u64,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// `postgres`, `kafka://host:port`, or `kafka` for a private broker of this run.
    pub queue: String,
    /// How long the tasks may take to end once the faults are lifted, in seconds.
    pub rest_seconds: u64,
    /// Where everything is kept; without it in the system's temporary folder. It is removed after a good run.
    pub folder: Option<PathBuf>,
    /// The script that runs a private broker, for `queue` = `kafka`.
    pub kafka_script: Option<PathBuf>,
    /// Keep the folder also after a good run.
    pub keep: bool,
}

impl Settings {
    /// The form that fits into every run of the tests: about a minute.
    #[must_use]
    pub fn short(aivideo: PathBuf, seed: u64) -> Self {
        Self {
            aivideo,
            scenario: Scenario::Storm,
            tasks: 500,
            processes: mixed_roles(3),
            kills: 8,
            seconds: 30,
            seed,
            queue: "postgres".to_owned(),
            rest_seconds: 300,
            folder: None,
            kafka_script: None,
            keep: false,
        }
    }
}

/// The roles of as many processes: everything in one, the API alone, the work alone, and so on. One with every role is
/// always among them, so that any number works.
#[must_use]
pub fn mixed_roles(processes: usize) -> Vec<String> {
    const MIX: [&str; 5] = ["api,relay,scheduler", "api", "relay,scheduler", "scheduler", "relay,api"];
    MIX.iter().cycle().take(processes).map(|&roles| roles.to_owned()).collect()
}
