//! The chaos suite in the form that takes about a minute; `cargo run -p chaos` is the long one.

use ::chaos::{Settings, run};

use crate::harness::BINARY;

/// Names the seed of a run that is to be repeated.
const SEED: &str = "AIVTEST_CHAOS_SEED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_storm_breaks_no_promise() {
    let seed =
        std::env::var(SEED).map_or_else(|_| rand::random::<u32>().into(), |seed| seed.parse().unwrap());
    let report = run(&Settings::short(BINARY.into(), seed)).await.unwrap();
    println!("{report}");
    assert!(report.is_good(), "{report}\nthe same again: {SEED}={seed}");
}
