//! Typed, prefixed identifiers.
//!
//! An id in a log line, a URL or a database dump says what it is: `task_0192…` cannot be mistaken for an asset.
//! Each has exactly one spelling (prefix, underscore, 32 lowercase hex digits), so two texts are the same id
//! only when they are the same bytes, and caches, ETags and signatures never see two names for one thing.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {expected} id")]
pub struct ParseIdError {
    /// The kind that was expected, such as `task`.
    pub expected: &'static str,
}

/// Reads the 32 digits of an id in its only spelling: lowercase, no hyphens.
fn parse_digits(text: &str, expected: &'static str) -> Result<Uuid, ParseIdError> {
    let one_spelling = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !one_spelling {
        return Err(ParseIdError { expected });
    }
    Uuid::try_parse(text).map_err(|_| ParseIdError { expected })
}

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// What the text form starts with, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A fresh id. Version 7: ids made later sort later, which keeps index inserts at the right edge.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// Wraps the value that a database column holds.
            #[must_use]
            pub const fn from_uuid(value: Uuid) -> Self {
                Self(value)
            }

            /// The value for a database column.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.as_simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let digits = text.strip_prefix(concat!($prefix, "_")).ok_or(ParseIdError { expected: $prefix })?;
                parse_digits(digits, $prefix).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

uuid_ids! {
    /// A generation task.
    TaskId = "task";
    /// A tenant: the company that pays for the platform.
    TenantId = "ten";
    /// A user of a tenant.
    UserId = "user";
    /// A project that several users of a tenant share.
    ProjectId = "proj";
    /// A stored file: an output, later an upload or a poster.
    AssetId = "asset";
    /// A credit account.
    AccountId = "acct";
    /// A grant of credits to an account.
    GrantId = "grant";
    /// A short-lived browser token.
    TokenId = "tok";
}

macro_rules! name_ids {
    ($($(#[$doc:meta])* $name:ident ($kind:literal, $max:literal);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let legal = !text.is_empty()
                    && text.len() <= $max
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/' | b':'));
                if legal { Ok(Self(text.to_owned())) } else { Err(ParseIdError { expected: $kind }) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

name_ids! {
    /// The public name of a model, such as `mock-fast`. Letters, digits and `- . _ / :`, at most 64.
    ModelName("model", 64);
    /// An account at a provider, named in configuration; its credentials are looked up by this name.
    ProviderAccountId("provider account", 64);
    /// One running scheduler: host, process id and a nonce of its start, so that a recycled pid is another worker.
    WorkerId("worker", 128);
    /// The public part of an API key (12 base62 characters); the secret part is never held in this type.
    KeyId("key", 12);
}

/// The name under which one try of one task is known outside: `<task_id>.<attempt_no>`.
///
/// It is our reference at the provider and the member of every slot set, so a job found at the provider, a slot
/// found in Redis and a row in `task_attempts` can be matched without a further table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptRef {
    /// The task.
    pub task: TaskId,
    /// Counts the references that were used, from 1.
    pub attempt_no: i32,
}

impl fmt::Display for AttemptRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.task, self.attempt_no)
    }
}

impl FromStr for AttemptRef {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let bad = ParseIdError { expected: "attempt" };
        let (task, number) = text.split_once('.').ok_or(bad.clone())?;
        let attempt_no: i32 = number.parse().map_err(|_| bad.clone())?;
        let parsed = Self { task: task.parse()?, attempt_no };
        // One spelling: "+1", "01" and friends would be a second name for the same attempt.
        if attempt_no >= 1 && parsed.to_string() == text { Ok(parsed) } else { Err(bad) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form() {
        let id = TaskId::generate();
        assert_eq!(id.to_string().parse::<TaskId>(), Ok(id));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<TaskId>(&json).unwrap(), id);
    }

    #[test]
    fn an_id_has_one_spelling() {
        let text = TaskId::generate().to_string();
        let digits = text.strip_prefix("task_").unwrap();
        let hyphenated = Uuid::try_parse(digits).unwrap().hyphenated().to_string();
        for other in [
            text.to_uppercase(),
            digits.to_owned(),
            format!("asset_{digits}"),
            format!("task_{hyphenated}"),
            format!("task_{{{digits}}}"),
            format!("{text} "),
            format!("task_{}", &digits[1..]),
            String::new(),
        ] {
            assert!(other.parse::<TaskId>().is_err(), "{other}");
        }
    }

    #[test]
    fn later_ids_sort_later() {
        let ids: Vec<_> = (0..100).map(|_| TaskId::generate().to_string()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn names_refuse_what_could_be_a_path_or_a_key_separator() {
        assert!("mock-fast".parse::<ModelName>().is_ok());
        for bad in ["", "a b", "a{b}", "é", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<ModelName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_attempt_reference_has_one_spelling() {
        let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 3 };
        assert_eq!(attempt.to_string().parse::<AttemptRef>(), Ok(attempt));
        for bad in [".03", ".+3", ".0", ".-1", ".", ""] {
            assert!(format!("{}{bad}", attempt.task).parse::<AttemptRef>().is_err(), "{bad}");
        }
    }
}
