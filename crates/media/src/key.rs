//! Names of objects. They are made here and nowhere else, from ids only: nothing that a client or a provider wrote
//! ever becomes part of a path.

use std::fmt;

use domain::{AssetId, AttemptRef};
use object_store::path::Path;

/// The folder of files that are being received.
pub(crate) const STAGING: &str = "staging";
/// The folder of published outputs.
pub(crate) const OUTPUTS: &str = "outputs";

/// Where an object lies in the storage.
///
/// Lowercase letters, digits, `_`, `.`, `-` in parts divided by `/`; no part is empty or starts with a dot. So no
/// key is absolute, climbs, or means two things to two file systems.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageKey(String);

/// A text that is no storage key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a storage key")]
pub struct BadKey;

impl StorageKey {
    /// Reads a key, such as the column of an asset's row.
    ///
    /// # Errors
    /// When it is not one of ours.
    pub fn parse(text: &str) -> Result<Self, BadKey> {
        let legal_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-'))
        };
        if text.len() <= 255 && text.split('/').all(legal_part) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadKey)
        }
    }

    /// The one place where an attempt's output may lie: `outputs/<2 digits>/<task>.<attempt>.mp4`.
    ///
    /// An id begins with the instant when it was made, and the digits change every 65 seconds: so the files spread over 256
    /// folders, and those of one minute lie in the same one, which is synced once for many of them.
    pub(crate) fn of_output(attempt: AttemptRef) -> Self {
        let minute = attempt.task.as_uuid().as_bytes()[3];
        Self(format!("{OUTPUTS}/{minute:02x}/{attempt}.mp4"))
    }

    /// A fresh place for a file that is being received.
    pub(crate) fn for_staging(attempt: AttemptRef) -> Self {
        // An asset's id serves as the nonce: two receivers of one attempt must not share a file.
        Self(format!("{STAGING}/{attempt}.{}", AssetId::generate()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn path(&self) -> Path {
        Path::from(self.0.as_str())
    }
}

impl fmt::Display for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use domain::TaskId;

    use super::*;

    #[test]
    fn the_keys_we_make_are_keys_and_name_the_attempt() {
        let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 2 };
        let output = StorageKey::of_output(attempt);
        assert!(output.as_str().ends_with(&format!("/{attempt}.mp4")));
        assert_eq!(output, StorageKey::of_output(attempt));
        assert_ne!(output, StorageKey::of_output(AttemptRef { attempt_no: 3, ..attempt }));
        assert_ne!(StorageKey::for_staging(attempt), StorageKey::for_staging(attempt));
        for key in [output, StorageKey::for_staging(attempt)] {
            assert_eq!(StorageKey::parse(key.as_str()), Ok(key.clone()));
            assert_eq!(key.path().as_ref(), key.as_str(), "the storage spells it the same way");
        }
    }

    #[test]
    fn what_could_leave_the_folder_or_be_two_things_is_no_key() {
        for bad in [
            "",
            "/abs",
            "../../etc/passwd",
            "outputs/../x",
            "outputs/./x",
            "outputs//x",
            "outputs/",
            "..%2f..%2f",
            "C:\\x",
            "a\0.mp4",
            "a#1",
            "A.mp4",
            "a\u{202e}b",
            "outputs/.hidden",
            &"x".repeat(256),
        ] {
            assert_eq!(StorageKey::parse(bad), Err(BadKey), "{bad:?}");
        }
        assert!(StorageKey::parse("a..png").is_ok(), "two dots inside a name climb nowhere");
    }
}
