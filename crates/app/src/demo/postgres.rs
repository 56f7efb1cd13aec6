//! A private PostgreSQL: made at the first start, adopted when it still lives, started again when it does not.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};
use tokio::process::{Child, Command};

use super::{
    place::{Place, write_private},
    process::{Process, spawn_server, tail},
    programs::PostgresPrograms,
    server_user::ServerUser,
};

/// The server's name in pid, port and log files.
pub(super) const NAME: &str = "postgres";
/// The role that owns everything, and the database.
const ROLE: &str = "aivideo";
/// What a cluster is called until it is whole.
const MAKING: &str = "postgres.new-";
/// Crash recovery may have a gigabyte to replay.
const READY_MAX: Duration = Duration::from_secs(60);
/// What a living server may take to answer before it counts as frozen.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// What the orphans of a killed server may take to notice that it is gone.
const ORPHANS_MAX: Duration = Duration::from_secs(2);
/// Other people may take a free port between our look and our start, but not again and again.
const PORTS_TRIED_MAX: u32 = 5;

/// Settings beyond our own, by name. A living server that was started with others is started again.
pub(super) type Settings = BTreeMap<String, String>;

/// Makes sure that the server runs, and returns the URL of its database.
///
/// # Errors
/// When it cannot be started; the message holds the end of its log.
pub(super) async fn ensure(place: &Place, password: &str, settings: &Settings) -> anyhow::Result<String> {
    let user = ServerUser::for_postgres()?;
    let home = home(place, &user).await?;
    let data = home.join(NAME);
    let programs = PostgresPrograms::find(&data)?;
    if !data.join("PG_VERSION").exists() {
        initialise(&programs, &user, &home, password).await?;
    }
    let data = data.canonicalize()?;
    if let Some(url) = adopt(place, &data, password, settings).await? {
        return Ok(url);
    }
    clear_remains(&data).await;
    for _ in 0..PORTS_TRIED_MAX {
        let port = place.port(NAME)?;
        match start(place, &programs, &user, &data, password, port, settings).await? {
            Start::Ready(url) => return Ok(url),
            Start::PortTaken => place.forget_port(NAME),
        }
    }
    bail!("no port could be had for PostgreSQL")
}

/// Ends the server that this folder's pid file names, if it lives.
pub(super) async fn stop(place: &Place) {
    if let Some(process) = place.server(NAME) {
        // Fast: sessions are ended, what is committed is checkpointed.
        process.stop(Signal::SIGINT, Duration::from_secs(20)).await;
    }
    let _ = fs::remove_file(place.pid_file(NAME));
}

/// Where the data lies. Once chosen it stays, also when a closed folder is opened later.
async fn home(place: &Place, user: &ServerUser) -> anyhow::Result<PathBuf> {
    if let Some(chosen) = place.kept::<PathBuf>("postgres-home.json")?
        && chosen.join(NAME).join("PG_VERSION").exists()
    {
        return Ok(chosen);
    }
    let home = user.home(place.root()).await?;
    if home != place.root() {
        eprintln!(
            "PostgreSQL runs as its own user, who cannot enter {}: its files lie in {}",
            place.root().display(),
            home.display()
        );
    }
    place.keep("postgres-home.json", &home)?;
    Ok(home)
}

/// The folder of the data where it is not the demo's own.
pub(super) fn files_elsewhere(place: &Place) -> anyhow::Result<Option<PathBuf>> {
    Ok(place.kept::<PathBuf>("postgres-home.json")?.filter(|home| home != place.root()))
}

/// Makes the cluster under another name and renames it, so that one cut off in the middle is never taken for whole.
async fn initialise(
    programs: &PostgresPrograms,
    user: &ServerUser,
    home: &Path,
    password: &str,
) -> anyhow::Result<()> {
    let data = home.join(NAME);
    // A start that was killed may have left its initdb running, so each start makes a folder of its own.
    for entry in fs::read_dir(home)?.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(MAKING) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let making = home.join(format!("{MAKING}{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&making)?;
    user.give(&making)?;
    let password_file = home.join("postgres.password");
    write_private(&password_file, password)?;
    user.give(&password_file)?;

    let mut command = Command::new(programs.initdb());
    command
        .args(["--no-locale", "--encoding=UTF8", "--auth=scram-sha-256", "--username", ROLE, "--pwfile"])
        .arg(&password_file)
        .arg("--pgdata")
        .arg(&making)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = user.run_as(&mut command).output().await;
    let _ = fs::remove_file(&password_file);
    let output = output.with_context(|| format!("cannot run {}", programs.initdb().display()))?;
    if !output.status.success() {
        bail!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(&making, &data)?;
    Ok(())
}

/// Takes over the server that already runs on this folder, if there is one that answers and is set up as wanted.
async fn adopt(
    place: &Place,
    data: &Path,
    password: &str,
    settings: &Settings,
) -> anyhow::Result<Option<String>> {
    let Some(process) = living_postmaster(data) else { return Ok(None) };
    process.record(&place.pid_file(NAME))?;
    let as_wanted = place.kept::<Settings>("postgres-settings.json")?.is_some_and(|last| last == *settings);
    if as_wanted && let Some(port) = place.last_port(NAME) {
        let answer = tokio::time::timeout(ANSWER_MAX, create_database(&options(port, password))).await;
        match answer {
            Ok(Ok(())) => {
                tracing::info!(port, "PostgreSQL still runs, taking it over");
                return Ok(Some(url(port, password)));
            }
            Ok(Err(error)) => tracing::warn!(%error, "PostgreSQL runs but refuses us, starting it again"),
            Err(_) => tracing::warn!("PostgreSQL runs but does not answer, starting it again"),
        }
    }
    process.stop(Signal::SIGINT, Duration::from_secs(4)).await;
    Ok(None)
}

/// The server whose data folder this is. Its lock file alone proves nothing: the pid in it may have been given out
/// again. PostgreSQL's processes work in their data folder, and that nobody else does.
fn living_postmaster(data: &Path) -> Option<Process> {
    let lock_file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let process = Process::find(lock_file.lines().next()?.trim().parse().ok()?)?;
    process.works_in(data).then_some(process)
}

/// Clears what a killed server left. Its sessions may live on for a moment and hold its shared memory; only when
/// they are gone may the lock file go, since two servers on one folder would destroy it. PostgreSQL removes a stale
/// lock file itself unless the pid in it was given out again (or is a zombie), which is why it is done here.
async fn clear_remains(data: &Path) {
    let from = Instant::now();
    loop {
        let orphans = Process::all_in(data);
        if orphans.is_empty() {
            break;
        }
        if from.elapsed() > ORPHANS_MAX {
            for orphan in orphans {
                orphan.stop(Signal::SIGQUIT, Duration::from_secs(1)).await;
            }
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = fs::remove_file(data.join("postmaster.pid"));
}

enum Start {
    Ready(String),
    PortTaken,
}

async fn start(
    place: &Place,
    programs: &PostgresPrograms,
    user: &ServerUser,
    data: &Path,
    password: &str,
    port: u16,
    settings: &Settings,
) -> anyhow::Result<Start> {
    let log = place.path("postgres.log");
    let mut command = Command::new(programs.postgres());
    command.arg("-D").arg(data).args(["-p", &port.to_string()]);
    // No socket file: its path could be too long, and nobody needs it.
    for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories="] {
        command.args(["-c", setting]);
    }
    for (name, value) in settings {
        command.args(["-c", &format!("{name}={value}")]);
    }
    place.keep("postgres-settings.json", settings)?;
    let begun_at = fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let (mut child, process) = spawn_server(user.run_as(&mut command), &log)
        .with_context(|| format!("cannot run {}", programs.postgres().display()))?;
    process.record(&place.pid_file(NAME))?;
    match ready(&mut child, &options(port, password)).await {
        Ok(()) => Ok(Start::Ready(url(port, password))),
        Err(error) => {
            process.stop(Signal::SIGQUIT, Duration::from_secs(3)).await;
            let said = fs::read(&log).unwrap_or_default();
            let from = usize::try_from(begun_at).unwrap_or(0).min(said.len());
            if String::from_utf8_lossy(&said[from..]).contains("Address already in use") {
                return Ok(Start::PortTaken);
            }
            Err(error.context(format!("PostgreSQL did not start; its log ends with:\n{}", tail(&log))))
        }
    }
}

/// Waits until the database is there and takes statements.
async fn ready(child: &mut Child, options: &PgConnectOptions) -> anyhow::Result<()> {
    let from = Instant::now();
    loop {
        let error = match create_database(options).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}");
        }
        let refused = error.as_database_error().and_then(|e| e.code().map(|c| c.into_owned()));
        // A wrong password or a missing role does not get better by waiting.
        if refused.is_some_and(|code| code.starts_with("28")) {
            return Err(error).context("the database was made with another password than secrets.json holds");
        }
        if from.elapsed() > READY_MAX {
            return Err(error).context("it was not ready in time");
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

async fn create_database(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(&options.clone().database("postgres")).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(ROLE)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        sqlx::query("CREATE DATABASE aivideo").execute(&mut connection).await?;
    }
    connection.close().await
}

fn options(port: u16, password: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username(ROLE)
        .password(password)
        .ssl_mode(PgSslMode::Disable)
}

fn url(port: u16, password: &str) -> String {
    format!("postgres://{ROLE}:{password}@127.0.0.1:{port}/{ROLE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Settings {
        BTreeMap::from([("shared_buffers".to_owned(), "16MB".to_owned())])
    }

    fn large() -> Settings {
        BTreeMap::from([("shared_buffers".to_owned(), "64MB".to_owned())])
    }

    async fn answers(url: &str) -> i32 {
        let mut connection = PgConnection::connect(url).await.unwrap();
        sqlx::query_scalar("SELECT 40 + 2").fetch_one(&mut connection).await.unwrap()
    }

    /// A folder that the server's user can enter, as a checkout under /home usually is.
    fn open_folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path(), mode).unwrap();
        dir
    }

    #[tokio::test]
    async fn a_server_is_made_then_adopted_then_replaced_on_its_port_with_its_data() {
        let dir = open_folder();
        let place = Place::take(dir.path()).unwrap();
        let url = ensure(&place, "pw1", &small()).await.unwrap();
        let mut connection = PgConnection::connect(&url).await.unwrap();
        sqlx::query("CREATE TABLE kept AS SELECT 7 AS n").execute(&mut connection).await.unwrap();
        let first = place.server(NAME).unwrap();

        assert_eq!(ensure(&place, "pw1", &small()).await.unwrap(), url);
        assert_eq!(place.server(NAME), Some(first), "a living server was not adopted");

        first.signal(Signal::SIGKILL);
        assert!(first.gone_within(Duration::from_secs(5)).await);
        assert_eq!(ensure(&place, "pw1", &small()).await.unwrap(), url, "the port changed");
        let second = place.server(NAME).unwrap();
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let kept: i32 = sqlx::query_scalar("SELECT n FROM kept").fetch_one(&mut connection).await.unwrap();
        assert_eq!(kept, 7);

        // Another life of the pid in the lock file: as a crash and a restart of the machine leave it.
        stop(&place).await;
        assert!(!second.is_alive());
        let data = dir.path().join(NAME);
        fs::write(data.join("postmaster.pid"), format!("{}\n{}\n", std::process::id(), data.display()))
            .unwrap();
        let url = ensure(&place, "pw1", &large()).await.unwrap();
        assert_eq!(answers(&url).await, 42);
        stop(&place).await;
        assert!(Process::all_in(&data.canonicalize().unwrap()).is_empty());
    }

    #[tokio::test]
    async fn other_settings_start_a_living_server_again_and_a_frozen_one_is_replaced() {
        let dir = open_folder();
        let place = Place::take(dir.path()).unwrap();
        let url = ensure(&place, "pw", &small()).await.unwrap();
        let before = place.server(NAME).unwrap();
        assert_eq!(ensure(&place, "pw", &large()).await.unwrap(), url);
        let after = place.server(NAME).unwrap();
        assert_ne!(before, after);
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let buffers: String =
            sqlx::query_scalar("SHOW shared_buffers").fetch_one(&mut connection).await.unwrap();
        assert_eq!(buffers, "64MB");
        drop(connection);

        after.signal(Signal::SIGSTOP);
        assert_eq!(ensure(&place, "pw", &large()).await.unwrap(), url);
        assert!(!after.is_alive());
        assert_eq!(answers(&url).await, 42);
        stop(&place).await;
    }
}
