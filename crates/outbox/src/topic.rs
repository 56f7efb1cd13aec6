//! The topics, in one place. A new one also gets its row in ARCHITECTURE.md.

use std::{fmt, str::FromStr};

/// What a message is about, and so who handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// A task was accepted or is to be tried again: put it into the ready queue.
    GenerationRequested,
    /// A task changed, and somebody outside is to be told.
    TaskChanged,
    /// An API key was used or changed.
    KeyAccess,
}

impl Topic {
    /// Every topic.
    pub const ALL: &'static [Self] = &[Self::GenerationRequested, Self::TaskChanged, Self::KeyAccess];

    /// The name in the database, at the broker and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GenerationRequested => "generation.requested",
            Self::TaskChanged => "task.changed",
            Self::KeyAccess => "key_access",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no such topic")]
pub struct UnknownTopic;

impl FromStr for Topic {
    type Err = UnknownTopic;

    fn from_str(text: &str) -> Result<Self, UnknownTopic> {
        Self::ALL.iter().copied().find(|topic| topic.as_str() == text).ok_or(UnknownTopic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_survives_its_name() {
        for topic in Topic::ALL {
            assert_eq!(topic.as_str().parse(), Ok(*topic));
        }
        assert_eq!("generation.Requested".parse::<Topic>(), Err(UnknownTopic));
    }
}
