//! The routes, one file per verb. Each extracts, calls one owner, and renders.

pub(crate) mod admin;
pub(crate) mod assets;
pub(crate) mod callbacks;
pub(crate) mod credits;
pub(crate) mod generations;
pub(crate) mod me;
pub(crate) mod models;
pub(crate) mod projects;
pub(crate) mod service;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod users;
