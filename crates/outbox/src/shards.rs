//! Emptying the table by shard: what the relay to a broker stands on.
//!
//! A relay holds a shard by an advisory lock of its session, so a shard has one sender at a time and nobody has to
//! clean up after a relay that died. The same connection takes the locks, reads and removes: while it works, the
//! locks are ours, and when it is lost, so are they. A session that stays silent (a frozen process, a cut network) is
//! ended by the server. No cursor is kept: what was sent is removed, and what is still there is sent again.

use std::{collections::BTreeSet, time::Duration};

use pg::{PgConnection, PgError};
use sqlx::{Connection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::{SHARDS, Topic, remove};

/// The first half of our advisory locks' names; the second half is the shard.
const LOCKS: i32 = 0x6169_7672;
/// Every relay holds this one, shared, so that they can count each other.
const PRESENCE: i32 = 100;
/// A session that says nothing for this long loses its shards. It looks for messages far more often.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Its place in the outbox.
    pub id: i64,
    /// The topic.
    pub topic: Topic,
    /// The key.
    pub key: Uuid,
    /// The payload.
    pub payload: String,
    /// The shard, and so the partition.
    pub shard: i16,
}

/// The session of one relay, and the shards that it holds.
#[derive(Debug)]
pub struct ShardSession {
    conn: PgConnection,
    held: BTreeSet<i16>,
}

impl ShardSession {
    /// Opens a session that holds nothing yet.
    ///
    /// # Errors
    /// [`PgError`].
    pub async fn open(options: &PgConnectOptions) -> Result<Self, PgError> {
        let silence = SILENCE_MAX.as_millis().to_string();
        let options = options.clone().options([
            ("idle_session_timeout", silence.as_str()),
            // Forgetting a removal in a crash sends a message twice, which every handler bears.
            ("synchronous_commit", "off"),
            // The table is empty most of the time, which would make the planner guess wrong about a backlog.
            ("enable_seqscan", "off"),
            ("enable_bitmapscan", "off"),
        ]);
        let mut conn = PgConnection::connect_with(&options).await?;
        sqlx::query_scalar!("SELECT true FROM pg_advisory_lock_shared($1, $2)", LOCKS, PRESENCE)
            .fetch_one(&mut conn)
            .await?;
        Ok(Self { conn, held: BTreeSet::new() })
    }

    /// The shards held.
    #[must_use]
    pub fn held(&self) -> &BTreeSet<i16> {
        &self.held
    }

    /// Takes free shards up to a fair share, and gives back what is beyond it. To be called while nothing is under
    /// way. Several relays agree after a few calls each; one that dies is made up for by the next calls of the others.
    ///
    /// # Errors
    /// [`PgError`]; the session is then of no more use.
    pub async fn balance(&mut self) -> Result<(), PgError> {
        let relays = sqlx::query_scalar!(
            r#"SELECT count(DISTINCT pid) AS "relays!" FROM pg_locks
               WHERE locktype = 'advisory' AND classid = $1::integer::oid AND objid = $2::integer::oid AND objsubid = 2
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"#,
            LOCKS,
            PRESENCE,
        )
        .fetch_one(&mut self.conn)
        .await?;
        let relays = usize::try_from(relays).unwrap_or(1).max(1);
        let share = usize::from(SHARDS.unsigned_abs()).div_ceil(relays);
        while self.held.len() > share
            && let Some(shard) = self.held.pop_last()
        {
            sqlx::query_scalar!("SELECT pg_advisory_unlock($1, $2)", LOCKS, i32::from(shard))
                .fetch_one(&mut self.conn)
                .await?;
        }
        if self.held.len() < share {
            let wanted: Vec<i32> =
                (0..SHARDS).filter(|shard| !self.held.contains(shard)).map(i32::from).collect();
            let want = i64::try_from(share - self.held.len()).unwrap_or(0);
            // Locks that others hold are passed over. Nothing is sorted, so the limit ends the trying.
            let taken = sqlx::query_scalar!(
                r#"SELECT shard AS "shard!" FROM unnest($2::integer[]) AS shard
                   WHERE pg_try_advisory_lock($1, shard) LIMIT $3"#,
                LOCKS,
                &wanted,
                want,
            )
            .fetch_all(&mut self.conn)
            .await?;
            self.held.extend(taken.into_iter().filter_map(|shard| i16::try_from(shard).ok()));
        }
        Ok(())
    }

    /// The oldest messages of the held shards, in the order of their ids.
    ///
    /// Topics that this version does not know are left to one that does.
    ///
    /// # Errors
    /// [`PgError`]; the session is then of no more use.
    pub async fn next(&mut self, max: u32) -> Result<Vec<Outgoing>, PgError> {
        let shards: Vec<i16> = self.held.iter().copied().collect();
        let topics: Vec<&str> = Topic::ALL.iter().map(|topic| topic.as_str()).collect();
        let rows = sqlx::query!(
            "SELECT id, topic, key, payload, shard FROM outbox_events
             WHERE shard = ANY ($1) AND topic = ANY ($2::text[]) ORDER BY id LIMIT $3",
            &shards,
            topics as _,
            i64::from(max),
        )
        .fetch_all(&mut self.conn)
        .await?;
        let known = rows.into_iter().filter_map(|row| {
            let topic = row.topic.parse().ok()?;
            Some(Outgoing { id: row.id, topic, key: row.key, payload: row.payload, shard: row.shard })
        });
        Ok(known.collect())
    }

    /// Removes what the broker has acknowledged.
    ///
    /// # Errors
    /// [`PgError`]; the messages may then be sent once more, and the session is of no more use.
    pub async fn sent(&mut self, ids: &[i64]) -> Result<(), PgError> {
        if ids.is_empty() { Ok(()) } else { remove(&mut self.conn, ids).await }
    }

    /// Ends the session; its shards are free at once.
    pub async fn close(self) {
        let _ = self.conn.close().await;
    }
}
