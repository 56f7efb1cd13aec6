//! The attempts of a slice by tag, so that each tag is one script.

use std::collections::BTreeMap;

use super::{SlotRef, SlotSet, SlotTag};
use crate::keys::Keys;

/// Attempts per script at most, so that no script runs long.
pub(super) const CHUNK: usize = 500;

/// The attempts of one tag: its sets, and per attempt its place in the slice and the index of its narrow set.
pub(super) struct TagGroup {
    pub(super) tag: SlotTag,
    /// The broad set first.
    pub(super) sets: Vec<String>,
    /// Place in the slice, member, index into `sets`.
    pub(super) members: Vec<(usize, String, usize)>,
}

/// Groups by account and by tenant: each attempt is in two groups.
pub(super) fn by_tag(keys: &Keys, slots: &[SlotRef]) -> Vec<TagGroup> {
    let mut groups: BTreeMap<String, Vec<TagGroup>> = BTreeMap::new();
    for (place, slot) in slots.iter().enumerate() {
        for (tag, broad, narrow) in halves(slot) {
            let (broad, narrow) = (keys.slots(&broad), keys.slots(&narrow));
            let chunks = groups.entry(broad.clone()).or_default();
            if chunks.last().is_none_or(|chunk| chunk.members.len() >= CHUNK) {
                chunks.push(TagGroup { tag, sets: vec![broad], members: Vec::new() });
            }
            let Some(chunk) = chunks.last_mut() else { continue };
            let index = chunk.sets.iter().skip(1).position(|set| *set == narrow).map(|index| index + 1);
            let index = index.unwrap_or_else(|| {
                chunk.sets.push(narrow);
                chunk.sets.len() - 1
            });
            chunk.members.push((place, slot.attempt.to_string(), index));
        }
    }
    groups.into_values().flatten().collect()
}

/// The account's sets and the tenant's.
fn halves(slot: &SlotRef) -> [(SlotTag, SlotSet, SlotSet); 2] {
    [
        (
            SlotTag::Account(slot.account.clone()),
            SlotSet::Account(slot.account.clone()),
            SlotSet::Model(slot.account.clone(), slot.model.clone()),
        ),
        (SlotTag::Tenant(slot.tenant), SlotSet::Tenant(slot.tenant), SlotSet::User(slot.tenant, slot.user)),
    ]
}
