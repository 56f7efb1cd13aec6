//! `aivideo openapi`: prints the document that `/openapi.json` serves.

use std::io::Write;

pub(super) fn openapi() {
    // A reader such as `head` may close the pipe; that is no failure of ours.
    let _ = std::io::stdout().write_all(api::document_text().as_bytes());
}
