//! `GET /docs`: the document as a page.

use std::sync::LazyLock;

use axum::response::Response;

use crate::{
    openapi::document_text,
    site::{docs_html, page},
};

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::from_str(&document_text()).unwrap_or_default();
    docs_html(&document)
});

/// Serves the page.
pub(crate) async fn get_docs() -> Response {
    page("API", &PAGE)
}
