//! Jobs across an orderly stop.
//!
//! A paid provider does not forget its jobs because somebody restarted a laptop, so this one may be given a file. It
//! holds lines of JSON: first the figures, then jobs (the live ones first, then the ended ones, newest first), then
//! the submits by reference, newest first. What is dearest comes first, so that the bound cuts off what is cheapest.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{
    Account, COUNTED_REFERENCES_MAX, ENDED_PROMPT_BYTES_MAX, Figures, Inner, Job, Jobs, Salt, Status, Submits,
};
use crate::Config;

/// Bytes of the file: hundreds of thousands of ordinary jobs.
const FILE_BYTES_MAX: u64 = 128 << 20;
/// Raised when older files can no longer be understood.
const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Head {
    form: u32,
    /// Milliseconds since 1970. Jobs go on by the clock on the wall while nobody runs.
    saved_at_ms: u64,
    /// Without it no caller would be the owner of its jobs again.
    salt: Salt,
    figures: Figures,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    #[serde(borrow)]
    Job(JobLine<'a>),
    Submits(#[serde(borrow)] Cow<'a, str>, u64),
}

#[derive(Serialize, Deserialize)]
struct JobLine<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    reference: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    prompt: Cow<'a, str>,
    account: Account,
    /// From its submit to the writing of the file.
    elapsed_ms: u64,
    /// From its submit to its end.
    total_ms: u64,
    will_fail: bool,
    ended: Option<(Status, u8)>,
}

impl Jobs {
    /// The jobs of the last life, as far as the file can be understood; else none. Either way the log says so.
    pub(crate) fn restored(config: &Config, file: &Path, now: Instant, wall: SystemTime) -> Self {
        let mut jobs = Self::new(config);
        match read(config, file, now, wall) {
            Ok((salt, mut inner)) => {
                tracing::info!(jobs = inner.jobs.len(), live = inner.figures.running, "jobs go on");
                let fresh = jobs.inner.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                inner.models = std::mem::take(&mut fresh.models);
                *fresh = inner;
                jobs.salt = salt;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::info!(file = %file.display(), "no state file yet, starting without jobs");
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "the state file is of no use, starting without jobs");
            }
        }
        jobs
    }

    /// Writes everything to the file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written; an earlier file is then still there.
    pub(crate) fn save(&self, file: &Path, now: Instant, wall: SystemTime) -> io::Result<()> {
        let inner = self.settled(now);
        let mut beside = file.as_os_str().to_owned();
        beside.push("~");
        let beside = PathBuf::from(beside);
        let _ = fs::remove_file(&beside);
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let mut out = BufWriter::new(new);
        let head =
            Head { form: FORM, saved_at_ms: unix_ms(wall), salt: self.salt, figures: inner.figures.clone() };
        let mut line = serde_json::to_vec(&head)?;
        line.push(b'\n');
        out.write_all(&line)?;
        let mut room = FILE_BYTES_MAX.saturating_sub(length(&line));
        for saved in inner.lines(now) {
            line.clear();
            serde_json::to_writer(&mut line, &saved)?;
            line.push(b'\n');
            let Some(left) = room.checked_sub(length(&line)) else {
                tracing::warn!("the state file is full, the oldest jobs and figures are left out");
                break;
            };
            room = left;
            out.write_all(&line)?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&beside, file)
    }
}

impl Inner {
    fn lines(&self, now: Instant) -> impl Iterator<Item = Line<'_>> {
        let live = self.jobs.iter().filter(|(_, job)| job.ended.is_none());
        let ended = self.ended.iter().rev().filter_map(|id| self.jobs.get_key_value(id));
        let jobs = live.chain(ended).map(move |(id, job)| {
            Line::Job(JobLine {
                id: (&**id).into(),
                reference: (&*job.reference).into(),
                model: (&*job.model).into(),
                prompt: (&*job.prompt).into(),
                account: job.account,
                elapsed_ms: millis(now.saturating_duration_since(job.created_at)),
                total_ms: millis(job.ends_at - job.created_at),
                will_fail: job.will_fail,
                ended: job.ended,
            })
        });
        let submits = self.counted.iter().rev().filter_map(|reference| {
            Some(Line::Submits((&**reference).into(), self.submits_by_reference.get(reference)?.count))
        });
        jobs.chain(submits)
    }

    /// Takes a job back in. Of ended ones, which come newest first, no more than this life remembers.
    fn restore(
        &mut self,
        line: JobLine<'_>,
        away: Duration,
        now: Instant,
        ended_jobs_max: usize,
    ) -> io::Result<()> {
        let id: Arc<str> = line.id.into();
        if self.jobs.contains_key(&id) {
            return Err(broken("a job is there twice"));
        }
        let total = Duration::from_millis(line.total_ms);
        let elapsed = Duration::from_millis(line.elapsed_ms).saturating_add(away).min(total);
        let created_at = now.checked_sub(elapsed).ok_or_else(|| broken("a job is older than time"))?;
        let ends_at = created_at.checked_add(total).ok_or_else(|| broken("a job ends after time"))?;
        let job = Job {
            reference: line.reference.into(),
            model: line.model.into(),
            prompt: line.prompt.into(),
            account: line.account,
            created_at,
            ends_at,
            will_fail: line.will_fail,
            ended: line.ended,
            // Whoever waits for them looks by himself after a while, as with a real provider that lost some.
            callback: None,
        };
        if job.ended.is_none() {
            self.admit(id, job);
            return Ok(());
        }
        let prompts = self.ended_prompt_bytes + job.prompt.len();
        if self.ended.len() < ended_jobs_max && prompts <= ENDED_PROMPT_BYTES_MAX {
            self.ended_prompt_bytes = prompts;
            self.ended.push_front(id.clone());
            self.by_reference.entry(job.reference.clone()).or_default().push(id.clone());
            self.jobs.insert(id, job);
        }
        Ok(())
    }
}

fn read(config: &Config, file: &Path, now: Instant, wall: SystemTime) -> io::Result<(Salt, Inner)> {
    let file = File::open(file)?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        return Err(broken("larger than any that is written"));
    }
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    lines.read_until(b'\n', &mut line)?;
    let head: Head = serde_json::from_slice(&line)?;
    if head.form != FORM {
        return Err(broken("of another version"));
    }
    // A clock that was set back makes no job younger.
    let away = Duration::from_millis(unix_ms(wall).saturating_sub(head.saved_at_ms));
    // What is alive is counted again, from the jobs.
    let mut inner = Inner { figures: Figures { running: 0, ..head.figures }, ..Inner::default() };
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match serde_json::from_slice(&line)? {
            Line::Job(job) => inner.restore(job, away, now, config.ended_jobs_max)?,
            Line::Submits(reference, count) if inner.counted.len() < COUNTED_REFERENCES_MAX => {
                let reference: Arc<str> = reference.into();
                inner.counted.push_front(reference.clone());
                inner.submits_by_reference.insert(reference, Submits { count, first_at: None });
            }
            Line::Submits(..) => {}
        }
    }
    // Ids are made in the order of time.
    inner.by_reference.values_mut().for_each(|ids| ids.sort_unstable());
    Ok((head.salt, inner))
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn unix_ms(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn length(line: &[u8]) -> u64 {
    u64::try_from(line.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{super::NewJob, *};

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn submit(jobs: &Jobs, model: &str, reference: &str, now: Instant) -> Arc<str> {
        jobs.count_submit(reference, now);
        let new = NewJob {
            model: model.into(),
            prompt: "a \"cat\"\n".into(),
            client_reference: reference.into(),
            account: jobs.account(Some(b"Bearer mine")),
            callback: None,
        };
        jobs.create(new, now).expect("created").id
    }

    #[test]
    fn jobs_go_on_by_the_clock_on_the_wall() {
        let (folder, config) = (tempfile::tempdir().expect("a folder"), Config::default());
        let file = folder.path().join("state.json");
        let (start, wall) = (Instant::now(), UNIX_EPOCH + ms(1_700_000_000_000));
        let jobs = Jobs::new(&config);
        let canceled = submit(&jobs, "mock-slow", "t1.1", start);
        let slow = submit(&jobs, "mock-slow", "t1.2", start);
        let over = submit(&jobs, "mock-pro", "t2.1", start + ms(5_000));
        jobs.cancel(&canceled, None, start + ms(6_000));
        jobs.save(&file, start + ms(6_000), wall).expect("saved");

        // Another boot, whose clock of its own says something else.
        let start = start + ms(900_000);
        let jobs = Jobs::restored(&config, &file, start, wall + ms(24_000));
        let (mine, other) = (jobs.account(Some(b"Bearer mine")), jobs.account(Some(b"Bearer other")));
        let seen = |id, now| jobs.get(id, mine, now).map(|seen| (seen.status, seen.progress));
        assert_eq!(seen(&canceled, start), Some((Status::Canceled, 10)));
        assert_eq!(seen(&slow, start), Some((Status::Running, 50)));
        assert_eq!(seen(&slow, start + ms(30_000)), Some((Status::Succeeded, 100)));
        assert_eq!(seen(&over, start), Some((Status::Succeeded, 100)));
        assert!(jobs.get(&slow, other, start).is_none(), "a stranger sees it");
        assert_eq!(jobs.find("t1.2", mine, start).len(), 1);
        assert_eq!(jobs.described(&slow).expect("there").1, "a \"cat\"\n".into());
        let stats = jobs.stats(start);
        assert_eq!(stats.submits_by_reference.len(), 3);
        assert!(stats.submits_by_reference.iter().all(|(_, count)| *count == 1));
        assert_eq!((stats.figures.submits, stats.figures.running, stats.figures.max_live_by_task), (3, 0, 2));
    }

    #[test]
    fn what_cannot_be_understood_starts_empty_and_an_older_life_remembers_less() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("state.json");
        let (now, wall, config) = (Instant::now(), UNIX_EPOCH + ms(7), Config::default());
        let count = |config: &Config| {
            let jobs = Jobs::restored(config, &file, now, wall);
            let inner = jobs.inner.lock().expect("lock");
            (inner.jobs.len(), inner.submits_by_reference.len())
        };
        assert_eq!(count(&config), (0, 0), "there is no file");
        let jobs = Jobs::new(&config);
        for n in 0..5 {
            submit(&jobs, "mock-fast", &format!("t{n}.1"), now);
        }
        jobs.save(&file, now + ms(2_000), wall).expect("saved");
        assert_eq!(count(&config), (5, 5));
        assert_eq!(count(&Config { ended_jobs_max: 2, ..Config::default() }), (2, 5));
        let whole = fs::read(&file).expect("readable");
        fs::write(&file, &whole[..whole.len() - 9]).expect("writable");
        assert_eq!(count(&config), (0, 0), "half a file was believed");
        fs::write(&file, [&whole[..], &whole[..]].concat()).expect("writable");
        assert_eq!(count(&config), (0, 0), "a file with two heads was believed");
    }
}
