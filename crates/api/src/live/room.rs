//! How full the places are that a task needs, and what follows from it for its wait.

use chrono::{DateTime, Utc};
use domain::wait::{Wait, WaitDetail, WaitReason};

/// Places, and how many are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) used: u32,
    pub(super) limit: u32,
}

/// A model's places at one provider account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RouteRoom {
    /// Of the whole account.
    pub(super) account: Filled,
    /// Of the model there.
    pub(super) model: Filled,
}

/// Every place that a task may need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) tenant: Filled,
    pub(super) user: Filled,
    /// At the accounts that nobody paused.
    pub(super) routes: Vec<RouteRoom>,
}

impl Filled {
    pub(super) const fn free(self) -> u32 {
        self.limit.saturating_sub(self.used)
    }

    const fn as_wait(self, reason: WaitReason) -> Option<Wait> {
        if self.free() > 0 {
            return None;
        }
        let detail = WaitDetail { used: Some(self.used), limit: Some(self.limit), until: None };
        Some(Wait { reason, detail })
    }
}

impl Room {
    /// The user's or the tenant's own limit, if it is reached.
    pub(super) fn own_limit(&self) -> Option<Wait> {
        let of_user = self.user.as_wait(WaitReason::UserConcurrency);
        of_user.or_else(|| self.tenant.as_wait(WaitReason::TenantConcurrency))
    }

    /// What is full at the providers, if every account is: the accounts as a whole, or the model there.
    pub(super) fn model_limit(&self) -> Option<Wait> {
        if self.routes.is_empty() || self.free() > 0 {
            return None;
        }
        let sum = |of: fn(&RouteRoom) -> Filled| {
            self.routes.iter().map(of).fold(Filled { used: 0, limit: 0 }, |sum, one| Filled {
                used: sum.used.saturating_add(one.used),
                limit: sum.limit.saturating_add(one.limit),
            })
        };
        if self.routes.iter().all(|route| route.account.free() == 0) {
            return sum(|route| route.account).as_wait(WaitReason::ProviderConcurrency);
        }
        let models = sum(|route| route.model);
        let detail = WaitDetail { used: Some(models.used), limit: Some(models.limit), until: None };
        Some(Wait { reason: WaitReason::ModelConcurrency, detail })
    }

    /// The model's places at all accounts.
    pub(super) fn places(&self) -> u32 {
        let places = self.routes.iter().map(|route| route.model.limit.min(route.account.limit));
        places.fold(0, u32::saturating_add).max(1)
    }

    /// Those among them that nobody has.
    pub(super) fn free(&self) -> u32 {
        let free = self.routes.iter().map(|route| route.model.free().min(route.account.free()));
        free.fold(0, u32::saturating_add)
    }
}

/// Whether what a scheduler noted may hold still. Where places are counted at this moment (`counted`), a note about them
/// is older than the count.
pub(super) fn still_holds(wait: &Wait, counted: bool, now: DateTime<Utc>) -> bool {
    match wait.reason {
        WaitReason::UserConcurrency
        | WaitReason::TenantConcurrency
        | WaitReason::ModelConcurrency
        | WaitReason::ProviderConcurrency => !counted,
        _ => wait.detail.until.is_none_or(|until| until > now),
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    const fn filled(used: u32, limit: u32) -> Filled {
        Filled { used, limit }
    }

    fn room(user: Filled, tenant: Filled, routes: &[(Filled, Filled)]) -> Room {
        let routes = routes.iter().map(|(account, model)| RouteRoom { account: *account, model: *model });
        Room { tenant, user, routes: routes.collect() }
    }

    fn said(wait: Option<Wait>) -> Option<(WaitReason, u32, u32)> {
        wait.map(|wait| (wait.reason, wait.detail.used.unwrap(), wait.detail.limit.unwrap()))
    }

    #[test]
    fn the_narrowest_limit_that_is_reached_is_named_with_its_numbers() {
        let free = filled(0, 9);
        let open = [(free, free)];
        assert_eq!(said(room(free, free, &open).own_limit()), None);
        let own = room(filled(4, 4), filled(9, 9), &open).own_limit();
        assert_eq!(said(own), Some((WaitReason::UserConcurrency, 4, 4)));
        let tenant = room(filled(3, 4), filled(9, 9), &open).own_limit();
        assert_eq!(said(tenant), Some((WaitReason::TenantConcurrency, 9, 9)));
    }

    #[test]
    fn a_model_is_full_when_every_account_is() {
        let free = filled(0, 9);
        let of = |routes: &[(Filled, Filled)]| said(room(free, free, routes).model_limit());
        assert_eq!(of(&[(filled(5, 200), filled(5, 5))]), Some((WaitReason::ModelConcurrency, 5, 5)));
        assert_eq!(of(&[(filled(9, 9), filled(5, 9))]), Some((WaitReason::ProviderConcurrency, 9, 9)));
        assert_eq!(of(&[(filled(9, 9), free), (free, filled(1, 2))]), None);
        let mixed = [(filled(9, 9), filled(3, 9)), (filled(2, 8), filled(2, 2))];
        assert_eq!(of(&mixed), Some((WaitReason::ModelConcurrency, 5, 11)));
        assert_eq!(of(&[]), None);
        let two = room(free, free, &[(filled(9, 10), filled(0, 5)), (filled(2, 8), filled(2, 4))]);
        assert_eq!((two.places(), two.free()), (9, 3));
    }

    #[test]
    fn a_note_is_older_than_a_count_and_ends_with_its_time() {
        let now = DateTime::UNIX_EPOCH;
        let note = |reason, until| Wait { reason, detail: WaitDetail { until, ..WaitDetail::default() } };
        let full = note(WaitReason::UserConcurrency, None);
        assert_eq!([still_holds(&full, true, now), still_holds(&full, false, now)], [false, true]);
        for (seconds, holds) in [(-1, false), (1, true)] {
            let asked = note(WaitReason::ProviderBackoff, Some(now + TimeDelta::seconds(seconds)));
            assert_eq!(still_holds(&asked, true, now), holds);
        }
    }
}
