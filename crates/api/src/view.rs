//! What answers look like: the bodies of the API, apart from the facts they are made of.
//!
//! The crates below hold facts in their own types; a view borrows them and adds what is only known while reading.

pub(crate) mod task;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

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
    /// A list that is short enough to be one page.
    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}
