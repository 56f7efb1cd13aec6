//! Comments between the events of a stream.
//!
//! They keep proxies from cutting a quiet stream, and they are what a connection has to deliver so that a client that
//! vanished without a word is noticed. Therefore every stream has them, the busy ones too.

use std::{convert::Infallible, task::Poll, time::Duration};

use axum::response::sse::Event;
use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// The events, and a comment after every such time.
pub(super) fn commented(
    mut events: impl Stream<Item = Result<Event, Infallible>> + Unpin,
    every: Duration,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let mut ticks = interval_at(Instant::now() + every, every);
    // A client that reads slowly is owed no pile of comments.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::poll_fn(move |cx| {
        // Before the events, which may never pause.
        if ticks.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(Event::default().comment(""))));
        }
        events.poll_next_unpin(cx)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn is_comment(event: &Event) -> bool {
        format!("{event:?}").contains(r#"":"#)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_never_idle_has_as_many_comments_as_a_quiet_one() {
        let busy = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok(Event::default().data("news")), ()))
        });
        let quiet = stream::pending();
        let comments = async |events: &mut (dyn Stream<Item = Result<Event, Infallible>> + Unpin)| {
            let until = Instant::now() + EVERY * 5 + EVERY / 2;
            let mut comments = 0;
            while let Ok(Some(Ok(event))) = tokio::time::timeout_at(until, events.next()).await {
                comments += usize::from(is_comment(&event));
            }
            comments
        };
        let busy = comments(&mut Box::pin(commented(Box::pin(busy), EVERY))).await;
        let quiet = comments(&mut Box::pin(commented(quiet, EVERY))).await;
        assert_eq!((busy, quiet), (5, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_the_events() {
        let mut ended = Box::pin(commented(stream::empty(), EVERY));
        assert!(ended.next().await.is_none());
    }
}
