//! What a client asks for: one strict parse at the edge, and typed from there on.
//!
//! Nothing later sees the client's text again, so price, provider, stored inputs and fingerprint cannot disagree
//! about it. Strict means: every member known and given once, every figure a whole number in its range, every text
//! storable. Each problem names its member.

mod fingerprint;
mod members;
mod parse;

use std::sync::Arc;

use domain::{Credits, Priority, ProjectId, model::Model, task::Inputs};

pub(crate) use fingerprint::ROUTE;

/// A parsed, validated, defaulted and priced request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationRequest {
    /// The model, as the catalogue had it.
    pub model: Arc<Model>,
    /// What was asked for; texts as sent.
    pub inputs: Inputs,
    /// The project it goes into. Not yet known to exist.
    pub project: Option<ProjectId>,
    /// Given up this many seconds after its acceptance.
    pub deadline_seconds: u32,
    /// How urgent it is among its user's tasks.
    pub priority: Priority,
    /// What becomes of it when it could not start at once.
    pub on_limit: OnLimit,
    /// What it costs.
    pub price: Credits,
}

/// What becomes of a request whose task could not start at once, because as many run as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// It waits.
    #[default]
    Queue,
    /// It is refused.
    Reject,
}

/// Why a body is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is not JSON. Says why and where.
    #[error("the body is not JSON: {0}")]
    Malformed(String),
    /// It is JSON, but not a request; one error per problem.
    #[error("the request is not valid")]
    Invalid(Vec<FieldError>),
}

/// One thing that is wrong with one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The member, such as `prompt` or `tags[2]`; empty for the body itself.
    pub field: String,
    /// What is wrong, for programs.
    pub code: FieldCode,
    /// What is wrong, for people.
    pub message: String,
}

/// What can be wrong with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldCode {
    /// It must be there.
    Required,
    /// There is no such member (or it is not served yet).
    Unknown,
    /// It is there more than once.
    Duplicate,
    /// It has another JSON type than it should.
    WrongType,
    /// The text is not Unicode: half of a surrogate pair.
    NotUnicode,
    /// The text contains U+0000.
    ContainsNul,
    /// Nothing of the text can be seen.
    Empty,
    /// The text, or the list, is too long.
    TooLong,
    /// The number is outside its range, or not whole.
    OutOfRange,
    /// There is no such model.
    UnknownModel,
    /// There is no such project, as far as this caller may know.
    UnknownProject,
    /// The model does not offer this.
    NotSupported,
    /// It is none of the values that there are.
    UnknownValue,
}

impl FieldCode {
    /// The text of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Unknown => "unknown",
            Self::Duplicate => "duplicate",
            Self::WrongType => "wrong_type",
            Self::NotUnicode => "not_unicode",
            Self::ContainsNul => "contains_nul",
            Self::Empty => "empty",
            Self::TooLong => "too_long",
            Self::OutOfRange => "out_of_range",
            Self::UnknownModel => "unknown_model",
            Self::UnknownProject => "unknown_project",
            Self::NotSupported => "not_supported",
            Self::UnknownValue => "unknown_value",
        }
    }
}
