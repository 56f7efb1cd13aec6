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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;
    use crate::testing::Corner;

    #[tokio::test]
    async fn the_limit_is_exact_and_the_log_does_not_grow_with_the_attack() {
        let corner = Corner::new();
        let ip: IpAddr = "203.0.113.9".parse().unwrap();
        let limit = FailedAuthLimit { limit: 5, window_ms: 60_000 };
        join_all((0..50).map(|_| corner.control.charge_failed_auth(ip, limit))).await;
        match corner.control.look_failed_auth(ip, limit).await.unwrap() {
            FailedAuthWindow::Closed { retry_after_ms } => assert!((1..=60_000).contains(&retry_after_ms)),
            open @ FailedAuthWindow::Open { .. } => panic!("{open:?}"),
        }
        let key = corner.keys().ip_auth(ip);
        assert_eq!(corner.raw::<i64>(&["ZCARD", &key]).await, 5);
        assert!((1..=60_000).contains(&corner.raw::<i64>(&["PTTL", &key]).await));
    }

    #[tokio::test]
    async fn it_opens_again_when_the_oldest_leaves_and_looking_charges_nothing() {
        let corner = Corner::new();
        let ip: IpAddr = "203.0.113.10".parse().unwrap();
        let limit = FailedAuthLimit { limit: 1, window_ms: 300 };
        for _ in 0..3 {
            let open = FailedAuthWindow::Open { remaining: 1 };
            assert_eq!(corner.control.look_failed_auth(ip, limit).await, Ok(open));
        }
        let closed = corner.control.charge_failed_auth(ip, limit).await.unwrap();
        assert!(matches!(closed, FailedAuthWindow::Closed { .. }));
        testkit::wait_until("the window to pass", Duration::from_secs(5), async || {
            matches!(corner.control.look_failed_auth(ip, limit).await, Ok(FailedAuthWindow::Open { .. }))
        })
        .await;
    }

    #[tokio::test]
    async fn a_log_that_a_hand_left_behind_heals() {
        let corner = Corner::new();
        let ip: IpAddr = "203.0.113.11".parse().unwrap();
        let limit = FailedAuthLimit { limit: 1, window_ms: 60_000 };
        let key = corner.keys().ip_auth(ip);
        corner.raw::<()>(&["ZADD", &key, "99999999999999", "from the future"]).await;
        assert!(matches!(
            corner.control.look_failed_auth(ip, limit).await,
            Ok(FailedAuthWindow::Open { .. })
        ));
        corner.raw::<()>(&["SET", &key, "of another type"]).await;
        assert!(matches!(
            corner.control.look_failed_auth(ip, limit).await,
            Ok(FailedAuthWindow::Open { .. })
        ));
        let now = corner.control.now_ms().await.unwrap().to_string();
        corner.raw::<()>(&["ZADD", &key, &now, "without an expiry"]).await;
        assert!(matches!(
            corner.control.look_failed_auth(ip, limit).await,
            Ok(FailedAuthWindow::Closed { .. })
        ));
        assert!(corner.raw::<i64>(&["PTTL", &key]).await > 0);
    }
}
