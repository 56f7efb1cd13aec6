//! Signed links: a way to one object for whoever holds it, for an hour or two.
//!
//! A browser's `<video>` element sends no bearer token, and there are no cookies. So the address itself carries the
//! permission: the id and an expiry, under a MAC. Links are made when an answer is rendered and stored nowhere.

use chrono::{DateTime, Utc};
use domain::AssetId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::Media;

/// Expiries lie on whole hours, so that a player that asks again gets the same address and finds its cache.
const STEP_SECONDS: i64 = 3_600;

/// What a link is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkCheck {
    /// It opens the object.
    Valid,
    /// It was ours and has run out.
    Expired,
    /// It is none of ours.
    Invalid,
}

impl Media {
    /// When links made at `now` run out: a full hour, at least one hour ahead. In seconds since 1970.
    #[must_use]
    pub fn link_expiry(now: DateTime<Utc>) -> i64 {
        let earliest = now
            .timestamp()
            .saturating_add(STEP_SECONDS)
            .saturating_add(i64::from(now.timestamp_subsec_nanos() > 0));
        let past_the_hour = earliest.rem_euclid(STEP_SECONDS);
        if past_the_hour == 0 { earliest } else { earliest + STEP_SECONDS - past_the_hour }
    }

    /// The address of an object's content, below the public address if there is one, else a path.
    #[must_use]
    pub fn sign_link(&self, asset: AssetId, now: DateTime<Utc>) -> String {
        let expiry = Self::link_expiry(now);
        let signature =
            hex::encode(mac(&self.config().link_keys.current, asset, expiry).finalize().into_bytes());
        let base = self.config().public_url.as_ref().map_or("", |url| url.as_str().trim_end_matches('/'));
        format!("{base}/assets/{asset}/content?exp={expiry}&sig={signature}")
    }

    /// Checks the `exp` and `sig` of a link. Takes the same time whatever is wrong.
    #[must_use]
    pub fn check_link(&self, asset: AssetId, expiry: i64, signature: &str, now: DateTime<Utc>) -> LinkCheck {
        let Some(signature) = decode(signature) else { return LinkCheck::Invalid };
        let keys = &self.config().link_keys;
        let by = |key: &[u8; 32]| mac(key, asset, expiry).verify_slice(&signature).is_ok();
        let ours = by(&keys.current) | keys.previous.as_ref().is_some_and(by);
        match (ours, now.timestamp() < expiry) {
            (false, _) => LinkCheck::Invalid,
            (true, true) => LinkCheck::Valid,
            (true, false) => LinkCheck::Expired,
        }
    }
}

/// One spelling only: lowercase digits.
fn decode(signature: &str) -> Option<[u8; 32]> {
    let lower = signature.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; 32];
    (lower && hex::decode_to_slice(signature, &mut bytes).is_ok()).then_some(bytes)
}

fn mac(key: &[u8; 32], asset: AssetId, expiry: i64) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    // The first words keep this MAC apart from any other that is made with the same key.
    mac.update(format!("asset link\n{asset}\n{expiry}").as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::{LinkKeys, tests::media_with};

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn parts(link: &str) -> (i64, String) {
        let query = link.split_once("?exp=").unwrap().1;
        let (expiry, signature) = query.split_once("&sig=").unwrap();
        (expiry.parse().unwrap(), signature.to_owned())
    }

    #[test]
    fn an_expiry_is_a_full_hour_at_least_one_hour_ahead() {
        for (now, expiry) in [
            ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"),
            ("2026-01-01T10:00:00.001Z", "2026-01-01T12:00:00Z"),
            ("2026-01-01T10:00:01Z", "2026-01-01T12:00:00Z"),
            ("2026-01-01T10:59:59Z", "2026-01-01T12:00:00Z"),
        ] {
            assert_eq!(Media::link_expiry(at(now)), at(expiry).timestamp(), "{now}");
        }
    }

    #[tokio::test]
    async fn a_link_opens_its_own_object_until_it_runs_out() {
        let (media, _folder) = media_with(|_| {});
        let (asset, now) = (AssetId::generate(), at("2026-01-01T10:30:00Z"));
        let link = media.sign_link(asset, now);
        assert!(link.starts_with(&format!("/assets/{asset}/content?exp=")), "{link}");
        let (expiry, signature) = parts(&link);

        let check = |asset, expiry, signature: &str, minutes| {
            media.check_link(asset, expiry, signature, now + TimeDelta::minutes(minutes))
        };
        assert_eq!(check(asset, expiry, &signature, 0), LinkCheck::Valid);
        assert_eq!(check(asset, expiry, &signature, 89), LinkCheck::Valid);
        assert_eq!(check(asset, expiry, &signature, 90), LinkCheck::Expired);
        assert_eq!(check(AssetId::generate(), expiry, &signature, 0), LinkCheck::Invalid);
        assert_eq!(check(asset, expiry + 3_600, &signature, 0), LinkCheck::Invalid);
        for forged in ["", "00", &signature.to_uppercase(), &signature[2..], &format!("{signature}00"), "é"]
        {
            assert_eq!(check(asset, expiry, forged, 0), LinkCheck::Invalid, "{forged}");
        }
        let mut flipped = signature.clone().into_bytes();
        flipped[63] = if flipped[63] == b'0' { b'1' } else { b'0' };
        assert_eq!(check(asset, expiry, std::str::from_utf8(&flipped).unwrap(), 0), LinkCheck::Invalid);
    }

    #[tokio::test]
    async fn links_survive_one_change_of_keys_and_not_two() {
        let with = |current: u8, previous: Option<u8>| {
            media_with(move |config| {
                config.link_keys =
                    LinkKeys { current: [current; 32], previous: previous.map(|byte| [byte; 32]) };
            })
        };
        let (asset, now) = (AssetId::generate(), at("2026-01-01T10:30:00Z"));
        let (expiry, signature) = parts(&with(1, None).0.sign_link(asset, now));
        assert_eq!(with(2, Some(1)).0.check_link(asset, expiry, &signature, now), LinkCheck::Valid);
        assert_eq!(with(3, Some(2)).0.check_link(asset, expiry, &signature, now), LinkCheck::Invalid);
    }

    #[tokio::test]
    async fn links_lie_below_the_public_address() {
        for base in ["https://video.example/api/", "https://video.example/api"] {
            let (media, _folder) = media_with(|config| config.public_url = Some(base.parse().unwrap()));
            let link = media.sign_link(AssetId::generate(), at("2026-01-01T10:30:00Z"));
            assert!(link.starts_with("https://video.example/api/assets/asset_"), "{link}");
        }
    }
}
