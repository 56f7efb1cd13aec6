//! `POST /demo-token`: the console's token, in a demo and on its own machine only.

use axum::{extract::State, response::Response};
use domain::Scope;
use http::{HeaderMap, header, uri::Authority};
use tenancy::NewToken;
use url::{Host, Url};

use crate::{
    edge::RequestContext,
    extract::{NoBody, NoParams},
    openapi::DemoProblems,
    problem::Problem,
    routes::tokens::{TokenView, browser::TTL_SECONDS, minted},
    state::ApiState,
};

/// Get the demo's token
///
/// Only in a demo, and only for a browser on the same machine: elsewhere this route does not exist.
#[utoipa::path(
    post,
    path = "/demo-token",
    operation_id = "createDemoToken",
    tag = "tokens",
    security(()),
    responses((status = 201, description = "The token.", body = TokenView<'static>), DemoProblems),
)]
pub(crate) async fn create_demo_token(
    State(state): State<ApiState>,
    context: RequestContext,
    headers: HeaderMap,
    _: NoParams,
    _: NoBody,
) -> Result<Response, Problem> {
    let key = state.demo_key().filter(|_| is_local(&context, &headers)).ok_or_else(Problem::not_found)?;
    let _turn = state.store().pass().await?;
    let session = state.tenancy().authenticate(key).await.map_err(|error| match error {
        tenancy::AuthError::Unavailable(_) => {
            Problem::unavailable("The token can't be made now.").because(error)
        }
        other => Problem::internal(other),
    })?;
    let scopes = [Scope::Read, Scope::Write].into_iter().collect();
    let new = NewToken { ttl_seconds: TTL_SECONDS, scopes: Some(scopes), ..NewToken::default() };
    Ok(minted(&state.tenancy().mint_browser_token(&session, &new).await?))
}

/// Whether the request comes from this machine and was meant for it. The Host says what the browser believes to talk
/// to: a foreign name that was made to resolve to loopback (DNS rebinding) stands there as the foreign name. The
/// Origin, if there is one, says whose page asks.
fn is_local(context: &RequestContext, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let host_is_local = host
        .and_then(|host| host.parse::<Authority>().ok())
        .and_then(|authority| Host::parse(authority.host()).ok())
        .is_some_and(|host| is_loopback(&host));
    let page_is_local = headers.get(header::ORIGIN).is_none_or(|origin| {
        origin
            .to_str()
            .ok()
            .and_then(|origin| Url::parse(origin).ok())
            .and_then(|url| url.host().map(|host| host.to_owned()))
            .is_some_and(|host| is_loopback(&host))
    });
    context.address().is_loopback() && host_is_local && page_is_local
}

fn is_loopback(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn local(address: &str, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        is_local(&RequestContext::for_test(address.parse().unwrap()), &headers)
    }

    #[test]
    fn only_this_machine_and_only_by_its_own_name() {
        assert!(local("127.0.0.1", "127.0.0.1:8080", None));
        assert!(local("127.0.0.1", "localhost:8080", Some("http://localhost:8080")));
        assert!(local("::1", "[::1]:8080", Some("http://[::1]:8080")));
        assert!(!local("127.0.0.1", "evil.example", None), "rebinding");
        assert!(!local("127.0.0.1", "localhost.evil.example", None));
        assert!(!local("127.0.0.1", "127.0.0.1:8080", Some("https://evil.example")), "another page");
        assert!(!local("127.0.0.1", "127.0.0.1:8080", Some("null")));
        assert!(!local("192.168.1.7", "127.0.0.1:8080", None), "another machine");
        assert!(!local("127.0.0.1", "", None));
    }
}
