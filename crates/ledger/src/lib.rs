//! Owner of the credit tables: grant, hold, capture, release, audit.
