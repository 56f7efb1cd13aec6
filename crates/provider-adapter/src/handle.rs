//! The job handle's inside: everything an adapter needs to ask about a job again, in one text.
//!
//! Some providers name a job by an id alone, others need the path of its kind, the model, the region or addresses
//! that they returned. A bare id is stored as it is; anything more becomes a JSON object, which no id can be
//! mistaken for because ids are held to letters, digits and a few signs.

use domain::task::state::JobHandle;
use serde::{Deserialize, Serialize};

/// A job as its provider knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The provider's id of the job.
    pub id: String,
    /// The kind or path under which it is asked for, where that is not the same for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The provider's model, where its name is part of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The region, where an account has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Addresses that the provider returned for later calls, checked against its host before each use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
}

impl Job {
    /// A job known by an id alone; `None` when the text is none that may become part of an address.
    #[must_use]
    pub fn new(id: &str) -> Option<Self> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
        let path_step = id.bytes().all(|b| b == b'.');
        let fits = (1..=200).contains(&id.len()) && id.bytes().all(legal) && !path_step;
        fits.then(|| Self { id: id.to_owned(), ..Self::default() })
    }

    /// The text for the database.
    #[must_use]
    pub fn to_handle(&self) -> JobHandle {
        let bare = Self { id: self.id.clone(), ..Self::default() };
        if *self == bare {
            return JobHandle::new(&*self.id);
        }
        // A structure of texts always has a JSON form.
        JobHandle::new(serde_json::to_string(self).unwrap_or_default())
    }

    /// Reads a handle back; `None` for a text that no adapter wrote.
    #[must_use]
    pub fn from_handle(handle: &JobHandle) -> Option<Self> {
        let text = handle.as_str();
        if !text.starts_with('{') {
            return Self::new(text);
        }
        let job: Self = serde_json::from_str(text).ok()?;
        Self::new(&job.id)?;
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_reads_back() {
        let bare = Job::new("job_1").expect("legal");
        assert_eq!(bare.to_handle().as_str(), "job_1");
        let rich = Job {
            kind: Some("image2video".into()),
            region: Some("eu".into()),
            urls: vec!["https://x/1".into()],
            ..bare.clone()
        };
        for job in [bare, rich] {
            assert_eq!(Job::from_handle(&job.to_handle()), Some(job));
        }
    }

    #[test]
    fn what_could_change_an_address_is_no_id() {
        for id in ["", ".", "..", "a/b", "../x", "a?b", "a#b", "a%2fb", "a b", "é", "{", &"x".repeat(201)] {
            assert_eq!(Job::new(id), None, "{id}");
            assert_eq!(Job::from_handle(&JobHandle::new(id)), None, "{id}");
        }
    }
}
