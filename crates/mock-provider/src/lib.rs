//! A scripted fake of an AI video provider, spoken to over real HTTP.
//!
//! Tests, the demo and load runs need a provider that behaves like the paid ones, including the ways in which those
//! fail: answers that never come, jobs that exist although the submit seemed to fail, files cut off in the middle.
//! This crate is that provider. It keeps jobs in memory (and in a file while it is stopped, if given one), lets them advance by the clock alone (nothing runs per job,
//! so thousands a second are cheap), and takes its faults and its figures through `/_control`.
//!
//! [`serve`] runs it on a listener of the caller's; [`start`] runs it inside a test on a free loopback port.

mod callbacks;
mod clip;
mod control;
mod faults;
mod jobs;
mod routes;
mod server;

use std::{path::PathBuf, time::Duration};

pub use callbacks::CallbackSecret;
pub use server::{Running, serve, start};

/// What a mock provider is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The models it offers.
    pub models: Vec<Model>,
    /// Ended jobs that are remembered; the oldest are forgotten first. Figures by reference outlive them.
    pub ended_jobs_max: usize,
    /// Jobs that may be alive at once; a submit beyond them is answered 503 `overloaded`.
    pub live_jobs_max: usize,
    /// What `output_url` begins with, when it cannot be taken from the Host that the caller used.
    pub public_url: Option<String>,
    /// Where jobs and figures are kept from an orderly stop to the next start; `None` forgets them.
    pub state_file: Option<PathBuf>,
    /// What callbacks are signed with; without it, with something that nobody else knows.
    pub callback_secret: Option<CallbackSecret>,
    /// `host:port` that may be called back although they are not on this machine.
    pub callback_hosts: Vec<String>,
}

/// A model on offer and how its jobs go.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name, as submits spell it.
    pub name: String,
    /// How long a job takes from submit to end.
    pub duration: Duration,
    /// The share of jobs, from 0 to 1, that fail with `provider_internal` instead of succeeding.
    pub fail_rate: f64,
}

impl Default for Config {
    fn default() -> Self {
        let model = |name: &str, millis| Model {
            name: name.to_owned(),
            duration: Duration::from_millis(millis),
            fail_rate: 0.0,
        };
        Self {
            models: vec![model("mock-fast", 1_000), model("mock-slow", 60_000), model("mock-pro", 3_000)],
            ended_jobs_max: 200_000,
            live_jobs_max: 200_000,
            public_url: None,
            state_file: None,
            callback_secret: None,
            callback_hosts: Vec::new(),
        }
    }
}
