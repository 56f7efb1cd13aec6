//! The key that every secret of the deployment comes from.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{Secret, fault::Faults};

/// 32 random bytes have 43 characters in base64; nobody types fewer than this many by chance.
const KEY_CHARS_MIN: usize = 32;
/// Parts of keys that stand in examples.
const PLACEHOLDERS: &[&str] =
    &["change", "default", "example", "secret", "password", "insecure", "0123456789"];

/// Section `secrets`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SecretsConfig {
    /// At least 32 random characters (`AIVIDEO_SECRET_KEY`), the same for every process. Required.
    pub(crate) key: Secret,
    /// The key before this one: what was signed with it stays good. Leave it out when nothing is rotated.
    pub(crate) previous_key: Option<Secret>,
}

impl SecretsConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.key.is_empty() {
            faults.add("secrets.key", "is required: 32 random bytes, as from `openssl rand -base64 32`");
        } else {
            check_key("secrets.key", &self.key, faults);
        }
        if let Some(previous) = &self.previous_key {
            check_key("secrets.previous_key", previous, faults);
            faults.require(*previous != self.key, "secrets.previous_key", "is the same as secrets.key");
        }
    }

    /// 32 bytes for one purpose. Purposes do not share a key, so nothing signed for one is good for another.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        derive(&self.key, purpose)
    }

    /// The same from the previous key, while there is one.
    pub(crate) fn derive_previous(&self, purpose: &str) -> Option<[u8; 32]> {
        self.previous_key.as_ref().map(|key| derive(key, purpose))
    }
}

fn check_key(field: &str, key: &Secret, faults: &mut Faults) {
    let text = key.reveal();
    let lower = text.to_lowercase();
    let mut distinct: Vec<char> = text.chars().collect();
    distinct.sort_unstable();
    distinct.dedup();
    faults.require(
        text.chars().count() >= KEY_CHARS_MIN,
        field,
        format_args!("must have at least {KEY_CHARS_MIN} random characters"),
    );
    let made_up = PLACEHOLDERS.iter().any(|part| lower.contains(part)) || distinct.len() < 10;
    faults.require(!made_up, field, "is a placeholder; make a random one, as with `openssl rand -base64 32`");
}

fn derive(key: &Secret, purpose: &str) -> [u8; 32] {
    // HMAC takes keys of any length, so this cannot fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(key.reveal().as_bytes()).expect("any length");
    mac.update(b"aivideo:");
    mac.update(purpose.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(key: &str) -> usize {
        let mut faults = Faults::default();
        SecretsConfig { key: Secret::new(key), previous_key: None }.check(&mut faults);
        faults.0.len()
    }

    #[test]
    fn empty_short_and_made_up_keys_are_refused() {
        for bad in [
            "",
            "short",
            "change-me-change-me-change-me-change-me",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "my-super-secret-key-my-super-secret-key",
        ] {
            assert!(faults_of(bad) > 0, "{bad:?} was taken");
        }
        assert_eq!(faults_of("q8vY0uJc3mZlT5xWn7RkB2sHd9FpGaE1iVoXtLy4wCg="), 0);
        assert_eq!(faults_of(&hex::encode([0x3a, 0xf1, 0x07, 0xbc, 0x95, 0xd2, 0x6e, 0x48].repeat(4))), 0);
    }

    #[test]
    fn purposes_and_keys_give_different_bytes() {
        let secrets = SecretsConfig { key: Secret::new("k1"), previous_key: Some(Secret::new("k2")) };
        assert_ne!(secrets.derive("links"), secrets.derive("callbacks"));
        assert_ne!(Some(secrets.derive("links")), secrets.derive_previous("links"));
    }
}
