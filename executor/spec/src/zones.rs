//! The two roots of a session.

use std::path::{Path, PathBuf};

/// The two roots of a session, absolute and without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// The root of the project, which is the user's.
    pub project: PathBuf,
    /// The root for what Lazaret and commands keep of the project.
    pub central: PathBuf,
}

impl Zones {
    /// Both roots, the project's first.
    pub fn roots(&self) -> [&Path; 2] {
        [&self.project, &self.central]
    }
}
