//! The ways in which the provider misbehaves, as rules of the mock provider.
//!
//! Rules that would make two jobs out of one submit are left out: with them "never two live jobs" could not be
//! demanded of us.

use rand::{RngExt, rngs::StdRng};
use serde_json::{Value, json};

/// One to three rules, each of which strikes a few times.
pub(crate) fn rules(rng: &mut StdRng, strikes: u64) -> Vec<Value> {
    (0..rng.random_range(1..=3)).map(|_| rule(rng, strikes)).collect()
}

fn rule(rng: &mut StdRng, strikes: u64) -> Value {
    // What costs the caller its whole limit strikes seldom, or a run would measure nothing but that.
    let (many, few) = (rng.random_range(1..=strikes), rng.random_range(1..=strikes.div_ceil(4)));
    let (on, action, times) = match rng.random_range(0..20) {
        0 => ("submit", json!({ "delay_ms": rng.random_range(50..2_000) }), many),
        1 => ("submit", json!({ "delay_ms": 6_000 }), few),
        2 | 3 => ("submit", json!({ "drop": "before_accept" }), many),
        4 | 5 => ("submit", json!({ "drop": "after_accept" }), many),
        6 => ("submit", json!({ "status": 500 }), many),
        7 => ("submit", json!({ "status": 503 }), many),
        8 => ("submit", json!({ "status": 429, "headers": { "retry-after": "1" } }), few),
        9 => ("submit", json!({ "hang": true }), few),
        10 => ("submit", json!({ "truncate_bytes": 10 }), many),
        11 => ("poll", json!({ "status": 500 }), many),
        12 => ("poll", json!({ "drop": "after_accept" }), many),
        13 => ("poll", json!({ "hang": true }), few),
        14 => ("poll", json!({ "truncate_bytes": 5 }), many),
        15 => ("lookup", json!({ "status": 503 }), many),
        16 => ("lookup", json!({ "drop": "after_accept" }), many),
        17 => ("output", json!({ "truncate_bytes": 1_000 }), few),
        18 => ("output", json!({ "status": 503 }), few),
        _ => ("cancel", json!({ "status": 500 }), many),
    };
    json!({ "on": on, "action": action, "times": times })
}
