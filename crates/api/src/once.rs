//! Repeatable writes of operators and tenants' servers: from the Idempotency-Key to the answer.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use operator::{Done, Once};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tenancy::{Session, idempotency::IdempotencyKey};

use crate::view::json_text;

pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What makes a write repeatable, if its request has a key. The fingerprint covers the route and the parsed body, so
/// white space and the order of members make no difference.
pub(crate) fn once<T>(
    session: &Session,
    route: &'static str,
    key: Option<IdempotencyKey>,
    body: &impl Serialize,
    render: fn(&T) -> String,
) -> Option<Once<T>> {
    let mut hash = Sha256::new();
    hash.update(route);
    hash.update([0]);
    hash.update(serde_json::to_vec(body).unwrap_or_default());
    Some(Once {
        user: session.principal.user,
        route,
        key: key?.as_str().to_owned(),
        fingerprint: hash.finalize().into(),
        status: StatusCode::CREATED.as_u16(),
        render,
    })
}

/// The text of a view.
pub(crate) fn render(view: &impl Serialize) -> String {
    // Views are made of texts and numbers, which are JSON.
    serde_json::to_string(view).unwrap_or_default()
}

/// The 201 of a write: fresh, or the first answer again.
pub(crate) fn created<T>(
    done: Done<T>,
    body: fn(&T) -> String,
    location: fn(&T) -> Option<String>,
) -> Response {
    match done {
        Done::Fresh(made) => {
            let mut response = (StatusCode::CREATED, json_text(Body::from(body(&made)))).into_response();
            if let Some(value) = location(&made).and_then(|location| HeaderValue::try_from(location).ok()) {
                response.headers_mut().insert(header::LOCATION, value);
            }
            response
        }
        Done::Replayed { status, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::CREATED);
            let marker = [(REPLAYED, HeaderValue::from_static("true"))];
            (status, marker, json_text(Body::from(body))).into_response()
        }
    }
}
