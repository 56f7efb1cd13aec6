//! `GET /admin/limits`.

use axum::{extract::State, response::Response};
use operator::{Figure, LimitRule, RuleKey, RuleSubject};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::{Params, ParamsOf, QueryParams, params::PageOf},
    openapi::ReadProblems,
    problem::Problem,
    routes::{
        admin::Looks,
        me::{BucketView, WindowView},
    },
    state::ApiState,
    view::{Millis, Page, json},
};

/// A limit that an operator set. Exactly one of `bucket`, `window` and `count` is not null, unless `unlimited` is true.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LimitRule)]
pub(crate) struct LimitRuleView {
    /// Whose limit: `tier:<name>`, `tenant:<id>` or `key:<id>`.
    subject: String,
    /// Which limit, by its name in `RateLimit-Policy` and in refusals.
    limit: String,
    /// Whether it only counts and tells.
    shadow: bool,
    /// A rate.
    bucket: Option<BucketView>,
    /// So many in any stretch of time of this length.
    window: Option<WindowView>,
    /// A number of tasks: at once, or on one day.
    count: Option<u32>,
    /// Whether there is no limit.
    unlimited: bool,
    /// Counts its changes.
    version: i64,
    /// When it was set.
    #[schema(value_type = String, format = DateTime)]
    set_at: Millis,
}

impl From<LimitRule> for LimitRuleView {
    fn from(rule: LimitRule) -> Self {
        let LimitRule { key: RuleKey { subject, limit, shadow }, figure, version, set_at } = rule;
        let (bucket, window, count) = match figure {
            Figure::Bucket(bucket) => (bucket, None, None),
            Figure::Window(window) => (None, window, None),
            Figure::Count(count) => (None, None, Some(count)),
            Figure::Quota(count) => (None, None, count),
        };
        Self {
            subject: subject.to_string(),
            limit: limit.to_string(),
            shadow,
            unlimited: bucket.is_none() && window.is_none() && count.is_none(),
            bucket: bucket.map(Into::into),
            window: window.map(Into::into),
            count,
            version,
            set_at: Millis(set_at),
        }
    }
}

/// The parameters of `GET /admin/limits`.
#[derive(Debug)]
pub(crate) struct Ask {
    subject: Option<RuleSubject>,
    page: PageOf<RuleKey>,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { subject: params.take("subject")?, page: PageOf::take(params)? })
    }
}

/// Limits that operators set
///
/// What is not listed here is as configured.
#[utoipa::path(
    get,
    path = "/admin/limits",
    operation_id = "adminListLimits",
    tag = "admin",
    params(
        ("subject" = Option<String>, Query, pattern = "^(tier|tenant|key):.+$", description = "Of this tier, tenant or key only."),
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "A page of limits.", body = Page<LimitRuleView>), ReadProblems),
)]
pub(crate) async fn list_limits(
    State(state): State<ApiState>,
    _: Looks,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let rules = state.operator().limits(ask.subject, ask.page.after, ask.page.limit).await?;
    Ok(json(&Page::of(rules, LimitRuleView::from)))
}
