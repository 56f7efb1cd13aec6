//! How long it may take, as a range. Rough on purpose: a figure that looks exact would be believed.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use control::{Place, ServiceTime};
use domain::wait::{Eta, Wait, WaitReason};

use super::room::Room;

/// How much sooner and later than usual a generation may end, in tenths.
const SOONER_TENTHS: u64 = 8;
const LATER_TENTHS: u64 = 15;
/// Starting takes a moment also where there is room.
const MOMENT_MS: f64 = 1_000.0;
/// How many average deviations a range spans to each side, and how much of the time besides, for what was not measured.
const SPREAD: f64 = 2.0;
const SPREAD_SHARE: f64 = 0.1;

/// Until a queued task starts.
///
/// A task starts when as many places have become free as there are tasks before it. With `n` places, jobs end at least
/// once each per service time, at whatever moment of it: so after `r` service times at least `r * n` places have become free,
/// and before it at most `(r + 1) * n`. What is before it and how long jobs take are measured; the range holds whatever the
/// jobs' phases, as long as nobody comes who goes before it. A task at a limit of its own waits for its own jobs besides.
pub(super) fn until_start(
    service: ServiceTime,
    room: &Room,
    place: Place,
    wait: Option<&Wait>,
    now: DateTime<Utc>,
) -> Option<Eta> {
    let mut not_before_ms = 0;
    let (mut own_turn, mut own_places) = (0, 1);
    match wait.map(|wait| (wait.reason, &wait.detail)) {
        // Nobody knows when an operator or a recovery comes.
        Some((WaitReason::ProviderPaused | WaitReason::BreakerOpen | WaitReason::ControlUnavailable, _)) => {
            return None;
        }
        Some((WaitReason::NotBefore | WaitReason::ProviderBackoff | WaitReason::ProviderRate, detail)) => {
            not_before_ms = u64::try_from((detail.until? - now).num_milliseconds()).unwrap_or(0);
        }
        Some((WaitReason::UserConcurrency, _)) => (own_turn, own_places) = (place.of_user, room.user.limit),
        Some((WaitReason::TenantConcurrency, _)) => {
            (own_turn, own_places) = (place.of_tenant, room.tenant.limit);
        }
        _ => {}
    }
    let of_model = place.of_model.saturating_sub(room.free().into());
    let (from, to) = after_turns(service, of_model, room.places());
    let (own_from, own_to) = after_turns(service, own_turn, own_places);
    Some(rounded(from.max(own_from).max(not_before_ms), to.max(own_to).saturating_add(not_before_ms)))
}

/// When the place comes for which so many wait, in ms: at once for none.
fn after_turns(service: ServiceTime, turns: u64, places: u32) -> (u64, u64) {
    let places = u64::from(places.max(1));
    let Some(before) = turns.checked_sub(1) else { return (0, whole(MOMENT_MS)) };
    let ms = |times: u64, towards: f64| {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let times = times as f64;
        let [mean, deviation] = [service.mean, service.deviation].map(|time| time.as_secs_f64() * 1_000.0);
        // Deviations of jobs one after the other partly even out.
        let spread = SPREAD * deviation * times.sqrt() + SPREAD_SHARE * mean * times;
        whole(mean * times + towards * spread)
    };
    (ms(before / places, -1.0), ms(turns.div_ceil(places), 1.0).saturating_add(whole(MOMENT_MS)))
}

/// Whole milliseconds; nothing below zero.
fn whole(ms: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or_default().as_millis()).unwrap_or(0)
}

/// Until a running generation ends. None once it takes longer than it ever should: then nobody knows.
pub(super) fn until_end(usual: Duration, elapsed: TimeDelta, progress: Option<u8>) -> Option<Eta> {
    let usual_ms = u64::try_from(usual.as_millis()).ok()?;
    let elapsed_ms = u64::try_from(elapsed.num_milliseconds()).unwrap_or(0);
    // With progress, what is left of it takes as long as it took to get here; else the usual time counts.
    let whole_ms = match progress {
        Some(percent @ 10..) if elapsed_ms > 0 => elapsed_ms.saturating_mul(100) / u64::from(percent),
        _ => usual_ms,
    };
    let latest =
        (whole_ms.saturating_mul(LATER_TENTHS) / 10).checked_sub(elapsed_ms).filter(|left| *left > 0)?;
    let earliest = (whole_ms.saturating_mul(SOONER_TENTHS) / 10).saturating_sub(elapsed_ms);
    Some(rounded(earliest, latest))
}

/// Whole seconds, and coarser the further away, so that the figure (and with it the ETag) doesn't change on every
/// read.
fn rounded(from_ms: u64, to_ms: u64) -> Eta {
    let (from, to) = (from_ms / 1_000, to_ms.div_ceil(1_000));
    let step = match to {
        0..20 => 1,
        20..120 => 5,
        120..1_200 => 30,
        _ => 300,
    };
    Eta { from_seconds: from / step * step, to_seconds: to.div_ceil(step) * step }
}

#[cfg(test)]
mod tests {
    use domain::wait::WaitDetail;

    use super::*;
    use crate::live::room::{Filled, RouteRoom};

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn wait(reason: WaitReason, until: Option<DateTime<Utc>>) -> Option<Wait> {
        Some(Wait { reason, detail: WaitDetail { until, ..WaitDetail::default() } })
    }

    const STEADY: ServiceTime = ServiceTime { mean: Duration::from_secs(60), deviation: Duration::ZERO };

    /// A model with so many places of which so many are taken.
    fn room(used: u32, limit: u32) -> Room {
        let (filled, own) = (Filled { used, limit }, Filled { used: 1, limit: 1 });
        Room { tenant: own, user: own, routes: vec![RouteRoom { account: filled, model: filled }] }
    }

    fn start(room: &Room, of_model: u64, wait: Option<Wait>) -> Option<(u64, u64)> {
        let place = Place { of_model, of_tenant: 3, of_user: 2 };
        until_start(STEADY, room, place, wait.as_ref(), NOW).map(|eta| (eta.from_seconds, eta.to_seconds))
    }

    #[test]
    fn who_finds_room_starts_at_once_and_others_after_those_before_them() {
        assert_eq!(start(&room(7, 10), 3, None), Some((0, 1)));
        let (next, last) = (start(&room(7, 10), 4, None), start(&room(7, 10), 13, None));
        assert_eq!((next, last), (Some((0, 70)), Some((0, 70))), "wherever the running ones are");
        assert_eq!(start(&room(10, 10), 11, None), Some((30, 150)));
        assert_eq!(start(&room(10, 10), 101, None), Some((540, 750)));
    }

    /// Plays it through: jobs begun at any phase, one task after the other at whatever place becomes free.
    #[test]
    fn the_range_holds_whatever_the_phases_of_the_running_jobs() {
        for phase in [0_u64, 1, 3, 6] {
            let mut free_at: Vec<u64> = (0..10).map(|place| 60_u64.saturating_sub(place * phase)).collect();
            for position in 1..=60 {
                let (place, starts) = free_at.iter().copied().enumerate().min_by_key(|(_, at)| *at).unwrap();
                let (from, to) = start(&room(10, 10), position, None).unwrap();
                assert!((from..=to).contains(&starts), "{position}: {starts} is not in {from} to {to}");
                free_at[place] = starts + 60;
            }
        }
    }

    #[test]
    fn jobs_that_differ_make_a_wider_range() {
        let place = Place { of_model: 21, of_tenant: 1, of_user: 1 };
        let range = |deviation| {
            let service = ServiceTime { deviation: Duration::from_secs(deviation), ..STEADY };
            let eta = until_start(service, &room(10, 10), place, None, NOW).unwrap();
            eta.to_seconds - eta.from_seconds
        };
        assert!(range(0) < range(10) && range(10) < range(20));
    }

    #[test]
    fn who_is_at_a_limit_waits_for_their_own_jobs() {
        let of_user = start(&room(0, 10), 1, wait(WaitReason::UserConcurrency, None));
        let of_tenant = start(&room(0, 10), 1, wait(WaitReason::TenantConcurrency, None));
        assert_eq!((of_user, of_tenant), (Some((30, 150)), Some((90, 210))));
    }

    #[test]
    fn what_waits_for_people_has_no_estimate() {
        for reason in [WaitReason::ProviderPaused, WaitReason::BreakerOpen, WaitReason::ControlUnavailable] {
            assert_eq!(start(&room(0, 1), 1, wait(reason, None)), None, "{reason}");
        }
    }

    #[test]
    fn a_pause_comes_first() {
        let until = Some(NOW + TimeDelta::seconds(8));
        assert_eq!(start(&room(0, 9), 1, wait(WaitReason::NotBefore, until)), Some((8, 9)));
        assert_eq!(start(&room(0, 9), 1, wait(WaitReason::ProviderBackoff, until)), Some((8, 9)));
    }

    #[test]
    fn a_running_task_counts_down_and_a_late_one_promises_nothing() {
        let end = |elapsed, progress| {
            until_end(Duration::from_secs(60), TimeDelta::seconds(elapsed), progress)
                .map(|eta| (eta.from_seconds, eta.to_seconds))
        };
        assert_eq!(end(0, None), Some((45, 90)));
        assert_eq!(end(30, Some(50)), Some((15, 60)));
        assert_eq!(end(30, None), Some((15, 60)));
        assert_eq!(end(91, None), None);
        assert_eq!(end(-5, None), Some((45, 90)), "clocks may differ");
    }
}
