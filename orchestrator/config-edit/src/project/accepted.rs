//! Settings of projects that the user has looked at and accepted: each file as it was then.

use super::finding::ProjectFinding;
use super::read::ProjectDigest;
use crate::files;
use orchestrator_launch::state_directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The accepted files, with the SHA-256 of each.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AcceptedFiles {
    files: BTreeMap<PathBuf, String>,
}

impl AcceptedFiles {
    /// The record.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read() -> io::Result<Self> {
        let Some(text) = files::read(&path())? else {
            return Ok(Self::default());
        };
        serde_json::from_str(&text).map_err(io::Error::from)
    }

    /// Whether the user has accepted the file as it is.
    pub fn has(&self, finding: &ProjectFinding) -> bool {
        let known = self.files.get(&finding.path);
        known
            .zip(finding.digest)
            .is_some_and(|(known, now)| *known == now.to_string())
    }

    /// Accepts the file at `path` as it was when this was its digest.
    pub fn add(&mut self, path: &Path, digest: ProjectDigest) {
        self.files.insert(path.to_owned(), digest.to_string());
    }

    /// Writes the record.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self) -> io::Result<()> {
        let before = files::read(&path())?;
        // Files of removed projects are of no use.
        self.files.retain(|path, _| path.symlink_metadata().is_ok());
        files::replace(
            &path(),
            before.as_deref(),
            Some(&serde_json::to_string(self)?),
        )
    }
}

fn path() -> PathBuf {
    state_directory::directory().join("accepted-settings.json")
}
