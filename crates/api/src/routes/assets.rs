//! Stored files.

pub(crate) mod content;
mod range;
