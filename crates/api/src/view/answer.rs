//! The answer about one task: its text and its tag. That of an ended task is made once for all who ask within a second.
//!
//! An ended task differs only in its link, and the link is a permission: it is never kept, but made for each answer.
//! So the text is kept without it. Nor does an answer know its readers: whether one may see the task is asked before.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::{AssetId, TaskId, task::TaskSnapshot};
use http::HeaderValue;
use media::Media;
use moka::sync::Cache;

use crate::{live::LiveFacts, problem::Problem, view::task::TaskView};

/// How long an ended task's answer is kept.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// How much text is kept, in bytes; one has as many as its prompt and a thousand more.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// The text of an answer, apart from its link, and its tag.
#[derive(Debug)]
pub(crate) struct Answer {
    /// All of it, or what comes before the link.
    text: Bytes,
    /// The object that is linked to, and what comes behind the link.
    link: Option<(AssetId, Bytes)>,
    etag: HeaderValue,
}

impl Answer {
    /// Renders a view.
    pub(crate) fn new(view: &TaskView<'_>) -> Result<Self, Problem> {
        let text = serde_json::to_string(view).map_err(Problem::internal)?;
        let etag = view.etag();
        let Some((asset, link)) = view.link() else {
            return Ok(Self { text: text.into(), link: None, etag });
        };
        // The member's name with its quotes cannot be part of any text in JSON.
        let member = format!("\"output_url\":\"{link}\"");
        let (before, behind) = text.split_once(&member).ok_or_else(|| Problem::internal(NoLink))?;
        let text = Bytes::from([before, "\"output_url\":\""].concat());
        let behind = Bytes::from(["\"", behind].concat());
        Ok(Self { text, link: Some((asset, behind)), etag })
    }

    /// The tag, which goes with links that run out when the view's does.
    pub(crate) const fn etag(&self) -> &HeaderValue {
        &self.etag
    }

    /// What it takes of the room for kept answers, in bytes.
    fn weight(&self) -> u32 {
        let behind = self.link.as_ref().map_or(0, |(_, behind)| behind.len());
        u32::try_from(self.text.len() + behind + 256).unwrap_or(u32::MAX)
    }

    /// The whole text, with a link made now.
    pub(crate) fn text(&self, sign: impl FnOnce(AssetId) -> String) -> Bytes {
        match &self.link {
            None => self.text.clone(),
            Some((asset, behind)) => [&*self.text, sign(*asset).as_bytes(), behind].concat().into(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("an answer does not hold its link")]
struct NoLink;

/// Answers about ended tasks, by task, version and the end of their link.
pub(crate) struct EndedAnswers(Cache<(TaskId, i32, Option<i64>), Arc<Answer>>);

impl EndedAnswers {
    pub(crate) fn new() -> Self {
        let cache = Cache::builder().weigher(|_, answer: &Arc<Answer>| answer.weight());
        Self(cache.max_capacity(KEPT_BYTES_MAX).time_to_live(KEPT_FOR).build())
    }

    /// The answer about an ended task at `now`.
    pub(crate) fn answer(
        &self,
        snapshot: &TaskSnapshot,
        media: &Media,
        now: DateTime<Utc>,
    ) -> Result<Arc<Answer>, Problem> {
        let asset = snapshot.output_asset_id;
        let key = (snapshot.task_id, snapshot.version, asset.map(|_| Media::link_expiry(now)));
        if let Some(answer) = self.0.get(&key) {
            return Ok(answer);
        }
        let link = asset.map(|asset| media.sign_link(asset, now));
        let view = TaskView::new(snapshot, &LiveFacts::default(), link);
        let answer = Arc::new(Answer::new(&view)?);
        self.0.insert(key, Arc::clone(&answer));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use domain::TaskStatus;

    use super::*;
    use crate::view::task::tests::snapshot;

    #[test]
    fn an_answer_is_the_view_with_a_link_of_its_own() {
        let mut snapshot = snapshot();
        let facts = LiveFacts::default();
        let plain = TaskView::new(&snapshot, &facts, None);
        let answer = Answer::new(&plain).unwrap();
        let text = answer.text(|_| panic!("there is nothing to link to"));
        assert_eq!((text, answer.etag()), (serde_json::to_vec(&plain).unwrap().into(), &plain.etag()));

        let asset = AssetId::generate();
        let link = |n: u8| format!("/assets/{asset}/content?exp={n}&sig={n}");
        snapshot.status = TaskStatus::Succeeded;
        snapshot.output_asset_id = Some(asset);
        // A text that looks like the member does not confuse it, nor does the link itself in the prompt.
        snapshot.inputs.prompt = format!("\"output_url\":\"{0}\" {0}", link(1));
        let view = |n| TaskView::new(&snapshot, &facts, Some(link(n)));
        let answer = Answer::new(&view(1)).unwrap();
        assert_eq!(answer.etag(), view(1).etag());
        for n in [1, 2] {
            let text = answer.text(|of| {
                assert_eq!(of, asset);
                link(n)
            });
            assert_eq!(text, serde_json::to_vec(&view(n)).unwrap());
        }
    }
}
