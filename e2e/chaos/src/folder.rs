//! Where a run keeps everything. It stays until the run was good.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// A folder that everybody may enter.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    /// The wanted one, or a new one in the system's temporary folder.
    pub(crate) fn make(wanted: Option<&Path>, prefix: &str) -> anyhow::Result<Self> {
        let path = match wanted {
            Some(path) => {
                fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
                path.canonicalize()?
            }
            None => tempfile::Builder::new().prefix(prefix).tempdir()?.keep(),
        };
        // PostgreSQL's own user has to enter it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self { path })
    }
}
