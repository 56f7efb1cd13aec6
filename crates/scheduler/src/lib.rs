//! Fair queue, slots, claim, dispatch, follow, take-over, sweeping.
