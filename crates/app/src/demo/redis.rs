//! A private Redis. Nothing in it matters: whatever it loses is rebuilt from PostgreSQL.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
};

use super::{
    place::Place,
    process::{Process, spawn_server, tail},
    programs,
};

/// The server's name in pid, port and log files.
pub(super) const NAME: &str = "redis";
const READY_MAX: Duration = Duration::from_secs(15);
/// What a living server may take to answer before it counts as frozen.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const STARTS_MAX: u32 = 5;

/// Makes sure that the server runs, and returns its URL.
///
/// # Errors
/// When it cannot be started; the message holds the end of its log.
pub(super) async fn ensure(place: &Place, password: &str) -> anyhow::Result<String> {
    let program = programs::redis_server()?;
    if let Some(process) = place.server(NAME) {
        if let Some(port) = place.last_port(NAME)
            && tokio::time::timeout(ANSWER_MAX, ping(port, password))
                .await
                .is_ok_and(|answered| answered.is_ok())
        {
            tracing::info!(port, "Redis still runs, taking it over");
            return Ok(url(port, password));
        }
        tracing::warn!("Redis runs but does not answer, starting it again");
        process.stop(Signal::SIGTERM, Duration::from_secs(2)).await;
    }
    let folder = place.private_folder(NAME)?;
    Process::end_strays(&folder).await;
    let log = place.path("redis.log");
    let mut last = None;
    for _ in 0..STARTS_MAX {
        let port = place.port(NAME)?;
        let settings = place.write_private("redis.conf", &settings(port, &folder, password))?;
        let mut command = Command::new(&program);
        command.arg(&settings).current_dir(place.root());
        let (mut child, process) = spawn_server(&mut command, &log).context("cannot run redis-server")?;
        process.record(&place.pid_file(NAME))?;
        match ready(&mut child, port, password).await {
            Ok(()) => return Ok(url(port, password)),
            Err(error) => {
                process.stop(Signal::SIGKILL, Duration::ZERO).await;
                // It was either the port or a file that it cannot read any more; neither is worth keeping.
                place.forget_port(NAME);
                fs::remove_dir_all(&folder)?;
                place.private_folder(NAME)?;
                last = Some(error);
            }
        }
    }
    let error = last.unwrap_or_else(|| anyhow::anyhow!("it was never tried"));
    Err(error.context(format!("Redis did not start; its log ends with:\n{}", tail(&log))))
}

/// Ends the server that this folder's pid file names, if it lives.
pub(super) async fn stop(place: &Place) {
    if let Some(process) = place.server(NAME) {
        process.stop(Signal::SIGTERM, Duration::from_secs(5)).await;
    }
    let _ = fs::remove_file(place.pid_file(NAME));
}

/// In a file and not on the command line, where everybody could read the password.
fn settings(port: u16, folder: &Path, password: &str) -> String {
    let folder = folder.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "bind 127.0.0.1\nport {port}\ndir \"{folder}\"\nrequirepass {password}\n\
         save \"\"\nappendonly yes\nappendfsync everysec\nauto-aof-rewrite-min-size 256mb\n\
         maxmemory-policy noeviction\ndaemonize no\n"
    )
}

async fn ready(child: &mut Child, port: u16, password: &str) -> anyhow::Result<()> {
    let from = Instant::now();
    loop {
        let answer = tokio::time::timeout(ANSWER_MAX, ping(port, password)).await;
        if matches!(answer, Ok(Ok(()))) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}");
        }
        if from.elapsed() > READY_MAX {
            bail!("it was not ready in time");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Only our own server knows the password, so whoever answers this is it.
async fn ping(port: u16, password: &str) -> anyhow::Result<()> {
    const GOOD: &[u8] = b"+OK\r\n+PONG\r\n";
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(format!("AUTH {password}\r\nPING\r\n").as_bytes()).await?;
    let mut answer = [0; GOOD.len()];
    stream.read_exact(&mut answer).await?;
    if answer != GOOD {
        bail!("not our Redis, or not ready: {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

fn url(port: u16, password: &str) -> String {
    // With the user's name, since redis-cli would take an empty one for a name too.
    format!("redis://default:{password}@127.0.0.1:{port}/0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_is_adopted_while_it_lives_and_replaced_on_its_port_when_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(dir.path()).unwrap();
        let url = ensure(&place, "pw").await.unwrap();
        let first = place.server(NAME).unwrap();
        assert_eq!(ensure(&place, "pw").await.unwrap(), url);
        assert_eq!(place.server(NAME), Some(first));

        first.signal(Signal::SIGKILL);
        assert!(first.gone_within(Duration::from_secs(5)).await);
        assert_eq!(ensure(&place, "pw").await.unwrap(), url);
        let second = place.server(NAME).unwrap();

        second.signal(Signal::SIGSTOP);
        assert_eq!(ensure(&place, "pw").await.unwrap(), url);
        assert!(!second.is_alive(), "a frozen server was kept");
        stop(&place).await;
        assert_eq!(place.server(NAME), None);
    }

    #[tokio::test]
    async fn a_server_that_nobody_noted_is_ended_and_not_joined() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(dir.path()).unwrap();
        let url = ensure(&place, "pw").await.unwrap();
        let stray = place.server(NAME).unwrap();
        fs::remove_file(place.pid_file(NAME)).unwrap();
        assert_eq!(ensure(&place, "pw").await.unwrap(), url);
        assert!(!stray.is_alive(), "two servers write into one folder");
        stop(&place).await;
    }

    #[tokio::test]
    async fn files_that_it_cannot_read_do_not_keep_it_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(dir.path()).unwrap();
        let files = place.private_folder(NAME).unwrap().join("appendonlydir");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("appendonly.aof.manifest"), "nonsense\n").unwrap();
        ensure(&place, "pw").await.unwrap();
        stop(&place).await;
    }

    #[tokio::test]
    async fn somebody_elses_server_on_the_port_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::take(dir.path()).unwrap();
        let url = ensure(&place, "pw").await.unwrap();
        let port = place.last_port(NAME).unwrap();
        stop(&place).await;
        let other = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let moved = ensure(&place, "pw").await.unwrap();
        assert_ne!(moved, url);
        drop(other);
        stop(&place).await;
    }
}
