//! Reading what the scripts of the limits answer.

use redis::Value;

use crate::{Admission, CheckState, ControlError, RefusedBy, Standing, StoredAnswer, instance::parse};

/// The answer of `inflow.lua`, or of the plain GET in its place when there are no checks.
pub(super) fn read_inflow(reply: Value, checks: usize) -> Result<Admission, ControlError> {
    let parts = match reply {
        Value::Array(parts) => parts,
        // The answers of a plain GET.
        Value::Nil if checks == 0 => return Ok(Admission::Granted(Vec::new())),
        Value::BulkString(json) if checks == 0 => return read_replay(&json),
        _ => return Err(unexpected()),
    };
    let mut parts = parts.into_iter();
    let code: u8 = parse(parts.next().ok_or_else(unexpected)?)?;
    if code == 0 {
        let json: String = parse(parts.next().ok_or_else(unexpected)?)?;
        return read_replay(json.as_bytes());
    }
    let numbers: Vec<u64> = parts.map(parse).collect::<Result<_, _>>()?;
    // Scripts count from 1.
    let check = |number: u64| usize::try_from(number).unwrap_or(0).saturating_sub(1);
    match (code, numbers.as_slice()) {
        (1, rest) => Ok(Admission::Granted(read_states(rest, checks)?)),
        (2, [by, retry_after_ms, rest @ ..]) => Ok(Admission::Refused {
            by: RefusedBy::Check(check(*by)),
            retry_after_ms: *retry_after_ms,
            states: read_states(rest, checks)?,
        }),
        (3, [by]) => Ok(Admission::CostAboveCapacity { check: check(*by) }),
        _ => Err(unexpected()),
    }
}

/// Three numbers per check.
fn read_states(numbers: &[u64], checks: usize) -> Result<Vec<CheckState>, ControlError> {
    let states = numbers.chunks_exact(3).map(|state| {
        let standing = match state[2] {
            0 => Standing::Passes,
            1 => Standing::Counted,
            2 => Standing::Short,
            _ => return Err(unexpected()),
        };
        Ok(CheckState {
            remaining: u32::try_from(state[0]).unwrap_or(u32::MAX),
            reset_ms: state[1],
            standing,
        })
    });
    let states: Vec<_> = states.collect::<Result<_, _>>()?;
    if states.len() == checks { Ok(states) } else { Err(unexpected()) }
}

fn read_replay(json: &[u8]) -> Result<Admission, ControlError> {
    let answer: StoredAnswer =
        serde_json::from_slice(json).map_err(|error| ControlError::Protocol(error.to_string()))?;
    Ok(Admission::Replay(answer))
}

/// The answer of `ip_window.lua`: the wait, if the address is refused.
pub(super) fn read_ip(reply: Value) -> Result<Option<u64>, ControlError> {
    let (allowed, number): (bool, u64) = parse(reply)?;
    Ok((!allowed).then_some(number.max(1)))
}

fn unexpected() -> ControlError {
    ControlError::Protocol("the reply of inflow.lua has another shape".to_owned())
}
