//! What an owner's audit reports.

/// One row that breaks an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name, such as `account_conserves`.
    pub rule: &'static str,
    /// The id of what breaks it.
    pub subject: String,
    /// The figures.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\t{}\t{}", self.rule, self.subject, self.detail)
    }
}
