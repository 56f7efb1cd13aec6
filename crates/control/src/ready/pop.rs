//! Whose turn it is.

use domain::ModelName;

use crate::{Control, ControlError, Popped};

impl Control {
    /// Takes up to `max` tasks in fair order and claims each for ten seconds. Claims and parkings that ran out come
    /// back first.
    ///
    /// # Errors
    /// When control cannot be reached. After `Unknown` what was popped comes back by itself.
    pub async fn pop_ready(&self, model: &ModelName, max: u32) -> Result<Popped, ControlError> {
        let _ = (model, max);
        Err(ControlError::Unavailable)
    }
}
