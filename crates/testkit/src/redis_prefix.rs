//! A Redis prefix per test.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use uuid::Uuid;

use crate::env_or;

/// A corner of the shared Redis server that belongs to one test: every key it writes starts with `prefix`.
///
/// The keys are removed when the value is dropped.
#[derive(Debug)]
pub struct TestRedis {
    /// The server.
    pub url: String,
    /// What every key of this test starts with, such as `t:5f0c…:1:`. It contains no hash tag.
    pub prefix: String,
}

impl TestRedis {
    /// A fresh prefix.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a default would hide that each one is another corner")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nonce = Uuid::now_v7().simple();
        let prefix = format!("t:{nonce}:{}:", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { url: env_or("REDIS_URL", "redis://127.0.0.1:26379"), prefix }
    }

    /// Removes every key below the prefix. What it cannot remove stays until its own expiry.
    fn sweep(url: &str, prefix: &str) -> redis::RedisResult<()> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        let mut cursor = 0_u64;
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{prefix}*"))
                .arg("COUNT")
                .arg(1_000)
                .query(&mut connection)?;
            if !keys.is_empty() {
                redis::cmd("UNLINK").arg(keys).exec(&mut connection)?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        // A thread of its own: the blocking client must not run on a test's only runtime thread.
        let (url, prefix) = (self.url.clone(), self.prefix.clone());
        let swept = thread::spawn(move || Self::sweep(&url, &prefix)).join();
        if !matches!(swept, Ok(Ok(()))) {
            eprintln!("testkit: keys below {} were not removed: {swept:?}", self.prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_has_a_corner_of_its_own_that_is_empty_afterwards() {
        let (one, other) = (TestRedis::new(), TestRedis::new());
        assert_ne!(one.prefix, other.prefix);
        let mut connection = redis::Client::open(one.url.as_str()).unwrap().get_connection().unwrap();
        let keys = [format!("{}a", one.prefix), format!("{}a", other.prefix)];
        for key in &keys {
            redis::cmd("SET").arg(key).arg(1).arg("EX").arg(60).exec(&mut connection).unwrap();
        }
        drop(one);
        let left: Vec<bool> =
            keys.iter().map(|key| redis::cmd("EXISTS").arg(key).query(&mut connection).unwrap()).collect();
        assert_eq!(left, [false, true]);
    }
}
