//! Which provider account a task goes to.
//!
//! A model may have routes to several accounts. Each task is given its own order of them: first the one whose turn it is by
//! the weights, then the others, so that what one account has no room for another takes. Accounts that operators paused are
//! not among them, nor those whose breaker is known to be open.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use catalogue::{AccountSpec, Intents};
use domain::{ModelName, ProviderAccountId, model::Model, wait::Wait};
use provider_adapter::Provider;

use crate::{loops::PassError, worker::Worker};

/// A route of a model, with the account that it leads to and the adapter that speaks to it.
pub(super) struct Way {
    pub(super) account: Arc<AccountSpec>,
    pub(super) provider_model: ModelName,
    pub(super) provider: Arc<dyn Provider>,
    weight: i64,
}

/// Where a model's tasks may go now.
pub(super) enum Ways {
    /// To these, in the order of the configuration.
    Open(Vec<Arc<Way>>),
    /// Nowhere: operators paused everything.
    Paused,
    /// Nowhere: the accounts that operators leave open were given all their jobs of the day. Until the first of them has
    /// room again, the tasks wait for this.
    Spent(Wait),
}

/// The ways that operators leave open and that were not given all their jobs of the day.
///
/// # Errors
/// When a route leads to an account that nobody serves.
pub(super) fn open_ways(worker: &Worker, model: &Model, intents: &Intents) -> Result<Ways, PassError> {
    let way = |route: &domain::model::Route| -> Result<Arc<Way>, PassError> {
        let (account, provider) = worker
            .catalogue
            .account(&route.account)
            .zip(worker.providers.get(&route.account))
            .ok_or_else(|| format!("no adapter serves the provider account {}", route.account))?;
        let provider_model = route.provider_model.clone();
        Ok(Arc::new(Way { account, provider_model, provider, weight: i64::from(route.weight) }))
    };
    let (mut open, mut spent) = (Vec::new(), Vec::new());
    for route in intents.open_routes(model) {
        match worker.health.spent(&route.account) {
            Some(wait) => spent.push(wait),
            None => open.push(way(route)?),
        }
    }
    let soonest = spent.into_iter().min_by_key(|wait| wait.detail.until);
    Ok(match soonest {
        _ if !open.is_empty() => Ways::Open(open),
        Some(wait) => Ways::Spent(wait),
        None => Ways::Paused,
    })
}

/// Whose turn it is: smooth weighted round robin. Every turn each account gains its weight, and the one that has most pays
/// the sum of all; so over any stretch of turns each comes as often as its weight says, evenly spread.
#[derive(Debug, Default)]
pub(super) struct Wheel(Mutex<BTreeMap<ProviderAccountId, i64>>);

impl Wheel {
    /// The ways of one task in the order in which they are to be tried, without those that are shut.
    pub(super) fn turn(
        &self,
        ways: &[Arc<Way>],
        is_shut: impl Fn(&ProviderAccountId) -> bool,
    ) -> VecDeque<Arc<Way>> {
        let open = ways.iter().filter(|way| !is_shut(&way.account.id)).cloned();
        let mut order: VecDeque<Arc<Way>> = open.collect();
        if order.len() < 2 {
            return order;
        }
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for way in &order {
            *standing.entry(way.account.id.clone()).or_default() += way.weight;
        }
        let stands = |way: &Arc<Way>| standing.get(&way.account.id).copied().unwrap_or_default();
        order.make_contiguous().sort_by_key(|way| std::cmp::Reverse(stands(way)));
        let all: i64 = order.iter().map(|way| way.weight).sum();
        if let Some(paid) = order.front().and_then(|first| standing.get_mut(&first.account.id)) {
            *paid -= all;
        }
        order
    }
}
