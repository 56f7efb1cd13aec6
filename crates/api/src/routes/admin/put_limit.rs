//! `PUT /admin/limits/{subject}/{limit}`.

use axum::{
    extract::{FromRequestParts, State},
    response::Response,
};
use domain::limits::{Bucket, Window};
use http::request::Parts;
use operator::{Figure, OperatorError, RuleKey, RuleSubject};
use serde::Deserialize;
use tenancy::limit_rules::LimitName;
use utoipa::ToSchema;

use crate::{
    extract::{Body, NoParams, id::segment},
    openapi::{ItemProblems, WriteProblems},
    problem::Problem,
    routes::admin::{Changes, list_limits::LimitRuleView},
    state::ApiState,
    view::json,
};

/// The path of one rule: `{subject}` and `{limit}`.
#[derive(Debug, Clone)]
pub(crate) struct RulePath {
    subject: RuleSubject,
    limit: LimitName,
}

impl RulePath {
    /// The rule of this path, in force or in shadow.
    pub(super) fn rule(self, shadow: bool) -> RuleKey {
        RuleKey { subject: self.subject, limit: self.limit, shadow }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RulePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let subject = segment(parts, state, "subject").await?;
        let limit = segment(parts, state, "limit").await?;
        Ok(Self { subject, limit })
    }
}

/// How much a limit allows: exactly one of `bucket`, `window`, `count` and `unlimited`, in the form that the limit has.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewLimit)]
pub(crate) struct NewLimitBody {
    /// For `submit-…` and `reads`.
    #[serde(default)]
    bucket: Option<NewBucket>,
    /// For `expensive-user`.
    #[serde(default)]
    window: Option<NewWindow>,
    /// For `running-…` and `queued-…`: tasks at providers, and tasks that wait besides. For `daily-…`: tasks that are accepted
    /// on one day of the tenant's time zone.
    #[serde(default)]
    count: Option<u32>,
    /// True takes a rate, a window or a daily quota away.
    #[serde(default)]
    unlimited: bool,
    /// True: the limit only counts, and tells operators when it would have refused; false unless given.
    #[serde(default)]
    shadow: bool,
}

/// A token bucket.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBucket)]
struct NewBucket {
    /// The most that can be saved up.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    capacity: u32,
    /// What comes back in every period.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    refill: u32,
    /// The period in milliseconds.
    #[schema(minimum = 1, maximum = 86_400_000)]
    per_ms: u64,
}

/// So many in any stretch of time of this length.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewWindow)]
struct NewWindow {
    /// The most.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: u32,
    /// The length in milliseconds.
    #[schema(minimum = 1, maximum = 86_400_000)]
    window_ms: u64,
}

impl NewLimitBody {
    /// The figure, in the one form that is given; whether that is the limit's own form is seen later.
    fn figure(&self, limit: &LimitName) -> Result<Figure, Problem> {
        let given = [self.bucket.is_some(), self.window.is_some(), self.count.is_some(), self.unlimited];
        if given.into_iter().filter(|given| *given).count() != 1 {
            let message = "must be given alone, or another one of bucket, window, count and unlimited";
            return Err(Problem::field(limit.member(), "one_of", message));
        }
        Ok(match self {
            Self { bucket: Some(NewBucket { capacity, refill, per_ms }), .. } => {
                Figure::Bucket(Some(Bucket { capacity: *capacity, refill: *refill, per_ms: *per_ms }))
            }
            Self { window: Some(NewWindow { limit, window_ms }), .. } => {
                Figure::Window(Some(Window { limit: *limit, window_ms: *window_ms }))
            }
            Self { count: Some(count), .. } => limit.tasks(*count),
            Self { .. } => limit.unlimited().ok_or_else(|| {
                Problem::field(
                    "unlimited",
                    "not_supported",
                    "is for rates, windows and daily quotas; a number of tasks at once has an end",
                )
            })?,
        })
    }
}

/// Set a limit
///
/// It counts in place of what is configured, everywhere within five seconds. A key's rule counts before a tenant's, a
/// tenant's before a tier's. `submit-user`, `submit-tenant`, `submit-endpoint:generations`, `submit-model:<model>`,
/// `expensive-user`, `reads`, `running-user`, `running-tenant`, `queued-user`, `queued-tenant`, `daily-user` and
/// `daily-tenant` are limits of tiers and tenants, `submit-key` and `reads` of keys; the submits of a key with `submit-key`
/// count by themselves, in place of its user's. With `shadow` the rule stands beside the limit in force, refuses nobody, and
/// is told of in the log and in the metric `rate_limit_shadow_total`. Tasks are counted towards a daily quota while there is
/// one, so a new one begins with nothing used.
#[utoipa::path(
    put,
    path = "/admin/limits/{subject}/{limit}",
    operation_id = "adminPutLimit",
    tag = "admin",
    params(
        ("subject" = String, Path, description = "`tier:<name>`, `tenant:<id>` or `key:<id>`."),
        ("limit" = String, Path, description = "The limit's name."),
    ),
    request_body = NewLimitBody,
    responses((status = 200, description = "The limit.", body = LimitRuleView), WriteProblems, ItemProblems),
)]
pub(crate) async fn put_limit(
    State(state): State<ApiState>,
    Changes { actor, .. }: Changes,
    path: RulePath,
    _: NoParams,
    Body(body): Body<NewLimitBody>,
) -> Result<Response, Problem> {
    let figure = body.figure(&path.limit)?;
    if let LimitName::SubmitModel(model) = &path.limit
        && state.catalogue().model(model).is_none()
    {
        return Err(OperatorError::NotFound.into());
    }
    let _turn = state.store().pass().await?;
    let rule = state.operator().put_limit(actor, path.rule(body.shadow), figure).await?;
    Ok(json(&LimitRuleView::from(rule)))
}
