//! `aivideo audit`: every owner checks its own invariants; a row per violation, and exit code 1 when there is any.
//!
//! Whoever runs it from a timer must be able to tell "credits are wrong" from "PostgreSQL was away", so an audit that
//! could not be carried through has an exit code of its own.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use control::SlotSet;
use domain::AttemptRef;
use futures::FutureExt;
use pg::Violation;
use task_state::LiveSlot;

use crate::{commands::load, compose::Stores, config::Needs, telemetry};

/// A deadline may be over by one sweep and what a busy one takes.
const SWEEP: Duration = Duration::from_secs(10);
/// What the oldest message may have waited in a system that works.
const OUTBOX_AGE_MAX: Duration = Duration::from_secs(60);
/// Slots are compared twice, this far apart: what differs both times is no difference of a moment.
const SLOTS_APART: Duration = Duration::from_secs(2);

/// The exit code of an audit that came to no result; 1 means violations and nothing else.
const NOT_CARRIED_THROUGH: u8 = 2;

pub(super) async fn audit(file: Option<&Path>) -> ExitCode {
    match carry_through(file).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("aivideo: no result of the audit: {error:#}");
            ExitCode::from(NOT_CARRIED_THROUGH)
        }
    }
}

async fn carry_through(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = load(file, Needs::All)?;
    telemetry::start_logs(&config.log)?;
    let stores = Stores::open(&config).await?;
    let mut violations = facts(&stores).await?;
    violations.extend(slots(&stores).await?);
    let mut out = std::io::stdout().lock();
    for violation in &violations {
        writeln!(out, "{violation}").context("cannot print")?;
    }
    if violations.is_empty() {
        eprintln!("no violation");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{} violations", violations.len());
    Ok(ExitCode::FAILURE)
}

/// Everything that PostgreSQL and the storage say, from one snapshot that blocks nobody.
async fn facts(stores: &Stores) -> anyhow::Result<Vec<Violation>> {
    let media = stores.media.clone();
    let found = pg::read_snapshot(&stores.pool, move |conn| {
        async move {
            // An audit of a large deployment takes longer than any statement of the product may.
            sqlx::query("SET LOCAL statement_timeout = 0").execute(&mut *conn).await?;
            let mut found = ledger::audit(conn).await?;
            found.extend(tenancy::audit(conn).await?);
            found.extend(task_state::audit::audit(conn, SWEEP).await?);
            found.extend(outbox::audit(conn, OUTBOX_AGE_MAX).await?);
            found.extend(media.audit(conn).await?);
            Ok::<_, pg::PgError>(found)
        }
        .boxed()
    });
    found.await.context("the audit could not be finished")
}

/// Slots in Redis are the live attempts in PostgreSQL.
async fn slots(stores: &Stores) -> anyhow::Result<Vec<Violation>> {
    let before = differences(stores).await?;
    if before.is_empty() {
        return Ok(Vec::new());
    }
    tokio::time::sleep(SLOTS_APART).await;
    let after = differences(stores).await?;
    let lasting = before.intersection(&after);
    let violation = |(subject, detail): &(String, &'static str)| Violation {
        rule: "slots_are_live_attempts",
        subject: subject.clone(),
        detail: (*detail).to_owned(),
    };
    Ok(lasting.map(violation).collect())
}

/// What one side has and the other has not.
async fn differences(stores: &Stores) -> anyhow::Result<HashSet<(String, &'static str)>> {
    let live = stores.task_state.all_live_slots().await?;
    let of = |slot: &LiveSlot| {
        [
            SlotSet::Account(slot.account.clone()),
            SlotSet::Model(slot.account.clone(), slot.model.clone()),
            SlotSet::Tenant(slot.tenant),
            SlotSet::User(slot.tenant, slot.user),
        ]
    };
    let mut wanted: HashMap<SlotSet, HashSet<AttemptRef>> = HashMap::new();
    for account in stores.catalogue.accounts() {
        wanted.entry(SlotSet::Account(account.id.clone())).or_default();
    }
    for slot in &live {
        for set in of(slot) {
            wanted.entry(set).or_default().insert(slot.attempt);
        }
    }
    let sets: Vec<SlotSet> = wanted.keys().cloned().collect();
    let members = stores.control.slot_members(&sets).await.context("Redis cannot be asked for its slots")?;
    let mut differences = HashSet::new();
    for (set, members) in sets.iter().zip(members) {
        let present: HashSet<AttemptRef> = members.into_iter().map(|member| member.attempt).collect();
        let wanted = &wanted[set];
        let name = |attempt: &AttemptRef| format!("{attempt} in {set:?}");
        differences
            .extend(wanted.difference(&present).map(|a| (name(a), "live in PostgreSQL, without a slot")));
        differences
            .extend(present.difference(wanted).map(|a| (name(a), "holds a slot, not live in PostgreSQL")));
    }
    Ok(differences)
}
