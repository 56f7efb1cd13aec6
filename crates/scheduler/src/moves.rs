//! Asking for a move until there is an answer.
//!
//! What a provider said must not be lost because PostgreSQL was away for a moment: the move is asked for again until
//! it is answered, lost or handed back. Repeating is safe, since a move names the attempt and the token that it
//! expects, and a second one finds that nothing is left to change.

use std::{sync::Arc, time::Duration};

use domain::{
    complaints::Complaints,
    task::{Event, Refusal},
};
use task_state::{Move, MoveDetail, MoveOutcome, TaskRecord};

use crate::{
    drive::{Stage, stage_of},
    owned::Owned,
    worker::Worker,
};

/// What became of a move.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It was made; this is the task after it.
    Yes(Arc<TaskRecord>),
    /// It says what is already so.
    NoChange(Arc<TaskRecord>),
    /// Something else happened to the task before; this stage follows from it.
    Otherwise(Stage),
}

/// The longest pause between two requests for the same move.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Worker {
    /// Asks for the move as the attempt's owner.
    pub(crate) async fn advance(&self, owned: &Owned, event: Event, detail: MoveDetail) -> Moved {
        let mut pause = Duration::from_millis(100);
        loop {
            let wish = Move::by_owner(owned.lease.task, owned.attempt(), event.clone()).with(detail.clone());
            let answer = match owned.known() {
                Some(known) => self.task_state.advance_known(wish, known).await,
                None => self.task_state.advance(wish).await,
            };
            match answer {
                Ok(MoveOutcome::Moved(record)) => {
                    owned.learn(&record);
                    return Moved::Yes(record);
                }
                Ok(MoveOutcome::Refused(Refusal::NoChange, record)) => {
                    owned.learn(&record);
                    return Moved::NoChange(record);
                }
                Ok(MoveOutcome::Refused(refusal, record)) => {
                    tracing::debug!(attempt = %owned.name(), ?event, %refusal, "a move was refused");
                    return Moved::Otherwise(stage_of(&record, owned));
                }
                Ok(MoveOutcome::Stale(record)) => return Moved::Otherwise(stage_of(&record, owned)),
                Ok(MoveOutcome::Missing) => {
                    tracing::error!(attempt = %owned.name(), "the task of an owned attempt is gone");
                    return Moved::Otherwise(Stage::Over);
                }
                Err(error) => {
                    static AWAY: Complaints = Complaints::new();
                    if let Some(silent) = AWAY.complain(std::time::Instant::now()) {
                        tracing::warn!(attempt = %owned.name(), silent, %error, "a move could not be written and is asked for again");
                    }
                }
            }
            tokio::select! {
                () = owned.lost.cancelled() => return Moved::Otherwise(Stage::Lost),
                () = self.stopped.cancelled() => return Moved::Otherwise(Stage::HandBack),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
