//! Test support: a database per test, a Redis prefix per test.
