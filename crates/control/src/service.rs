//! For how long a model's jobs hold their places, as all schedulers have measured it: what waits are reckoned from.

use std::time::Duration;

use domain::ModelName;

use crate::{
    Control, ControlError,
    instance::command,
    script::Script,
    ttl::{jittered_ms, millis},
};

/// How long figures are kept that no job adds to.
const KEEP: Duration = Duration::from_secs(24 * 3_600);
/// How much of the figures each job is.
const GAIN: f64 = 0.1;
/// Jobs taken in together at most.
const SAMPLES_MAX: usize = 256;

/// How long a model's jobs take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTime {
    /// On average.
    pub mean: Duration,
    /// How far from that they are on average.
    pub deviation: Duration,
}

impl Control {
    /// Takes in for how long jobs held their places; the first 256 of each model.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn learn_service_times(&self, of: &[(ModelName, Vec<Duration>)]) -> Result<(), ControlError> {
        let calls = of.iter().map(|(model, samples)| {
            let call = Script::ServiceLearn
                .on(&[self.keys().service(model)])
                .arg(jittered_ms(KEEP))
                .arg(format!("{GAIN:.3}"));
            samples.iter().take(SAMPLES_MAX).fold(call, |call, sample| call.arg(millis(*sample)))
        });
        self.0.control.calls_done(calls.collect()).await
    }

    /// How long each model's jobs take; none where nobody has seen one lately.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn service_times(
        &self,
        models: &[ModelName],
    ) -> Result<Vec<Option<ServiceTime>>, ControlError> {
        let calls = models
            .iter()
            .map(|model| command("HMGET").arg(self.keys().service(model)).arg("mean").arg("deviation"));
        let found: Vec<(Option<f64>, Option<f64>)> = self.0.control.calls_as(calls.collect()).await?;
        let time = |ms: f64| Duration::try_from_secs_f64(ms / 1_000.0).ok();
        Ok(found
            .into_iter()
            .map(|(mean, deviation)| Some(ServiceTime { mean: time(mean?)?, deviation: time(deviation?)? }))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Corner, model};

    async fn learn(corner: &Corner, ms: u64, times: usize) -> ServiceTime {
        let samples = vec![Duration::from_millis(ms); times];
        corner.control.learn_service_times(&[(model(), samples)]).await.unwrap();
        corner.control.service_times(&[model()]).await.unwrap()[0].unwrap()
    }

    #[tokio::test]
    async fn figures_follow_what_is_seen_by_whomever() {
        let corner = Corner::new();
        assert_eq!(corner.control.service_times(&[model()]).await, Ok(vec![None]));
        let first = learn(&corner, 1_000, 1).await;
        assert_eq!((first.mean.as_millis(), first.deviation.as_millis()), (1_000, 500));
        let steady = learn(&corner, 1_000, 60).await;
        assert!(steady.mean.as_millis() == 1_000 && steady.deviation.as_millis() < 5, "{steady:?}");
        let samples = vec![Duration::from_secs(3); 40];
        corner.other().learn_service_times(&[(model(), samples)]).await.unwrap();
        let slower = corner.control.service_times(&[model()]).await.unwrap()[0].unwrap();
        assert!((2_900..=3_000).contains(&slower.mean.as_millis()), "{slower:?}");
    }

    #[tokio::test]
    async fn jobs_that_differ_leave_a_deviation() {
        let corner = Corner::new();
        for _ in 0..40 {
            learn(&corner, 1_000, 1).await;
            learn(&corner, 3_000, 1).await;
        }
        let seen = learn(&corner, 2_000, 1).await;
        assert!((1_800..=2_200).contains(&seen.mean.as_millis()), "{seen:?}");
        assert!((800..=1_200).contains(&seen.deviation.as_millis()), "{seen:?}");
    }
}
