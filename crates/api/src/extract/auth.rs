//! Who asks.

use std::{net::IpAddr, ops::Deref, sync::Arc, time::Duration};

use axum::extract::FromRequestParts;
use control::{Admission, InflowCharge, IpCharge};
use domain::{Scope, TenantId, limits::LimitScope};
use http::{HeaderMap, HeaderName, header, request::Parts};
use tenancy::{ActError, AuthError, Session};

use crate::{
    config::IpWindow,
    extract::context,
    limits::failed_auth::unknown_credential,
    problem::{Code, Problem, RefusedBy},
    state::ApiState,
};

const ACT_FOR: HeaderName = HeaderName::from_static("aivideo-user");

/// An authenticated caller, or the user for whom a tenant's server acts. Nothing was charged.
#[derive(Debug, Clone)]
pub(crate) struct Auth(pub(crate) Arc<Session>);

/// An authenticated caller whose request was counted by the read bucket of the key.
#[derive(Debug, Clone)]
pub(crate) struct Reader(pub(crate) Arc<Session>);

/// As [`Reader`], for everything that writes but isn't a submit: the shared counter of the address counts it too.
#[derive(Debug, Clone)]
pub(crate) struct Writer(pub(crate) Arc<Session>);

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
        match state.tenancy().act_for(&session, user_ref).await {
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
        if let Some(lines) = state.reads().charge(&session.principal.credential, session.tier.reads)? {
            context(parts)?.note_limits(lines);
        }
        Ok(Self(session))
    }
}

impl FromRequestParts<ApiState> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Reader(session) = Reader::from_request_parts(parts, state).await?;
        count_address(state, session.principal.tenant, context(parts)?.address()).await?;
        Ok(Self(session))
    }
}

/// Counts a write by its address, over all processes. While Redis is away the limit in process has to do.
async fn count_address(state: &ApiState, tenant: TenantId, address: IpAddr) -> Result<(), Problem> {
    let Some(IpWindow { limit, window_ms }) = state.config().ip_window else { return Ok(()) };
    let ip = Some(IpCharge { ip: address, limit, window_ms });
    let charge = InflowCharge { tenant, replay: None, checks: Vec::new(), ip };
    match state.control().admit(charge).await {
        Ok(Admission::Refused { retry_after_ms, .. }) => {
            Err(Problem::new(Code::RateLimited, "Too many requests from this network.")
                .retry_after(Duration::from_millis(retry_after_ms))
                .refused_by(RefusedBy {
                    scope: LimitScope::Ip,
                    policy: "ip".into(),
                    limit: limit.into(),
                    reset: Some(Duration::from_millis(window_ms.into())),
                }))
        }
        Ok(Admission::Granted(_) | Admission::Replay(_) | Admission::CostAboveCapacity { .. }) | Err(_) => {
            Ok(())
        }
    }
}

async fn authenticate(parts: &Parts, state: &ApiState) -> Result<Arc<Session>, Problem> {
    let bearer = bearer(&parts.headers)?;
    match state.tenancy().authenticate(bearer).await {
        Ok(session) => Ok(session),
        Err(AuthError::Unknown | AuthError::Revoked | AuthError::Expired) => {
            Err(state.failed_auths().charge(state.control(), context(parts)?.address()).await)
        }
        Err(error @ AuthError::Unavailable(_)) => Err(busy().because(error)),
    }
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
