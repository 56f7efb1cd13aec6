//! Proves the degradation table: hurts one dependency after the other in every way, and prints a line for each. The exit
//! code is 0 when every promise was kept, 1 when one was broken, 2 when the run could not be made.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use chaos::faults::{FaultsReport, FaultsSettings, Row, Way, choose, faults, head};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Hurts what the platform stands on, one thing after the other, and checks what is promised for that.
///
/// The table goes to standard output, what happens meanwhile to standard error.
/// Build the binary first: cargo build -p app --bin aivideo
#[derive(Debug, Parser)]
#[command(name = "faults")]
struct Args {
    /// What is hurt; without it everything, one after the other.
    #[arg(long, value_enum, value_delimiter = ',')]
    row: Vec<Row>,
    /// How; without it in every way.
    #[arg(long, value_enum, value_delimiter = ',')]
    way: Vec<Way>,
    /// For how long each is hurt, 5 to 25; without it as long as its promises take to show.
    #[arg(long)]
    seconds: Option<u64>,
    /// How much later answers come where they come late, 200 to 1000 milliseconds.
    #[arg(long, default_value_t = 300)]
    delay_ms: u64,
    /// Print one JSON document instead of the table.
    #[arg(long)]
    json: bool,
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
    fn settings(&self) -> anyhow::Result<FaultsSettings> {
        let aivideo = match &self.aivideo {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("aivideo"),
        };
        let aivideo = aivideo.canonicalize().with_context(|| {
            format!("{} is not there; cargo build -p app --bin aivideo", aivideo.display())
        })?;
        Ok(FaultsSettings {
            aivideo,
            cases: choose(&self.row, &self.way).map_err(anyhow::Error::msg)?,
            seconds: self.seconds,
            delay_ms: self.delay_ms,
            folder: self.folder.clone(),
            kafka_script: self.kafka_script.canonicalize().ok(),
            keep: self.keep,
        })
    }

    async fn run(&self) -> anyhow::Result<FaultsReport> {
        let settings = self.settings()?;
        settings.check().map_err(anyhow::Error::msg)?;
        // Whatever ends the run, what it started ends with it.
        let mut terminated = signal(SignalKind::terminate())?;
        let show = !self.json;
        if show {
            println!("{}", head());
        }
        let each = |line: &_| {
            if show {
                println!("{line}");
            }
        };
        tokio::select! {
            report = faults(&settings, each) => report,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminated.recv() => anyhow::bail!("terminated"),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let told = args.run().await.and_then(|report| {
        let text = if args.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
        println!("{text}");
        Ok(report.is_good())
    });
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {error:#}");
            ExitCode::from(2)
        }
    }
}
