//! `aivideo check-config`: what is in force, without secrets, or every fault at once.

use std::{io::Write, path::Path};

use crate::{commands::load, config::Needs};

pub(super) fn check_config(file: Option<&Path>) -> anyhow::Result<()> {
    let config = load(file, Needs::All)?;
    let text = toml::to_string_pretty(&config)?;
    let _ = write!(std::io::stdout(), "{text}");
    Ok(())
}
