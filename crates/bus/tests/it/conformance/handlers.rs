//! Handlers that tests look into.

use async_trait::async_trait;
use bus::{Handler, HandlerError, Message, Rejected};
use tokio::sync::mpsc;

/// Passes every message on to the test, and is content with all of them.
pub(crate) struct Tell(pub(crate) mpsc::UnboundedSender<Message>);

impl Tell {
    pub(crate) fn new() -> (Self, Told) {
        let (tell, told) = mpsc::unbounded_channel();
        (Self(tell), Told(told))
    }
}

#[async_trait]
impl Handler for Tell {
    async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError> {
        batch.iter().for_each(|message| self.0.send(message.clone()).unwrap());
        Ok(())
    }
}

/// What a handler was handed.
pub(crate) struct Told(mpsc::UnboundedReceiver<Message>);

impl Told {
    /// The next `count` messages.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        while messages.len() < count {
            let message = tokio::time::timeout(super::SOON, self.0.recv()).await;
            messages.push(message.expect("a message arrives").expect("the handler lives"));
        }
        messages
    }

    /// Whether nothing has come since.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Any async function as a handler of single messages: `Ok`, or why it is rejected, or how it fails.
pub(crate) struct Each<F>(pub(crate) F);

pub(crate) enum Verdict {
    Done,
    Reject(&'static str),
    Fail(&'static str),
}

#[async_trait]
impl<F, Fut> Handler for Each<F>
where
    F: Fn(Message) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Verdict> + Send,
{
    async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError> {
        let mut rejected = Vec::new();
        for (index, message) in batch.iter().enumerate() {
            match (self.0)(message.clone()).await {
                Verdict::Done => {}
                Verdict::Reject(reason) => rejected.push(Rejected { index, reason: reason.to_owned() }),
                Verdict::Fail(reason) => return Err(HandlerError::failed(reason)),
            }
        }
        if rejected.is_empty() { Ok(()) } else { Err(HandlerError::Rejected(rejected)) }
    }
}
