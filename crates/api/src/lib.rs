//! HTTP: routes, extractors, problem bodies, streams, OpenAPI, console.
