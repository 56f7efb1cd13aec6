//! Faults of the storage itself.

/// The storage failed. Whatever was under way was not published.
#[derive(Debug, thiserror::Error)]
#[error("the object storage failed while it {action}")]
pub struct StorageError {
    /// What was being done.
    pub action: &'static str,
    /// What went wrong.
    #[source]
    pub source: object_store::Error,
}

impl StorageError {
    pub(crate) fn during(action: &'static str) -> impl Fn(object_store::Error) -> Self {
        move |source| Self { action, source }
    }

    pub(crate) fn io(action: &'static str, source: std::io::Error) -> Self {
        Self { action, source: object_store::Error::Generic { store: "file", source: Box::new(source) } }
    }
}
