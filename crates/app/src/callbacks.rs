//! Providers' callbacks: the addresses that we give out, and who reads what comes there.
//!
//! An address carries a MAC over account and attempt, under a key of the deployment, so whoever does not know it is told
//! nothing, and what comes there is known to be about that attempt. The provider's own signature is checked by the
//! account's reader. The HTTP side knows neither: it holds this as a `CallbackVerifier`.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use domain::{
    AttemptRef, ProviderAccountId,
    callback::{CallbackAddress, CallbackRejection, CallbackVerdict, CallbackVerifier, RawCallback},
    clock::SharedClock,
};
use hmac::{Hmac, KeyInit, Mac};
use provider_adapter::{callbacks::CallbackReader, mock::MockCallbacks};
use scheduler::CallbackUrl;
use sha2::Sha256;

use crate::config::Config;

/// What the key of the addresses is derived for. Changing it breaks what was given out.
const ADDRESSES: &str = "provider-callbacks";

/// The keys of the addresses: the one in use, and the one before it.
#[derive(Clone)]
struct AddressKeys {
    current: [u8; 32],
    previous: Option<[u8; 32]>,
}

impl AddressKeys {
    fn of(config: &Config) -> Self {
        Self {
            current: config.secrets.derive(ADDRESSES),
            previous: config.secrets.derive_previous(ADDRESSES),
        }
    }

    /// The last segment of an attempt's address.
    fn token(&self, account: &ProviderAccountId, attempt: AttemptRef) -> String {
        let mac = mac(&self.current, account, attempt).finalize().into_bytes();
        format!("{attempt}.{}", hex::encode(mac))
    }

    /// The attempt of a token that one of the keys has made for this account. One spelling only.
    fn open(&self, account: &ProviderAccountId, token: &str) -> Option<AttemptRef> {
        let (attempt, digits) = token.rsplit_once('.')?;
        let attempt: AttemptRef = attempt.parse().ok()?;
        let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let mut given = [0; 32];
        if !lower || hex::decode_to_slice(digits, &mut given).is_err() {
            return None;
        }
        let by = |key: &[u8; 32]| mac(key, account, attempt).verify_slice(&given).is_ok();
        let ours = by(&self.current) | self.previous.as_ref().is_some_and(by);
        ours.then_some(attempt)
    }
}

fn mac(key: &[u8; 32], account: &ProviderAccountId, attempt: AttemptRef) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(format!("callback\n{account}\n{attempt}").as_bytes());
    mac
}

/// Where each attempt's provider may report to; nowhere, if nothing of ours can be reached by providers.
pub(crate) fn addresses(config: &Config) -> CallbackUrl {
    let Some(base) = config.callbacks_url() else { return Arc::new(|_, _| None) };
    let (keys, base) = (AddressKeys::of(config), base.as_str().trim_end_matches('/').to_owned());
    Arc::new(move |account, attempt| {
        Some(format!("{base}/callbacks/providers/{account}/{}", keys.token(account, attempt)))
    })
}

/// Reads the callbacks of all accounts.
pub(crate) struct Callbacks {
    keys: AddressKeys,
    readers: BTreeMap<ProviderAccountId, Box<dyn CallbackReader>>,
}

impl Callbacks {
    /// A reader for every account that is set up.
    ///
    /// # Errors
    /// When an account's secret is none; the configuration was checked for that.
    pub(crate) fn new(config: &Config, clock: &SharedClock) -> anyhow::Result<Self> {
        let mut readers: BTreeMap<_, Box<dyn CallbackReader>> = BTreeMap::new();
        for (account, provider) in &config.providers {
            let secrets = provider.callback_secrets();
            let secrets = secrets.map_err(|fault| anyhow::anyhow!("providers.{account}: {fault}"))?;
            readers.insert(account.clone(), Box::new(MockCallbacks::new(secrets, Arc::clone(clock))));
        }
        Ok(Self { keys: AddressKeys::of(config), readers })
    }
}

#[async_trait]
impl CallbackVerifier for Callbacks {
    fn address(&self, account: &str, token: &str) -> Option<CallbackAddress> {
        let account = account.parse().ok()?;
        let attempt = self.keys.open(&account, token)?;
        Some(CallbackAddress { account, attempt })
    }

    async fn verify(&self, address: &CallbackAddress, callback: RawCallback<'_>) -> CallbackVerdict {
        match self.readers.get(&address.account) {
            Some(reader) => reader.read(callback).await,
            None => CallbackVerdict::Reject(CallbackRejection::NotExpected),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::TaskId;

    use super::*;

    fn keys(current: u8, previous: Option<u8>) -> AddressKeys {
        AddressKeys { current: [current; 32], previous: previous.map(|byte| [byte; 32]) }
    }

    #[test]
    fn an_address_is_good_for_its_own_attempt_and_account_only() {
        let (keys, mock) = (keys(1, None), "mock".parse().unwrap());
        let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 2 };
        let token = keys.token(&mock, attempt);
        assert_eq!(keys.open(&mock, &token), Some(attempt));
        assert_eq!(keys.open(&"another".parse().unwrap(), &token), None);
        let other = token.replacen(".2.", ".1.", 1);
        assert_ne!(other, token);
        for forged in [
            other,
            token.to_uppercase(),
            format!("{token}00"),
            token[..token.len() - 2].to_owned(),
            attempt.to_string(),
            format!("{attempt}."),
            String::new(),
            "é.1.é".to_owned(),
        ] {
            assert_eq!(keys.open(&mock, &forged), None, "{forged}");
        }
    }

    #[test]
    fn addresses_survive_one_change_of_keys_and_not_two() {
        let (mock, attempt) =
            ("mock".parse().unwrap(), AttemptRef { task: TaskId::generate(), attempt_no: 1 });
        let token = keys(1, None).token(&mock, attempt);
        assert_eq!(keys(2, Some(1)).open(&mock, &token), Some(attempt));
        assert_eq!(keys(3, Some(2)).open(&mock, &token), None);
    }

    #[test]
    fn an_address_lies_below_the_public_one_unless_callbacks_are_switched_off() {
        let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 1 };
        let mut config = Config::default();
        let address = |config: &Config| addresses(config)(&"mock".parse().unwrap(), attempt);
        assert_eq!(address(&config), None, "nobody knows where we are");
        config.api.public_url = Some("https://video.example/api/".parse().unwrap());
        let given = address(&config).unwrap();
        let expected = format!("https://video.example/api/callbacks/providers/mock/{attempt}.");
        assert!(given.starts_with(&expected), "{given}");
        config.callbacks.url = Some("http://10.0.0.7:8080".parse().unwrap());
        assert!(address(&config).unwrap().starts_with("http://10.0.0.7:8080/callbacks/providers/mock/"));
        config.callbacks.enabled = false;
        assert_eq!(address(&config), None);
    }
}
