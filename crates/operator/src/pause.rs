//! Pausing and resuming: an operator keeps an account, or a model, from being sent anything new.

use catalogue::{Catalogue, Intent, IntentKind, NewIntent, Subject, clear_intent, list_intents, set_intent};
use serde_json::{Value, json};

use crate::{
    Actor, Operator, OperatorError,
    log::{self, Entry},
};

/// Unicode scalars of a reason at most.
const REASON_CHARS_MAX: usize = 500;

/// What is to be paused.
#[derive(Debug, Clone)]
pub struct NewPause {
    /// An account or a model.
    pub subject: Subject,
    /// For now, or for good.
    pub kind: IntentKind,
    /// Why, for the next operator.
    pub reason: String,
}

impl Operator {
    /// Pauses an account or a model. This process submits nothing there from now on, the others within five seconds; what runs
    /// goes on to its end. Pausing again changes the kind and the reason.
    ///
    /// # Errors
    /// [`OperatorError::NotFound`] when there is no such account or model; [`OperatorError::Field`] when the reason says nothing, is
    /// too long, or cannot be stored.
    pub async fn pause(
        &self,
        actor: Actor,
        catalogue: &Catalogue,
        new: NewPause,
    ) -> Result<Intent, OperatorError> {
        let NewPause { subject, kind, reason } = new;
        let known = match &subject {
            Subject::Account(account) => catalogue.account(account).is_some(),
            Subject::Model(model) => catalogue.model(model).is_some(),
        };
        if !known {
            return Err(OperatorError::NotFound);
        }
        domain::text::check(&reason, REASON_CHARS_MAX)
            .map_err(|fault| OperatorError::field("reason", "invalid", fault))?;
        let set_by = match &actor {
            Actor::Key { user, .. } => user.as_uuid(),
            Actor::CommandLine => Default::default(),
        };
        let intent = pg::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let new = NewIntent { subject, kind, reason, set_by };
                let (before, after) = set_intent(conn, &new).await?;
                let subject = after.subject.to_string();
                let entry = Entry {
                    verb: "pause",
                    subject: &subject,
                    before: before.as_ref().map(described),
                    after: Some(described(&after)),
                };
                log::write(conn, &actor, entry).await?;
                Ok::<_, OperatorError>(after)
            })
        })
        .await?;
        catalogue.forget_intents();
        Ok(intent)
    }

    /// Lets an account or a model be used again.
    ///
    /// # Errors
    /// [`OperatorError::NotFound`] when it is not paused.
    pub async fn resume(
        &self,
        actor: Actor,
        catalogue: &Catalogue,
        subject: Subject,
    ) -> Result<(), OperatorError> {
        pg::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let withdrawn = clear_intent(conn, &subject).await?.ok_or(OperatorError::NotFound)?;
                let subject = subject.to_string();
                let before = Some(described(&withdrawn));
                log::write(conn, &actor, Entry { verb: "resume", subject: &subject, before, after: None })
                    .await?;
                Ok::<_, OperatorError>(())
            })
        })
        .await?;
        catalogue.forget_intents();
        Ok(())
    }

    /// Everything that is paused, by subject. There is at most one row for each account and model.
    ///
    /// # Errors
    /// When PostgreSQL fails.
    pub async fn pauses(&self) -> Result<Vec<Intent>, OperatorError> {
        let mut conn = self.pool.acquire().await.map_err(pg::PgError::from)?;
        Ok(list_intents(&mut conn).await?)
    }
}

/// The intent as the log keeps it.
fn described(intent: &Intent) -> Value {
    json!({ "kind": intent.kind.as_str(), "reason": intent.reason, "version": intent.version })
}

#[cfg(test)]
mod tests {
    use catalogue::CatalogueConfig;
    use testkit::TestDb;

    use super::*;
    use crate::tests::{operator, rows};

    fn pause(subject: &str, kind: IntentKind, reason: &str) -> NewPause {
        NewPause { subject: subject.parse().unwrap(), kind, reason: reason.to_owned() }
    }

    #[tokio::test]
    async fn a_pause_counts_at_once_and_every_change_is_logged() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let catalogue = Catalogue::new(CatalogueConfig::default(), db.pool.clone()).unwrap();
        let model = catalogue.models()[0].clone();
        let stopped = async || catalogue.intents().await.unwrap().stop(&model);
        assert!(!stopped().await);
        let line = Actor::CommandLine;
        let first = pause("account:mock", IntentKind::Pause, "billing");
        operator.pause(line.clone(), &catalogue, first).await.unwrap();
        assert!(stopped().await, "known before the memory of intents is old");
        let second = pause("account:mock", IntentKind::Drain, "contract ended");
        assert_eq!(operator.pause(line.clone(), &catalogue, second).await.unwrap().version, 2);
        assert_eq!(operator.pauses().await.unwrap().len(), 1);

        let subject: Subject = "account:mock".parse().unwrap();
        operator.resume(line.clone(), &catalogue, subject.clone()).await.unwrap();
        assert!(!stopped().await);
        let again = operator.resume(line, &catalogue, subject).await;
        assert!(matches!(again, Err(OperatorError::NotFound)), "{again:?}");
        let log = rows(
            &db,
            "SELECT concat_ws(' ', verb, before->>'kind', '>', after->>'kind') FROM operator_log ORDER BY id",
        )
        .await;
        assert_eq!(log, ["pause > pause", "pause pause > drain", "resume drain >"]);
    }

    #[tokio::test]
    async fn what_is_not_there_and_what_says_nothing_is_refused_and_not_logged() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let catalogue = Catalogue::new(CatalogueConfig::default(), db.pool.clone()).unwrap();
        for subject in ["account:elsewhere", "model:dream-9"] {
            let new = pause(subject, IntentKind::Pause, "x");
            let nobody = operator.pause(Actor::CommandLine, &catalogue, new).await;
            assert!(matches!(nobody, Err(OperatorError::NotFound)), "{nobody:?}");
        }
        for reason in ["", "  ", &"x".repeat(REASON_CHARS_MAX + 1), "a\0b"] {
            let new = pause("account:mock", IntentKind::Pause, reason);
            match operator.pause(Actor::CommandLine, &catalogue, new).await {
                Err(OperatorError::Field { field, .. }) => assert_eq!(field, "reason"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rows(&db, "SELECT verb FROM operator_log").await, Vec::<String>::new());
    }
}
