//! Filling a tag from the database after Redis lost it.

use std::time::Duration;

use redis::Value;

use super::{
    MARKER_TTL, SETS_TTL,
    grouped::{TagGroup, by_tag},
};
use crate::{
    Control, ControlError, Rebuild, RebuildTicket, SlotRef, SlotTag,
    instance::command,
    lock::random_token,
    script::{Call, Script},
    ttl::{jittered_ms, millis},
};

/// How long a rebuild may take before somebody else may begin one.
const REBUILD_MAX: Duration = Duration::from_secs(5);

impl Control {
    /// Takes the lock for one tag. `None`: somebody else rebuilds it, or it is ready by now; claim again shortly.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn begin_rebuild(&self, tag: &SlotTag) -> Result<Option<RebuildTicket>, ControlError> {
        let token = random_token();
        let take = command("SET")
            .arg(self.keys().slots_rebuild(tag))
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(millis(REBUILD_MAX));
        let ready = command("EXISTS").arg(self.keys().slots_ready(tag));
        let answers = self.0.control.calls(vec![take, ready]).await?;
        let ticket = RebuildTicket { tag: tag.clone(), token };
        match <[_; 2]>::try_from(answers) {
            Ok([taken, ready]) => match (taken?, ready?) {
                (Value::Nil, _) => Ok(None),
                (_, Value::Int(0)) => Ok(Some(ticket)),
                // Rebuilt since the caller's claim. The lock must be free for the next flush.
                _ => {
                    self.unlock(&self.keys().slots_rebuild(tag), &ticket.token).await?;
                    Ok(None)
                }
            },
            Err(_) => Err(ControlError::Protocol("two answers expected".to_owned())),
        }
    }

    /// Adds the live attempts of the ticket's tag, read after [`Control::begin_rebuild`], and sets the marker.
    /// Members that are there already stay: they may be attempts that are just being claimed.
    ///
    /// # Errors
    /// When control cannot be reached. After `Unknown`, begin again.
    pub async fn finish_rebuild(
        &self,
        ticket: RebuildTicket,
        live: &[SlotRef],
    ) -> Result<Rebuild, ControlError> {
        let mut groups: Vec<_> =
            by_tag(self.keys(), live).into_iter().filter(|group| group.tag == ticket.tag).collect();
        // The marker comes with the last part, also when nothing lives.
        let last = groups.pop();
        for group in groups {
            let call = self.restore_call(&ticket.tag, &ticket.token, Some(&group), None);
            if !self.0.control.call::<bool>(call).await? {
                return Ok(Rebuild::Lost);
            }
        }
        let call = self.restore_call(&ticket.tag, &ticket.token, last.as_ref(), Some(MARKER_TTL));
        let done: bool = self.0.control.call(call).await?;
        Ok(if done { Rebuild::Done } else { Rebuild::Lost })
    }

    /// Puts live attempts back that Redis lost, whatever the limits say: they are at the provider already.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn restore_slots(&self, slots: &[SlotRef]) -> Result<(), ControlError> {
        let groups = by_tag(self.keys(), slots);
        let calls = groups.iter().map(|group| self.restore_call(&group.tag, "", Some(group), None));
        self.0.control.calls_done(calls.collect()).await
    }

    fn restore_call(
        &self,
        tag: &SlotTag,
        token: &str,
        group: Option<&TagGroup>,
        marker: Option<Duration>,
    ) -> Call {
        let mut names = vec![self.keys().slots_ready(tag), self.keys().slots_rebuild(tag)];
        names.extend(group.iter().flat_map(|group| group.sets.iter().cloned()));
        let call = Script::SlotRestore
            .on(&names)
            .arg(token)
            .arg(millis(self.0.slot_vouch))
            .arg(jittered_ms(SETS_TTL))
            .arg(marker.map_or(0, jittered_ms));
        let members = group.iter().flat_map(|group| &group.members);
        // The sets begin at KEYS[3].
        members.fold(call, |call, (_, member, set)| call.arg(member).arg(set + 3))
    }
}
