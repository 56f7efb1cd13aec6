//! How long short jobs take, as their ends have shown, so that each is first looked at when it should be over.
//!
//! Looks show people progress, and find the end. A job that is over before anybody would call it running has no progress
//! to show, so looks before its end are for nothing, and the first one after it is what its owner waits for. The estimate
//! follows the ends like the round-trip time of a connection: a look that came too early lengthens it, and one that
//! found the job over shortens it a little, since nobody knows since when.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use domain::{ModelName, ProviderAccountId};

/// Entries at most: the routes there are. More come only from a configuration that changes.
const ROUTES_MAX: usize = 1_024;
/// How much of the estimate a new end is, in a job's own duration.
const GAIN: f64 = 0.2;
/// What a first look that found the job over leaves of the time it came after.
const SHORTEN_TO: f64 = 0.97;

/// How an end was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct End {
    /// From the acceptance to the look that found it.
    pub(crate) after: Duration,
    /// From the last look before that, if there was one: since then it was over.
    pub(crate) since_last: Option<Duration>,
}

/// Estimates by account and model there.
#[derive(Debug, Default)]
pub(crate) struct Usual(Mutex<HashMap<(ProviderAccountId, ModelName), Duration>>);

impl Usual {
    /// How long a job takes there, if one has ended.
    pub(crate) fn of(&self, route: &(ProviderAccountId, ModelName)) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(route).copied()
    }

    /// A job has ended there.
    pub(crate) fn learn(&self, route: &(ProviderAccountId, ModelName), end: End) {
        let sample = match end.since_last {
            Some(since) => end.after.saturating_sub(since / 2),
            None => end.after.mul_f64(SHORTEN_TO),
        };
        let mut estimates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(estimate) = estimates.get_mut(route) {
            *estimate = estimate.mul_f64(1.0 - GAIN) + sample.mul_f64(GAIN);
        } else if estimates.len() < ROUTES_MAX {
            estimates.insert(route.clone(), sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often and how late jobs of this duration are looked at, by somebody who looks when the estimate says so and
    /// then in steps: the looks per job, and from the end to the look that found it.
    fn look_at(usual: &Usual, jobs: u32, takes: Duration, step: Duration) -> (f64, Duration) {
        let route = ("mock".parse().unwrap(), "m".parse().unwrap());
        let (mut looks, mut late) = (0, Duration::ZERO);
        for _ in 0..jobs {
            let mut end = End { after: usual.of(&route).unwrap_or(step), since_last: None };
            looks += 1;
            while end.after < takes {
                end = End { after: end.after + step, since_last: Some(step) };
                looks += 1;
            }
            late += end.after - takes;
            usual.learn(&route, end);
        }
        (f64::from(looks) / f64::from(jobs), late / jobs)
    }

    #[test]
    fn jobs_that_take_the_same_time_are_looked_at_about_once_and_hardly_late() {
        let usual = Usual::default();
        let (ms, step) = (Duration::from_millis, Duration::from_millis(50));
        look_at(&usual, 50, ms(200), step);
        let (looks, late) = look_at(&usual, 500, ms(200), step);
        assert!(looks < 1.5 && late < ms(25), "{looks} looks, {late:?} late");
        // Another duration is learnt, upwards and downwards.
        look_at(&usual, 200, ms(350), step);
        let (looks, late) = look_at(&usual, 500, ms(350), step);
        assert!(looks < 1.5 && late < ms(25), "{looks} looks, {late:?} late");
        look_at(&usual, 300, ms(100), step);
        let (looks, late) = look_at(&usual, 500, ms(100), step);
        assert!(looks < 1.5 && late < ms(25), "{looks} looks, {late:?} late");
    }

    #[test]
    fn routes_are_judged_one_by_one_and_bounded() {
        let usual = Usual::default();
        let end = End { after: Duration::from_millis(100), since_last: None };
        for number in 0..2 * ROUTES_MAX {
            usual.learn(&("mock".parse().unwrap(), format!("m{number}").parse().unwrap()), end);
        }
        assert_eq!(usual.0.lock().unwrap().len(), ROUTES_MAX);
        assert_eq!(usual.of(&("other".parse().unwrap(), "m1".parse().unwrap())), None);
    }
}
