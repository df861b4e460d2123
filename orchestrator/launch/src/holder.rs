//! The variables of the `lazaret acp` that started our agent.
//!
//! It gives the agent's shell what its user has granted. A project can set the variables of the agent's children, but not those of
//! the process that holds the agent: they are read there, and no others are believed.

use nix::unistd::{Uid, getppid};
use policies::source;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of ancestors to look at: agents start few processes in one another.
const ANCESTORS_MAX: usize = 64;
/// Maximum bytes of a process's variables or arguments to read: what the kernel lets a process start with by default.
const BLOCK_MAX: usize = 8 << 20;
/// Maximum bytes of `/proc/PID/stat`, which has 52 numbers and a short name.
const STAT_MAX: usize = 4096;
/// The first arguments of the process that holds an agent; see `start_agent`.
const HOLDS: [&str; 2] = ["acp", "--hold"];

/// The variables with which the nearest ancestor that holds an agent was started; `None` if there is none.
pub(crate) fn variables() -> Option<BTreeMap<OsString, OsString>> {
    let ours = std::env::current_exe().ok()?.with_file_name("lazaret");
    let ours = fs::canonicalize(&ours).unwrap_or(ours);
    let mut process = getppid().as_raw();
    for _ in 0..ANCESTORS_MAX {
        let at = PathBuf::from(format!("/proc/{process}"));
        if process <= 1 || fs::metadata(&at).ok()?.uid() != Uid::effective().as_raw() {
            return None;
        }
        if holds(&at, &ours) {
            return read_variables(&at);
        }
        process = parent(&at)?;
    }
    None
}

/// Whether the process is our program, as it is or as it was before an update, and holds an agent.
fn holds(process: &Path, ours: &Path) -> bool {
    let Ok(program) = fs::read_link(process.join("exe")) else {
        return false;
    };
    let replaced = program
        .to_str()
        .and_then(|path| path.strip_suffix(" (deleted)"))
        .map(Path::new);
    let is_ours = program == ours || replaced == Some(ours);
    let words = || source::read_named(&process.join("cmdline"), BLOCK_MAX).ok();
    is_ours && words().is_some_and(|words| words.split('\0').skip(1).take(HOLDS.len()).eq(HOLDS))
}

fn read_variables(process: &Path) -> Option<BTreeMap<OsString, OsString>> {
    let block = source::read_bytes(&process.join("environ"), BLOCK_MAX).ok()?;
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    Some(block.split(|byte| *byte == 0).filter_map(pair).collect())
}

/// The fourth field of `/proc/PID/stat`; the second is in parentheses and may contain anything.
pub(crate) fn parent(process: &Path) -> Option<i32> {
    let stat = source::read_named(&process.join("stat"), STAT_MAX).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}
