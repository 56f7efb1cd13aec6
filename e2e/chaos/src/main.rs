//! The long form of the chaos suite, by arguments. The exit code is 0 when every promise was kept, 1 when one was
//! broken, 2 when the run could not be made.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use chaos::{Scenario, Settings, mixed_roles, run};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the real binary as several processes under faults, and audits what is left.
///
/// Build the binary first: cargo build --release -p app --bin aivideo
#[derive(Debug, Parser)]
struct Args {
    /// What is to happen.
    #[arg(long, value_enum, default_value = "storm")]
    scenario: Scenario,
    /// How many tasks are submitted. Without it 20,000, or what the scenario is about.
    #[arg(long)]
    tasks: Option<usize>,
    /// How many processes run. Their roles are mixed; --roles decides them.
    #[arg(long, default_value_t = 3)]
    processes: usize,
    /// The roles of each process, one argument per process, such as api,relay.
    #[arg(long)]
    roles: Vec<String>,
    /// How many times a process is killed with -9.
    #[arg(long, default_value_t = 100)]
    kills: usize,
    /// For how long tasks are submitted and faults happen. Without it five seconds per kill, or what the scenario
    /// is about.
    #[arg(long)]
    seconds: Option<u64>,
    /// Decides everything that is left to chance; without it chance decides the seed.
    #[arg(long)]
    seed: Option<u64>,
    /// What carries tasks to the schedulers: postgres, kafka://host:port, or kafka for a private broker. Without it
    /// postgres, or kafka where the scenario is about it.
    #[arg(long)]
    queue: Option<String>,
    /// How long the tasks may take to end once every fault is lifted.
    #[arg(long, default_value_t = 300)]
    rest_seconds: u64,
    /// The binary; without it the `aivideo` beside this program.
    #[arg(long)]
    aivideo: Option<PathBuf>,
    /// Where logs and data go; removed after a good run.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The script that runs a private broker.
    #[arg(long, default_value = "scripts/kafka.sh")]
    kafka_script: PathBuf,
    /// Keep the folder also after a good run.
    #[arg(long)]
    keep: bool,
}

impl Args {
    fn settings(self) -> anyhow::Result<Settings> {
        let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("aivideo"));
        let aivideo = match self.aivideo {
            Some(path) => path,
            None => beside()?,
        };
        let aivideo = aivideo.canonicalize().with_context(|| {
            format!("{} is not there; cargo build -p app --bin aivideo", aivideo.display())
        })?;
        let everything = "api,relay,scheduler".to_owned();
        let (processes, tasks, seconds) = match self.scenario {
            Scenario::Storm => (mixed_roles(self.processes), 20_000, (self.kills as u64 * 5).max(30)),
            Scenario::KafkaTwoProcesses => (vec![everything; 2], 2_000, 30),
            Scenario::KafkaOutage | Scenario::KafkaFreeze => (vec![everything; 2], 18_000, 90),
            Scenario::FiftyPlaces => (vec![everything; self.processes], 2_000, 20),
        };
        let queue = match self.scenario {
            Scenario::Storm | Scenario::FiftyPlaces => "postgres",
            Scenario::KafkaTwoProcesses | Scenario::KafkaOutage | Scenario::KafkaFreeze => "kafka",
        };
        anyhow::ensure!(self.processes > 0, "--processes: at least one");
        Ok(Settings {
            aivideo,
            scenario: self.scenario,
            tasks: self.tasks.unwrap_or(tasks),
            processes: if self.roles.is_empty() { processes } else { self.roles },
            kills: self.kills,
            seconds: self.seconds.unwrap_or(seconds).max(1),
            seed: self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
            queue: self.queue.unwrap_or_else(|| queue.to_owned()),
            rest_seconds: self.rest_seconds,
            folder: self.folder,
            kafka_script: self.kafka_script.canonicalize().ok(),
            keep: self.keep,
        })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let ran = async {
        let settings = Args::parse().settings()?;
        // Whatever ends the run, what it started ends with it.
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            report = run(&settings) => report,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminated.recv() => anyhow::bail!("terminated"),
        }
    };
    match ran.await {
        Ok(report) => {
            println!("{report}");
            if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}
