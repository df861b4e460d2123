//! Where the program stands that has started us.
//!
//! An agent keeps the directory of its next command as a path, and a command can put a link in the place of any directory of the
//! project: what is started there stands where the link leads. The directory of a running process is no path: it stays the directory
//! that the agent was started in, wherever that is moved.

use nix::unistd::{Uid, getppid};
use policies::source;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most programs that are passed over.
const WRAPPERS_MAX: usize = 16;
/// Most bytes of a process's words that are looked at.
const WORDS_MAX: usize = 256 * 1024;
/// Most bytes of `/proc/PID/stat`, of which there are 52 numbers and a short name.
const STAT_MAX: usize = 4096;
/// What runs one command line or one program and is nobody's agent.
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

/// Where the caller stands.
#[derive(Debug, PartialEq, Eq)]
pub enum Caller {
    /// In this directory, which no path was followed to.
    At(PathBuf),
    /// It is another user's, or outside this PID namespace, or has ended: it says nothing.
    Unknown,
    /// It is the user's, and where it stands cannot be read, or is no more.
    Lost,
}

impl Caller {
    /// The nearest program above us that does more than to run us.
    pub fn find() -> Self {
        let mut process = getppid().as_raw();
        for _ in 0..WRAPPERS_MAX {
            let at = PathBuf::from(format!("/proc/{process}"));
            let own = fs::metadata(&at).is_ok_and(|metadata| metadata.uid() == Uid::effective().as_raw());
            if process <= 1 || !own {
                return Self::Unknown;
            }
            if !is_wrapper(&at) {
                return directory(&at);
            }
            let Some(parent) = parent(&at) else { return Self::Unknown };
            process = parent;
        }
        Self::Lost
    }
}

fn directory(process: &Path) -> Caller {
    let link = process.join("cwd");
    match (fs::read_link(&link), fs::metadata(&link)) {
        // What was removed has a name that leads nowhere, or to another.
        (Ok(path), Ok(there)) => match fs::metadata(&path) {
            Ok(named) if (named.dev(), named.ino()) == (there.dev(), there.ino()) => Caller::At(path),
            Ok(_) | Err(_) => Caller::Lost,
        },
        _ => Caller::Lost,
    }
}

/// Whether it only runs what it was given: a shell one that has no command line is a person's, or an agent's.
fn is_wrapper(process: &Path) -> bool {
    let Ok(program) = fs::read_link(process.join("exe")) else { return false };
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !SHELLS.contains(&name) {
        return WRAPPERS.contains(&name);
    }
    // One whose words cannot be read, as they are no text or too long, has a command line among them.
    let Ok(words) = source::read_named(&process.join("cmdline"), WORDS_MAX) else { return true };
    let mut options = words.split('\0').skip(1).take_while(|word| word.starts_with('-'));
    options.any(|word| !word.starts_with("--") && word.contains('c'))
}

/// The fourth field of `/proc/PID/stat`; the second is in parentheses and may hold anything.
fn parent(process: &Path) -> Option<i32> {
    let stat = source::read_named(&process.join("stat"), STAT_MAX).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
