//! Accounts at providers: where they are, what they take, and how they are asked.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use catalogue::{AccountSpec, ProviderKind};
use domain::{ModelName, ProviderAccountId, limits::Bucket};
use provider_adapter::{
    ProviderLimits,
    mock::{MockConfig, credential},
    standard_webhooks::{BadSecret, SigningSecret},
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Secret, fault::Faults};

/// One `providers.<account>`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    /// Which adapter speaks to it.
    pub(crate) kind: ProviderKind,
    /// Its base address (`AIVIDEO_MOCK_PROVIDER_URL` for the account `mock`). Without one the account and the
    /// models that go to it are left out.
    pub(crate) url: Option<String>,
    /// What it is asked with. Better given by `AIVIDEO_PROVIDERS__<ACCOUNT>__CREDENTIAL` or as a file.
    pub(crate) credential: Option<Secret>,
    /// A file that holds the credential.
    pub(crate) credential_file: Option<PathBuf>,
    /// What it signs callbacks with. Better given by `AIVIDEO_PROVIDERS__<ACCOUNT>__CALLBACK_SECRET`. Without it the
    /// account is asked for no callbacks.
    pub(crate) callback_secret: Option<Secret>,
    /// The secret before that one, while it is being changed.
    pub(crate) previous_callback_secret: Option<Secret>,
    /// Jobs that it may have of ours at once.
    pub(crate) slots: u32,
    /// Of those, how many of one of its models.
    pub(crate) model_slots: BTreeMap<ModelName, u32>,
    /// Jobs that it may be given in a day of UTC; unlimited unless given.
    pub(crate) daily: Option<u32>,
    /// Submits over time, or `"unlimited"`.
    pub(crate) submits: Option<Bucket>,
    /// Submits over time of one of its models.
    pub(crate) model_submits: BTreeMap<ModelName, Bucket>,
    /// Whether jobs can be found by our reference. Switched off in tests.
    pub(crate) lookup: bool,
    /// The pause between two looks at one job, in milliseconds.
    pub(crate) poll_ms: u64,
    /// How long a submit may take, in milliseconds.
    pub(crate) submit_ms_max: u64,
    /// How long one look at a job may take, in milliseconds.
    pub(crate) poll_ms_max: u64,
    /// How long a download may take, in seconds.
    pub(crate) output_seconds_max: u64,
}

impl ProviderConfig {
    /// An account as the catalogue has it, with the usual settings of its adapter.
    fn of(spec: AccountSpec) -> Self {
        let mock = MockConfig::new("");
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self {
            kind: spec.kind,
            url: None,
            credential: None,
            credential_file: None,
            callback_secret: None,
            previous_callback_secret: None,
            slots: spec.slots,
            model_slots: spec.model_slots,
            daily: spec.daily,
            submits: spec.submits,
            model_submits: spec.model_submits,
            lookup: mock.look_up,
            poll_ms: millis(mock.poll_interval),
            submit_ms_max: millis(mock.limits.submit),
            poll_ms_max: millis(mock.limits.poll),
            output_seconds_max: mock.limits.output_total.as_secs(),
        }
    }
}

impl Default for ProviderConfig {
    /// What a further account need not say: like the one of the mock provider, but for the places of single models.
    fn default() -> Self {
        let first = catalogue::CatalogueConfig::default().accounts.remove(0);
        Self::of(AccountSpec { model_slots: BTreeMap::new(), ..first })
    }
}

/// The account of the mock provider.
pub(super) fn defaults() -> BTreeMap<ProviderAccountId, ProviderConfig> {
    let accounts = catalogue::CatalogueConfig::default().accounts;
    accounts.into_iter().map(|spec| (spec.id.clone(), ProviderConfig::of(spec))).collect()
}

impl ProviderConfig {
    pub(super) fn check(&self, account: &ProviderAccountId, lease: Duration, faults: &mut Faults) {
        let field = |key: &str| format!("providers.{account}.{key}");
        if let Some(url) = &self.url {
            let usable = Url::parse(url).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
            });
            faults.require(usable, field("url"), "must be an http:// or https:// address");
        }
        for (key, figure) in [
            ("poll_ms", self.poll_ms),
            ("submit_ms_max", self.submit_ms_max),
            ("poll_ms_max", self.poll_ms_max),
            ("output_seconds_max", self.output_seconds_max),
        ] {
            faults.require(figure > 0, field(key), "must be at least 1");
        }
        faults.require(
            Duration::from_millis(self.submit_ms_max) <= lease,
            field("submit_ms_max"),
            "is longer than scheduler.lease_seconds, which has to cover it",
        );
        faults.require(
            self.credential.is_none() || self.credential_file.is_none(),
            field("credential_file"),
            "contradicts credential: give one of them",
        );
        if let Err(error) = self.authorization() {
            faults.add(field("credential"), error);
        }
        for (key, secret) in [
            ("callback_secret", &self.callback_secret),
            ("previous_callback_secret", &self.previous_callback_secret),
        ] {
            if let Some(Err(error)) = secret.as_ref().map(|secret| SigningSecret::parse(secret.reveal())) {
                faults.add(field(key), error);
            }
        }
        faults.require(
            self.previous_callback_secret.is_none() || self.callback_secret.is_some(),
            field("previous_callback_secret"),
            "needs callback_secret, the one that took its place",
        );
    }

    pub(super) fn to_spec(&self, account: &ProviderAccountId) -> AccountSpec {
        AccountSpec {
            id: account.clone(),
            kind: self.kind,
            slots: self.slots,
            model_slots: self.model_slots.clone(),
            daily: self.daily,
            submits: self.submits,
            model_submits: self.model_submits.clone(),
        }
    }

    /// `host:port` of its address.
    pub(super) fn authority(&self) -> Option<String> {
        let url = Url::parse(self.url.as_deref()?).ok()?;
        Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
    }

    /// How its adapter is made, if it has an address.
    ///
    /// # Errors
    /// When the credential cannot be read.
    pub(crate) fn to_mock(&self) -> Result<Option<MockConfig>, String> {
        let Some(url) = &self.url else { return Ok(None) };
        Ok(Some(MockConfig {
            base_url: url.trim_end_matches('/').to_owned(),
            authorization: self.authorization()?,
            look_up: self.lookup,
            callbacks: self.callback_secret.is_some(),
            poll_interval: Duration::from_millis(self.poll_ms),
            limits: ProviderLimits {
                submit: Duration::from_millis(self.submit_ms_max),
                poll: Duration::from_millis(self.poll_ms_max),
                output_total: Duration::from_secs(self.output_seconds_max),
                ..MockConfig::new("").limits
            },
        }))
    }

    /// What its callbacks may be signed with; nothing, where none are asked for.
    ///
    /// # Errors
    /// When one is no such secret.
    pub(crate) fn callback_secrets(&self) -> Result<Vec<SigningSecret>, BadSecret> {
        let secrets = [&self.callback_secret, &self.previous_callback_secret];
        secrets.into_iter().flatten().map(|secret| SigningSecret::parse(secret.reveal())).collect()
    }

    fn authorization(&self) -> Result<Option<http::HeaderValue>, String> {
        let text = match (&self.credential, &self.credential_file) {
            (Some(secret), _) => secret.reveal().to_owned(),
            (None, Some(file)) => std::fs::read_to_string(file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?
                .trim()
                .to_owned(),
            (None, None) => return Ok(None),
        };
        credential(&text).map(Some).ok_or_else(|| "holds signs that no header can".to_owned())
    }
}
