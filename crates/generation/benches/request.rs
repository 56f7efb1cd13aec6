//! The pure part of a submit: one strict parse with its price, and the fingerprint.
//!
//! `cargo bench -p generation`

use catalogue::{Catalogue, CatalogueConfig};
use divan::{Bencher, black_box};
use generation::GenerationRequest;

fn main() {
    divan::main();
}

const SHORT: &[u8] =
    br#"{"model":"mock-fast","prompt":"a cat rides a bicycle on the moon, cinematic","duration_seconds":5}"#;

/// The longest prompt there may be, with everything else that a body may have.
fn long() -> Vec<u8> {
    let prompt = "a \\\"boat\\\" drifts ".repeat(220);
    format!(
        r#"{{"model":"mock-fast","prompt":"{prompt}","negative_prompt":"rain","duration_seconds":10,
        "resolution":"1080p","aspect_ratio":"16:9","seed":7,"tags":["one","two"],"deadline_seconds":600}}"#
    )
    .into_bytes()
}

/// A catalogue that never asks its database: parsing needs none.
fn with_catalogue(run: impl FnOnce(&Catalogue)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://nowhere/none").expect("lazy");
    run(&Catalogue::new(CatalogueConfig::default(), pool).expect("the defaults are sound"));
}

#[divan::bench]
fn parse_and_price_short(bencher: Bencher<'_, '_>) {
    with_catalogue(|catalogue| bencher.bench_local(|| GenerationRequest::parse(black_box(SHORT), catalogue)));
}

#[divan::bench]
fn parse_and_price_long(bencher: Bencher<'_, '_>) {
    let body = long();
    with_catalogue(|catalogue| {
        GenerationRequest::parse(&body, catalogue).expect("a request");
        bencher.bench_local(|| GenerationRequest::parse(black_box(&body), catalogue));
    });
}

#[divan::bench]
fn fingerprint(bencher: Bencher<'_, '_>) {
    with_catalogue(|catalogue| {
        let request = GenerationRequest::parse(SHORT, catalogue).expect("a request");
        bencher.bench_local(|| black_box(&request).fingerprint());
    });
}
