//! The log of a run: what was done and when, on the screen and in the run's folder.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Writes lines with the seconds since the start.
pub(crate) struct Journal {
    begun: Instant,
    file: Mutex<File>,
}

impl Journal {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        Ok(Self { begun: Instant::now(), file: Mutex::new(File::create(folder.join("journal.log"))?) })
    }

    pub(crate) fn note(&self, what: impl Display) {
        let line = format!("[{:8.3}] {what}", self.begun.elapsed().as_secs_f64());
        println!("{line}");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk shows itself elsewhere.
        let _ = writeln!(file, "{line}");
    }

    /// Since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}
