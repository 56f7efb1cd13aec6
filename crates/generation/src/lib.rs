//! Admission: submit, quote, cancel.
