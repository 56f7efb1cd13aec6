//! Telling one request from another under the same idempotency key.

use domain::{Priority, ids::ModelName};
use sha2::{Digest as _, Sha256};

use super::{GenerationRequest, OnLimit};

/// The route whose requests these are; idempotency keys are scoped to it.
pub(crate) const ROUTE: &str = "POST /generations";

impl GenerationRequest {
    /// SHA-256 over the route and the parsed, defaulted request: the order of members, white space and defaults that
    /// were spelled out make no difference.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hasher = Hasher(Sha256::new());
        let Self { model, inputs, project, deadline_seconds, priority, on_limit, price: _ } = self;
        hasher.text(ROUTE);
        hasher.text(ModelName::as_str(&model.name));
        hasher.text(&inputs.prompt);
        hasher.maybe(inputs.negative_prompt.as_deref());
        hasher.number(inputs.duration_seconds.into());
        hasher.text(&inputs.resolution);
        hasher.maybe(inputs.aspect_ratio.as_deref());
        hasher.number(inputs.seed.map_or(0, |seed| u64::from(seed) + 1));
        hasher.number(inputs.tags.len() as u64);
        for tag in &inputs.tags {
            hasher.text(tag);
        }
        hasher.maybe(project.map(|project| project.to_string()).as_deref());
        hasher.number((*deadline_seconds).into());
        // Said only where they are not the defaults, so that requests from before these members keep their fingerprints.
        if *on_limit == OnLimit::Reject {
            hasher.text("reject");
        }
        if *priority != Priority::default() {
            hasher.text("priority");
            hasher.number(priority.get().into());
        }
        hasher.0.finalize().into()
    }
}

/// Feeds values so that no two different sequences give the same bytes: lengths go before texts.
struct Hasher(Sha256);

impl Hasher {
    fn number(&mut self, value: u64) {
        self.0.update(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn maybe(&mut self, text: Option<&str>) {
        self.number(text.is_some().into());
        self.text(text.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use catalogue::{Catalogue, CatalogueConfig};

    use super::*;

    fn parse(body: &str) -> GenerationRequest {
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://nowhere/none").unwrap();
        let catalogue = Catalogue::new(CatalogueConfig::default(), pool).unwrap();
        GenerationRequest::parse(body.as_bytes(), &catalogue).unwrap()
    }

    #[tokio::test]
    async fn spelling_makes_no_difference() {
        let one = parse(r#"{"model":"mock-fast","prompt":"a cat","duration_seconds":5}"#);
        let same = parse(
            r#"{ "deadline_seconds": 1800, "prompt": "a \u0063at", "duration_seconds": 5,
                 "resolution": "720p", "tags": [], "seed": null, "on_limit": "queue", "priority": 0, "model": "mock-fast" }"#,
        );
        assert_eq!(one.fingerprint(), same.fingerprint());
    }

    #[tokio::test]
    async fn every_member_makes_a_difference() {
        let mut seen = std::collections::HashSet::new();
        for members in [
            "",
            r#","seed":0"#,
            r#","seed":1"#,
            r#","negative_prompt":"""#,
            r#","negative_prompt":"x""#,
            r#","tags":["ab"]"#,
            r#","tags":["a","b"]"#,
            r#","aspect_ratio":"1:1""#,
            r#","resolution":"480p""#,
            r#","deadline_seconds":60"#,
            r#","on_limit":"reject""#,
            r#","priority":1"#,
            r#","priority":9"#,
            r#","priority":9,"on_limit":"reject""#,
            r#","project_id":"proj_019a0000000070008000000000000000""#,
        ] {
            let body = format!(r#"{{"model":"mock-fast","prompt":"a cat","duration_seconds":5{members}}}"#);
            assert!(seen.insert(parse(&body).fingerprint()), "{members}");
        }
        let other = parse(r#"{"model":"mock-slow","prompt":"a cat","duration_seconds":5}"#);
        assert!(seen.insert(other.fingerprint()));
    }
}
