//! Where the servers' programs are, whatever version the release has.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

/// Where packages put PostgreSQL's server programs, which are not on the PATH.
const POSTGRES_FOLDERS: &[&str] = &["/usr/lib/postgresql", "/usr/lib/postgres", "/opt/postgresql"];

/// PostgreSQL's server programs of one major version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PostgresPrograms {
    folder: PathBuf,
}

impl PostgresPrograms {
    /// Finds those that can open the data folder: of the version that wrote it, or the newest when there is none.
    ///
    /// # Errors
    /// When there are none; the message says how to get them.
    pub(super) fn find(data: &Path) -> anyhow::Result<Self> {
        let found = candidates();
        let Ok(written_by) = fs::read_to_string(data.join("PG_VERSION")) else {
            return found.into_iter().next().context(
                "PostgreSQL's server programs (initdb, postgres) were not found: run scripts/install.sh demo",
            );
        };
        let written_by = written_by.trim();
        match found.into_iter().find(|programs| programs.major().as_deref() == Some(written_by)) {
            Some(programs) => Ok(programs),
            None => bail!(
                "{} was written by PostgreSQL {written_by}, which is not installed: install it, or remove the data folder",
                data.display()
            ),
        }
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    fn complete(folder: PathBuf) -> Option<Self> {
        let programs = Self { folder };
        (programs.initdb().is_file() && programs.postgres().is_file()).then_some(programs)
    }

    /// `15` of `postgres (PostgreSQL) 15.14 (Debian …)`.
    fn major(&self) -> Option<String> {
        let output = Command::new(self.postgres()).arg("--version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        Some(version.split(|c: char| !c.is_ascii_digit()).next()?.to_owned())
    }
}

/// Everything that is complete, the caller's own PATH first, then the newest.
fn candidates() -> Vec<PostgresPrograms> {
    let mut folders: Vec<PathBuf> = on_path("initdb")
        .and_then(|program| program.canonicalize().ok())
        .and_then(|program| program.parent().map(Path::to_owned))
        .into_iter()
        .collect();
    // pg_config may come from the client library alone, so its answer is checked like the others.
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output()
        && let Ok(folder) = String::from_utf8(output.stdout)
    {
        folders.push(folder.trim().into());
    }
    let mut versions: Vec<(u32, PathBuf)> = POSTGRES_FOLDERS
        .iter()
        .filter_map(|parent| fs::read_dir(parent).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    folders.extend(versions.into_iter().map(|(_, folder)| folder));
    folders.push("/usr/local/pgsql/bin".into());
    folders.into_iter().filter_map(PostgresPrograms::complete).collect()
}

/// The Redis server, or Valkey's, which speaks the same.
///
/// # Errors
/// When there is neither.
pub(crate) fn redis_server() -> anyhow::Result<PathBuf> {
    on_path("redis-server")
        .or_else(|| on_path("valkey-server"))
        .context("redis-server was not found: run scripts/install.sh demo")
}

fn on_path(program: &str) -> Option<PathBuf> {
    // Debian keeps some server programs where an ordinary user's PATH does not look.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/bin".into(), "/usr/sbin".into(), "/usr/local/bin".into()])
        .map(|folder| folder.join(program))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_wrote_the_data_is_the_one_that_opens_it() {
        let data = tempfile::tempdir().unwrap();
        let newest = PostgresPrograms::find(data.path()).unwrap();
        let major = newest.major().unwrap();
        fs::write(data.path().join("PG_VERSION"), format!("{major}\n")).unwrap();
        assert_eq!(PostgresPrograms::find(data.path()).unwrap(), newest);
        fs::write(data.path().join("PG_VERSION"), "9.1\n").unwrap();
        let refused = PostgresPrograms::find(data.path()).unwrap_err().to_string();
        assert!(refused.contains("PostgreSQL 9.1"), "{refused}");
    }
}
