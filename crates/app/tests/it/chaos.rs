//! The chaos suite in the form that takes about a minute; `cargo run -p chaos` is the long one. The same for the
//! degradation table, of which `e2e/faults.sh` plays every row in every way.

use ::chaos::{
    Settings,
    faults::{FaultsSettings, Row, Way, choose, faults, head},
    run,
};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_control_lets_tasks_in_and_no_job_out_and_is_forgotten_when_it_is_back() {
    let settings = FaultsSettings {
        aivideo: BINARY.into(),
        cases: choose(&[Row::Control], &[Way::Freeze]).unwrap(),
        seconds: Some(5),
        delay_ms: 300,
        folder: None,
        kafka_script: None,
        keep: false,
    };
    println!("{}", head());
    let report = faults(&settings, |line| println!("{line}")).await.unwrap();
    assert!(report.is_good(), "{report}");
}
