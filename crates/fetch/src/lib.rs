//! The one guarded HTTP client for addresses that came from outside.
