//! The degradation table, line by line: one dependency is hurt in one way while a few clients go on,
//! and what was promised for that is held against what was seen.
//!
//! Other than the storm of the chaos suite, which asks whether anything is lost when everything breaks at once, this
//! asks what people notice meanwhile when one thing breaks: which requests are refused, how long answers take, what the
//! providers get to see, what `/readyz`, the header and the metrics say, and how soon it is over.
//!
//! Read `cases` for what is hurt and `promises` for what has to hold then, `play` for the course of a case,
//! `traffic` and `watch` for what goes on during it, `stage` for the servers and how they are hurt, and
//! `figures`, `judge` and `books` for what becomes of it.

mod books;
mod cases;
mod figures;
mod judge;
mod play;
mod promises;
mod record;
mod report;
mod stage;
mod traffic;
mod watch;

use std::{fs, path::PathBuf, time::Duration};

pub use cases::{Case, Row, Way, choose};
pub use report::{CaseReport, FaultsReport, head};

use self::{
    cases::{DELAY_MS_MAX, DELAY_MS_MIN, SECONDS_MAX, SECONDS_MIN},
    play::Play,
    stage::Stage,
};
use crate::{
    folder::Folder,
    journal::{Journal, Screen},
};

/// How a run goes.
#[derive(Clone, Debug)]
pub struct FaultsSettings {
    /// The binary.
    pub aivideo: PathBuf,
    /// What is hurt, one after the other.
    pub cases: Vec<Case>,
    /// For how long each is hurt, in seconds; without it as long as its promises take to show.
    pub seconds: Option<u64>,
    /// How much later answers come where they come late, in milliseconds.
    pub delay_ms: u64,
    /// Where everything is kept; without it in the system's temporary folder. It is removed after a good run.
    pub folder: Option<PathBuf>,
    /// The script that runs a private broker.
    pub kafka_script: Option<PathBuf>,
    /// Keep the folder also after a good run.
    pub keep: bool,
}

impl FaultsSettings {
    /// # Errors
    /// Names the argument that would prove nothing.
    pub fn check(&self) -> Result<(), String> {
        let seconds = SECONDS_MIN..=SECONDS_MAX;
        if self.seconds.is_some_and(|wanted| !seconds.contains(&wanted)) {
            return Err(format!("--seconds: from {} to {}", seconds.start(), seconds.end()));
        }
        let delays = DELAY_MS_MIN..=DELAY_MS_MAX;
        if !delays.contains(&self.delay_ms) {
            return Err(format!("--delay-ms: from {} to {}", delays.start(), delays.end()));
        }
        Ok(())
    }

    fn outage_of(&self, case: Case) -> Duration {
        self.seconds.map_or(case.row.usual(), Duration::from_secs)
    }
}

/// Plays every case and hands each line of the table out as soon as it is there.
///
/// # Errors
/// When the run could not be made. What the platform did wrong stands in the report.
pub async fn faults(
    settings: &FaultsSettings,
    mut each: impl FnMut(&CaseReport),
) -> anyhow::Result<FaultsReport> {
    settings.check().map_err(anyhow::Error::msg)?;
    let folder = Folder::make(settings.folder.as_deref(), "aivideo-faults-")?;
    let journal = Journal::new(&folder.path, Screen::Error)?;
    journal.note(format!("folder {}", folder.path.display()));
    let played = async {
        let mut stage = Stage::start(&settings.aivideo, &folder.path, settings.kafka_script.clone()).await?;
        journal.note("the servers run");
        let mut report = FaultsReport::default();
        let mut ended = Vec::new();
        for &case in &settings.cases {
            let outage = settings.outage_of(case);
            let delay = Duration::from_millis(settings.delay_ms);
            let play = Play {
                aivideo: &settings.aivideo,
                folder: &folder.path,
                journal: &journal,
                case,
                outage,
                delay,
            };
            let line =
                play.run(&mut stage, &mut ended).await.map_err(|error| error.context(case.to_string()))?;
            each(&line);
            report.cases.push(line);
        }
        stage.stop().await?;
        anyhow::Ok(report)
    };
    let logs = || format!("logs and data: {}", folder.path.display());
    let report = played.await.map_err(|error| error.context(logs()))?;
    if report.is_good() && !settings.keep {
        fs::remove_dir_all(&folder.path)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seconds: Option<u64>, delay_ms: u64) -> FaultsSettings {
        FaultsSettings {
            aivideo: "aivideo".into(),
            cases: Vec::new(),
            seconds,
            delay_ms,
            folder: None,
            kafka_script: None,
            keep: false,
        }
    }

    #[test]
    fn what_would_prove_nothing_is_refused_by_the_name_of_its_argument() {
        assert_eq!(settings(None, 300).check(), Ok(()));
        assert_eq!(settings(Some(5), 300).check(), Ok(()));
        assert_eq!(settings(Some(26), 300).check(), Err("--seconds: from 5 to 25".to_owned()));
        assert_eq!(settings(None, 80).check(), Err("--delay-ms: from 200 to 1000".to_owned()));
    }
}
