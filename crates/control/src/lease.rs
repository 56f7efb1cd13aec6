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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Corner, account, model};

    const TTL: Duration = Duration::from_secs(10);

    fn lease(task: TaskId, fencing_token: i64) -> Lease {
        Lease {
            task,
            attempt_no: 1,
            fencing_token,
            worker: "host:1:abc".parse().unwrap(),
            tenant: TenantId::generate(),
            user: UserId::generate(),
            account: account(),
            model: model(),
        }
    }

    #[tokio::test]
    async fn a_lease_survives_its_text_form_and_expires_by_itself() {
        let corner = Corner::new();
        let mine = lease(TaskId::generate(), 7);
        assert_eq!(
            corner.control.put_leases(std::slice::from_ref(&mine), TTL).await,
            Ok(vec![Renewal::Renewed])
        );
        let of = [(account(), mine.task), (account(), TaskId::generate())];
        assert_eq!(corner.control.look_leases(&of).await, Ok(vec![Some(mine.clone()), None]));
        let key = corner.keys().lease(&account(), mine.task);
        assert!((1..=10_000).contains(&corner.raw::<i64>(&["PTTL", &key]).await));
        let text: serde_json::Value =
            serde_json::from_str(&corner.raw::<String>(&["GET", &key]).await).unwrap();
        assert!(text["expire_at"].as_i64().unwrap() > corner.control.now_ms().await.unwrap());
    }

    #[tokio::test]
    async fn renewing_tells_ours_from_gone_and_from_another_owners() {
        let corner = Corner::new();
        let (kept, gone, taken) = (TaskId::generate(), TaskId::generate(), TaskId::generate());
        let mine = [lease(kept, 1), lease(gone, 2), lease(taken, 3)];
        corner.control.put_leases(&[mine[0].clone(), mine[2].clone()], TTL).await.unwrap();
        assert_eq!(corner.control.put_leases(&[lease(taken, 4)], TTL).await, Ok(vec![Renewal::Renewed]));
        let expected = vec![Renewal::Renewed, Renewal::Absent, Renewal::OtherToken(4)];
        assert_eq!(corner.control.renew_leases(&mine, TTL).await, Ok(expected));
        assert_eq!(
            corner.control.look_leases(&[(account(), gone)]).await,
            Ok(vec![None]),
            "nothing is restored"
        );
    }

    #[tokio::test]
    async fn an_earlier_owner_neither_takes_nor_removes_a_later_ones_lease() {
        let corner = Corner::new();
        let task = TaskId::generate();
        let (earlier, later) = (lease(task, 9), lease(task, 10));
        corner.control.put_leases(std::slice::from_ref(&later), TTL).await.unwrap();
        assert_eq!(
            corner.control.put_leases(std::slice::from_ref(&earlier), TTL).await,
            Ok(vec![Renewal::OtherToken(10)])
        );
        corner.control.drop_leases(&[earlier]).await.unwrap();
        assert_eq!(corner.control.look_leases(&[(account(), task)]).await, Ok(vec![Some(later.clone())]));
        corner.control.drop_leases(&[later]).await.unwrap();
        assert_eq!(corner.control.look_leases(&[(account(), task)]).await, Ok(vec![None]));
    }

    #[tokio::test]
    async fn many_of_several_accounts_keep_their_places() {
        let corner = Corner::new();
        let leases: Vec<_> = (0..1_300)
            .map(|i| Lease {
                account: format!("account-{}", i % 3).parse().unwrap(),
                ..lease(TaskId::generate(), i + 1)
            })
            .collect();
        let half: Vec<_> = leases.iter().step_by(2).cloned().collect();
        corner.control.put_leases(&half, TTL).await.unwrap();
        let renewed = corner.control.renew_leases(&leases, TTL).await.unwrap();
        for (i, renewal) in renewed.into_iter().enumerate() {
            assert_eq!(renewal, if i % 2 == 0 { Renewal::Renewed } else { Renewal::Absent }, "{i}");
        }
    }
}
