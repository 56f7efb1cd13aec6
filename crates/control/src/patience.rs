//! A time limit that does not take our own lateness for the server's silence.
//!
//! A process that gets no CPU meets its deadlines late, and the answer may lie in the socket all the while. Then the
//! server is given as much longer as we were late, at most its limit once more: a silent Redis is still found out
//! within two limits, and a busy machine does not stop the scheduling that keeps it busy.

use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, timeout_at};

/// A timer is this late on an idle machine too.
const USUAL_LATENESS: Duration = Duration::from_millis(4);

/// The limit passed while we were awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silent;

/// What the future gives within the limit. It is pinned where it is made, since every command waits this way and taking it
/// by value would make room for it twice.
pub(crate) async fn within<F: Future>(limit: Duration, mut future: Pin<&mut F>) -> Result<F::Output, Silent> {
    let mut deadline = Instant::now() + limit;
    let last = deadline + limit;
    loop {
        if let Ok(output) = timeout_at(deadline, future.as_mut()).await {
            return Ok(output);
        }
        let now = Instant::now();
        let late = now.saturating_duration_since(deadline);
        if late <= USUAL_LATENESS || now >= last {
            return Err(Silent);
        }
        deadline = (now + late).min(last);
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll};

    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(80);

    #[tokio::test(start_paused = true)]
    async fn silence_is_found_out_at_the_limit() {
        let begun = Instant::now();
        assert_eq!(within(LIMIT, pin!(std::future::pending::<()>())).await, Err(Silent));
        assert!(begun.elapsed() <= LIMIT + USUAL_LATENESS);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_late_himself_waits_as_much_longer_and_no_more_than_twice() {
        let answer_after = async |answer: Duration| {
            let (begun, mut waiting) = (
                Instant::now(),
                Box::pin(async move { within(LIMIT, pin!(tokio::time::sleep(answer))).await }),
            );
            assert_eq!(futures::poll!(&mut waiting), Poll::Pending);
            // Nothing of ours runs for half a limit too long.
            advance(LIMIT * 3 / 2).await;
            (waiting.await, begun.elapsed())
        };
        assert_eq!(
            answer_after(LIMIT * 7 / 4).await.0,
            Ok(()),
            "the answer came while we were given more time"
        );
        let (outcome, waited) = answer_after(LIMIT * 10).await;
        assert_eq!(outcome, Err(Silent));
        assert!(waited <= LIMIT * 2 + USUAL_LATENESS, "{waited:?}");
    }
}
