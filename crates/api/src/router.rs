//! What is served, and in which order a request passes.

use axum::{
    Router,
    http::Method,
    routing::{Route, get},
};
use http::{HeaderName, HeaderValue, header};
use tower::{layer::layer_fn, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    edge::{REQUEST_ID, edge},
    limits::{self, RATE_LIMIT, RATE_LIMIT_POLICY},
    once::REPLAYED,
    openapi::Base,
    problem::{Code, Problem},
    routes::{
        admin, assets, callbacks, credits, generations, me, models, projects, service, tasks, tokens, users,
    },
    site,
    state::ApiState,
};

/// Everything that the world may reach: the API, its pages, the console, and `/admin` unless that has a listener of its
/// own. Serve it with connect info (the peer's address), or every request seems to come from nowhere.
pub fn router(state: ApiState) -> Router {
    let mut api = public_routes().merge(service_routes());
    if state.config().admin {
        api = api.merge(admin_routes());
    }
    let pages = Router::new()
        .route("/", get(site::console_page))
        .route("/console/{*file}", get(site::console_file))
        .route("/docs", get(service::docs::get_docs))
        .route("/docs/style.css", get(site::style));
    assemble(api.split_for_parts().0.merge(pages), state)
}

/// What a listener for operators serves: `/admin`, health and metrics.
pub fn admin_router(state: ApiState) -> Router {
    assemble(admin_routes().merge(service_routes()).split_for_parts().0, state)
}

/// What a process without the API serves: health, metrics and the pages about them.
pub fn service_router(state: ApiState) -> Router {
    assemble(service_routes().split_for_parts().0, state)
}

/// The document of everything that any listener serves.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    let routes = OpenApiRouter::<ApiState>::with_openapi(Base::openapi());
    routes.merge(public_routes()).merge(service_routes()).merge(admin_routes()).split_for_parts().1
}

fn public_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(generations::create_generation))
        .routes(routes!(tasks::list::list_tasks))
        .routes(routes!(tasks::get::get_task))
        .routes(routes!(tasks::cancel::cancel_task))
        .routes(routes!(tasks::events::follow_task))
        .routes(routes!(assets::content::get_content))
        .routes(routes!(models::list_models))
        .routes(routes!(me::get_me))
        .routes(routes!(credits::get_credits))
        .routes(routes!(projects::list::list_projects, projects::create::create_project))
        .routes(routes!(projects::get::get_project, projects::patch::rename_project))
        .routes(routes!(projects::list_members::list_members))
        .routes(routes!(projects::put_member::put_member, projects::delete_member::delete_member))
        .routes(routes!(users::list::list_users, users::create::create_user))
        .routes(routes!(tokens::browser::create_browser_token))
        .routes(routes!(tokens::demo::create_demo_token))
        .routes(routes!(callbacks::receive_callback))
}

fn admin_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(admin::list_tenants::list_tenants, admin::create_tenant::create_tenant))
        .routes(routes!(admin::list_users::list_users, admin::create_user::create_user))
        .routes(routes!(admin::create_key::create_key))
        .routes(routes!(admin::revoke_key::revoke_key))
        .routes(routes!(admin::create_grant::create_grant))
        .routes(routes!(admin::list_limits::list_limits))
        .routes(routes!(admin::list_accounts::list_accounts))
        .routes(routes!(admin::list_pauses::list_pauses))
        .routes(routes!(admin::pause::pause, admin::resume::resume))
        .routes(routes!(admin::list_slots::list_slots))
        .routes(routes!(admin::list_queues::list_queues))
        .routes(routes!(admin::put_limit::put_limit, admin::remove_limit::remove_limit))
}

fn service_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(service::health::get_health))
        .routes(routes!(service::health::get_readiness))
        .routes(routes!(service::metrics::get_metrics))
        .routes(routes!(service::openapi::get_openapi))
        .routes(routes!(service::problems::get_problem))
}

/// Puts the layers around the routes; the last one here is the first that a request meets.
fn assemble(routes: Router<ApiState>, state: ApiState) -> Router {
    let config = state.config();
    let mut router = routes.method_not_allowed_fallback(method_not_allowed).fallback(not_found);
    if let Some(limit) = config.ip.and_then(limits::ip::layer) {
        router = router.layer(limit);
    }
    if !config.cors_origins.is_empty() {
        router = router.layer(cors(&config.cors_origins));
    }
    let around = state.clone();
    let edge = layer_fn(move |mut route: Route| {
        let state = around.clone();
        service_fn(move |request| edge(&state, &mut route, request))
    });
    router.layer(edge).with_state(state)
}

async fn not_found() -> Problem {
    Problem::not_found()
}

async fn method_not_allowed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "See the header Allow for the methods of this path.")
}

fn cors(origins: &[String]) -> CorsLayer {
    let name = HeaderName::from_static;
    let origins = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_NONE_MATCH,
            header::RANGE,
            header::IF_RANGE,
            name("idempotency-key"),
            name("last-event-id"),
            name("aivideo-user"),
            name("aivideo-version"),
            name("traceparent"),
            REQUEST_ID,
        ])
        .expose_headers([
            header::LOCATION,
            header::ETAG,
            header::RETRY_AFTER,
            RATE_LIMIT,
            RATE_LIMIT_POLICY,
            REPLAYED,
            name("aivideo-degraded"),
            REQUEST_ID,
        ])
        .max_age(std::time::Duration::from_secs(600))
}
