//! `GET /me`: who the credential speaks for, and what it allows.

use axum::{extract::State, response::Response};
use domain::{
    Scope, TenantId, UserId,
    limits::{Bucket, LimitScope, SubjectLimits, Window},
};
use serde::Serialize;
use tenancy::Session;
use utoipa::ToSchema;

use crate::{
    extract::{NoParams, Reader},
    openapi::ReadProblems,
    problem::{Problem, from::store_problem},
    routes::credits::{CreditsView, balance},
    state::ApiState,
    view::{Millis, json},
};

/// Who the credential speaks for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Me)]
struct MeView<'a> {
    /// The user.
    #[schema(value_type = String)]
    user_id: UserId,
    /// The user's name.
    user_name: &'a str,
    /// The tenant's own name for the user.
    external_id: Option<&'a str>,
    /// The tenant.
    #[schema(value_type = String)]
    tenant_id: TenantId,
    /// The tenant's name.
    tenant_name: &'a str,
    /// The tenant's time zone.
    time_zone: &'a str,
    /// What the credential allows.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// The name of the tenant's tier.
    tier: &'a str,
    /// What the tier allows.
    limits: LimitsView,
    /// What has been used of the daily quotas.
    quota: QuotaView,
    /// The account that pays for this user's tasks.
    credits: CreditsView,
}

/// What a tier allows. Null is unlimited.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limits)]
struct LimitsView {
    /// Submits of this key, where they count by themselves, in place of the user's.
    key_submit: Option<BucketView>,
    /// Of this user.
    user: SubjectLimitsView,
    /// Of all users of the tenant together.
    tenant: SubjectLimitsView,
    /// Submits of one expensive model by this user, in any stretch of time of the window's length.
    expensive: Option<WindowView>,
    /// Everything but submits, per key.
    reads: Option<BucketView>,
}

/// What one user, or one tenant, may have.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubjectLimits)]
struct SubjectLimitsView {
    /// Submits.
    submit: Option<BucketView>,
    /// Tasks at providers at once.
    running: u32,
    /// Tasks that wait besides.
    queued: u32,
    /// Tasks that are accepted on one day of the tenant's time zone.
    daily: Option<u32>,
}

/// What has been used of the daily quotas. Null is unlimited.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Quota)]
struct QuotaView {
    /// By this user.
    user: Option<DayView>,
    /// By all users of the tenant together.
    tenant: Option<DayView>,
}

/// How a daily quota stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QuotaDay)]
struct DayView {
    /// Tasks that were accepted today and neither failed nor were canceled.
    used: u32,
    /// The most.
    limit: u32,
    /// When the next day begins in the tenant's time zone.
    #[schema(value_type = String, format = DateTime)]
    reset: Millis,
}

/// A token bucket.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Bucket)]
pub(crate) struct BucketView {
    /// The most that can be saved up.
    capacity: u32,
    /// What comes back in every period.
    refill: u32,
    /// The period in milliseconds.
    per_ms: u64,
}

/// So many in any stretch of time of this length.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Window)]
pub(crate) struct WindowView {
    /// The most.
    limit: u32,
    /// The length in milliseconds.
    window_ms: u64,
}

impl From<Window> for WindowView {
    fn from(window: Window) -> Self {
        Self { limit: window.limit, window_ms: window.window_ms }
    }
}

impl From<Bucket> for BucketView {
    fn from(bucket: Bucket) -> Self {
        Self { capacity: bucket.capacity, refill: bucket.refill, per_ms: bucket.per_ms }
    }
}

impl From<SubjectLimits> for SubjectLimitsView {
    fn from(limits: SubjectLimits) -> Self {
        let SubjectLimits { submit, running, queued, daily } = limits;
        Self { submit: submit.map(Into::into), running, queued, daily }
    }
}

/// Who am I
#[utoipa::path(
    get,
    path = "/me",
    operation_id = "getMe",
    tag = "account",
    responses((status = 200, description = "The caller.", body = MeView<'static>), ReadProblems),
)]
pub(crate) async fn get_me(
    State(state): State<ApiState>,
    Reader(session): Reader,
    _: NoParams,
) -> Result<Response, Problem> {
    let (principal, profile, tier) = (&session.principal, &session.profile, &session.tier);
    Ok(json(&MeView {
        user_id: principal.user,
        user_name: &profile.user_name,
        external_id: profile.external_id.as_deref(),
        tenant_id: principal.tenant,
        tenant_name: &profile.tenant_name,
        time_zone: profile.time_zone.name(),
        scopes: principal.scopes.iter().collect(),
        tier: &tier.name,
        limits: LimitsView {
            key_submit: session.rules.key_submit.as_ref().and_then(|own| own.bucket).map(Into::into),
            user: tier.user.into(),
            tenant: tier.tenant.into(),
            expensive: tier.expensive.map(Into::into),
            reads: tier.reads.map(Into::into),
        },
        quota: quota(&state, &session).await?,
        credits: balance(&state, &session).await?,
    }))
}

/// How the daily quotas of the session stand.
async fn quota(state: &ApiState, session: &Session) -> Result<QuotaView, Problem> {
    let (principal, tier) = (&session.principal, &session.tier);
    let (tenant, user) = ((principal.tenant, tier.tenant.daily), (principal.user, tier.user.daily));
    let found = {
        let _turn = state.store().pass().await?;
        let found = state.ledger().quota(session.profile.time_zone, tenant, user).await;
        found.map_err(|error| store_problem!(error))?
    };
    let mut view = QuotaView::default();
    for (day, standing) in found.into_iter().flat_map(|(day, all)| all.into_iter().map(move |one| (day, one)))
    {
        let day = DayView { used: standing.used, limit: standing.limit, reset: Millis(day.ends_at) };
        match standing.scope {
            LimitScope::Tenant => view.tenant = Some(day),
            _ => view.user = Some(day),
        }
    }
    Ok(view)
}
