//! Heartbeats of slots.

use std::time::Duration;

use super::{SETS_TTL, grouped::by_tag};
use crate::{
    Control, ControlError, SlotRef, Vouched,
    script::Script,
    ttl::{jittered_ms, millis},
};

impl Control {
    /// Vouches for these attempts for so long from now: one script per tag for all of them. Adds nothing.
    ///
    /// # Errors
    /// When control cannot be reached. Nothing is lost: an expired member still counts.
    pub async fn vouch_slots(
        &self,
        slots: &[SlotRef],
        vouch: Duration,
    ) -> Result<Vec<Vouched>, ControlError> {
        let groups = by_tag(self.keys(), slots);
        let calls = groups.iter().map(|group| {
            let call = Script::SlotVouch.on(&group.sets).arg(millis(vouch)).arg(jittered_ms(SETS_TTL));
            // Lua counts from 1.
            group.members.iter().fold(call, |call, (_, member, set)| call.arg(member).arg(set + 1))
        });
        let replies: Vec<Vec<bool>> = self.0.control.calls_as(calls.collect()).await?;
        let mut vouched = vec![Vouched::Kept; slots.len()];
        for (group, kept) in groups.iter().zip(replies) {
            for ((place, ..), kept) in group.members.iter().zip(kept) {
                if !kept {
                    vouched[*place] = Vouched::Missing;
                }
            }
        }
        Ok(vouched)
    }
}
