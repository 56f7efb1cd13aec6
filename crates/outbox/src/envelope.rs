//! What a message says: which task, and which version of it made somebody write.

use domain::TaskId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The payload of every message about a task.
///
/// It names facts instead of carrying them, so it can be late. A reader that has handled this version or a newer
/// one drops it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Identifies the message across redeliveries and replays.
    pub event_id: Uuid,
    /// The task.
    pub task_id: TaskId,
    /// The task's version when the message was written.
    pub version: i32,
    /// The W3C trace context of the request that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Envelope {
    /// A message about `task_id` at `version`, with a fresh event id.
    #[must_use]
    pub fn new(task_id: TaskId, version: i32, traceparent: Option<String>) -> Self {
        Self { event_id: Uuid::now_v7(), task_id, version, traceparent }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When the bytes are not such a message. Unknown members are passed over: a newer writer may add some.
    pub fn parse(payload: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(payload)
    }

    /// The payload's text.
    ///
    /// # Panics
    /// Never: ids, numbers and texts always have a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an envelope holds only ids, numbers and texts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_survives_its_text_and_ignores_what_it_does_not_know() {
        let envelope = Envelope::new(TaskId::generate(), 3, Some("00-ab-cd-01".to_owned()));
        let json = envelope.to_json();
        assert_eq!(Envelope::parse(json.as_bytes()).unwrap(), envelope);
        let newer = json.replacen('{', r#"{"priority":1,"#, 1);
        assert_eq!(Envelope::parse(newer.as_bytes()).unwrap(), envelope);
        assert!(Envelope::parse(br#"{"version":1}"#).is_err());
    }
}
