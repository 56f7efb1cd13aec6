//! HTTP: routes, extractors, problem bodies, streams, OpenAPI, console.
//!
//! A request passes the edge (id, size, overload, panics, problem bodies), the address limit, and then its route,
//! which extracts (who asks, for what), calls one owner and renders a view. Nothing here knows a queue, a provider or
//! SQL: the owners' handles in [`ApiState`] are all there is.
//!
//! Read `router.rs` for what is served, `routes/` for each verb, `problem.rs` for refusals, `live.rs` for what is
//! computed while reading, and `routes/tasks/events.rs` for streams.

mod config;
mod durations;
mod edge;
mod extract;
mod gate;
pub mod health;
mod limits;
mod live;
mod once;
mod openapi;
mod problem;
mod router;
mod routes;
mod site;
mod state;
mod view;

pub use config::{ApiConfig, ConfigError, FailedAuth, IpWindow};
pub use health::HealthSource;
pub use openapi::document_text;
pub use problem::Code;
pub use router::{admin_router, router, service_router};
pub use state::{ApiParts, ApiState};
