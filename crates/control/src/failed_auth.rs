//! Failed authentications of an address: a sliding log, since guessing keys is rare and must be counted exactly.

use std::net::IpAddr;

use crate::{Control, ControlError, script::Script};

/// How many failures in how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAuthLimit {
    /// Failures per window.
    pub limit: u32,
    /// The window in milliseconds.
    pub window_ms: u32,
}

/// Whether the address may try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedAuthWindow {
    /// It may.
    Open {
        /// Failures left.
        remaining: u32,
    },
    /// It may not.
    Closed {
        /// Until the oldest failure leaves the window. At least 1.
        retry_after_ms: u64,
    },
}

impl Control {
    /// Whether this address may try to authenticate. Charges nothing.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn look_failed_auth(
        &self,
        ip: IpAddr,
        limit: FailedAuthLimit,
    ) -> Result<FailedAuthWindow, ControlError> {
        self.auth_window(ip, limit, false).await
    }

    /// Notes a failure. The log never grows beyond the limit, however hard the address tries.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn charge_failed_auth(
        &self,
        ip: IpAddr,
        limit: FailedAuthLimit,
    ) -> Result<FailedAuthWindow, ControlError> {
        self.auth_window(ip, limit, true).await
    }

    async fn auth_window(
        &self,
        ip: IpAddr,
        limit: FailedAuthLimit,
        charge: bool,
    ) -> Result<FailedAuthWindow, ControlError> {
        let call = Script::AuthWindow
            .on(&[self.keys().ip_auth(ip)])
            .arg(limit.limit)
            .arg(limit.window_ms.max(1))
            .arg(u8::from(charge));
        let (open, number): (bool, u64) = self.0.control.call(call).await?;
        Ok(if open {
            FailedAuthWindow::Open { remaining: u32::try_from(number).unwrap_or(u32::MAX) }
        } else {
            FailedAuthWindow::Closed { retry_after_ms: number.max(1) }
        })
    }
}
