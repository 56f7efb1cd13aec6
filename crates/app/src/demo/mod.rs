//! `aivideo demo`: the whole platform on one machine, with private servers and nothing to set up.

mod mock;
mod place;
mod postgres;
mod process;
mod programs;
mod redis;
mod server_user;
mod services;
