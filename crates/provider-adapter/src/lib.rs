//! The Provider trait, the adapters behind it and their conformance suite.
