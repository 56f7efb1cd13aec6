//! `GET /assets/{id}/content`: the bytes of a stored file, whole or in part.
//!
//! Two ways in: a credential that may see the asset, or a signed link (`?exp=&sig=`), which is what a `<video>` element
//! can carry. What comes out is only ever played or saved: the type is from an allow-list, browsers may not guess
//! another one, and a page that could be made of it would have no rights.

use std::ops::Range;

use axum::{
    body::Body,
    extract::{FromRequestParts, State},
    response::{IntoResponse, Response},
};
use domain::AssetId;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use media::{Asset, LinkCheck, OpenError};

use crate::{
    extract::{Id, IfNoneMatch, Params, ParamsOf, QueryParams, Reader},
    openapi::ContentProblems,
    problem::{Code, Problem, from::store_problem},
    routes::assets::range::{Asked, asked},
    state::ApiState,
};

/// Served as they are; anything else is served as bytes.
const TYPES: [(&str, &str); 3] = [("video/mp4", "mp4"), ("video/webm", "webm"), ("video/quicktime", "mov")];
const BYTES: (&str, &str) = ("application/octet-stream", "bin");
/// A file opened as a page of its own gets no rights at all.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'; media-src 'self'");
/// The content behind an id never changes.
const CACHING: HeaderValue = HeaderValue::from_static("private, max-age=3600");

/// The parameters of a signed link.
#[derive(Debug)]
pub(crate) struct Link {
    exp: Option<String>,
    sig: Option<String>,
}

impl QueryParams for Link {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { exp: params.text("exp"), sig: params.text("sig") })
    }
}

impl Link {
    const fn is_given(&self) -> bool {
        self.exp.is_some() || self.sig.is_some()
    }
}

/// Permission to read one asset.
#[derive(Debug)]
pub(crate) struct Readable(Asset);

impl FromRequestParts<ApiState> for Readable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let ParamsOf(link) = ParamsOf::<Link>::from_request_parts(parts, state).await?;
        if link.is_given() {
            let Id(id) = Id::<AssetId>::from_request_parts(parts, state).await?;
            check(state, id, &link)?;
            return find(state, id).await.map(Self);
        }
        let Reader(session) = Reader::from_request_parts(parts, state).await?;
        let Id(id) = Id::<AssetId>::from_request_parts(parts, state).await?;
        let asset = find(state, id).await?;
        if session.principal.sees(&asset.owner) { Ok(Self(asset)) } else { Err(Problem::not_found()) }
    }
}

fn check(state: &ApiState, id: AssetId, link: &Link) -> Result<(), Problem> {
    let exp = link.exp.as_deref().and_then(|exp| exp.parse().ok()).ok_or_else(Problem::not_found)?;
    let sig = link.sig.as_deref().ok_or_else(Problem::not_found)?;
    match state.media().check_link(id, exp, sig, state.clock().now()) {
        LinkCheck::Valid => Ok(()),
        LinkCheck::Expired => {
            Err(Problem::new(Code::LinkExpired, "This link is over. Read the task again for a new one."))
        }
        LinkCheck::Invalid => Err(Problem::not_found()),
    }
}

async fn find(state: &ApiState, id: AssetId) -> Result<Asset, Problem> {
    let _turn = state.store().pass().await?;
    let found = state.media().asset(id).await.map_err(|error| store_problem!(error))?;
    found.ok_or_else(Problem::not_found)
}

/// The content of an asset
///
/// With a credential, or without one by the signed link that a task's `output_url` holds. One range of bytes may be
/// asked for.
#[utoipa::path(
    get,
    path = "/assets/{id}/content",
    operation_id = "getAssetContent",
    tag = "assets",
    security((), ("key" = [])),
    params(
        ("id" = String, Path, description = "The asset."),
        ("exp" = Option<i64>, Query, description = "From a signed link."),
        ("sig" = Option<String>, Query, description = "From a signed link."),
        ("Range" = Option<String>, Header, description = "One range of bytes."),
        ("If-Range" = Option<String>, Header, description = "The range counts only for this ETag."),
        ("If-None-Match" = Option<String>, Header, description = "An ETag that was seen."),
    ),
    responses(
        (status = 200, description = "The whole file.", content_type = "video/mp4", body = Vec<u8>),
        (status = 206, description = "The asked part.", content_type = "video/mp4", body = Vec<u8>),
        (status = 304, description = "The file that was seen."),
        ContentProblems,
    ),
)]
pub(crate) async fn get_content(
    State(state): State<ApiState>,
    Readable(asset): Readable,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let etag =
        HeaderValue::try_from(format!("\"{}\"", hex::encode(asset.sha256))).map_err(Problem::internal)?;
    if IfNoneMatch::of(&headers).has(&etag) {
        let caching = [(header::ETAG, etag), (header::CACHE_CONTROL, CACHING)];
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    let (status, range) = match asked(&headers, asset.size_bytes, &etag) {
        Asked::Whole => (StatusCode::OK, None),
        Asked::Part(range) => (StatusCode::PARTIAL_CONTENT, Some(range)),
        Asked::Outside => return Err(outside(asset.size_bytes)),
    };
    let part = range.clone().unwrap_or(0..asset.size_bytes);
    let body = if method == Method::HEAD { Body::empty() } else { open(&state, &asset, range).await? };
    let (content_type, suffix) = served_as(&asset.content_type);
    let name = format!("inline; filename=\"{}.{suffix}\"", asset.id);
    let mut response = (status, body).into_response();
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    out.insert(header::CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    out.insert(header::CONTENT_DISPOSITION, HeaderValue::try_from(name).map_err(Problem::internal)?);
    out.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    out.insert(header::CACHE_CONTROL, CACHING);
    out.insert(header::ETAG, etag);
    if status == StatusCode::PARTIAL_CONTENT {
        let part = format!("bytes {}-{}/{}", part.start, part.end - 1, asset.size_bytes);
        out.insert(header::CONTENT_RANGE, HeaderValue::try_from(part).map_err(Problem::internal)?);
    }
    Ok(response)
}

async fn open(state: &ApiState, asset: &Asset, range: Option<Range<u64>>) -> Result<Body, Problem> {
    match state.media().open(asset, range).await {
        Ok(content) => Ok(Body::from_stream(content.stream)),
        Err(OpenError::BadRange { size_bytes }) => Err(outside(size_bytes)),
        // The row promises the object.
        Err(error @ OpenError::Missing(_)) => Err(Problem::internal(error)),
        Err(error @ OpenError::Storage(_)) => {
            Err(Problem::unavailable("The file can't be read at the moment.").because(error))
        }
    }
}

fn outside(size: u64) -> Problem {
    let problem = Problem::new(Code::RangeNotSatisfiable, format!("The file has {size} bytes."));
    match HeaderValue::try_from(format!("bytes */{size}")) {
        Ok(value) => problem.header(header::CONTENT_RANGE, value),
        Err(_) => problem,
    }
}

/// The type and the suffix under which a stored type goes out.
fn served_as(content_type: &str) -> (&'static str, &'static str) {
    TYPES.into_iter().find(|(known, _)| *known == content_type).unwrap_or(BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_types_go_out_as_themselves() {
        assert_eq!(served_as("video/mp4"), ("video/mp4", "mp4"));
        for other in ["text/html", "image/svg+xml", "video/mp4; x=y", ""] {
            assert_eq!(served_as(other), BYTES, "{other}");
        }
    }
}
