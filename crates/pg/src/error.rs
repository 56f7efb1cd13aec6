//! What can go wrong with PostgreSQL, sorted by what the caller may do about it.

use sqlx::postgres::PgDatabaseError;

/// A failed statement, transaction or connection.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// The server cannot be reached, is starting or stopping, or has no connection left. Nothing was changed.
    #[error("PostgreSQL is not available")]
    Unavailable(#[source] sqlx::Error),
    /// The connection broke while COMMIT was on its way: the transaction may or may not have happened.
    #[error("the answer to COMMIT was lost")]
    CommitUnknown(#[source] sqlx::Error),
    /// A named constraint refused the data. Nothing was changed.
    #[error("constraint {name} was violated")]
    Constraint {
        /// The constraint's name as the migration gives it.
        name: String,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// A lock was not to be had in time, or a deadlock was broken at our expense. Nothing was changed; try again.
    #[error("a lock was not available")]
    LockTimeout(#[source] sqlx::Error),
    /// The statement ran longer than allowed. Nothing was changed.
    #[error("the statement ran too long")]
    StatementTimeout(#[source] sqlx::Error),
    /// A statement touched another number of rows than its locks allow: a broken invariant.
    #[error("{statement} touched {actual} rows instead of {expected}")]
    UnexpectedRows {
        /// Which statement.
        statement: &'static str,
        /// How many rows it had to touch.
        expected: usize,
        /// How many it did.
        actual: usize,
    },
    /// A row holds what no writer of ours writes.
    #[error("{table}.{column} of {id} is not valid")]
    BadRow {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row.
        id: String,
    },
    /// Anything else: a bug in a statement, or a server fault.
    #[error("a statement failed")]
    Statement(#[source] sqlx::Error),
}

impl PgError {
    /// Checks the number of rows that a statement touched.
    ///
    /// # Errors
    /// [`PgError::UnexpectedRows`] when it is not the expected one.
    pub fn expect_rows(statement: &'static str, expected: usize, actual: u64) -> Result<(), Self> {
        let actual = usize::try_from(actual).unwrap_or(usize::MAX);
        if actual == expected { Ok(()) } else { Err(Self::UnexpectedRows { statement, expected, actual }) }
    }

    /// Whether the same request may succeed a moment later, unchanged.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::LockTimeout(_) | Self::StatementTimeout(_))
    }

    /// Whether the error arose while the SQL function of this name ran.
    #[must_use]
    pub fn arose_in(&self, function: &str) -> bool {
        let (Self::Constraint { source: error, .. }
        | Self::LockTimeout(error)
        | Self::StatementTimeout(error)
        | Self::Unavailable(error)
        | Self::Statement(error)) = self
        else {
            return false;
        };
        let database =
            error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        database.and_then(PgDatabaseError::r#where).is_some_and(|context| context.contains(function))
    }

    /// Whether the error was raised by a function of ours with this state.
    #[must_use]
    pub fn raised(&self, state: &str) -> bool {
        let Self::Statement(error) = self else { return false };
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == state)
    }

    /// The violated constraint.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Constraint { name, .. } => Some(name),
            _ => None,
        }
    }
}

impl From<sqlx::Error> for PgError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_) => Self::Unavailable(error),
            sqlx::Error::Database(database) => {
                if let Some(name) = database.constraint() {
                    return Self::Constraint { name: name.to_owned(), source: error };
                }
                match database.code().as_deref() {
                    // lock_not_available, deadlock_detected, serialization_failure
                    Some("55P03" | "40P01" | "40001") => Self::LockTimeout(error),
                    Some("57014") => Self::StatementTimeout(error),
                    // shutting down, crashed, starting up, too many connections, idle in transaction for too long
                    Some("57P01" | "57P02" | "57P03" | "53300" | "25P03") => Self::Unavailable(error),
                    Some(code) if code.starts_with("08") => Self::Unavailable(error),
                    _ => Self::Statement(error),
                }
            }
            _ => Self::Statement(error),
        }
    }
}
