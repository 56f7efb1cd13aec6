//! What came of a run.

use std::{collections::BTreeMap, fmt, path::PathBuf};

/// Figures, and everything that should not have been.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed that decided the run.
    pub seed: u64,
    /// Tasks by how they ended.
    pub ends: BTreeMap<String, usize>,
    /// Figures worth reading, in order.
    pub figures: Vec<(&'static str, String)>,
    /// Every broken promise.
    pub violations: Vec<String>,
    /// Where logs and data were left, after a bad run.
    pub folder: Option<PathBuf>,
}

/// As many are printed; the first ones usually say it all.
const PRINTED_MAX: usize = 40;

impl Report {
    /// Whether every promise was kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nseed {}", self.seed)?;
        for (name, figure) in &self.figures {
            writeln!(f, "  {name:<34} {figure}")?;
        }
        for (end, count) in &self.ends {
            writeln!(f, "  {end:<34} {count}")?;
        }
        if self.violations.is_empty() {
            writeln!(f, "every promise was kept")?;
        } else {
            writeln!(f, "{} broken promises:", self.violations.len())?;
            self.violations.iter().take(PRINTED_MAX).try_for_each(|what| writeln!(f, "  - {what}"))?;
        }
        if let Some(folder) = &self.folder {
            writeln!(f, "logs and data: {}", folder.display())?;
        }
        Ok(())
    }
}
