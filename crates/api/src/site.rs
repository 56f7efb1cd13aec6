//! Pages for people: the console, and the frame around documents.
//!
//! The console is built elsewhere and embedded here, so that the binary serves it without Node. A checkout without a
//! built console still builds: then `/` says so.

mod docs;

use std::borrow::Cow;

use axum::{
    body::Body,
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rust_embed::{EmbeddedFile, RustEmbed};

pub(crate) use self::docs::html as docs_html;
use crate::{extract::IfNoneMatch, problem::Problem};

#[derive(RustEmbed)]
#[folder = "console/dist"]
#[allow_missing = true]
struct Console;

/// The console's policy: its own scripts and styles, its own connections, nothing inline and nothing foreign.
const CONSOLE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);
/// Documents have a style sheet and nothing else.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
);
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");
const NEVER_CHANGES: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// What build tools put into a name to tell two versions apart.
const HASH_CHARS: usize = 8;

/// `GET /`.
pub(crate) async fn console_page(headers: HeaderMap) -> Response {
    match file("index.html", &headers) {
        Some(response) => response,
        None => page(
            "AIVideo",
            "<h1>AIVideo</h1><p>This build has no console. See <a href=\"/docs\">the API</a>.</p>",
        ),
    }
}

/// `GET /console/{file}`.
pub(crate) async fn console_file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    file(&name, &headers).unwrap_or_else(|| Problem::not_found().into_response())
}

/// `GET /docs/style.css`.
pub(crate) async fn style() -> Response {
    let kind = HeaderValue::from_static("text/css; charset=utf-8");
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, ASK_AGAIN)], include_str!("site/page.css"))
        .into_response()
}

/// A document in the frame that all of them share. `body` is HTML.
pub(crate) fn page(title: &str, body: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{} - AIVideo</title>\n<link rel=\"icon\" href=\"/console/favicon.svg\">\n\
         <link rel=\"stylesheet\" href=\"/docs/style.css\">\n<main>\n{body}</main>\n",
        escape(title)
    );
    let headers = [
        (header::CONTENT_TYPE, HTML),
        (header::CACHE_CONTROL, ASK_AGAIN),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
    ];
    (headers, text).into_response()
}

/// An embedded file, compressed where it lies compressed beside itself and the client takes that.
fn file(name: &str, headers: &HeaderMap) -> Option<Response> {
    let plain = Console::get(name)?;
    let (found, encoding) = compressed(name, headers).unwrap_or((plain, None));
    let etag =
        HeaderValue::try_from(format!("\"{}\"", hex::encode(&found.metadata.sha256_hash()[..16]))).ok()?;
    let caching = if is_hashed(name) { NEVER_CHANGES } else { ASK_AGAIN };
    if IfNoneMatch::of(headers).has(&etag) {
        // A browser lays the headers of a 304 over its copy, so the policy has to be there too: without it the edge
        // would send its own, under which the page may load nothing.
        let unchanged = [
            (header::ETAG, etag),
            (header::CACHE_CONTROL, caching),
            (header::VARY, HeaderValue::from_static("accept-encoding")),
            (header::CONTENT_SECURITY_POLICY, CONSOLE_POLICY),
        ];
        return Some((StatusCode::NOT_MODIFIED, unchanged).into_response());
    }
    let mut response = Response::new(match found.data {
        Cow::Borrowed(bytes) => Body::from(bytes),
        Cow::Owned(bytes) => Body::from(bytes),
    });
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, content_type(name));
    out.insert(header::CACHE_CONTROL, caching);
    out.insert(header::ETAG, etag);
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    out.insert(header::CONTENT_SECURITY_POLICY, CONSOLE_POLICY);
    if let Some(encoding) = encoding {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    Some(response)
}

fn compressed(name: &str, headers: &HeaderMap) -> Option<(EmbeddedFile, Option<&'static str>)> {
    let accepted = headers.get(header::ACCEPT_ENCODING)?.to_str().ok()?;
    let takes = |encoding: &str| {
        accepted.split(',').any(|item| {
            let (name, quality) = item.split_once(';').unwrap_or((item, ""));
            name.trim().eq_ignore_ascii_case(encoding) && !matches!(quality.trim(), "q=0" | "q=0.0")
        })
    };
    [("br", "br"), ("gzip", "gz")]
        .into_iter()
        .filter(|(encoding, _)| takes(encoding))
        .find_map(|(encoding, suffix)| Some((Console::get(&format!("{name}.{suffix}"))?, Some(encoding))))
}

fn content_type(name: &str) -> HeaderValue {
    let kind = mime_guess::from_path(name).first_or_octet_stream();
    let text = match kind.type_() {
        mime_guess::mime::TEXT => format!("{kind}; charset=utf-8"),
        _ => kind.to_string(),
    };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

/// Whether the name changes whenever the content does, such as `index-CZFOvGxV.js`.
fn is_hashed(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let Some(start) = stem.len().checked_sub(HASH_CHARS + 1) else { return false };
    stem.get(start..).is_some_and(|end| {
        let hash = end.strip_prefix('-');
        hash.is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')))
    })
}

/// Text as HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_carry_a_hash_are_kept_for_ever() {
        assert!(is_hashed("index-CZFOvGxV.js") && is_hashed("style-a_b-c-dE.css"));
        for name in ["index.html", "theme.js", "favicon.svg", "", "x-short.js", "index-CZFOvGxVé.js"] {
            assert!(!is_hashed(name), "{name}");
        }
    }

    #[test]
    fn a_text_cannot_become_markup() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
