//! Processes that may outlive the one that started them.
//!
//! A demo killed with -9 leaves its servers running, and the next start has to find them again without ever taking
//! somebody else's process for one of them. A pid alone does not do: it is given out again. A pid together with
//! the kernel's start time of the process does.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tokio::process::{Child, Command};

/// Logs are begun anew at a start once they are larger than this, in bytes.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// One life of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: i32,
    /// The kernel's ticks since boot at its start.
    started: u64,
}

impl Process {
    /// The process that has this pid now. A zombie is none: it does nothing any more, it is only not yet reaped.
    pub(super) fn find(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything, so fields are counted from the last one. The first field
        // after it is the state, the 20th the start time.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let started = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X" | "x")).then_some(Self { pid, started })
    }

    /// The process that a pid file speaks of, if it still lives.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let recorded = Self { pid: pid.parse().ok()?, started: started.parse().ok()? };
        recorded.is_alive().then_some(recorded)
    }

    /// Writes the pid file.
    pub(super) fn record(self, file: &Path) -> io::Result<()> {
        fs::write(file, format!("{} {}\n", self.pid, self.started))
    }

    pub(super) fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Whether its working directory is the given one (canonical), as PostgreSQL's processes have it.
    pub(super) fn works_in(self, folder: &Path) -> bool {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).is_ok_and(|cwd| cwd == folder)
    }

    /// Every process that works in the given folder (canonical).
    pub(super) fn all_in(folder: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Self::find)
            .filter(|process| process.works_in(folder))
            .collect()
    }

    /// Ends servers of the given folder (canonical) that no pid file names: a start that was killed between starting
    /// one and noting it leaves such.
    pub(super) async fn end_strays(folder: &Path) {
        for stray in Self::all_in(folder) {
            tracing::warn!(pid = stray.pid, folder = %folder.display(), "ending a server that nobody noted");
            stray.stop(Signal::SIGTERM, Duration::from_secs(2)).await;
        }
    }

    /// Asks it to end and waits; past the patience it is killed.
    pub(super) async fn stop(self, gently: Signal, patience: Duration) {
        self.signal(gently);
        // One that was frozen hears nothing until it goes on.
        self.signal(Signal::SIGCONT);
        if !self.gone_within(patience).await {
            tracing::warn!(pid = self.pid, "did not end in time, killing it");
            self.signal(Signal::SIGKILL);
            self.gone_within(Duration::from_secs(5)).await;
        }
    }

    pub(super) async fn gone_within(self, patience: Duration) -> bool {
        let from = Instant::now();
        while self.is_alive() {
            if from.elapsed() > patience {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    pub(super) fn signal(self, signal: Signal) {
        if self.is_alive() {
            // It may end in between; then there is nobody to tell.
            let _ = signal::kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// Starts a server that goes on when we end: in a process group of its own, so that the terminal's Ctrl-C reaches
/// only us, and with its output in a file, so that it never writes into a closed pipe.
pub(super) fn spawn_server(command: &mut Command, log: &Path) -> io::Result<(Child, Process)> {
    let mut options = fs::OpenOptions::new();
    options.create(true).mode(0o600);
    if fs::metadata(log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        options.write(true).truncate(true);
    } else {
        options.append(true);
    }
    let log = options.open(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let child = command.spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    // It cannot have been reaped yet, so it has a start time unless it is a zombie already.
    let process = pid.and_then(Process::find);
    process.map(|process| (child, process)).ok_or_else(|| io::Error::other("it ended at once"))
}

/// The end of a log, for a message that says why a server did not start.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_recorded_process_is_found_until_it_ends_and_a_recycled_pid_is_not_it() {
        let dir = tempfile::tempdir().unwrap();
        let (pid_file, log) = (dir.path().join("it.pid"), dir.path().join("it.log"));
        let mut command = Command::new("sleep");
        command.arg("60").current_dir(dir.path());
        let (_child, process) = spawn_server(&mut command, &log).unwrap();
        process.record(&pid_file).unwrap();
        assert_eq!(Process::read(&pid_file), Some(process));
        assert!(process.works_in(&dir.path().canonicalize().unwrap()));

        let recycled = Process { started: process.started + 1, ..process };
        recycled.record(&pid_file).unwrap();
        assert_eq!(Process::read(&pid_file), None);
        recycled.signal(Signal::SIGKILL);
        assert!(process.is_alive(), "another life of the same pid was signalled");

        process.record(&pid_file).unwrap();
        process.stop(Signal::SIGTERM, Duration::from_secs(5)).await;
        assert_eq!(Process::read(&pid_file), None);
    }

    #[tokio::test]
    async fn a_frozen_process_ends_too() {
        let dir = tempfile::tempdir().unwrap();
        let (_child, process) =
            spawn_server(Command::new("sleep").arg("60"), &dir.path().join("it.log")).unwrap();
        process.signal(Signal::SIGSTOP);
        process.stop(Signal::SIGTERM, Duration::from_secs(5)).await;
        assert!(!process.is_alive());
    }
}
