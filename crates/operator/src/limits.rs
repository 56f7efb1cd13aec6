//! Setting, taking away and looking at limit rules.

use serde_json::{Value, json};
use tenancy::{
    Page,
    limit_rules::{self, Figure, LimitRule, PutRuleError, RuleKey, RuleSubject},
};

use crate::{
    Actor, Operator, OperatorError,
    log::{self, Entry},
};

impl Operator {
    /// Sets a limit rule. This process goes by it at once, the others within five seconds. Setting it again changes nothing
    /// but its version.
    ///
    /// # Errors
    /// [`OperatorError::NotFound`] when there is no such tier, tenant or key; [`OperatorError::Field`] when the figure is
    /// none for this limit.
    pub async fn put_limit(
        &self,
        actor: Actor,
        key: RuleKey,
        figure: Figure,
    ) -> Result<LimitRule, OperatorError> {
        let tiers = self.tenancy.tiers().clone();
        let rule = pg::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let (before, after) =
                    limit_rules::put_limit_rule(conn, &tiers, &key, &figure).await.map_err(refused)?;
                let subject = key.to_string();
                let entry = Entry {
                    verb: "limit.put",
                    subject: &subject,
                    before: before.as_ref().map(described),
                    after: Some(described(&after)),
                };
                log::write(conn, &actor, entry).await?;
                Ok::<_, OperatorError>(after)
            })
        })
        .await?;
        self.tenancy.forget_limit_rules().await;
        Ok(rule)
    }

    /// Takes a limit rule away: what was configured, or a less particular rule, counts again.
    ///
    /// # Errors
    /// [`OperatorError::NotFound`] when there is no such rule.
    pub async fn remove_limit(&self, actor: Actor, key: RuleKey) -> Result<(), OperatorError> {
        pg::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let removed = limit_rules::remove_limit_rule(conn, &key).await?;
                let removed = removed.ok_or(OperatorError::NotFound)?;
                let subject = key.to_string();
                let before = Some(described(&removed));
                let entry = Entry { verb: "limit.remove", subject: &subject, before, after: None };
                log::write(conn, &actor, entry).await?;
                Ok::<_, OperatorError>(())
            })
        })
        .await?;
        self.tenancy.forget_limit_rules().await;
        Ok(())
    }

    /// At most `limit` limit rules after the given one, of one subject or of all, by subject and limit.
    ///
    /// # Errors
    /// When PostgreSQL fails.
    pub async fn limits(
        &self,
        subject: Option<RuleSubject>,
        after: Option<RuleKey>,
        limit: u16,
    ) -> Result<Page<LimitRule, RuleKey>, OperatorError> {
        let mut conn = self.pool.acquire().await.map_err(pg::PgError::from)?;
        Ok(limit_rules::find_limit_rules(&mut conn, subject.as_ref(), after.as_ref(), limit).await?)
    }
}

/// The figure as the log keeps it.
fn described(rule: &LimitRule) -> Value {
    match rule.figure {
        Figure::Bucket(bucket) => json!({ "bucket": bucket, "version": rule.version }),
        Figure::Window(window) => json!({ "window": window, "version": rule.version }),
        Figure::Count(count) => json!({ "count": count, "version": rule.version }),
        Figure::Quota(count) => json!({ "count": count, "version": rule.version }),
    }
}

fn refused(error: PutRuleError) -> OperatorError {
    match error {
        PutRuleError::Fault(fault) => OperatorError::field(fault.field, fault.code, fault.message),
        PutRuleError::NoSubject => OperatorError::NotFound,
        PutRuleError::Pg(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use domain::limits::Bucket;
    use testkit::TestDb;

    use super::*;
    use crate::tests::{operator, rows, tenant};

    fn key(subject: &str, limit: &str) -> RuleKey {
        RuleKey { subject: subject.parse().unwrap(), limit: limit.parse().unwrap(), shadow: false }
    }

    fn rate(capacity: u32) -> Figure {
        Figure::Bucket(Some(Bucket::per_minute(capacity, capacity)))
    }

    #[tokio::test]
    async fn every_change_of_a_rule_is_logged_with_what_it_was_and_what_it_is() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let rule = key(&format!("tenant:{}", tenant(&operator).await), "submit-user");
        operator.put_limit(Actor::CommandLine, rule.clone(), rate(3)).await.unwrap();
        let second = operator.put_limit(Actor::CommandLine, rule.clone(), rate(4)).await.unwrap();
        assert_eq!((second.figure, second.version), (rate(4), 2));
        operator.remove_limit(Actor::CommandLine, rule.clone()).await.unwrap();
        let gone = operator.remove_limit(Actor::CommandLine, rule).await;
        assert!(matches!(gone, Err(OperatorError::NotFound)), "{gone:?}");
        let log = rows(
            &db,
            "SELECT concat_ws(' ', verb, before->'bucket'->>'capacity', '>', after->'bucket'->>'capacity')
             FROM operator_log WHERE verb LIKE 'limit.%' ORDER BY id",
        )
        .await;
        assert_eq!(log, ["limit.put > 3", "limit.put 3 > 4", "limit.remove 4 >"]);
        assert_eq!(operator.limits(None, None, 10).await.unwrap().items, []);
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_by_field_and_what_is_nobodys_is_not_found() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        for (rule, figure, field) in [
            (key("tier:free", "submit-user"), rate(0), "bucket.capacity"),
            (key("tier:free", "submit-user"), Figure::Count(3), "bucket"),
            (key("tier:free", "running-user"), Figure::Count(0), "count"),
            (key("tier:free", "submit-key"), rate(1), "limit"),
            (key("key:abcdefghijkl", "running-user"), Figure::Count(1), "limit"),
            (RuleKey { shadow: true, ..key("tier:free", "queued-user") }, Figure::Count(1), "shadow"),
        ] {
            match operator.put_limit(Actor::CommandLine, rule, figure).await {
                Err(OperatorError::Field { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{other:?}"),
            }
        }
        for subject in ["tier:gold", "key:abcdefghijkl", &format!("tenant:{}", domain::TenantId::generate())]
        {
            let nobody = operator.put_limit(Actor::CommandLine, key(subject, "reads"), rate(1)).await;
            assert!(matches!(nobody, Err(OperatorError::NotFound)), "{subject}: {nobody:?}");
        }
        assert_eq!(rows(&db, "SELECT verb FROM operator_log").await, Vec::<String>::new());
    }
}
