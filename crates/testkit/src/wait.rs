//! Waiting for something that another task brings about.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `look` returns something, and returns it.
///
/// # Panics
/// When `limit` has passed; the message names `what`.
pub async fn wait_for<T, F, Fut>(what: &str, limit: Duration, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} in vain for: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until `holds` is true.
///
/// # Panics
/// When `limit` has passed; the message names `what`.
pub async fn wait_until<F, Fut>(what: &str, limit: Duration, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    wait_for(what, limit, || {
        let looked = holds();
        async move { looked.await.then_some(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn it_returns_as_soon_as_the_condition_holds() {
        let looks = Cell::new(0);
        wait_until("three looks", Duration::from_secs(5), || {
            looks.set(looks.get() + 1);
            std::future::ready(looks.get() == 3)
        })
        .await;
        assert_eq!(looks.get(), 3);
    }

    #[tokio::test]
    #[should_panic(expected = "in vain for: the impossible")]
    async fn it_names_what_never_came() {
        wait_until("the impossible", Duration::from_millis(20), || std::future::ready(false)).await;
    }
}
