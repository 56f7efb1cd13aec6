//! What operators, browsers and the curious ask: health, metrics, the document, pages for people.

pub(crate) mod docs;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod problems;
