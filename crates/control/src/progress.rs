//! Progress between versions: what the provider says, too fine for a row per step.

use std::time::Duration;

use domain::TaskId;

use crate::{Control, ControlError, instance::command, script::Script, ttl::jittered_ms};

/// How long progress is worth showing that nobody repeats.
const TTL: Duration = Duration::from_secs(600);

/// How far a task is, ordered by version, then percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Progress {
    /// The version of the task that it belongs to.
    pub version: i32,
    /// 0 to 100.
    pub percent: u8,
}

impl Control {
    /// Sets progress, each only if it is later than what is there. Returns for each whether it was.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn set_progress(&self, of: &[(TaskId, Progress)]) -> Result<Vec<bool>, ControlError> {
        let calls = of.iter().map(|(task, progress)| {
            Script::ProgressSet
                .on(&[self.keys().progress(*task)])
                .arg(progress.version)
                .arg(progress.percent.min(100))
                .arg(jittered_ms(TTL))
        });
        self.0.cache.calls_as(calls.collect()).await
    }

    /// Progress as far as it is known.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn get_progress(&self, tasks: &[TaskId]) -> Result<Vec<Option<Progress>>, ControlError> {
        let calls = tasks.iter().map(|task| command("GET").arg(self.keys().progress(*task)));
        let texts: Vec<Option<String>> = self.0.cache.calls_as(calls.collect()).await?;
        Ok(texts.into_iter().map(|text| text.as_deref().and_then(read)).collect())
    }
}

/// `version:percent`; anything else is as good as nothing.
fn read(text: &str) -> Option<Progress> {
    let (version, percent) = text.split_once(':')?;
    Some(Progress { version: version.parse().ok()?, percent: percent.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Corner;

    #[tokio::test]
    async fn progress_never_goes_back_within_a_version_and_never_to_an_earlier_one() {
        let corner = Corner::new();
        let task = TaskId::generate();
        let steps =
            [(2, 10, true), (2, 40, true), (2, 30, false), (2, 40, false), (1, 99, false), (3, 5, true)];
        for (version, percent, later) in steps {
            let set = corner.control.set_progress(&[(task, Progress { version, percent })]).await;
            assert_eq!(set, Ok(vec![later]), "{version}:{percent}");
        }
        let found = corner.control.get_progress(&[task, TaskId::generate()]).await;
        assert_eq!(found, Ok(vec![Some(Progress { version: 3, percent: 5 }), None]));
    }
}
