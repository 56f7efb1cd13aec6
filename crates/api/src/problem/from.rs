//! From the errors of the owners to problems: the one place where a domain's refusal becomes a status.

use domain::limits::{LimitScope, Reset};
use generation::{LimitState, SubmitError};
use operator::OperatorError;
use tenancy::{
    MintError,
    projects::{MemberError, ProjectError},
};

use super::{Code, CreditsShort, Problem, RefusedBy};
use crate::limits::{LimitLine, LimitLines};

/// Turns a failed store into a problem. A macro, because the store's error type is named by nobody here: this crate
/// knows no database.
macro_rules! store_problem {
    ($error:expr) => {{
        let error = $error;
        if error.is_transient() {
            $crate::problem::Problem::unavailable("The store is busy or away. Nothing was done.")
                .because(error)
        } else {
            $crate::problem::Problem::internal(error)
        }
    }};
}
pub(crate) use store_problem;

impl From<ProjectError> for Problem {
    fn from(error: ProjectError) -> Self {
        match error {
            ProjectError::NotFound => Self::not_found(),
            ProjectError::Forbidden => Self::forbidden("Your role or key does not allow this."),
            ProjectError::Name(fault) => Self::field("name", "invalid", fault.to_string()),
            ProjectError::Pg(error) => store_problem!(error),
        }
    }
}

impl From<MemberError> for Problem {
    fn from(error: MemberError) -> Self {
        match error {
            MemberError::NotFound => Self::not_found(),
            MemberError::Forbidden => Self::forbidden("Only an owner of the project may do this."),
            // The user stands in the path, so an unknown one is an unknown thing.
            MemberError::UnknownUser => Self::not_found(),
            MemberError::LastOwner => Self::field("role", "last_owner", error.to_string()),
            MemberError::Pg(error) => store_problem!(error),
        }
    }
}

impl From<MintError> for Problem {
    fn from(error: MintError) -> Self {
        let field = |name, code| Self::field(name, code, error.to_string());
        match error {
            MintError::Forbidden => Self::forbidden("This credential may not mint such a token."),
            MintError::UnknownUser => field("user_id", "unknown_value"),
            MintError::Ttl => field("ttl_seconds", "out_of_range"),
            MintError::Scopes => field("scopes", "invalid"),
            MintError::Origins => field("origins", "invalid"),
            MintError::Unavailable(_) => {
                Self::unavailable("The token can't be stored at the moment.").because(error)
            }
        }
    }
}

impl From<OperatorError> for Problem {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Field { field, code, message } => Self::field(field, code, message),
            OperatorError::NotFound => Self::not_found(),
            OperatorError::Forbidden(scope) => Self::forbidden(format!("This needs the scope {scope}.")),
            OperatorError::Mismatch => {
                Self::new(Code::IdempotencyMismatch, "This Idempotency-Key was used for another request.")
            }
            OperatorError::InProgress => Self::new(
                Code::IdempotencyInProgress,
                "A request with this Idempotency-Key is still under way.",
            )
            .retry_after(std::time::Duration::from_secs(1)),
            OperatorError::Unknown(_) => Self::unavailable(
                "It is not known whether this was done. Send it again with the same Idempotency-Key.",
            )
            .because(error),
            OperatorError::Pg(_) | OperatorError::SharedPg(_) => store_problem!(error),
            OperatorError::Control(_) => {
                Self::unavailable("What Redis knows can't be read at the moment.").because(error)
            }
        }
    }
}

impl From<&[LimitState]> for LimitLines {
    fn from(states: &[LimitState]) -> Self {
        let seconds = |duration: std::time::Duration| {
            u64::try_from(duration.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
        };
        let line = |state: &LimitState| LimitLine {
            policy: state.policy.into(),
            quota: state.limit.into(),
            window_seconds: seconds(state.window).max(1),
            remaining: state.remaining.into(),
            reset_seconds: seconds(state.reset),
        };
        Self(states.iter().map(line).collect())
    }
}

/// A refused submit, as its sender is told. Also a member of a dry run's answer.
pub(crate) fn submit_problem(error: SubmitError) -> Problem {
    let problem = match &error {
        SubmitError::Forbidden => {
            Problem::forbidden("This needs the scope write and, in a project, the role owner or editor.")
        }
        SubmitError::UnknownProject => {
            Problem::field("project_id", "unknown_project", "there is no such project")
        }
        SubmitError::InsufficientCredits { available, held, needed } => {
            Problem::new(Code::InsufficientCredits, format!("{}.", capitalized(&error.to_string()))).credits(
                CreditsShort { required: needed.get(), available: available.get(), held: held.get() },
            )
        }
        SubmitError::IdempotencyMismatch => {
            Problem::new(Code::IdempotencyMismatch, "This Idempotency-Key was used for another request.")
        }
        SubmitError::IdempotencyInProgress { .. } => Problem::new(
            Code::IdempotencyInProgress,
            "The first request with this Idempotency-Key is still under way.",
        ),
        SubmitError::RateLimited { by, limits, .. } => {
            let mut lines = LimitLines::from(limits.as_slice());
            if !limits.iter().any(|limit| limit.policy == by.policy) {
                lines.0.extend(LimitLines::from([*by].as_slice()).0);
            }
            Problem::new(Code::RateLimited, "Too many submits; see the limit that is named here.")
                .refused_by(refused_by(by))
                .with_limits(&lines)
        }
        SubmitError::CostAboveCapacity { by } => Problem::new(
            Code::CostAboveCapacity,
            "Waiting won't help: the limit never allows that much at once.",
        )
        .refused_by(refused_by(by)),
        SubmitError::Uncounted { .. } => Problem::new(
            Code::Unavailable,
            "Submits of this model are counted one by one for your tier, and the count can't be reached at the moment. Nothing \
             was done.",
        ),
        SubmitError::QueueFull { scope, open, limit, .. } => {
            let policy = if *scope == LimitScope::Tenant { "open-tenant" } else { "open-user" };
            Problem::new(Code::QueueFull, format!("{open} tasks are running or waiting, of {limit} at most."))
                .refused_by(RefusedBy {
                    scope: *scope,
                    policy: policy.into(),
                    limit: (*limit).into(),
                    reset: None,
                })
        }
        SubmitError::QuotaExceeded { by, resets_at, limits } => Problem::new(
            Code::QuotaExceeded,
            "As many tasks were accepted today as may be. Tasks that fail or are cancelled give theirs back.",
        )
        .refused_by(RefusedBy { reset: Some(Reset::At(*resets_at)), ..refused_by(by) })
        .with_limits(&LimitLines::from(limits.as_slice())),
        SubmitError::Concurrency { scope, open, limit, .. } => {
            let policy = if *scope == LimitScope::Tenant { "running-tenant" } else { "running-user" };
            let detail =
                format!("{open} tasks are open and {limit} may run at once; this one would have to wait.");
            Problem::new(Code::Concurrency, detail).refused_by(RefusedBy {
                scope: *scope,
                policy: policy.into(),
                limit: (*limit).into(),
                reset: None,
            })
        }
        SubmitError::Overloaded { .. } => {
            Problem::new(Code::Unavailable, "Too many submits are waiting to be written. Nothing was done.")
        }
        SubmitError::Unavailable { .. } => Problem::new(
            Code::Unavailable,
            "The submit can't be stored at the moment. With an Idempotency-Key it can safely be sent again.",
        ),
        SubmitError::Internal => Problem::internal(error.clone()),
    };
    match error.retry_after() {
        Some(wait) => problem.retry_after(wait),
        None => problem,
    }
}

fn refused_by(by: &LimitState) -> RefusedBy {
    let reset = Some(Reset::In(by.reset));
    RefusedBy { scope: by.scope, policy: by.policy.into(), limit: by.limit.into(), reset }
}

fn capitalized(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
