//! The members of a JSON object before anything is believed about them.
//!
//! serde_json reports a number that fits no type, and a string that is not Unicode, as if the text were not JSON.
//! For the client these are different things, so the grammar is checked first, on raw values, and each member is
//! read afterwards by itself.

use std::{borrow::Cow, fmt};

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ParseError;

/// Deeper than any request; far from what could exhaust a stack.
const DEPTH_MAX: usize = 32;

/// One member: its name (none when it is not Unicode) and its value.
pub(super) struct Member<'a> {
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) value: &'a str,
}

/// The members of the object that the body is, in order, doubled ones included; none when it is no object.
pub(super) fn read(body: &[u8]) -> Result<Option<Vec<Member<'_>>>, ParseError> {
    let text = std::str::from_utf8(body).map_err(|_| malformed("it is not UTF-8"))?;
    if depth(text) > DEPTH_MAX {
        return Err(malformed("it is nested too deeply"));
    }
    let whole: &RawValue = serde_json::from_str(text).map_err(malformed)?;
    if !whole.get().starts_with('{') {
        return Ok(None);
    }
    let mut deserializer = serde_json::Deserializer::from_str(whole.get());
    deserializer.deserialize_map(Collect).map(Some).map_err(malformed)
}

fn malformed(reason: impl fmt::Display) -> ParseError {
    ParseError::Malformed(reason.to_string())
}

/// How deep arrays and objects are nested, taking the text for JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(12);
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            members.push(Member { name: string(name.get()), value: value.get() });
        }
        Ok(members)
    }
}

/// The text that a JSON string spells; none when it is not Unicode.
pub(super) fn string(raw: &str) -> Option<Cow<'_, str>> {
    match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        // Without escapes the text stands there as it is.
        Some(inner) if !inner.contains('\\') => Some(Cow::Borrowed(inner)),
        _ => serde_json::from_str::<String>(raw).ok().map(Cow::Owned),
    }
}
