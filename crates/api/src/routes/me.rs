//! `GET /me`: who the credential speaks for, and what it allows.

use axum::{extract::State, response::Response};
use domain::{
    Scope, TenantId, UserId,
    limits::{Bucket, SubjectLimits},
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
    /// Of this user.
    user: SubjectLimitsView,
    /// Of all users of the tenant together.
    tenant: SubjectLimitsView,
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
struct BucketView {
    /// The most that can be saved up.
    capacity: u32,
    /// What comes back in every period.
    refill: u32,
    /// The period in milliseconds.
    per_ms: u64,
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
            user: tier.user.into(),
            tenant: tier.tenant.into(),
            reads: tier.reads.map(Into::into),
        },
        credits: balance(&state, &session).await?,
    }))
}
