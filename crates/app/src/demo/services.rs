//! All private servers of a demo, started together and stopped together.

use serde::{Deserialize, Serialize};

use super::{
    mock,
    place::Place,
    postgres::{self, Settings},
    redis,
};
use crate::config::Secret;

/// Where the servers are.
#[derive(Clone, Debug)]
pub(super) struct Services {
    pub(super) database_url: String,
    pub(super) redis_url: String,
    pub(super) mock_provider_url: String,
}

/// What the servers' doors are locked with; made at the first start.
#[derive(Serialize, Deserialize)]
pub(super) struct ServerPasswords {
    database: String,
    redis: String,
}

impl ServerPasswords {
    /// Random ones.
    pub(super) fn random() -> Self {
        // Hexadecimal, so that they need no escaping in URLs and settings.
        let word = || hex::encode(rand::random::<[u8; 16]>());
        Self { database: word(), redis: word() }
    }
}

/// Starts what does not run yet. A mock provider is started unless the caller names one.
///
/// # Errors
/// When a server does not start. Others may run then; [`stop`] ends them.
pub(super) async fn start(
    place: &Place,
    passwords: &ServerPasswords,
    settings: &Settings,
    mock_provider_url: Option<String>,
    callback_secret: Option<&Secret>,
) -> anyhow::Result<Services> {
    let mock = async {
        match mock_provider_url {
            Some(url) => Ok(url),
            None => mock::ensure(place, callback_secret).await,
        }
    };
    let (database_url, redis_url, mock_provider_url) = tokio::try_join!(
        postgres::ensure(place, &passwords.database, settings),
        redis::ensure(place, &passwords.redis),
        mock,
    )?;
    Ok(Services { database_url, redis_url, mock_provider_url })
}

/// Ends every server that this folder's pid files name, however far the start had come.
pub(super) async fn stop(place: &Place) {
    // The provider first: nobody is left to ask it. PostgreSQL last: it is worth waiting for.
    mock::stop(place).await;
    redis::stop(place).await;
    postgres::stop(place).await;
}
