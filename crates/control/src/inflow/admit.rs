//! Asking the limits.

use crate::{Admission, Control, ControlError, InflowCharge};

impl Control {
    /// Decides one request: the replay entry first, then every bucket and the address's counter together.
    ///
    /// # Errors
    /// Without an answer the caller falls back to its in-process limits; `Unknown` may have charged.
    pub async fn admit(&self, charge: InflowCharge) -> Result<Admission, ControlError> {
        let _ = charge;
        Err(ControlError::Unavailable)
    }
}
