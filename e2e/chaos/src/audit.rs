//! The platform's own proof, asked for as an operator would: by `aivideo audit`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::time::sleep;

use crate::{journal::Journal, servers::command};

/// The audit reads everything once.
const AUDIT_MAX: Duration = Duration::from_secs(180);
/// A lease, two looks of the reconciler, and patience with a busy machine.
const SLOTS_SETTLE_MAX: Duration = Duration::from_secs(30);
/// Between two audits while slots settle.
const LOOK: Duration = Duration::from_millis(500);
/// The exit code of an audit that came to no result, since a store did not answer in time. On a busy machine that is no
/// news, if it comes to one at all.
const NO_RESULT: i32 = 2;
const TRIES_MAX: u32 = 4;

/// Every violation that lasts. What a killed process or an unreachable Redis left in the slot sets may stay there until
/// nobody vouches for it any more, so for that long slots alone may disagree.
pub(crate) async fn audit(
    aivideo: &Path,
    folder: &Path,
    variables: &[(String, String)],
    journal: &Journal,
) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let rows = once(aivideo, folder, variables).await?;
        let slots_alone = rows.iter().all(|row| row.starts_with("slots_are_live_attempts"));
        if rows.is_empty() || !slots_alone || begun.elapsed() > SLOTS_SETTLE_MAX {
            return Ok(rows);
        }
        journal.note(format!("{} slots are not settled yet", rows.len()));
        sleep(LOOK).await;
    }
}

/// The rows of one audit; none when it is content.
async fn once(aivideo: &Path, folder: &Path, variables: &[(String, String)]) -> anyhow::Result<Vec<String>> {
    let mut tries = 1;
    loop {
        let mut audit = command(aivideo, folder);
        audit.arg("audit").envs(variables.iter().map(|(name, value)| (name, value)));
        let output =
            tokio::time::timeout(AUDIT_MAX, audit.output()).await.context("the audit never ended")??;
        if output.status.code() == Some(NO_RESULT) && tries < TRIES_MAX {
            tries += 1;
            sleep(LOOK).await;
            continue;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut rows: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
        if !output.status.success() && rows.is_empty() {
            rows.push(format!("{} without a row: {}", output.status, text(&output.stderr).trim()));
        }
        return Ok(rows);
    }
}
