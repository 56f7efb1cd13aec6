//! The flags of `aivideo bench`, and what they come to once they are checked.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use thiserror::Error;

use super::target::{Target, TargetError};

/// Tasks whose arrivals the mock provider tells at once.
const TASKS_MAX: u64 = 100_000;
/// In flight unless said otherwise: a latency test and a saturation test.
const IN_FLIGHT: [usize; 2] = [64, 512];
/// How many values of `--in-flight` one run may have.
const IN_FLIGHT_VALUES_MAX: usize = 8;
/// Tasks of a run at least; at a higher number in flight, so many times that number.
const TASKS_AT_LEAST: usize = 2_000;
const TASKS_PER_SLOT: usize = 12;
/// How long a generation takes at the private mock provider unless said otherwise.
const GENERATION_MS: u64 = 200;

/// A figure on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Measure {
    /// Accepted generations a second, with the scheduler off and on.
    Submit,
    /// Status reads a second, of one task and of many.
    Read,
    /// Generations a second from submit to SUCCEEDED.
    EndToEnd,
    /// How long after the answer the provider sees the submit.
    StartLatency,
}

impl Measure {
    /// Its name on the command line and in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::EndToEnd => "end-to-end",
            Self::StartLatency => "start-latency",
        }
    }
}

fn up_to(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max)
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; everything unless some are named.
    #[arg(value_enum, value_name = "MEASURE")]
    measures: Vec<Measure>,
    /// A running deployment to measure, such as http://127.0.0.1:8080. Without it, private services are started
    /// in a temporary folder and removed afterwards.
    #[arg(long, value_name = "URL", requires = "key")]
    url: Option<String>,
    /// An API key of that deployment, with ample credits and no rate limit.
    #[arg(long, value_name = "KEY", env = "BENCH_KEY", hide_env_values = true)]
    key: Option<String>,
    /// That deployment's mock provider: tells when submits arrive, and how many generations end meanwhile.
    #[arg(long, value_name = "URL", requires = "url")]
    provider_url: Option<String>,
    /// Let load leave this machine. Ask whoever owns the other end first.
    #[arg(long)]
    allow_remote: bool,
    /// Connections that submit or read at once.
    #[arg(long, value_name = "N", default_value = "64", value_parser = up_to(1_024))]
    connections: usize,
    /// How long each submit and each read run goes on.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Runs of each figure; with several, medians are reported too.
    #[arg(long, value_name = "N", default_value = "1", value_parser = up_to(20))]
    runs: usize,
    /// Tasks of an end-to-end run. Without it 2,000, or 12 times the number in flight where that is more.
    #[arg(long, value_name = "N", value_parser = up_to(TASKS_MAX))]
    tasks: Option<usize>,
    /// How many tasks an end-to-end run keeps between submit and end, one run for each value. The smallest is
    /// used for start-latency.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = up_to(1_024))]
    in_flight: Vec<usize>,
    /// Tasks that the second read figure picks from.
    #[arg(long, value_name = "N", default_value = "20000", value_parser = up_to(TASKS_MAX))]
    ids: usize,
    /// Tasks that go through before anything is measured.
    #[arg(long, value_name = "N", default_value = "500", value_parser = up_to(TASKS_MAX))]
    warm_up: usize,
    /// How long a generation takes at the mock provider: 200 with private services. A given provider is left as
    /// it is unless this is given, and set back afterwards.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    generation_ms: Option<u64>,
    /// Print one JSON document when done, in place of the table.
    #[arg(long)]
    json: bool,
    /// Draw the figures into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What is wrong with the flags taken together.
#[derive(Debug, Error)]
pub(super) enum SettingsError {
    #[error("--url: {0}")]
    Url(TargetError),
    #[error("--provider-url: {0}")]
    ProviderUrl(TargetError),
    #[error("--key: no characters of a header")]
    Key,
    #[error("--in-flight: more than {IN_FLIGHT_VALUES_MAX} values")]
    InFlight,
    #[error("start-latency: only the provider can tell, so it needs --provider-url")]
    NoProvider,
    #[error("--generation-ms: only the mock provider can be told, so it needs --provider-url")]
    NobodyToTell,
}

/// Whom to measure.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one of these, and never moves it about")]
pub(super) enum Against {
    /// Services of our own.
    Private,
    /// Somebody's deployment, and its mock provider if that is known.
    Given { api: Target, provider: Option<Target> },
}

/// The flags, checked.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) measures: Vec<Measure>,
    pub(super) against: Against,
    pub(super) connections: usize,
    pub(super) duration: Duration,
    pub(super) runs: usize,
    pub(super) in_flight: Vec<usize>,
    pub(super) ids: usize,
    pub(super) warm_up: usize,
    /// `None` leaves a given provider as it is.
    pub(super) generation: Option<Duration>,
    pub(super) json: bool,
    pub(super) plot: Option<PathBuf>,
    tasks: Option<usize>,
}

impl Settings {
    /// Checks what clap could not.
    pub(super) async fn from_args(args: BenchArgs) -> Result<Self, SettingsError> {
        let mut measures = args.measures;
        measures.sort_unstable();
        measures.dedup();
        let named = measures.contains(&Measure::StartLatency);
        if measures.is_empty() {
            measures = Measure::value_variants().to_vec();
        }
        let mut in_flight = if args.in_flight.is_empty() { IN_FLIGHT.to_vec() } else { args.in_flight };
        in_flight.sort_unstable();
        in_flight.dedup();
        if in_flight.len() > IN_FLIGHT_VALUES_MAX {
            return Err(SettingsError::InFlight);
        }
        let against = match args.url {
            None => Against::Private,
            Some(url) => {
                let key = args.key.unwrap_or_default();
                let api =
                    Target::parse(&url, &key, args.allow_remote).await.map_err(|error| match error {
                        TargetError::Key => SettingsError::Key,
                        error => SettingsError::Url(error),
                    })?;
                let provider = match args.provider_url {
                    None => None,
                    Some(url) => {
                        let provider = Target::parse(&url, "bench", args.allow_remote).await;
                        Some(provider.map_err(SettingsError::ProviderUrl)?)
                    }
                };
                Against::Given { api, provider }
            }
        };
        if matches!(against, Against::Given { provider: None, .. }) {
            if named {
                return Err(SettingsError::NoProvider);
            }
            if args.generation_ms.is_some() {
                return Err(SettingsError::NobodyToTell);
            }
            measures.retain(|measure| *measure != Measure::StartLatency);
        }
        let default_ms = matches!(against, Against::Private).then_some(GENERATION_MS);
        Ok(Self {
            measures,
            against,
            connections: args.connections,
            duration: Duration::from_secs(args.seconds),
            runs: args.runs,
            in_flight,
            ids: args.ids,
            warm_up: args.warm_up,
            generation: args.generation_ms.or(default_ms).map(Duration::from_millis),
            json: args.json,
            plot: args.plot,
            tasks: args.tasks,
        })
    }

    /// Whether the figure was asked for.
    pub(super) fn wants(&self, measure: Measure) -> bool {
        self.measures.contains(&measure)
    }

    /// The numbers in flight that are run: all for the end-to-end rate, the smallest for the start latency alone.
    pub(super) fn in_flight_runs(&self) -> &[usize] {
        if self.wants(Measure::EndToEnd) {
            &self.in_flight
        } else if self.wants(Measure::StartLatency) {
            &self.in_flight[..1]
        } else {
            &[]
        }
    }

    /// How many tasks a run with so many in flight has.
    pub(super) fn tasks(&self, in_flight: usize) -> usize {
        self.tasks.unwrap_or_else(|| TASKS_AT_LEAST.max(TASKS_PER_SLOT * in_flight))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(line: &str) -> Result<BenchArgs, String> {
        let words = ["aivideo", "bench"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Bench(args) => Ok(args),
            other => panic!("another command: {other:?}"),
        }
    }

    async fn settings(line: &str) -> Result<Settings, String> {
        Settings::from_args(parse(line)?).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn without_flags_everything_is_measured_on_private_services() {
        let settings = settings("").await.unwrap();
        assert_eq!(settings.measures.len(), 4);
        assert!(matches!(settings.against, Against::Private));
        assert_eq!(
            (settings.in_flight_runs(), settings.tasks(64), settings.tasks(512)),
            (&[64, 512][..], 2_000, 6_144)
        );
        assert_eq!(settings.generation, Some(Duration::from_millis(200)));
    }

    #[tokio::test]
    async fn measures_are_run_once_each_and_the_start_latency_alone_at_the_smallest_number() {
        let only = settings("start-latency start-latency --in-flight 128,32 --tasks 10").await.unwrap();
        assert_eq!(
            (only.measures.as_slice(), only.in_flight_runs()),
            (&[Measure::StartLatency][..], &[32][..])
        );
        assert_eq!(only.tasks(32), 10);
        assert!(settings("read").await.unwrap().in_flight_runs().is_empty());
    }

    #[tokio::test]
    async fn load_stays_on_this_machine_unless_somebody_says_otherwise() {
        let refused = settings("--url http://192.0.2.7:8080 --key k").await.unwrap_err();
        assert!(refused.contains("--url") && refused.contains("--allow-remote"), "{refused}");
        let given = settings("--url http://192.0.2.7:8080 --key k --allow-remote").await.unwrap();
        assert!(matches!(given.against, Against::Given { provider: None, .. }));
        assert!(!given.wants(Measure::StartLatency), "nobody could tell");
        assert_eq!(given.generation, None);
        let line = "--url http://127.0.0.1:1 --key k --provider-url http://192.0.2.7:9090";
        let refused = settings(line).await.unwrap_err();
        assert!(refused.contains("--provider-url") && refused.contains("--allow-remote"), "{refused}");
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_by_name() {
        for (line, named) in [
            ("submits", "submits"),
            ("--connections 0", "--connections"),
            ("--seconds 601", "--seconds"),
            ("--runs 21", "--runs"),
            ("--tasks many", "--tasks"),
            ("--in-flight 64,2000", "--in-flight"),
            ("--in-flight 1,2,3,4,5,6,7,8,9", "--in-flight"),
            ("--generation-ms 0", "--generation-ms"),
            ("--url http://127.0.0.1:1", "--key"),
            ("--provider-url http://127.0.0.1:1", "--url"),
            ("--url ftp://127.0.0.1 --key k", "--url"),
            ("start-latency --url http://127.0.0.1:1 --key k", "--provider-url"),
            ("read --url http://127.0.0.1:1 --key k --generation-ms 5", "--provider-url"),
        ] {
            let refused = settings(line).await.expect_err(line);
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }
}
