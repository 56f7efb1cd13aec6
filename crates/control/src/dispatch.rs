//! A provider's wish that we wait.

use std::time::Duration;

use domain::{ModelName, ProviderAccountId};

use crate::{Control, ControlError, script::Script, ttl::millis};

/// Nothing is submitted there for so long.
#[derive(Debug, Clone)]
pub struct DispatchPause {
    /// Where.
    pub account: ProviderAccountId,
    /// One model only, or all of the account.
    pub model: Option<ModelName>,
    /// From now, by Redis's clock.
    pub pause: Duration,
}

impl Control {
    /// Holds submits back. A later end wins over an earlier one, never the other way round.
    ///
    /// # Errors
    /// When control cannot be reached; then nothing is submitted anyway.
    pub async fn set_not_before(&self, pauses: &[DispatchPause]) -> Result<(), ControlError> {
        let calls = pauses.iter().map(|pause| {
            let field = match &pause.model {
                None => "not_before".to_owned(),
                Some(model) => format!("not_before:{model}"),
            };
            Script::NotBefore.on(&[self.keys().health(&pause.account)]).arg(field).arg(millis(pause.pause))
        });
        self.0.control.calls_done(calls.collect()).await
    }
}
