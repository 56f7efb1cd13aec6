//! The texts of keys and browser tokens, and what is kept of them.
//!
//! `avk_<12 characters>_<43 characters>` is a key, `avb_<32 hex digits>_<43 characters>` a browser token. The first
//! part finds the row; the second, as hard to guess as 32 random bytes, is never stored: only its SHA-256 is.

use domain::{KeyId, TokenId};
use rand::{RngExt as _, distr::Alphanumeric};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// 43 characters of 62 are 256 bits.
const SECRET_CHARS: usize = 43;
const KEY_ID_CHARS: usize = 12;

/// The SHA-256 of a secret part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretHash(pub(crate) [u8; 32]);

impl SecretHash {
    fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Compares with a stored hash in a time that does not depend on where they differ.
    pub(crate) fn matches(&self, stored: &[u8]) -> bool {
        self.0.ct_eq(stored).into()
    }
}

/// A bearer text that has the form of one of ours.
#[derive(Debug)]
pub(crate) enum Bearer {
    Key(KeyId, SecretHash),
    Token(TokenId, SecretHash),
}

impl Bearer {
    /// Reads a bearer text; none when no key or token of ours looks like that.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('_')?;
        let (id, secret) = rest.split_once('_')?;
        if secret.len() != SECRET_CHARS || !secret.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        let hash = SecretHash::of(secret);
        match kind {
            "avk" => key_id(id).map(|id| Self::Key(id, hash)),
            "avb" => token_id(id).map(|id| Self::Token(id, hash)),
            _ => None,
        }
    }
}

/// A fresh key: its id, the text that its owner gets, and the hash that is stored.
pub(crate) fn mint_key() -> (KeyId, String, SecretHash) {
    let (id, secret) = (random(KEY_ID_CHARS), random(SECRET_CHARS));
    let text = format!("avk_{id}_{secret}");
    let id = key_id(&id).expect("twelve alphanumeric characters are a key id");
    (id, text, SecretHash::of(&secret))
}

/// A fresh browser token: its id, the text that its owner gets, and the hash that is stored.
pub(crate) fn mint_token() -> (TokenId, String, SecretHash) {
    let (id, secret) = (TokenId::generate(), random(SECRET_CHARS));
    (id, format!("avb_{}_{secret}", id.as_uuid().as_simple()), SecretHash::of(&secret))
}

fn random(chars: usize) -> String {
    // The generator is seeded by the system and meant for secrets.
    rand::rng().sample_iter(Alphanumeric).take(chars).map(char::from).collect()
}

fn key_id(text: &str) -> Option<KeyId> {
    let legal = text.len() == KEY_ID_CHARS && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if legal { text.parse().ok() } else { None }
}

fn token_id(digits: &str) -> Option<TokenId> {
    let one_spelling = digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if one_spelling { Uuid::try_parse(digits).ok().map(TokenId::from_uuid) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_the_one_that_was_minted() {
        let (id, text, hash) = mint_key();
        let Some(Bearer::Key(read, read_hash)) = Bearer::parse(&text) else { panic!("{text}") };
        assert_eq!(read, id);
        assert!(read_hash.matches(&hash.0));
        assert!(text.starts_with("avk_") && text.len() == 4 + 12 + 1 + 43, "{text}");
    }

    #[test]
    fn a_token_is_no_key_and_another_secret_does_not_match() {
        let (id, text, hash) = mint_token();
        let Some(Bearer::Token(read, _)) = Bearer::parse(&text) else { panic!("{text}") };
        assert_eq!(read, id);
        let (_, _, other) = mint_token();
        assert!(!other.matches(&hash.0));
        assert!(!other.matches(&hash.0[..31]), "a hash of another length matches nothing");
    }

    #[test]
    fn what_is_not_spelled_like_ours_is_not_looked_up() {
        let (_, text, _) = mint_key();
        let token = mint_token().1.to_uppercase().replacen("AVB", "avb", 1);
        for wrong in ["", "avk", "avk__", &text[1..], &text[..text.len() - 1], &format!("{text} "), &token] {
            assert!(Bearer::parse(wrong).is_none(), "{wrong}");
        }
    }
}
