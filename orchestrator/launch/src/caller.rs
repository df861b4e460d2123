//! The working directory of the program that started us.
//!
//! An agent stores the directory of its next command as a path, and a command can replace any directory of the project by a link,
//! so what is started there may start elsewhere. The working directory of a running process is no path: it stays the directory in
//! which the agent was started, wherever that is moved.

use crate::holder;
use nix::unistd::{Uid, getppid};
use policies::source;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of wrappers to skip.
const WRAPPERS_MAX: usize = 16;
/// Maximum bytes of a process's arguments to read.
const WORDS_MAX: usize = 256 * 1024;
/// Programs that run one command line or one program and are never an agent.
const WRAPPERS: [&str; 13] = [
    "bash",
    "dash",
    "env",
    "fish",
    "ksh",
    "lazaret",
    "lazaret-bash",
    "nice",
    "nohup",
    "setsid",
    "sh",
    "timeout",
    "zsh",
];
const SHELLS: [&str; 6] = ["bash", "dash", "fish", "ksh", "sh", "zsh"];

/// The working directory of the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum CallerDirectory {
    /// This directory, found without following a path.
    At(PathBuf),
    /// The caller belongs to another user, is outside this PID namespace, or has ended: nothing is known.
    Unknown,
    /// The caller is the user's, but its directory cannot be read or no longer exists.
    Lost,
}

impl CallerDirectory {
    /// Finds the nearest ancestor that does more than run us.
    pub fn find() -> Self {
        let mut process = getppid().as_raw();
        for _ in 0..WRAPPERS_MAX {
            let at = PathBuf::from(format!("/proc/{process}"));
            let own =
                fs::metadata(&at).is_ok_and(|metadata| metadata.uid() == Uid::effective().as_raw());
            if process <= 1 || !own {
                return Self::Unknown;
            }
            if !is_wrapper(&at) {
                return directory(&at);
            }
            let Some(parent) = holder::parent(&at) else {
                return Self::Unknown;
            };
            process = parent;
        }
        Self::Lost
    }
}

fn directory(process: &Path) -> CallerDirectory {
    let link = process.join("cwd");
    match (fs::read_link(&link), fs::metadata(&link)) {
        // A removed directory has a name that leads nowhere, or to a different directory.
        (Ok(path), Ok(there)) => match fs::metadata(&path) {
            Ok(named) if (named.dev(), named.ino()) == (there.dev(), there.ino()) => {
                CallerDirectory::At(path)
            }
            Ok(_) | Err(_) => CallerDirectory::Lost,
        },
        _ => CallerDirectory::Lost,
    }
}

/// Whether it only runs what it was given. A shell without a command line counts as a person's or an agent's.
fn is_wrapper(process: &Path) -> bool {
    let Ok(program) = fs::read_link(process.join("exe")) else {
        return false;
    };
    let name = program
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if !SHELLS.contains(&name) {
        return WRAPPERS.contains(&name);
    }
    // Arguments that cannot be read, because they are no text or too long, must contain a command line.
    let Ok(words) = source::read_named(&process.join("cmdline"), WORDS_MAX) else {
        return true;
    };
    let mut options = words
        .split('\0')
        .skip(1)
        .take_while(|word| word.starts_with('-'));
    options.any(|word| !word.starts_with("--") && word.contains('c'))
}
