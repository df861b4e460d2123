//! The user whose credentials they are, where commands can write, and why a source gives no value.

use broker_protocol::limit;
use executor_spec::variables::Variables;
use policies::directories;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a source gives no value.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error("{0}: {1}")]
    Unopened(String, io::Error),
    #[error("{0} is no regular file")]
    NotRegular(String),
    #[error("{0} belongs to somebody else")]
    Foreign(String),
    #[error("{0}: others may write it; `chmod go-w` closes it to them")]
    Shared(String),
    #[error("{0}: others may read it; `chmod go-r` closes it to them")]
    Readable(String),
    #[error("{0} leads to where commands can write")]
    Writable(String),
    #[error("{0} leads to where commands can read")]
    Granted(String),
    #[error(
        "{0} has a second name (a hard link), which commands may read; make it a file of its own"
    )]
    Linked(String),
    #[error("{0} is empty")]
    Empty(String),
    #[error("{0} has more than {kib} KiB", kib = limit::CREDENTIAL >> 10)]
    TooLarge(String),
    #[error("CREDENTIALS_DIRECTORY, which systemd sets for a service, is not set")]
    NoDirectory,
    #[error("the variable {0} is not set, or is empty")]
    Unset(String),
    #[error("there is no program `{0}` in a directory of PATH in which commands cannot write")]
    NoProgram(String),
    #[error("`{0}` has printed nothing")]
    Silent(String),
    #[error("`{0}` has ended with the exit code {1}")]
    Exited(String, i32),
    #[error("`{0}` was killed by the signal {1}")]
    Killed(String, i32),
    #[error("its program has run for more than 10 seconds")]
    TooLong,
    #[error("its program was started less than 30 seconds ago")]
    TooSoon,
    #[error("its program cannot be watched: {0}")]
    Unwatched(#[from] io::Error),
}

/// The user whose credentials they are, and where commands of the session can write.
#[derive(Clone, Debug)]
pub struct Owner<'o> {
    pub(crate) home: &'o Path,
    /// The environment of the broker.
    pub(crate) variables: &'o Variables,
    /// Directories without links, in which nothing is believed.
    pub(crate) writable: Vec<PathBuf>,
}

impl<'o> Owner<'o> {
    /// The owner of this home and environment, whose commands write below `writable`; those of other sessions have written to other
    /// projects' central roots.
    pub fn new(home: &'o Path, variables: &'o Variables, mut writable: Vec<PathBuf>) -> Self {
        let named = |name: &str| variables.get(OsStr::new(name)).cloned();
        let central = directories::all_data(home, &named);
        writable.extend(central);
        writable = (writable.iter())
            .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()))
            .collect();
        Self {
            home,
            variables,
            writable,
        }
    }
}

pub(crate) fn is_below(path: &Path, directories: &[PathBuf]) -> bool {
    directories
        .iter()
        .any(|directory| path.starts_with(directory))
}
