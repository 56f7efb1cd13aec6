//! Leases: a sign of life of whoever follows a task. Ownership itself is in PostgreSQL.

use std::{collections::BTreeMap, time::Duration};

use domain::{ModelName, ProviderAccountId, TaskId, TenantId, UserId, WorkerId, metric};
use serde::{Deserialize, Serialize};

use crate::{Control, ControlError, instance::command, script::Script, ttl::millis};

/// Who follows which attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// Its attempt.
    pub attempt_no: i32,
    /// The token that PostgreSQL issued; a higher one is a later owner.
    pub fencing_token: i64,
    /// The owner.
    pub worker: WorkerId,
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// The provider account.
    pub account: ProviderAccountId,
    /// The provider's model.
    pub model: ModelName,
}

/// What became of a lease that was put or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It is ours and lives on.
    Renewed,
    /// It is gone. Check the token in PostgreSQL, then put it again. (Never the answer to a put.)
    Absent,
    /// Another owner's, with this token: stop.
    OtherToken(i64),
}

/// Leases per script at most.
const CHUNK: usize = 500;

impl Control {
    /// Writes leases, unless one with a higher token is there.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn put_leases(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Renewal>, ControlError> {
        self.write_leases("put", leases, ttl).await
    }

    /// Prolongs leases: one script per account for all of them. Restores none that is gone.
    ///
    /// # Errors
    /// When control cannot be reached: go on following, since nobody takes over while control is away.
    pub async fn renew_leases(&self, leases: &[Lease], ttl: Duration) -> Result<Vec<Renewal>, ControlError> {
        let renewed = self.write_leases("renew", leases, ttl).await;
        let failed = match &renewed {
            Ok(renewals) => renewals.iter().filter(|renewal| **renewal != Renewal::Renewed).count(),
            Err(_) => leases.len(),
        };
        metrics::counter!(metric::SLOT_HEARTBEAT_FAILED).increment(u64::try_from(failed).unwrap_or(u64::MAX));
        renewed
    }

    async fn write_leases(
        &self,
        how: &str,
        leases: &[Lease],
        ttl: Duration,
    ) -> Result<Vec<Renewal>, ControlError> {
        let groups = by_account(leases);
        let mut calls = Vec::with_capacity(groups.len());
        for group in &groups {
            let mut call = Script::LeasePut.on(&self.lease_keys(group)).arg(how).arg(millis(ttl).max(1));
            for (_, lease) in group {
                let json = serde_json::to_string(lease)
                    .map_err(|error| ControlError::Protocol(error.to_string()))?;
                call = call.arg(lease.fencing_token).arg(json);
            }
            calls.push(call);
        }
        let replies: Vec<Vec<String>> = self.0.control.calls_as(calls).await?;
        let mut renewals = vec![Renewal::Absent; leases.len()];
        for (group, words) in groups.iter().zip(replies) {
            for ((place, _), word) in group.iter().zip(words) {
                renewals[*place] = match word.as_str() {
                    "ok" => Renewal::Renewed,
                    "absent" => Renewal::Absent,
                    token => Renewal::OtherToken(
                        token
                            .parse()
                            .map_err(|_| ControlError::Protocol("a token is no number".to_owned()))?,
                    ),
                };
            }
        }
        Ok(renewals)
    }

    /// Removes leases that are still ours.
    ///
    /// # Errors
    /// When control cannot be reached; they expire.
    pub async fn drop_leases(&self, leases: &[Lease]) -> Result<(), ControlError> {
        let calls = by_account(leases).into_iter().map(|group| {
            let call = Script::LeaseDrop.on(&self.lease_keys(&group));
            group.iter().fold(call, |call, (_, lease)| call.arg(lease.fencing_token))
        });
        self.0.control.calls_done(calls.collect()).await
    }

    /// The leases as they stand.
    ///
    /// # Errors
    /// When control cannot be reached: then nothing is known, and nobody may be taken over.
    pub async fn look_leases(
        &self,
        of: &[(ProviderAccountId, TaskId)],
    ) -> Result<Vec<Option<Lease>>, ControlError> {
        let calls = of.iter().map(|(account, task)| command("GET").arg(self.keys().lease(account, *task)));
        let texts: Vec<Option<String>> = self.0.control.calls_as(calls.collect()).await?;
        texts
            .into_iter()
            .map(|text| match text {
                None => Ok(None),
                Some(json) => serde_json::from_str(&json)
                    .map(Some)
                    .map_err(|error| ControlError::Protocol(format!("a lease cannot be read: {error}"))),
            })
            .collect()
    }

    fn lease_keys(&self, group: &[(usize, &Lease)]) -> Vec<String> {
        group.iter().map(|(_, lease)| self.keys().lease(&lease.account, lease.task)).collect()
    }
}

/// The leases of each account (one hash tag), with their places in the slice.
fn by_account(leases: &[Lease]) -> Vec<Vec<(usize, &Lease)>> {
    let mut accounts: BTreeMap<&ProviderAccountId, Vec<(usize, &Lease)>> = BTreeMap::new();
    for (place, lease) in leases.iter().enumerate() {
        accounts.entry(&lease.account).or_default().push((place, lease));
    }
    accounts.values().flat_map(|leases| leases.chunks(CHUNK).map(<[_]>::to_vec)).collect()
}
