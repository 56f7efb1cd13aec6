//! How long it may take, as a range. Rough on purpose: a figure that looks exact would be believed.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use domain::wait::{Eta, Wait, WaitReason};

/// How much sooner and later than usual a generation may end, in tenths.
const SOONER_TENTHS: u64 = 8;
const LATER_TENTHS: u64 = 15;

/// Until a queued task starts: the generations before it, `places` at a time.
pub(super) fn until_start(
    usual: Duration,
    places: u32,
    position: Option<u64>,
    wait: Option<&Wait>,
    now: DateTime<Utc>,
) -> Option<Eta> {
    let mut places = u64::from(places.max(1));
    let mut not_before_ms = 0;
    match wait.map(|wait| (wait.reason, &wait.detail)) {
        // Nobody knows when an operator or a recovery comes.
        Some((WaitReason::ProviderPaused | WaitReason::BreakerOpen | WaitReason::ControlUnavailable, _)) => {
            return None;
        }
        Some((WaitReason::NotBefore | WaitReason::ProviderBackoff, detail)) => {
            not_before_ms = u64::try_from((detail.until? - now).num_milliseconds()).unwrap_or(0);
        }
        Some((WaitReason::UserConcurrency | WaitReason::TenantConcurrency, detail)) => {
            places = places.min(u64::from(detail.limit?.max(1)));
        }
        _ => {}
    }
    let position = position?.max(1);
    let usual_ms = u64::try_from(usual.as_millis()).ok()?;
    let each_ms = usual_ms.div_ceil(places);
    let earliest = each_ms.saturating_mul(position - 1).saturating_mul(SOONER_TENTHS) / 10;
    let latest = each_ms.saturating_mul(position).saturating_mul(LATER_TENTHS) / 10;
    Some(rounded(earliest.max(not_before_ms), latest.saturating_add(not_before_ms)))
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

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn wait(reason: WaitReason, detail: WaitDetail) -> Option<Wait> {
        Some(Wait { reason, detail })
    }

    fn start(places: u32, position: u64, wait: Option<Wait>) -> Option<(u64, u64)> {
        let usual = Duration::from_secs(60);
        until_start(usual, places, Some(position), wait.as_ref(), NOW)
            .map(|eta| (eta.from_seconds, eta.to_seconds))
    }

    #[test]
    fn the_next_may_start_at_once_and_others_wait_their_turn() {
        assert_eq!(start(10, 1, None), Some((0, 9)));
        assert_eq!(start(10, 10, None), Some((40, 90)));
        assert_eq!(until_start(Duration::from_secs(60), 1, None, None, NOW), None);
    }

    #[test]
    fn the_narrowest_limit_counts() {
        let limit = WaitDetail { limit: Some(1), ..WaitDetail::default() };
        assert_eq!(start(10, 1, wait(WaitReason::UserConcurrency, limit)), Some((0, 90)));
    }

    #[test]
    fn what_waits_for_people_has_no_estimate() {
        assert_eq!(start(1, 1, wait(WaitReason::ProviderPaused, WaitDetail::default())), None);
    }

    #[test]
    fn a_pause_comes_first() {
        let until = WaitDetail { until: Some(NOW + TimeDelta::seconds(8)), ..WaitDetail::default() };
        assert_eq!(start(100, 1, wait(WaitReason::NotBefore, until)), Some((8, 9)));
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
