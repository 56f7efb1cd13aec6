//! Pure vocabulary: ids, credits, the task state machine, events, failure classes. No IO.
