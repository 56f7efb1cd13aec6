//! Idempotency keys: the first answer to a request, kept for 24 hours.
//!
//! [`reserve`] is the first statement of the transaction that does what the request asks for, so the key exists
//! exactly when its effects do. Whoever comes second waits at the unique index for the first one's commit and then
//! reads its answer. A refused request is [`forget`]ten in the same transaction: it does not consume its key.

use std::collections::HashMap;

use domain::UserId;
use pg::{PgConnection, PgError};
use sqlx::{Arguments as _, error::BoxDynError, postgres::PgArguments};
use uuid::Uuid;

/// The text of an `Idempotency-Key` header: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// A header that is no idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an Idempotency-Key has 1 to {KEY_CHARS_MAX} visible ASCII characters, in double quotes or not")]
pub struct MalformedKey;

const KEY_CHARS_MAX: usize = 255;

impl IdempotencyKey {
    /// Reads the header's value, quoted (a quote or backslash inside is escaped by a backslash) or not: both spell the same key.
    ///
    /// # Errors
    /// [`MalformedKey`].
    pub fn parse(header: &[u8]) -> Result<Self, MalformedKey> {
        let text = std::str::from_utf8(header).map_err(|_| MalformedKey)?.trim_matches([' ', '\t']);
        let key = match text.strip_prefix('"') {
            Some(rest) => unquote(rest).ok_or(MalformedKey)?,
            None => text.to_owned(),
        };
        let legal = (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
        if legal { Ok(Self(key)) } else { Err(MalformedKey) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What stands before the closing quote, which must be the end.
fn unquote(rest: &str) -> Option<String> {
    let mut key = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(key),
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
}

/// A key, scoped to its user and route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyRef<'a> {
    /// Whose key.
    pub user: UserId,
    /// The route, such as `POST /generations`.
    pub route: &'a str,
    /// The text that the client sent: 1 to 255 visible ASCII characters.
    pub key: &'a str,
}

/// A key with what its request will have made, if it is the first.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    /// The key.
    pub key: KeyRef<'a>,
    /// SHA-256 over the parsed, defaulted request with route and query.
    pub fingerprint: [u8; 32],
    /// What the request makes, as its text id.
    pub subject: &'a str,
    /// The status that the first answer has.
    pub status: u16,
    /// The body that the first answer has.
    pub body: &'a str,
}

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// The first: go on.
    Fresh,
    /// The same request was answered before: answer the same again.
    Replay {
        /// What the first one made.
        subject: String,
        /// Its status.
        status: u16,
        /// Its body.
        body: String,
    },
    /// Another request was answered under this key.
    Mismatch,
}

/// Reserves every key that is free and finds the answers of those that are not: one outcome per key, in the order
/// given. No key may be given twice, and each subject is new.
///
/// # Errors
/// When a statement fails; [`PgError::LockTimeout`] when a twin's transaction did not end in time.
pub async fn reserve(conn: &mut PgConnection, keys: &[NewKey<'_>]) -> Result<Vec<Reserved>, PgError> {
    // A row that is in the way and gone a moment later was retired in between: then the key is free after all.
    for _ in 0..2 {
        if insert(conn, keys).await? == keys.len() {
            return Ok(vec![Reserved::Fresh; keys.len()]);
        }
        if let Some(outcomes) = read(conn, keys).await? {
            return Ok(outcomes);
        }
    }
    Err(PgError::LockTimeout(sqlx::Error::RowNotFound))
}

/// What was answered under a key before; none when nothing was. Reserves nothing.
///
/// # Errors
/// When the statement fails.
pub async fn find(
    conn: &mut PgConnection,
    key: KeyRef<'_>,
    fingerprint: [u8; 32],
) -> Result<Option<Reserved>, PgError> {
    // No request has made a subject without a name, so what is found is another's.
    let asked = NewKey { key, fingerprint, subject: "", status: 0, body: "" };
    Ok(read(conn, &[asked]).await?.and_then(|mut found| found.pop()))
}

/// The arguments of the SQL function `tenancy_reserve_keys`, for whoever reserves keys and locks what else its request needs
/// in one round trip. In key order.
#[derive(Debug)]
pub struct Columns<'a> {
    /// Whose keys.
    pub users: Vec<Uuid>,
    /// Their routes.
    pub routes: Vec<&'a str>,
    /// Their texts.
    pub keys: Vec<&'a str>,
    /// The hashes of their requests.
    pub fingerprints: Vec<&'a [u8]>,
    /// What their requests make.
    pub subjects: Vec<&'a str>,
    /// The statuses of their answers.
    pub statuses: Vec<i16>,
    /// The bodies of their answers.
    pub bodies: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    /// The keys, one column after the other.
    #[must_use]
    pub fn of(keys: &'a [NewKey<'a>]) -> Self {
        let mut sorted: Vec<&NewKey<'_>> = keys.iter().collect();
        sorted.sort_unstable_by_key(|new| new.key);
        let (users, routes, texts) = columns(sorted.iter().map(|new| new.key));
        Self {
            users,
            routes,
            keys: texts,
            fingerprints: sorted.iter().map(|new| new.fingerprint.as_slice()).collect(),
            subjects: sorted.iter().map(|new| new.subject).collect(),
            statuses: sorted.iter().map(|new| i16::try_from(new.status).unwrap_or(i16::MAX)).collect(),
            bodies: sorted.iter().map(|new| new.body).collect(),
        }
    }

    /// Adds the arguments of the function.
    ///
    /// # Errors
    /// When one cannot be encoded.
    pub fn add_to(&self, to: &mut PgArguments) -> Result<(), BoxDynError> {
        to.add(&self.users)?;
        to.add(&self.routes)?;
        to.add(&self.keys)?;
        to.add(&self.fingerprints)?;
        to.add(&self.subjects)?;
        to.add(&self.statuses)?;
        to.add(&self.bodies)
    }
}

/// Inserts what is free, and says how many that were. Waits for twins that are not committed.
async fn insert(conn: &mut PgConnection, keys: &[NewKey<'_>]) -> Result<usize, PgError> {
    if keys.is_empty() {
        return Ok(0);
    }
    let columns = Columns::of(keys);
    let reserved = sqlx::query_scalar!(
        r#"SELECT tenancy_reserve_keys($1, $2, $3, $4, $5, $6, $7) AS "reserved!""#,
        &columns.users,
        &columns.routes as &[&str],
        &columns.keys as &[&str],
        &columns.fingerprints as &[&[u8]],
        &columns.subjects as &[&str],
        &columns.statuses,
        &columns.bodies as &[&str],
    )
    .fetch_one(conn)
    .await?;
    Ok(usize::try_from(reserved).unwrap_or(usize::MAX))
}

/// Looks at the rows under the keys, in a statement of its own: the one that inserted cannot see a row whose commit
/// it waited for. None when one is gone again.
async fn read(conn: &mut PgConnection, keys: &[NewKey<'_>]) -> Result<Option<Vec<Reserved>>, PgError> {
    let (users, routes, texts) = columns(keys.iter().map(|new| new.key));
    let rows = sqlx::query!(
        "SELECT k.user_id, k.route, k.key, k.fingerprint, k.subject, k.response_status, k.response_body
         FROM unnest($1::uuid[], $2::text[], $3::text[]) AS d(user_id, route, key)
         JOIN idempotency_keys k ON k.user_id = d.user_id AND k.route = d.route AND k.key = d.key",
        &users,
        &routes as &[&str],
        &texts as &[&str],
    )
    .fetch_all(conn)
    .await?;
    let mut found: HashMap<KeyRef<'_>, _> = rows
        .iter()
        .map(|row| (KeyRef { user: UserId::from_uuid(row.user_id), route: &row.route, key: &row.key }, row))
        .collect();
    let mut outcomes = Vec::with_capacity(keys.len());
    for new in keys {
        let Some(row) = found.remove(&new.key) else { return Ok(None) };
        outcomes.push(if row.subject == new.subject {
            Reserved::Fresh
        } else if row.fingerprint != new.fingerprint {
            Reserved::Mismatch
        } else {
            let status = u16::try_from(row.response_status).map_err(|_| PgError::BadRow {
                table: "idempotency_keys",
                column: "response_status",
                id: row.subject.clone(),
            })?;
            Reserved::Replay { subject: row.subject.clone(), status, body: row.response_body.clone() }
        });
    }
    Ok(Some(outcomes))
}

/// Gives keys back whose requests were refused, in the transaction that reserved them.
///
/// # Errors
/// When the statement fails.
pub async fn forget(conn: &mut PgConnection, keys: &[KeyRef<'_>]) -> Result<(), PgError> {
    if keys.is_empty() {
        return Ok(());
    }
    let (users, routes, texts) = columns(keys.iter().copied());
    let deleted = sqlx::query!(
        "DELETE FROM idempotency_keys k USING unnest($1::uuid[], $2::text[], $3::text[]) AS d(user_id, route, key)
         WHERE k.user_id = d.user_id AND k.route = d.route AND k.key = d.key",
        &users,
        &routes as &[&str],
        &texts as &[&str],
    )
    .execute(conn)
    .await?;
    PgError::expect_rows("idempotency: forget", keys.len(), deleted.rows_affected())
}

fn columns<'a>(keys: impl Iterator<Item = KeyRef<'a>>) -> (Vec<Uuid>, Vec<&'a str>, Vec<&'a str>) {
    let (mut users, mut routes, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        users.push(key.user.as_uuid());
        routes.push(key.route);
        texts.push(key.key);
    }
    (users, routes, texts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::Connection as _;
    use testkit::TestDb;

    use super::*;

    const ROUTE: &str = "POST /generations";

    fn new<'a>(user: UserId, key: &'a str, subject: &'a str, fingerprint: u8) -> NewKey<'a> {
        NewKey {
            key: KeyRef { user, route: ROUTE, key },
            fingerprint: [fingerprint; 32],
            subject,
            status: 202,
            body: subject,
        }
    }

    fn replay(subject: &str) -> Reserved {
        Reserved::Replay { subject: subject.to_owned(), status: 202, body: subject.to_owned() }
    }

    #[test]
    fn a_key_is_the_same_quoted_or_not() {
        let key = |text: &str| IdempotencyKey::parse(text.as_bytes()).map(|key| key.0);
        assert_eq!(key("abc-1"), Ok("abc-1".to_owned()));
        assert_eq!(key(" \"abc-1\""), Ok("abc-1".to_owned()));
        assert_eq!(key(r#""a\"b""#), Ok("a\"b".to_owned()));
        assert!(key(&"x".repeat(255)).is_ok());
        for wrong in ["", " ", "\"\"", "\"a", "a b", "\"a\" b", "\"a\\n\"", "é", "a\u{7f}", &"x".repeat(256)]
        {
            assert_eq!(key(wrong), Err(MalformedKey), "{wrong}");
        }
        assert_eq!(IdempotencyKey::parse(&[b'a', 0xff]), Err(MalformedKey));
    }

    #[tokio::test]
    async fn one_slice_holds_first_ones_replays_and_mismatches() {
        let db = TestDb::new().await;
        let mut conn = db.pool.acquire().await.unwrap();
        let (user, other) = (UserId::generate(), UserId::generate());
        let first = [new(user, "b", "t1", 1), new(user, "a", "t2", 1)];
        assert_eq!(reserve(&mut conn, &first).await.unwrap(), [Reserved::Fresh, Reserved::Fresh]);
        let second = [
            new(user, "b", "t3", 1),
            new(user, "c", "t4", 1),
            new(user, "a", "t5", 2),
            new(other, "b", "t6", 2),
        ];
        let expected = [replay("t1"), Reserved::Fresh, Reserved::Mismatch, Reserved::Fresh];
        assert_eq!(reserve(&mut conn, &second).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_refused_request_does_not_consume_its_key() {
        let db = TestDb::new().await;
        let mut conn = db.pool.acquire().await.unwrap();
        let user = UserId::generate();
        let refused = new(user, "k", "t1", 1);
        reserve(&mut conn, &[refused]).await.unwrap();
        forget(&mut conn, &[refused.key]).await.unwrap();
        assert_eq!(reserve(&mut conn, &[new(user, "k", "t2", 2)]).await.unwrap(), [Reserved::Fresh]);
    }

    #[tokio::test]
    async fn a_twin_waits_for_the_first_commit_and_then_replays_it() {
        let db = TestDb::new().await;
        let user = UserId::generate();
        let mut first = db.pool.acquire().await.unwrap();
        let mut transaction = first.begin().await.unwrap();
        reserve(&mut transaction, &[new(user, "k", "t1", 1)]).await.unwrap();

        let pool = db.pool.clone();
        let twin = tokio::spawn(async move {
            let mut conn = pool.acquire().await.unwrap();
            reserve(&mut conn, &[new(user, "k", "t2", 1)]).await.unwrap()
        });
        testkit::wait_until("the twin at the unique index", Duration::from_secs(5), async || {
            let waiting: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .fetch_one(&db.pool)
            .await
            .unwrap();
            waiting == 1
        })
        .await;
        transaction.commit().await.unwrap();
        assert_eq!(twin.await.unwrap(), [replay("t1")]);
    }
}
