//! What handlers take: extractors that refuse in the product's own words.
//!
//! A handler that compiles with [`Auth`] has an authenticated caller, with [`Id`] an id of the right kind, with
//! [`Params`] parameters that it knows and with [`Body`] a body that was read within its limits. Nothing here looks at
//! a database except through the tenancy.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod id;
pub(crate) mod idempotency;
pub(crate) mod if_none_match;
pub(crate) mod params;

pub(crate) use auth::{Auth, Reader, Writer};
pub(crate) use body::{Body, NoBody};
pub(crate) use id::Id;
pub(crate) use idempotency::IdempotencyKey;
pub(crate) use if_none_match::IfNoneMatch;
pub(crate) use params::{NoParams, Params, ParamsOf, QueryParams};

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{edge::RequestContext, problem::Problem};

impl<S: Send + Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        context(parts)
    }
}

/// The request's context, which the edge has left.
fn context(parts: &Parts) -> Result<RequestContext, Problem> {
    parts.extensions.get::<RequestContext>().cloned().ok_or_else(|| Problem::internal(NoEdge))
}

#[derive(Debug, thiserror::Error)]
#[error("a request came in without passing the edge")]
struct NoEdge;
