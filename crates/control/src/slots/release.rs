//! Giving places back.

use std::collections::BTreeMap;

use domain::metric;

use super::grouped::CHUNK;
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
        let unsent = u8::from(sent == Sent::No);
        let keys = self.keys();
        let (mut of_accounts, mut of_tenants): (Vec<Call>, Vec<Call>) = Default::default();
        for slots in alike(slots, |slot| (slot.account.clone(), slot.model.clone())) {
            let first = slots[0];
            let call = Script::SlotRelease
                .on(&[
                    keys.slots(&SlotSet::Account(first.account.clone())),
                    keys.slots(&SlotSet::Model(first.account.clone(), first.model.clone())),
                    keys.dispatch_account(&first.account),
                    keys.dispatch_model(&first.account, &first.model),
                    keys.probes(&first.account),
                ])
                .arg(unsent);
            of_accounts.push(members(call, &slots));
        }
        for slots in alike(slots, |slot| (slot.tenant, slot.user)) {
            let first = slots[0];
            let call = Script::SlotRelease
                .on(&[
                    keys.slots(&SlotSet::Tenant(first.tenant)),
                    keys.slots(&SlotSet::User(first.tenant, first.user)),
                ])
                .arg(0);
            of_tenants.push(members(call, &slots));
        }
        let accounts = of_accounts.len();
        let calls = of_accounts.into_iter().chain(of_tenants).collect();
        let removed: Vec<[u64; 2]> = self.0.control.calls_as(calls).await?;
        // The account's half says whether an attempt held a place at all.
        let released = removed.iter().take(accounts).map(|[broad, _]| broad).sum();
        metrics::counter!(metric::SLOT_RELEASE).increment(released);
        Ok(removed.into_iter().flatten().sum())
    }
}

/// The attempts whose places lie in the same sets.
fn alike<K: Ord>(slots: &[SlotRef], places: impl Fn(&SlotRef) -> K) -> Vec<Vec<&SlotRef>> {
    let mut groups: BTreeMap<K, Vec<&SlotRef>> = BTreeMap::new();
    for slot in slots {
        groups.entry(places(slot)).or_default().push(slot);
    }
    groups.values().flat_map(|slots| slots.chunks(CHUNK)).map(<[_]>::to_vec).collect()
}

fn members(call: Call, slots: &[&SlotRef]) -> Call {
    slots.iter().fold(call, |call, slot| call.arg(slot.attempt.to_string()))
}
