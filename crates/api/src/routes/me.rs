//! `GET /me`: who the credential speaks for, and what it allows.

use axum::{extract::State, response::Response};
use domain::{
    Scope, TenantId, UserId,
    limits::{Bucket, SubjectLimits, Window},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::{NoParams, Reader},
    openapi::ReadProblems,
    problem::Problem,
    routes::credits::{CreditsView, balance},
    state::ApiState,
    view::json,
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
        Self { submit: limits.submit.map(Into::into), running: limits.running, queued: limits.queued }
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
        time_zone: &profile.time_zone,
        scopes: principal.scopes.iter().collect(),
        tier: &tier.name,
        limits: LimitsView {
            key_submit: session.rules.key_submit.as_ref().and_then(|own| own.bucket).map(Into::into),
            user: tier.user.into(),
            tenant: tier.tenant.into(),
            expensive: tier.expensive.map(Into::into),
            reads: tier.reads.map(Into::into),
        },
        credits: balance(&state, &session).await?,
    }))
}
