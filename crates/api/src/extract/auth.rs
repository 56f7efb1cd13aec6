//! Who asks.

use std::{net::IpAddr, ops::Deref, sync::Arc, time::Duration};

use axum::extract::FromRequestParts;
use control::{Admission, InflowCharge, InflowCheck, InflowKey, InflowLimit, IpCharge};
use domain::{
    Scope, TokenId,
    limits::{LimitScope, Reset, Window},
    principal::Credential,
};
use http::{HeaderMap, HeaderName, Method, header, request::Parts};
use tenancy::{
    ActError, AuthError, Session,
    limit_rules::{Figure, LimitName},
};

use crate::{
    config::IpWindow,
    edge::RequestContext,
    extract::context,
    limits::failed_auth::unknown_credential,
    problem::{Code, Problem, RefusedBy},
    state::ApiState,
};

const ACT_FOR: HeaderName = HeaderName::from_static("aivideo-user");
/// The name of the limit of minting in refusals, and in keys and metrics.
const MINTING: &str = "minting";
const MINTING_RULE: &str = "mint";

/// An authenticated caller, or the user for whom a tenant's server acts. Nothing was charged.
#[derive(Debug, Clone)]
pub(crate) struct Auth(pub(crate) Arc<Session>);

/// An authenticated caller whose request was counted by the read bucket of the key.
#[derive(Debug, Clone)]
pub(crate) struct Reader(pub(crate) Arc<Session>);

/// As [`Reader`], for everything that writes but isn't a submit: the shared counter of the address counts it too.
#[derive(Debug, Clone)]
pub(crate) struct Writer(pub(crate) Arc<Session>);

/// As [`Writer`], for a key that mints tokens: how many those are is counted one by one.
#[derive(Debug, Clone)]
pub(crate) struct Minter(pub(crate) Arc<Session>);

impl Deref for Auth {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Deref for Reader {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Deref for Writer {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.0
    }
}

impl FromRequestParts<ApiState> for Auth {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let session = authenticate(parts, state).await?;
        check_origin(&session, &parts.headers)?;
        let Some(user_ref) = single(&parts.headers, &ACT_FOR)? else { return Ok(Self(session)) };
        match Box::pin(state.tenancy().act_for(&session, user_ref)).await {
            Ok(acting) => Ok(Self(acting)),
            Err(ActError::Forbidden) => {
                Err(Problem::forbidden("AIVideo-User needs a key with the scope tenant:write."))
            }
            Err(ActError::UnknownUser) => {
                Err(Problem::field("AIVideo-User", "unknown_value", "the tenant has no such user"))
            }
            Err(error @ ActError::Unavailable(_)) => Err(busy().because(error)),
        }
    }
}

impl FromRequestParts<ApiState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Auth(session) = Auth::from_request_parts(parts, state).await?;
        count_read(state, &session, &context(parts)?)?;
        Ok(Self(session))
    }
}

impl FromRequestParts<ApiState> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Reader(session) = Reader::from_request_parts(parts, state).await?;
        count_write(state, &session, context(parts)?.address(), None).await?;
        Ok(Self(session))
    }
}

impl FromRequestParts<ApiState> for Minter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Reader(session) = Reader::from_request_parts(parts, state).await?;
        count_write(state, &session, context(parts)?.address(), state.config().minting).await?;
        Ok(Self(session))
    }
}

/// Counts a request by the read bucket of its key.
pub(crate) fn count_read(
    state: &ApiState,
    session: &Session,
    context: &RequestContext,
) -> Result<(), Problem> {
    let key = &session.principal.credential;
    for shadow in session.rules.shadows.iter().filter(|shadow| shadow.limit == LimitName::Reads) {
        if let Figure::Bucket(Some(bucket)) = shadow.figure
            && state.shadow_reads().would_refuse(key, bucket)
        {
            state.tenancy().tell_shadow(shadow);
        }
    }
    if let Some(lines) = state.reads().charge(key, session.tier.reads)? {
        context.note_limits(lines);
    }
    Ok(())
}

/// Counts a write by its address, over all processes, and a token by the key that mints it; in one trip. While Redis is
/// away the address limit in process has to do.
async fn count_write(
    state: &ApiState,
    session: &Session,
    address: IpAddr,
    minting: Option<Window>,
) -> Result<(), Problem> {
    let ip = state.config().ip_window.map(|IpWindow { limit, window_ms }| IpCharge {
        ip: address,
        limit,
        window_ms,
    });
    let checks: Vec<_> = minting.and_then(|window| mint_check(session, window)).into_iter().collect();
    if ip.is_none() && checks.is_empty() {
        return Ok(());
    }
    let charge = InflowCharge { tenant: session.principal.tenant, replay: None, checks, ip };
    match (state.control().admit(charge).await, ip, minting) {
        (Ok(Admission::Refused { by: control::RefusedBy::Ip, retry_after_ms, .. }), Some(ip), _) => {
            let window = Duration::from_millis(ip.window_ms.into());
            Err(too_many("Too many requests from this network.", retry_after_ms).refused_by(RefusedBy {
                scope: LimitScope::Ip,
                policy: "ip".into(),
                limit: ip.limit.into(),
                reset: Some(Reset::In(window)),
            }))
        }
        (
            Ok(Admission::Refused { by: control::RefusedBy::Check(_), retry_after_ms, states }),
            _,
            Some(window),
        ) => {
            let reset = states.first().map(|state| Reset::In(Duration::from_millis(state.reset_ms)));
            Err(too_many("This key has minted too many tokens.", retry_after_ms).refused_by(RefusedBy {
                scope: LimitScope::Key,
                policy: MINTING.into(),
                limit: window.limit.into(),
                reset,
            }))
        }
        _ => Ok(()),
    }
}

fn too_many(detail: &'static str, retry_after_ms: u64) -> Problem {
    Problem::new(Code::RateLimited, detail).retry_after(Duration::from_millis(retry_after_ms))
}

/// One more token of this key. A browser token mints nothing, which it is told elsewhere.
fn mint_check(session: &Session, window: Window) -> Option<InflowCheck> {
    let Credential::Key(key) = &session.principal.credential else { return None };
    Some(InflowCheck {
        scope: LimitScope::Key,
        key: InflowKey::Key(key.clone()),
        rule: MINTING_RULE,
        limit: InflowLimit::Window { window, entry: TokenId::generate().to_string() },
        cost: 1,
        shadow: false,
    })
}

async fn authenticate(parts: &Parts, state: &ApiState) -> Result<Arc<Session>, Problem> {
    let bearer = bearer(&parts.headers)?;
    let only_reads = matches!(parts.method, Method::GET | Method::HEAD) && !is_for_operators(parts);
    let asked = if only_reads {
        state.tenancy().authenticate_to_read(bearer).await
    } else {
        state.tenancy().authenticate(bearer).await
    };
    match asked {
        Ok(session) => Ok(session),
        Err(AuthError::Unknown | AuthError::Revoked | AuthError::Expired) => {
            Err(state.failed_auths().charge(state.control(), context(parts)?.address()).await)
        }
        Err(error @ AuthError::Unavailable(_)) => Err(busy().because(error)),
    }
}

fn is_for_operators(parts: &Parts) -> bool {
    parts.uri.path().starts_with("/admin/")
}

fn busy() -> Problem {
    Problem::unavailable("Credentials can't be checked at the moment.")
}

/// The bearer text of the request.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || Problem::new(Code::Unauthenticated, "Send a key as `Authorization: Bearer avk_…`.");
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(unknown_credential());
    }
    let text = value.to_str().map_err(|_| missing())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(missing)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(missing()) }
}

/// A token that was minted for certain origins is of no use to pages of others.
fn check_origin(session: &Session, headers: &HeaderMap) -> Result<(), Problem> {
    if session.origins.is_empty() {
        return Ok(());
    }
    match headers.get(header::ORIGIN) {
        // Not from a page, or from one of this very origin: browsers name the origin in every other case.
        None => Ok(()),
        Some(origin) if session.origins.iter().any(|allowed| origin == allowed.as_str()) => Ok(()),
        Some(_) => Err(Problem::forbidden("This token was minted for pages of another origin.")),
    }
}

/// A header that may be given once.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let malformed = || Problem::malformed(format!("The header {name} can't be read, or is there twice."));
    if values.next().is_some() {
        return Err(malformed());
    }
    value.to_str().map(Some).map_err(|_| malformed())
}

/// Refuses a session that has none of these scopes.
pub(crate) fn require(session: &Session, any_of: &[Scope]) -> Result<(), Problem> {
    if any_of.iter().any(|scope| session.principal.scopes.has(*scope)) {
        return Ok(());
    }
    let names: Vec<&str> = any_of.iter().map(|scope| scope.as_str()).collect();
    Err(Problem::forbidden(format!("This needs the scope {}.", names.join(" or "))))
}

/// Refuses a session that may read nothing.
pub(crate) fn require_read(session: &Session) -> Result<(), Problem> {
    require(session, &[Scope::Read, Scope::TenantRead, Scope::TenantWrite, Scope::Admin])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_one_bearer_text_is_taken() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            bearer(&headers).map(str::to_owned).map_err(|problem| problem.code())
        };
        assert_eq!(read(&["Bearer avk_1"]), Ok("avk_1".to_owned()));
        assert_eq!(read(&["bearer  avk_1 "]), Ok("avk_1".to_owned()));
        for bad in [&[][..], &["avk_1"], &["Basic avk_1"], &["Bearer a", "Bearer b"]] {
            assert_eq!(read(bad), Err(Code::Unauthenticated), "{bad:?}");
        }
    }
}
