//! What answers look like: the bodies of the API, apart from the facts they are made of.
//!
//! The crates below hold facts in their own types; a view borrows them and adds what is only known while reading.

pub(crate) mod answer;
pub(crate) mod task;

use std::fmt::Display;

use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use http::{HeaderValue, header};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::{extract::params::IdCursor, problem::Problem};

/// An instant as every answer spells it: RFC 3339, UTC, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Millis(pub(crate) DateTime<Utc>);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The items.
    pub(crate) items: Vec<T>,
    /// Where the next page begins; null when this is the last one.
    pub(crate) next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A page of an owner's list that is ordered by id.
    pub(crate) fn of<U, Id: Display>(page: tenancy::Page<U, Id>, view: impl FnMut(U) -> T) -> Self {
        let next_cursor = page.next.map(|id| IdCursor(id).to_string());
        Self { items: page.items.into_iter().map(view).collect(), next_cursor }
    }

    /// A list that is short enough to be one page.
    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}

/// How many headers an answer has in the end, the edge's included: room for them is made once.
const HEADERS_USUAL: usize = 12;

/// A JSON answer.
pub(crate) fn json(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => json_text(bytes),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// A JSON answer whose text is there already.
pub(crate) fn json_text(text: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().reserve(HEADERS_USUAL);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
