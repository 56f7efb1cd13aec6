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
    screen: Screen,
    file: Mutex<File>,
}

/// Which side of the screen it is seen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Where results are.
    Output,
    /// Beside the results, which somebody may read by a program.
    Error,
}

impl Journal {
    pub(crate) fn new(folder: &Path, screen: Screen) -> io::Result<Self> {
        let file = Mutex::new(File::create(folder.join("journal.log"))?);
        Ok(Self { begun: Instant::now(), screen, file })
    }

    pub(crate) fn note(&self, what: impl Display) {
        let line = format!("[{:8.3}] {what}", self.begun.elapsed().as_secs_f64());
        match self.screen {
            Screen::Output => println!("{line}"),
            Screen::Error => eprintln!("{line}"),
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk shows itself elsewhere.
        let _ = writeln!(file, "{line}");
    }

    /// Since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}
