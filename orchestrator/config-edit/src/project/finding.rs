//! The effect of a project's file on an agent.

use super::read::{ProjectDigest, Unread};
use std::fmt;
use std::path::PathBuf;

/// Most keys of a file that a finding names.
const KEYS_MAX: usize = 8;

/// A file that a project brings along, and what in it undoes Lazaret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFinding {
    /// The clients that read it.
    pub clients: &'static [&'static str],
    pub path: PathBuf,
    pub what: What,
    /// Its digest when it was examined; `None` if it cannot be told, and so not accepted.
    pub digest: Option<ProjectDigest>,
}

/// The effect of a project's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Sets(Vec<String>),
    /// Is there: an agent starts or loads what is in it.
    Present,
    /// Cannot be read as its agent might read it.
    Unreadable(Unread),
}

impl fmt::Display for ProjectFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.what {
            What::Present => write!(f, "{path} is there"),
            What::Unreadable(why) => write!(f, "{path} cannot be examined: {why}"),
            What::Sets(keys) => {
                let shown = keys
                    .iter()
                    .take(KEYS_MAX)
                    .map(|key| format!("`{key}`"))
                    .collect::<Vec<_>>();
                write!(f, "{path} sets {}", shown.join(", "))?;
                match keys.len().saturating_sub(KEYS_MAX) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}
