//! The breaker of a provider account, which all processes share.
//!
//! Troubles in a row open it; while it is open no slot is granted there ([`crate::SlotOutcome::BreakerOpen`]). When its pause is
//! over it is half-open: one attempt at a time is let through as a probe. Trouble with a probe opens it again for longer, any
//! answer of the provider closes it. It lives beside the account's pauses in Redis; a flush closes it, and callers who
//! remember that it was open keep their distance by themselves.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{AttemptRef, ProviderAccountId, retry::Backoff};

use crate::{Control, ControlError, instance::command, script::Script, ttl::millis};

/// How long a closed breaker remembers its troubles, and an open one that it was open.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How a submit went, as far as the breaker is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The provider answered.
    Well,
    /// It could not be reached, broke, or its answer was lost.
    Trouble,
}

/// When a breaker opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerRule {
    /// Troubles in a row that are taken for chance.
    pub chance: u32,
    /// Troubles this close together count once.
    pub moment: Duration,
    /// The first pause, and how further ones grow.
    pub pause: Backoff,
}

impl Default for BreakerRule {
    fn default() -> Self {
        // Short: a probe costs one submit, and finds a provider that is back within seconds.
        let pause = Backoff { first: Duration::from_secs(1), factor: 2, max: Duration::from_secs(2) };
        Self { chance: 4, moment: Duration::from_secs(1), pause }
    }
}

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountBreaker {
    /// Submits go through.
    Closed {
        /// Troubles in a row so far.
        troubles: u32,
    },
    /// Nothing is sent for so long.
    Open(Duration),
    /// A probe is let through at a time.
    HalfOpen,
}

/// What a sign has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// Until when nothing is sent; zero while it is half-open; none while it is closed.
    pub open_for: Option<Duration>,
    /// Whether this sign opened or closed it.
    pub changed: bool,
}

/// The accounts whose breakers were not closed when we last heard of them.
#[derive(Debug, Default)]
pub(crate) struct Shut(Mutex<BTreeSet<ProviderAccountId>>);

impl Shut {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<ProviderAccountId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, account: &ProviderAccountId, shut: bool) {
        if shut {
            self.lock().insert(account.clone());
        } else {
            self.lock().remove(account);
        }
    }
}

impl Control {
    /// Takes in how the attempt's submit went. `spread` lies in [0, 1) and comes from the caller's random source.
    ///
    /// # Errors
    /// When control cannot be reached; then nothing is submitted anyway.
    pub async fn note_sign(
        &self,
        account: &ProviderAccountId,
        attempt: AttemptRef,
        sign: Sign,
        rule: &BreakerRule,
        spread: f64,
    ) -> Result<Noted, ControlError> {
        let keys = self.keys();
        let call = Script::BreakerNote
            .on(&[keys.health(account), keys.probes(account)])
            .arg(match sign {
                Sign::Well => "well",
                Sign::Trouble => "trouble",
            })
            .arg(attempt.to_string())
            .arg(rule.chance)
            .arg(millis(rule.moment))
            .arg(millis(rule.pause.first))
            .arg(rule.pause.factor)
            .arg(millis(rule.pause.max))
            .arg(format!("{:.3}", 0.8 + 0.4 * spread.clamp(0.0, 1.0)))
            .arg(millis(REMEMBERED));
        let (open, left_ms, changed): (u8, u64, u8) = self.0.control.call(call).await?;
        let open_for = (open == 1).then(|| Duration::from_millis(left_ms));
        self.0.shut.note(account, open_for.is_some());
        Ok(Noted { open_for, changed: changed == 1 })
    }

    /// The accounts whose breakers were not closed when this process last heard of them; asks nobody.
    #[must_use]
    pub fn shut_accounts(&self) -> Vec<ProviderAccountId> {
        self.0.shut.lock().iter().cloned().collect()
    }

    /// Where the breakers of these accounts stand, for operators and for [`shut_accounts`](Self::shut_accounts).
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn account_breakers(
        &self,
        accounts: &[ProviderAccountId],
    ) -> Result<Vec<AccountBreaker>, ControlError> {
        if accounts.is_empty() {
            return Ok(Vec::new());
        }
        let (seconds, micros): (i64, i64) = self.0.control.call(command("TIME")).await?;
        let now = seconds * 1_000 + micros / 1_000;
        let looks = accounts.iter().map(|account| {
            let names = ["troubles", "opened", "open_until"];
            names
                .into_iter()
                .fold(command("HMGET").arg(self.keys().health(account)), |look, name| look.arg(name))
        });
        let found: Vec<(Option<u32>, Option<u32>, Option<i64>)> =
            self.0.control.calls_as(looks.collect()).await?;
        let state = |(troubles, opened, until): (Option<u32>, Option<u32>, Option<i64>)| {
            let left = u64::try_from(until.unwrap_or(0) - now).unwrap_or(0);
            match opened.unwrap_or(0) {
                0 => AccountBreaker::Closed { troubles: troubles.unwrap_or(0) },
                _ if left > 0 => AccountBreaker::Open(Duration::from_millis(left)),
                _ => AccountBreaker::HalfOpen,
            }
        };
        let states: Vec<_> = found.into_iter().map(state).collect();
        for (account, state) in accounts.iter().zip(&states) {
            self.0.shut.note(account, !matches!(state, AccountBreaker::Closed { .. }));
        }
        Ok(states)
    }
}

#[cfg(test)]
mod tests {
    use domain::{TenantId, UserId};

    use super::*;
    use crate::{
        Sent, SlotClaim, SlotOutcome, SlotTag, Trips,
        testing::{Corner, account, claim},
    };

    const RULE: BreakerRule = BreakerRule {
        chance: 2,
        moment: Duration::ZERO,
        pause: Backoff { first: Duration::from_millis(200), factor: 1_000, max: Duration::from_secs(60) },
    };

    struct Bench {
        corner: Corner,
        tenant: TenantId,
        user: UserId,
    }

    impl Bench {
        async fn new() -> Self {
            let (corner, tenant) = (Corner::new(), TenantId::generate());
            corner.make_ready(&SlotTag::Account(account())).await;
            corner.make_ready(&SlotTag::Tenant(tenant)).await;
            Self { corner, tenant, user: UserId::generate() }
        }

        fn claim(&self) -> SlotClaim {
            claim(self.tenant, self.user)
        }

        async fn acquire(&self, claim: &SlotClaim) -> SlotOutcome {
            let claims = std::slice::from_ref(claim);
            self.corner.control.acquire_slots(claims, Trips::One).await.remove(0).unwrap()
        }

        async fn note(&self, claim: &SlotClaim, sign: Sign) -> Noted {
            self.corner.control.note_sign(&account(), claim.attempt, sign, &RULE, 0.5).await.unwrap()
        }

        async fn stands(&self) -> AccountBreaker {
            self.corner.control.account_breakers(&[account()]).await.unwrap()[0]
        }

        /// Troubles until it is open.
        async fn open(&self) {
            for _ in 0..=RULE.chance {
                let claim = self.claim();
                assert_eq!(self.acquire(&claim).await, SlotOutcome::Acquired);
                self.note(&claim, Sign::Trouble).await;
            }
            assert!(matches!(self.stands().await, AccountBreaker::Open(_)));
        }

        async fn until_half_open(&self) {
            testkit::wait_until("the pause to end", Duration::from_secs(5), async || {
                self.stands().await == AccountBreaker::HalfOpen
            })
            .await;
        }
    }

    #[tokio::test]
    async fn troubles_in_a_row_open_it_and_an_answer_between_them_does_not_let_it_come_to_that() {
        let bench = Bench::new().await;
        for _ in 0..3 {
            let one = bench.claim();
            bench.note(&one, Sign::Trouble).await;
            let noted = bench.note(&one, Sign::Trouble).await;
            assert_eq!(noted, Noted { open_for: None, changed: false });
            assert_eq!(bench.stands().await, AccountBreaker::Closed { troubles: 2 });
            bench.note(&one, Sign::Well).await;
            assert_eq!(bench.stands().await, AccountBreaker::Closed { troubles: 0 });
        }
        bench.open().await;
        match bench.acquire(&bench.claim()).await {
            SlotOutcome::BreakerOpen { retry_after_ms } => assert!((1..=200).contains(&retry_after_ms)),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn troubles_of_one_moment_are_one() {
        let bench = Bench::new().await;
        let rule = BreakerRule { moment: Duration::from_secs(60), ..RULE };
        for _ in 0..50 {
            let attempt = bench.claim().attempt;
            bench.corner.control.note_sign(&account(), attempt, Sign::Trouble, &rule, 0.5).await.unwrap();
        }
        assert_eq!(bench.stands().await, AccountBreaker::Closed { troubles: 1 });
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn half_open_it_lets_one_probe_through_whoever_asks() {
        let bench = Bench::new().await;
        bench.open().await;
        bench.until_half_open().await;
        let other = bench.corner.other();
        let asks = (0..20).map(|index| {
            let (claim, control) = (bench.claim(), [&bench.corner.control, &other][index % 2].clone());
            tokio::spawn(async move {
                let outcome = control.acquire_slots(std::slice::from_ref(&claim), Trips::One).await.remove(0);
                (claim, outcome.unwrap())
            })
        });
        let (mut probes, mut held_back) = (Vec::new(), 0);
        for ask in futures::future::join_all(asks).await {
            match ask.unwrap() {
                (claim, SlotOutcome::Acquired) => probes.push(claim),
                (_, SlotOutcome::BreakerOpen { .. }) => held_back += 1,
                (_, other) => panic!("{other:?}"),
            }
        }
        assert_eq!((probes.len(), held_back), (1, 19));

        // Another's late trouble says nothing; the probe's does, and the pause is longer.
        assert!(!bench.note(&bench.claim(), Sign::Trouble).await.changed);
        let noted = bench.note(&probes[0], Sign::Trouble).await;
        assert!(noted.changed && noted.open_for > Some(Duration::from_secs(30)), "{noted:?}");
        assert!(matches!(bench.acquire(&bench.claim()).await, SlotOutcome::BreakerOpen { .. }));
        // Something sent long ago is answered: the provider is there.
        assert_eq!(bench.note(&bench.claim(), Sign::Well).await, Noted { open_for: None, changed: true });
        assert_eq!(bench.acquire(&bench.claim()).await, SlotOutcome::Acquired);
    }

    #[tokio::test]
    async fn every_process_learns_that_an_account_is_shut_and_that_it_is_open_again() {
        let bench = Bench::new().await;
        let (here, there) = (&bench.corner.control, bench.corner.other());
        let seen = async |control: &Control| {
            control.account_breakers(&[account()]).await.unwrap();
            control.shut_accounts()
        };
        bench.open().await;
        assert_eq!(here.shut_accounts(), [account()], "known at once where it was noted");
        assert_eq!(there.shut_accounts(), []);
        assert_eq!(seen(&there).await, [account()]);
        // The answer may come to another process than the troubles did.
        there.note_sign(&account(), bench.claim().attempt, Sign::Well, &RULE, 0.5).await.unwrap();
        assert_eq!(there.shut_accounts(), []);
        assert_eq!(seen(here).await, []);
    }

    #[tokio::test]
    async fn a_probe_that_was_never_sent_leaves_its_turn_to_the_next() {
        let bench = Bench::new().await;
        bench.open().await;
        bench.until_half_open().await;
        let probe = bench.claim();
        assert_eq!(bench.acquire(&probe).await, SlotOutcome::Acquired);
        assert!(matches!(bench.acquire(&bench.claim()).await, SlotOutcome::BreakerOpen { .. }));
        bench.corner.control.release_slots(&[probe.slot()], Sent::No).await.unwrap();
        assert_eq!(bench.acquire(&bench.claim()).await, SlotOutcome::Acquired);
    }
}
