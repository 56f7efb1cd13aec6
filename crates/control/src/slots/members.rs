//! Looking into the sets and mending them: for the reconciler and the audit, which know what lives.

use domain::AttemptRef;

use crate::{Control, ControlError, Sent, SlotMember, SlotRef, SlotSet, SlotTag, instance::command};

impl Control {
    /// The members of each set, those nobody vouches for any more included.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn slot_members(&self, sets: &[SlotSet]) -> Result<Vec<Vec<SlotMember>>, ControlError> {
        let now_ms = self.now_ms().await?;
        let calls = sets
            .iter()
            .map(|set| command("ZRANGE").arg(self.keys().slots(set)).arg(0).arg(-1).arg("WITHSCORES"));
        let answers: Vec<Vec<(String, f64)>> = self.0.control.calls_as(calls.collect()).await?;
        Ok(answers.into_iter().map(|members| read(members, now_ms)).collect())
    }

    /// Places taken in each set, those that nobody vouches for any more included.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn slots_used(&self, sets: &[SlotSet]) -> Result<Vec<u32>, ControlError> {
        let calls = sets.iter().map(|set| command("ZCARD").arg(self.keys().slots(set)));
        self.0.control.calls_as(calls.collect()).await
    }

    /// Whether each tag is known to be complete.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn slots_ready(&self, tags: &[SlotTag]) -> Result<Vec<bool>, ControlError> {
        let calls = tags.iter().map(|tag| command("EXISTS").arg(self.keys().slots_ready(tag)));
        self.0.control.calls_as(calls.collect()).await
    }

    /// Removes attempts that are over, by the database, from all four sets. Returns how many sets had one.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn remove_slots(&self, slots: &[SlotRef]) -> Result<u64, ControlError> {
        self.take_out(slots, Sent::Yes).await
    }

    /// Removes attempts that are over from one set, when nothing more is known of them than their name.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn remove_slot_members(
        &self,
        set: &SlotSet,
        attempts: &[AttemptRef],
    ) -> Result<u64, ControlError> {
        let key = self.keys().slots(set);
        let calls = attempts.iter().map(|attempt| command("ZREM").arg(&key).arg(attempt.to_string()));
        let removed: Vec<u64> = self.0.control.calls_as(calls.collect()).await?;
        Ok(removed.into_iter().sum())
    }
}

fn read(members: Vec<(String, f64)>, now_ms: i64) -> Vec<SlotMember> {
    let attempts = members.into_iter().filter_map(|(member, until)| match member.parse::<AttemptRef>() {
        Ok(attempt) => Some((attempt, until)),
        Err(_) => {
            tracing::warn!("a slot set holds a member that is no attempt; it counts until it is removed");
            None
        }
    });
    attempts
        .map(|(attempt, until)| {
            #[expect(clippy::cast_possible_truncation, reason = "instants in ms are exact in a double")]
            let vouched_until_ms = until as i64;
            SlotMember { attempt, vouched_until_ms, expired: vouched_until_ms <= now_ms }
        })
        .collect()
}
