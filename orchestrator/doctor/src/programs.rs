//! Programs of the installation that do not speak the protocol of this one: after an update of some of them, sessions or connections fail.

use broker_protocol::VERSION;
use orchestrator_confine::Files;
use orchestrator_launch::start;
use std::path::Path;
use thiserror::Error;

/// The programs that speak to each other, and print their version. The shell prints that of bash.
const NAMES: [&str; 3] = ["lazaret-executor", "lazaret-gateway", "lazaret-worker"];
pub(crate) const LOST: &str =
    "lost: what it does for sessions; install all programs from one release";

/// Why a program does not work with this one.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum ProgramFault {
    #[error("{place} speaks protocol {theirs}, and this `lazaret` speaks {VERSION}")]
    Other { place: String, theirs: u16 },
    #[error(
        "{0} does not say which protocol it speaks, so it is of an older release or no program of ours; this `lazaret` speaks {VERSION}"
    )]
    Unknown(String),
}

/// A program that is there.
#[derive(Debug)]
pub(crate) struct InstalledProgram {
    pub name: &'static str,
    pub fault: Option<ProgramFault>,
}

/// The programs beside this executor, which is under a name of its own if the user has named one.
pub(crate) fn installed(files: &Files, executor: &Path) -> Vec<InstalledProgram> {
    let path = |name| match name == NAMES[0] {
        true => executor.to_owned(),
        false => executor.with_file_name(name),
    };
    let all = NAMES.into_iter().map(|name| (name, path(name)));
    // Of one that is not there, other rows say so.
    let there = all.filter(|(_, path)| path.is_file());
    let asked = there.map(|(name, path)| {
        let said = start::version_of(files, &path).unwrap_or_default();
        let fault = fault(&path, protocol_of(&said));
        InstalledProgram { name, fault }
    });
    asked.collect()
}

fn fault(path: &Path, theirs: Option<u16>) -> Option<ProgramFault> {
    let place = path.display().to_string();
    match theirs {
        Some(VERSION) => None,
        Some(theirs) => Some(ProgramFault::Other { place, theirs }),
        None => Some(ProgramFault::Unknown(place)),
    }
}

/// The protocol of what a program prints, which ends with [`broker_protocol::release`].
fn protocol_of(printed: &str) -> Option<u16> {
    let (_, protocol) = printed.trim_end().strip_suffix(')')?.rsplit_once(' ')?;
    protocol.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_of_a_release_is_read_and_of_nothing_else() {
        for commit in [None, Some("0123abc")] {
            let printed = format!("lazaret {}\n", broker_protocol::release(commit));
            assert_eq!(protocol_of(&printed), Some(VERSION), "{printed}");
        }
        for other in [
            "",
            "lazaret 0.1.0",
            "protocol 28",
            "(protocol 99999)",
            "28)",
        ] {
            assert_eq!(protocol_of(other), None, "{other}");
        }
    }
}
