//! What is wrong with a configuration: every fault with the field that it is about, all of them at once.

use std::fmt;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The field as the file spells it, such as `scheduler.lease_seconds`.
    pub(crate) field: String,
    /// What is wrong, and what would be right.
    pub(crate) message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.field)?;
        if let Some(variable) = super::env::variable_of(&self.field) {
            write!(f, " ({variable})")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
#[error("the configuration cannot be used:{}", .0.iter().map(|fault| format!("\n  {fault}")).collect::<String>())]
pub(crate) struct ConfigError(pub(crate) Vec<Fault>);

/// Gathers faults while sections are checked.
#[derive(Default)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, field: impl Into<String>, message: impl fmt::Display) {
        self.0.push(Fault { field: field.into(), message: message.to_string() });
    }

    /// Adds the fault unless the condition holds.
    pub(crate) fn require(&mut self, holds: bool, field: impl Into<String>, message: impl fmt::Display) {
        if !holds {
            self.add(field, message);
        }
    }

    /// Adds the error of a component's own check.
    pub(crate) fn check<E: fmt::Display>(&mut self, field: &str, checked: Result<(), E>) {
        if let Err(error) = checked {
            self.add(field, error);
        }
    }
}
