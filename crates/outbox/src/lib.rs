//! Owner of outbox_events and dead_letters: append in the caller's transaction, claim, retire, replay.
