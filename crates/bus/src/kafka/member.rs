//! A member of a consumer group, on a thread of its own.
//!
//! The thread does nothing but poll, so the membership never depends on how long a handler takes. What a member may
//! do is told by its type: only a [`Joined`] one hands out batches; when partitions must be given back it becomes
//! [`Draining`], which waits for the batch under way and commits; only a [`Settled`] one can let go of them. So a
//! partition is let go of with its work committed or, when that takes too long, with the work forgotten; and for a
//! partition that is no longer owned there is nobody left who could commit.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use outbox::Topic;
use rdkafka::{Message as _, consumer::Consumer};

use super::{
    KafkaBus, KafkaFault,
    context::Event,
    seat::{Link, Seat},
};
use crate::{ConsumerStatus, Message};

/// The longest wait for messages; a shutdown is noticed after it.
const IDLE: Duration = Duration::from_millis(100);
/// The same while a handler works, whose end is to be noticed too.
const BUSY: Duration = Duration::from_millis(10);
/// How long a full buffer waits for the handler before the broker is asked to pause, which costs another fetch.
const PATIENCE: Duration = Duration::from_millis(500);

/// Takes part in the group.
pub(super) struct Joined {
    buffer: Vec<Message>,
    full_since: Option<Instant>,
    paused: bool,
}

/// Finishes what is under way of some partitions.
pub(super) struct Draining {
    buffer: Vec<Message>,
    leaving: BTreeSet<i32>,
}

/// Has nothing more to do for them.
pub(super) struct Settled {
    buffer: Vec<Message>,
    leaving: BTreeSet<i32>,
}

/// A member in the state `S`.
pub(super) struct Member<S> {
    seat: Seat,
    state: S,
}

/// What a turn of a joined member led to.
enum Turn {
    On,
    GiveBack(BTreeSet<i32>),
    Leave,
    Broken(KafkaFault),
}

impl Member<Joined> {
    /// Joins the group of a topic.
    pub(super) fn join(
        bus: &KafkaBus,
        topic: Topic,
        status: ConsumerStatus,
        link: Link,
    ) -> Result<Self, KafkaFault> {
        let seat = Seat::take(bus, topic, status, link)?;
        Ok(Self { seat, state: Joined { buffer: Vec::new(), full_since: None, paused: false } })
    }

    /// Takes part until the shutdown, or until the membership is broken.
    pub(super) fn live(mut self) -> Result<(), KafkaFault> {
        loop {
            match self.turn() {
                Turn::On => {}
                Turn::GiveBack(partitions) => self = self.drain(partitions).settle().release(),
                Turn::Leave => {
                    let all = self.seat.owned.all();
                    self.drain(all).settle().leave();
                    return Ok(());
                }
                Turn::Broken(fault) => {
                    self.seat.end();
                    return Err(fault);
                }
            }
        }
    }

    fn turn(&mut self) -> Turn {
        let Self { seat, state } = self;
        if seat.link.shutdown.is_cancelled() || !seat.collect() {
            return Turn::Leave;
        }
        seat.commit();
        if seat.under_way.is_none() && !state.buffer.is_empty() {
            let batch = std::mem::take(&mut state.buffer);
            let epochs = seat.owned.epochs(&batch);
            if seat.link.hand_out.try_send(batch).is_err() {
                return Turn::Leave;
            }
            seat.under_way = Some(epochs);
        }
        self.press_back();
        let Self { seat, state } = self;
        let limit = usize::try_from(seat.options.batch_max).unwrap_or(usize::MAX);
        let full = state.buffer.len() >= limit;
        if full && !state.paused {
            // Everything else can wait for the few milliseconds that a handler usually takes.
            seat.await_done(BUSY);
            return Turn::On;
        }
        let mut wait = if seat.under_way.is_some() { BUSY } else { IDLE };
        while let Some(result) = seat.consumer.poll(wait) {
            match result {
                Ok(message) => {
                    let message = seat.read(&message);
                    state.buffer.push(message);
                }
                Err(error) => match seat.judge(error) {
                    Some(fault) => return Turn::Broken(fault),
                    None => break,
                },
            }
            if state.buffer.len() >= limit {
                break;
            }
            wait = Duration::ZERO;
        }
        self.heed()
    }

    /// Reads what librdkafka told during the poll.
    fn heed(&mut self) -> Turn {
        let Self { seat, state } = self;
        while let Some(event) = seat.consumer.context().next() {
            match event {
                Event::Assigned(partitions) => {
                    if let Err(error) = seat.gain(&partitions, state.paused) {
                        return Turn::Broken(error.into());
                    }
                }
                Event::Revoked(partitions) => return Turn::GiveBack(partitions),
                Event::Lost(partitions) => {
                    state.buffer.retain(|message| !partitions.contains(&message.place.partition));
                    seat.lose(&partitions);
                    seat.let_go(&partitions);
                }
                Event::Committed(result) => seat.committed(result),
                Event::Group(group) => {
                    let idle = state.buffer.is_empty() && seat.under_way.is_none();
                    if let Some(fault) = seat.judge_group(group, idle) {
                        return Turn::Broken(fault);
                    }
                }
            }
        }
        Turn::On
    }

    /// Has the broker pause while the handler cannot keep up, and go on when it can.
    fn press_back(&mut self) {
        let Self { seat, state } = self;
        let full = state.buffer.len() >= usize::try_from(seat.options.batch_max).unwrap_or(usize::MAX);
        if !full {
            state.full_since = None;
            if std::mem::take(&mut state.paused) {
                seat.resume(&seat.owned.all());
            }
            return;
        }
        let since = *state.full_since.get_or_insert_with(Instant::now);
        if !state.paused && since.elapsed() >= PATIENCE {
            seat.pause(&seat.owned.all());
            state.paused = true;
        }
    }

    fn drain(self, leaving: BTreeSet<i32>) -> Member<Draining> {
        let Self { seat, state: Joined { mut buffer, .. } } = self;
        // The others go on afterwards; nothing more is taken meanwhile.
        seat.pause(&seat.owned.all());
        buffer.retain(|message| !leaving.contains(&message.place.partition));
        Member { seat, state: Draining { buffer, leaving } }
    }
}

impl Member<Draining> {
    /// Waits, within the limit, until the batch under way has nothing of the leaving partitions and what was done
    /// for them is committed. The group hears of us all the time.
    fn settle(self) -> Member<Settled> {
        let Self { mut seat, state: Draining { mut buffer, mut leaving } } = self;
        let deadline = Instant::now() + seat.options.membership.drain;
        while seat.concerns(&leaving) && Instant::now() < deadline {
            if !seat.collect() {
                break;
            }
            seat.commit();
            match seat.consumer.poll(BUSY) {
                // All are paused. Should one slip through all the same, it must not be passed over.
                Some(Ok(message)) if !leaving.contains(&message.partition()) => {
                    buffer.push(seat.read(&message))
                }
                Some(Ok(_)) | None => {}
                Some(Err(error)) => {
                    if let Some(fault) = seat.judge(error) {
                        // The next turn meets it again.
                        tracing::debug!(error = %crate::deliver::chain(&fault), "while giving partitions back");
                        break;
                    }
                }
            }
            while let Some(event) = seat.consumer.context().next() {
                match event {
                    Event::Committed(result) => seat.committed(result),
                    Event::Revoked(more) => {
                        buffer.retain(|message| !more.contains(&message.place.partition));
                        leaving.extend(more);
                    }
                    Event::Lost(partitions) => {
                        // Too late to finish anything.
                        buffer.retain(|message| !partitions.contains(&message.place.partition));
                        seat.lose(&partitions);
                        leaving.extend(partitions);
                    }
                    // While we drain in order to leave, the group may not know it yet. Whoever gives nothing for an
                    // answer holds up its own goodbye.
                    Event::Assigned(partitions) => {
                        if let Err(error) = seat.gain(&partitions, true) {
                            tracing::debug!(%error, "partitions were not taken");
                        }
                    }
                    Event::Group(_) => {}
                }
            }
        }
        Member { seat, state: Settled { buffer, leaving } }
    }
}

impl Member<Settled> {
    /// Lets go of the partitions and takes part with the others.
    fn release(self) -> Member<Joined> {
        let Self { mut seat, state: Settled { buffer, leaving } } = self;
        seat.let_go(&leaving);
        tracing::info!(topic = %seat.topic, partitions = ?leaving, "partitions given back");
        // `paused` has the next turn resume the others.
        Member { seat, state: Joined { buffer, full_since: None, paused: true } }
    }

    /// Leaves the group.
    fn leave(self) {
        self.seat.end();
    }
}
