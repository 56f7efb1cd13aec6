//! Giving places back.

use domain::metric;

use crate::{
    Control, ControlError, Sent, SlotRef, SlotSet,
    script::{Call, Script},
};

impl Control {
    /// Takes the attempts out of all four sets. Repeating it does nothing. With [`Sent::No`] the dispatch tokens go
    /// back as well, once.
    ///
    /// # Errors
    /// When control cannot be reached; the reconciler then removes the members.
    pub async fn release_slots(&self, slots: &[SlotRef], sent: Sent) -> Result<(), ControlError> {
        self.take_out(slots, sent).await.map(drop)
    }

    /// In how many sets the attempts were.
    pub(super) async fn take_out(&self, slots: &[SlotRef], sent: Sent) -> Result<u64, ControlError> {
        let calls = slots.iter().flat_map(|slot| self.release_calls(slot, sent)).collect();
        let removed: Vec<u64> = self.0.control.calls_as(calls).await?;
        // The account's half says whether the attempt held a place at all.
        let released = removed.iter().step_by(2).filter(|count| **count > 0).count();
        metrics::counter!(metric::SLOT_RELEASE).increment(u64::try_from(released).unwrap_or(u64::MAX));
        Ok(removed.into_iter().sum())
    }

    fn release_calls(&self, slot: &SlotRef, sent: Sent) -> [Call; 2] {
        let keys = self.keys();
        let member = slot.attempt.to_string();
        let of_account = Script::SlotRelease
            .on(&[
                keys.slots(&SlotSet::Account(slot.account.clone())),
                keys.slots(&SlotSet::Model(slot.account.clone(), slot.model.clone())),
                keys.dispatch_account(&slot.account),
                keys.dispatch_model(&slot.account, &slot.model),
                keys.probes(&slot.account),
            ])
            .arg(&member)
            .arg(u8::from(sent == Sent::No));
        let of_tenant = Script::SlotRelease
            .on(&[
                keys.slots(&SlotSet::Tenant(slot.tenant)),
                keys.slots(&SlotSet::User(slot.tenant, slot.user)),
            ])
            .arg(&member)
            .arg(0);
        [of_account, of_tenant]
    }
}
