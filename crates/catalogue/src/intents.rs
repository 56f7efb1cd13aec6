//! Operators' intents: pause (nothing new is sent) and drain (nothing new is sent, and that is meant to last).
//!
//! The table is the one truth. What follows from it (which task waits, and why) is computed from it where it is
//! needed, never stored beside it.

use std::{collections::HashMap, fmt, str::FromStr};

use chrono::{DateTime, Utc};
use domain::{
    ModelName, ProviderAccountId,
    model::{Model, Route},
};
use pg::{PgConnection, PgError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What an intent is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A provider account, whatever is sent to it.
    Account(ProviderAccountId),
    /// A model, by its public name.
    Model(ModelName),
}

/// What an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntentKind {
    /// Send nothing for now; what runs goes on.
    Pause,
    /// Send nothing any more; what runs goes on to its end.
    Drain,
}

/// An intent to be recorded.
#[derive(Debug, Clone)]
pub struct NewIntent {
    /// What it is about.
    pub subject: Subject,
    /// What is wanted.
    pub kind: IntentKind,
    /// Why, for the next operator.
    pub reason: String,
    /// Who: the user of the key that was used, or nil for the command line.
    pub set_by: Uuid,
}

/// A recorded intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// What it is about.
    pub subject: Subject,
    /// What is wanted.
    pub kind: IntentKind,
    /// Why.
    pub reason: String,
    /// Counts the changes of this subject's intent.
    pub version: i64,
    /// Who.
    pub set_by: Uuid,
    /// When.
    pub set_at: DateTime<Utc>,
}

/// Every intent there is, for looking up.
#[derive(Debug, Default)]
pub struct Intents(HashMap<Subject, Intent>);

impl Intents {
    pub(crate) fn new(all: Vec<Intent>) -> Self {
        Self(all.into_iter().map(|intent| (intent.subject.clone(), intent)).collect())
    }

    /// What keeps this model from being sent to this account, if anything does.
    #[must_use]
    pub fn against(&self, account: &ProviderAccountId, model: &ModelName) -> Option<&Intent> {
        let of_account = self.0.get(&Subject::Account(account.clone()));
        of_account.or_else(|| self.0.get(&Subject::Model(model.clone())))
    }

    /// The routes of a model that nothing keeps from being used.
    pub fn open_routes<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = &'a Route> {
        model.routes.iter().filter(|route| self.against(&route.account, &model.name).is_none())
    }

    /// Whether operators keep the model from being sent anywhere.
    #[must_use]
    pub fn stop(&self, model: &Model) -> bool {
        self.open_routes(model).next().is_none()
    }

    /// Every intent, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Intent> {
        self.0.values()
    }
}

/// Records an intent; an earlier one about the same subject is replaced. Returns it with the one before.
///
/// # Errors
/// When the statement fails.
pub async fn set_intent(
    conn: &mut PgConnection,
    new: &NewIntent,
) -> Result<(Option<Intent>, Intent), PgError> {
    let before = locked(conn, &new.subject).await?;
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO operator_intents (subject, intent, reason, set_by) VALUES ($1, $2, $3, $4)
         ON CONFLICT (subject) DO UPDATE SET intent = excluded.intent, reason = excluded.reason,
             set_by = excluded.set_by, set_at = aiv_now(), version = operator_intents.version + 1
         RETURNING subject, intent, reason, version, set_by, set_at",
        new.subject.to_string(),
        new.kind.as_str(),
        new.reason,
        new.set_by,
    )
    .fetch_one(conn)
    .await?;
    Ok((before, row.try_into()?))
}

/// Withdraws the intent about a subject. Returns what was withdrawn.
///
/// # Errors
/// When the statement fails.
pub async fn clear_intent(conn: &mut PgConnection, subject: &Subject) -> Result<Option<Intent>, PgError> {
    let row = sqlx::query_as!(
        Row,
        "DELETE FROM operator_intents WHERE subject = $1
         RETURNING subject, intent, reason, version, set_by, set_at",
        subject.to_string(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(TryInto::try_into).transpose()
}

/// Every intent, by subject.
///
/// # Errors
/// When the statement fails.
pub async fn list_intents(conn: &mut PgConnection) -> Result<Vec<Intent>, PgError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT subject, intent, reason, version, set_by, set_at FROM operator_intents ORDER BY subject"
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(TryInto::try_into).collect()
}

async fn locked(conn: &mut PgConnection, subject: &Subject) -> Result<Option<Intent>, PgError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT subject, intent, reason, version, set_by, set_at FROM operator_intents WHERE subject = $1
         FOR NO KEY UPDATE",
        subject.to_string(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(TryInto::try_into).transpose()
}

struct Row {
    subject: String,
    intent: String,
    reason: String,
    version: i64,
    set_by: Uuid,
    set_at: DateTime<Utc>,
}

impl TryFrom<Row> for Intent {
    type Error = PgError;

    fn try_from(row: Row) -> Result<Self, PgError> {
        let bad = |column| PgError::BadRow { table: "operator_intents", column, id: row.subject.clone() };
        let subject = row.subject.parse().map_err(|()| bad("subject"))?;
        let kind = match row.intent.as_str() {
            "pause" => IntentKind::Pause,
            "drain" => IntentKind::Drain,
            _ => return Err(bad("intent")),
        };
        Ok(Self {
            subject,
            kind,
            reason: row.reason,
            version: row.version,
            set_by: row.set_by,
            set_at: row.set_at,
        })
    }
}

impl IntentKind {
    /// The text of the API and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Drain => "drain",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(id) => write!(f, "account:{id}"),
            Self::Model(name) => write!(f, "model:{name}"),
        }
    }
}

impl FromStr for Subject {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(':') {
            Some(("account", id)) => id.parse().map(Self::Account).map_err(drop),
            Some(("model", name)) => name.parse().map(Self::Model).map_err(drop),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::{TestDb, wait_until};

    use super::*;
    use crate::{Catalogue, CatalogueConfig};

    fn pause(subject: &str, kind: IntentKind) -> NewIntent {
        NewIntent {
            subject: subject.parse().unwrap(),
            kind,
            reason: "billing".to_owned(),
            set_by: Uuid::nil(),
        }
    }

    #[tokio::test]
    async fn a_pause_is_a_fact_that_another_process_notices() {
        let db = TestDb::new().await;
        let config = CatalogueConfig { intents_cache_ms: 50, ..CatalogueConfig::default() };
        let (here, there) = (
            Catalogue::new(config.clone(), db.pool.clone()).unwrap(),
            Catalogue::new(config, db.pool.clone()).unwrap(),
        );
        let model = here.models()[0].clone();
        let blocked = async |catalogue: &Catalogue| {
            let intents = catalogue.intents().await.unwrap();
            intents.against(&model.routes[0].account, &model.name).map(|intent| intent.kind)
        };
        assert_eq!((blocked(&here).await, blocked(&there).await), (None, None));

        let mut conn = db.pool.acquire().await.unwrap();
        let (before, _) = set_intent(&mut conn, &pause("account:mock", IntentKind::Pause)).await.unwrap();
        assert_eq!(before, None);
        here.forget_intents();
        assert_eq!(
            blocked(&here).await,
            Some(IntentKind::Pause),
            "the process that changed it knows at once"
        );
        wait_until("the other process", Duration::from_secs(5), async || blocked(&there).await.is_some())
            .await;

        let (before, now) = set_intent(&mut conn, &pause("account:mock", IntentKind::Drain)).await.unwrap();
        assert_eq!((before.map(|intent| intent.version), now.version), (Some(1), 2));
        assert!(clear_intent(&mut conn, &"account:mock".parse().unwrap()).await.unwrap().is_some());
        here.forget_intents();
        assert_eq!(blocked(&here).await, None);
    }

    #[tokio::test]
    async fn a_model_is_paused_without_its_account() {
        let db = TestDb::new().await;
        let mut conn = db.pool.acquire().await.unwrap();
        set_intent(&mut conn, &pause("model:mock-pro", IntentKind::Pause)).await.unwrap();
        let intents = Intents::new(list_intents(&mut conn).await.unwrap());
        let account = "mock".parse().unwrap();
        assert!(intents.against(&account, &"mock-pro".parse().unwrap()).is_some());
        assert!(intents.against(&account, &"mock-fast".parse().unwrap()).is_none());
    }
}
