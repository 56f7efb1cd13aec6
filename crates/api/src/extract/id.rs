//! Ids in paths.

use std::{ops::Deref, str::FromStr};

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

use crate::problem::Problem;

/// The path's `{id}`. A text that is no such id gets the answer of an unknown one, before anything is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Id<T>(pub(crate) T);

impl<T> Deref for Id<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "id").await.map(Self)
    }
}

/// A named segment of the path, parsed.
pub(crate) async fn segment<T: FromStr, S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    name: &str,
) -> Result<T, Problem> {
    // A segment that isn't UTF-8 after decoding is no id either.
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
    let text = params.iter().find(|(key, _)| *key == name).map(|(_, text)| text);
    text.and_then(|text| text.parse().ok()).ok_or_else(Problem::not_found)
}
