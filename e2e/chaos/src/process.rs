//! Processes that somebody else started, by their pid: whether they live, and how their clock is stopped.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Processes whose clock stands still until this is dropped, whatever ends the run meanwhile: one that is frozen would
/// outlive every polite word.
#[derive(Debug)]
pub(crate) struct Frozen(Vec<Pid>);

impl Frozen {
    /// Stops the clock of one.
    pub(crate) fn stop(pid: Pid) -> nix::Result<Self> {
        kill(pid, Signal::SIGSTOP)?;
        Ok(Self(vec![pid]))
    }

    /// Stops the clocks of others too; those that have ended meanwhile are none.
    pub(crate) fn and(mut self, others: impl IntoIterator<Item = Pid>) -> nix::Result<Self> {
        for pid in others {
            match kill(pid, Signal::SIGSTOP) {
                Ok(()) => self.0.push(pid),
                Err(Errno::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // The first one is the parent, which has to find its children at work.
        for pid in self.0.iter().rev() {
            // It may have been killed meanwhile.
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// The first number of a pid file.
pub(crate) fn pid_of(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Pid::from_raw)
}

/// The processes that a process has started and that have not ended, oldest first.
pub(crate) fn children_of(pid: Pid) -> Vec<Pid> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// The kernel's tick at which a process started, by which one life of a pid is told from the next; none for a zombie.
pub(crate) fn started_at(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let lives = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| lives).map(str::to_owned)
}

/// The servers of a folder's pid files that live: a number that was given out again works elsewhere.
pub(crate) fn living(folder: &Path) -> Vec<Pid> {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pid"))
        .filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            let (pid, started) = text.trim().split_once(' ')?;
            let pid = Pid::from_raw(pid.parse().ok()?);
            (started_at(pid)? == started).then_some(pid)
        })
        .collect()
}

/// Whether a process ends within this time.
pub(crate) async fn gone(pid: Pid, patience: Duration) -> bool {
    let begun = Instant::now();
    while started_at(pid).is_some() {
        if begun.elapsed() > patience {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn state(pid: Pid) -> char {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    async fn until_state(pid: Pid, wanted: impl Fn(char) -> bool) {
        let begun = Instant::now();
        while !wanted(state(pid)) {
            assert!(begun.elapsed() < Duration::from_secs(5), "it is {}", state(pid));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn what_is_frozen_goes_on_when_the_guard_is_dropped() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        let frozen = Frozen::stop(pid).unwrap();
        until_state(pid, |state| state == 'T').await;
        drop(frozen);
        until_state(pid, |state| state != 'T').await;
        assert!(started_at(pid).is_some());
        child.kill().unwrap();
        assert!(gone(pid, Duration::from_secs(5)).await, "a zombie counts as gone");
        child.wait().unwrap();
        assert_eq!(started_at(pid), None);
    }
}
