//! The OpenAPI document: made from the routes themselves, so that it can't promise what isn't served.
//!
//! `openapi/openapi.json` is the same document, committed so that a change of the contract is seen in review; a test
//! compares the two, and writes the file when `AIVTEST_WRITE_OPENAPI` is set.

use std::collections::BTreeMap;

use utoipa::{
    IntoResponses, Modify, OpenApi,
    openapi::{
        ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder,
        SecurityRequirement,
        schema::Type,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::{
    problem::{FieldError, ProblemBody},
    router::document,
    routes::tasks::events::ProgressView,
    view::task::EventView,
};

/// What the document says beside its routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "AIVideo",
        description = "Video generation by third-party models: submit, follow, collect.\n\nRefusals are problems \
            (RFC 9457) with a stable `code`; `/problems/{code}` explains each. Unknown members and parameters are \
            refused. Times are RFC 3339 in UTC, durations whole seconds unless the name says otherwise, credits whole \
            numbers. Enumerations may grow. Every answer carries `X-Request-Id`; `AIVideo-Degraded` names what is away.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/")),
    tags(
        (name = "generations", description = "Ask for videos."),
        (name = "tasks", description = "Follow and cancel them."),
        (name = "assets", description = "Collect the files."),
        (name = "models", description = "What can be made, and what it costs."),
        (name = "account", description = "Who you are."),
        (name = "credits", description = "What you may spend."),
        (name = "projects", description = "Share tasks within a tenant."),
        (name = "users", description = "A tenant's own users, for its own server."),
        (name = "tokens", description = "What a browser may hold."),
        (name = "callbacks", description = "What providers report."),
        (name = "admin", description = "For operators."),
        (name = "service", description = "Health and documents."),
    ),
    components(schemas(ProblemBody, FieldError, EventView, ProgressView)),
    modifiers(&Shared),
)]
pub(crate) struct Base;

/// Parts that many routes refer to.
struct Shared;

impl Modify for Shared {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("avk_… or a browser token")
            .description(Some(
                "An API key, or a browser token. A tenant's server with `tenant:write` acts for one of its users by \
                 the header `AIVideo-User`.",
            ))
            .build();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
        for (status, name, description) in PROBLEMS {
            components.responses.insert((*name).to_owned(), RefOr::T(problem_response(*status, description)));
        }
        openapi.security = Some(vec![SecurityRequirement::new::<_, _, String>("key", [])]);
    }
}

/// Every refusal: its status, its name in the document, and when it is given.
const PROBLEMS: &[(u16, &str, &str)] = &[
    (400, "Malformed", "Not JSON, a malformed header or cursor, or a query value that doesn't parse."),
    (401, "Unauthenticated", "No credential, or one that isn't valid."),
    (402, "InsufficientCredits", "The account has fewer credits than this costs."),
    (403, "Forbidden", "The credential, the role, or a signed link does not (or no longer) allow this."),
    (404, "NotFound", "Unknown, hidden, or not an id at all."),
    (409, "Conflict", "Too late, or a request with the same Idempotency-Key is under way."),
    (413, "TooLarge", "The body is too large."),
    (415, "UnsupportedMediaType", "The body is not JSON by its header, or it is encoded."),
    (416, "RangeNotSatisfiable", "No byte of the range lies in the file."),
    (422, "Invalid", "A member or parameter is missing, unknown, doubled or out of range."),
    (429, "TooManyRequests", "A limit was exceeded; the answer says which, and when to come back."),
    (500, "Internal", "A fault of ours."),
    (503, "Unavailable", "Too much to do, or something that is needed is away."),
];

fn problem_response(status: u16, description: &str) -> Response {
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let header = |kind, description: &str| {
        let schema = ObjectBuilder::new().schema_type(kind).build();
        HeaderBuilder::new().schema(Some(schema)).description(Some(description)).build()
    };
    let mut response =
        ResponseBuilder::new().description(description).content("application/problem+json", content);
    if matches!(status, 429 | 503) {
        response = response.header("Retry-After", header(Type::Integer, "Whole seconds."));
    }
    if status == 429 {
        response = response
            .header(
                "RateLimit",
                header(Type::String, "Where the caller stands with each limit that was asked."),
            )
            .header("RateLimit-Policy", header(Type::String, "The limits that were asked."));
    }
    if status == 401 {
        response = response.header("WWW-Authenticate", header(Type::String, "How to authenticate."));
    }
    response.build()
}

macro_rules! problem_sets {
    ($($(#[$doc:meta])* $name:ident = [$($status:literal),*];)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                references(&[$($status),*])
            }
        }
    )*};
}

problem_sets! {
    /// What any authenticated route may answer.
    ReadProblems = [400, 401, 403, 413, 422, 429, 500, 503];
    /// The same with an id in the path.
    ItemProblems = [400, 401, 403, 404, 413, 422, 429, 500, 503];
    /// Routes with a body.
    WriteProblems = [400, 401, 403, 413, 415, 422, 429, 500, 503];
    /// Routes that take an Idempotency-Key.
    ConflictProblems = [409];
    /// Cancel.
    TooLateProblem = [409];
    /// Submit.
    SubmitProblems = [400, 401, 402, 403, 409, 413, 415, 422, 429, 500, 503];
    /// Content of assets.
    ContentProblems = [400, 401, 403, 404, 413, 416, 422, 429, 500, 503];
    /// The demo's token.
    DemoProblems = [400, 404, 413, 422, 429, 500, 503];
    /// What providers report.
    CallbackProblems = [400, 401, 404, 413, 415, 429, 500, 503];
    /// Health, which no gate may refuse.
    QueryProblems = [400, 413, 422, 500];
    /// Documents.
    StaticProblems = [400, 413, 422, 500, 503];
    /// Pages with a name in the path.
    PageProblems = [400, 404, 413, 500, 503];
}

fn references(statuses: &[u16]) -> BTreeMap<String, RefOr<Response>> {
    let name = |status: u16| PROBLEMS.iter().find(|(known, ..)| *known == status).map(|(_, name, _)| *name);
    let reference = |status: &u16| {
        let name = name(*status)?;
        Some((status.to_string(), RefOr::Ref(Ref::from_response_name(name))))
    };
    statuses.iter().filter_map(reference).collect()
}

/// The document as pretty JSON with a line break at its end: what `aivideo openapi` prints.
#[must_use]
pub fn document_text() -> String {
    // The document consists of texts and maps, which are JSON.
    let mut text = document().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/openapi.json");
        let text = document_text();
        if std::env::var_os("AIVTEST_WRITE_OPENAPI").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "openapi/openapi.json is stale: run this test with AIVTEST_WRITE_OPENAPI=1"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document: serde_json::Value = serde_json::from_str(&document_text()).unwrap();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 100);
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    fn collect<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
        match value {
            serde_json::Value::Object(members) => {
                found.extend(members.get("$ref").and_then(|reference| reference.as_str()));
                members.values().for_each(|value| collect(value, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
}
