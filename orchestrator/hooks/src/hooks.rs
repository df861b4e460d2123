//! The hooks in the settings. Programs are read once, so that a later run uses the accepted program, whatever happens to the file.

use crate::settings::{self, HookEntry, HookSettingsError};
use crate::store::AcceptedHooks;
use crate::template::Template;
use orchestrator_confine::Files;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum size of a program in bytes.
pub(crate) const PROGRAM_MAX: usize = 4 << 20;

/// A hook with its program.
#[derive(Debug)]
pub struct Hook {
    /// Its entry in the settings.
    pub entry: HookEntry,
    pub(crate) args: Vec<Template>,
    /// Its program, or why it cannot be used.
    pub program: Result<Vec<u8>, String>,
    /// Whether the user has accepted this entry and program.
    pub acceptance: Acceptance,
}

/// Whether the user has accepted a hook: in its current form, never, or only in an earlier form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    Accepted,
    New,
    Changed,
}

impl Acceptance {
    /// The name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::New => "new",
            Self::Changed => "changed",
        }
    }
}

impl Hook {
    /// Why the hook does not run, if it does not.
    pub fn problem(&self) -> Option<String> {
        let name = &self.entry.name;
        let accept = format!("`lazaret chat-hooks accept {name}`, once you have looked at it");
        match (&self.program, self.acceptance) {
            (Err(why), _) => Some(format!("is not run: {why}")),
            (Ok(_), Acceptance::Accepted) => None,
            (Ok(_), Acceptance::New) => {
                Some(format!("is not run before you have accepted it: {accept}"))
            }
            (Ok(_), Acceptance::Changed) => Some(format!(
                "is not run, because it or its entry was changed since you accepted it: {accept}"
            )),
        }
    }
}

/// All hooks of the settings.
#[derive(Debug, Default)]
pub struct Hooks(Vec<Hook>);

impl Hooks {
    /// The hooks of `entries`, with paths relative to `folder`, and with their programs.
    ///
    /// # Errors
    /// If an entry is invalid.
    pub fn read(
        _: &Files,
        entries: Vec<HookEntry>,
        folder: &Path,
    ) -> Result<Self, HookSettingsError> {
        settings::check(&entries)?;
        let accepted = AcceptedHooks::read();
        let hook = |mut entry: HookEntry| {
            entry.program = folder.join(&entry.program);
            let program = read_program(&entry.program);
            let acceptance = match &program {
                Ok(program) if accepted.has(&entry, program) => Acceptance::Accepted,
                Ok(_) | Err(_) if accepted.has_name(&entry.name) => Acceptance::Changed,
                Ok(_) | Err(_) => Acceptance::New,
            };
            Ok(Hook {
                args: entry.templates()?,
                entry,
                program,
                acceptance,
            })
        };
        entries
            .into_iter()
            .map(hook)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// All hooks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter()
    }

    pub(crate) fn get(&self, hook: usize) -> Option<&Hook> {
        self.0.get(hook)
    }

    /// Notes for the user before a session: which hooks do not run.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.iter().filter_map(|hook| {
            Some(format!(
                "the hook `{}` {}",
                hook.entry.name,
                hook.problem()?
            ))
        })
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }
}

fn read_program(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = open(path).map_err(|error| wrong(&error))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(wrong(&"it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(PROGRAM_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    if bytes.len() > PROGRAM_MAX {
        return Err(wrong(&format!("it has more than {PROGRAM_MAX} bytes")));
    }
    Ok(bytes)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user's settings name; what it is, the user has accepted"
)]
fn open(path: &Path) -> io::Result<File> {
    // Opening a FIFO would otherwise wait for its writer.
    OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the test's own")]
    fn a_program_has_a_bound_and_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let of = |bytes: usize| {
            std::fs::write(&path, vec![b'x'; bytes]).unwrap();
            read_program(&path).map(|program| program.len())
        };
        assert_eq!(of(PROGRAM_MAX), Ok(PROGRAM_MAX));
        assert!(of(PROGRAM_MAX + 1).is_err());
        assert!(
            read_program(folder.path()).is_err()
                && read_program(&folder.path().join("none")).is_err()
        );
    }
}
