//! The queue: one small interface, its backends and one conformance suite.
