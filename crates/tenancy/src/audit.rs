//! What must hold of tenants, users and projects beyond what constraints keep.

use pg::{PgConnection, PgError, Violation};

/// Every violation that there is, at most 1,000 of each rule.
///
/// # Errors
/// When a statement fails.
pub async fn audit(conn: &mut PgConnection) -> Result<Vec<Violation>, PgError> {
    let mut violations = Vec::new();
    let ownerless = sqlx::query_scalar!(
        "SELECT p.id FROM projects p
         WHERE NOT EXISTS (SELECT FROM project_members m WHERE m.project_id = p.id AND m.role = 'owner')
         ORDER BY p.id LIMIT 1000"
    )
    .fetch_all(&mut *conn)
    .await?;
    violations.extend(ownerless.into_iter().map(|id| Violation {
        rule: "project_has_an_owner",
        subject: domain::ProjectId::from_uuid(id).to_string(),
        detail: "no member is its owner".to_owned(),
    }));
    let strangers = sqlx::query!(
        "SELECT m.project_id, m.user_id FROM project_members m
         JOIN projects p ON p.id = m.project_id JOIN users u ON u.id = m.user_id
         WHERE p.tenant_id <> u.tenant_id ORDER BY 1, 2 LIMIT 1000"
    )
    .fetch_all(conn)
    .await?;
    violations.extend(strangers.into_iter().map(|row| Violation {
        rule: "members_are_of_the_projects_tenant",
        subject: domain::ProjectId::from_uuid(row.project_id).to_string(),
        detail: format!("{} is of another tenant", domain::UserId::from_uuid(row.user_id)),
    }));
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn a_project_without_owner_and_a_foreign_member_are_found() {
        let db = TestDb::new().await;
        let (seed, foreign) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        let session = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let project = seed.tenancy.create_project(&session, "Trailer").await.unwrap();
        let mut conn = db.pool.acquire().await.unwrap();
        assert_eq!(audit(&mut conn).await.unwrap(), []);
        sqlx::query("UPDATE project_members SET user_id = $1, role = 'editor'")
            .bind(foreign.user.as_uuid())
            .execute(&mut *conn)
            .await
            .unwrap();
        let rules: Vec<_> = audit(&mut conn).await.unwrap().into_iter().map(|found| found.rule).collect();
        assert_eq!(rules, ["project_has_an_owner", "members_are_of_the_projects_tenant"]);
        assert!(project.name == "Trailer");
    }
}
