//! The HTTP side against real PostgreSQL and Redis, in process: requests go into the router without a socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounts;
mod admin;
mod assets;
mod callbacks;
mod edge;
mod events;
mod harness;
mod limits;
mod pauses;
mod projects;
mod queue;
mod quota;
mod reading;
mod site;
mod slots;
mod submit;
mod trouble;
mod visibility;
mod waiting;
