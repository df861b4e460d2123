//! Answers calls of git about names that it passes over (`passed_over.rs`).

use crate::answer::SyscallAnswer;
use crate::find::FoundName;
use crate::object::is;
use crate::open_flags::OpenFlags;
use crate::passed_over::INDEX_LOCK;
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind::Write;
use executor_spec::refusals::Cause;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::fstat;
use policies_guard::Verdict;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The commands of git that look at a file again after they have written it.
const LOOK_AGAIN: [&[u8]; 2] = [b"am", b"apply"];
/// The options of git before its command that have a value of their own.
const WITH_VALUE: [&[u8]; 6] = [
    b"-C",
    b"-c",
    b"--git-dir",
    b"--work-tree",
    b"--namespace",
    b"--config-env",
];
/// Maximum bytes of a process's arguments that are read: options before the command are few.
const ARGUMENTS_MAX: u64 = 4096;

/// Whether this is a git with a command that looks at files again. What it says of itself opens nothing.
fn looks_again(process: i32) -> bool {
    let mut arguments = Vec::new();
    let read = File::open(format!("/proc/{process}/cmdline"))
        .and_then(|file| file.take(ARGUMENTS_MAX).read_to_end(&mut arguments));
    read.is_err() || command_of_git(&arguments).is_some_and(|word| LOOK_AGAIN.contains(&word))
}

/// The first of its arguments that is neither an option nor an option's value.
fn command_of_git(arguments: &[u8]) -> Option<&[u8]> {
    let mut words = arguments.split(|byte| *byte == 0).skip(1);
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with(b"-") {
            return Some(word);
        }
    }
    None
}

impl SupervisedCall<'_> {
    /// Notes a lock of an index that the caller has just made. Where that fails, its operations meet refusals.
    pub(crate) fn note_index_lock(&self, found: &FoundName, real: &Path, made: &OwnedFd) {
        if found.name == INDEX_LOCK.as_bytes()
            && self.rules.judge().is_in_git(real)
            && let Ok(process) = self.caller.process()
            && !looks_again(process)
        {
            let _ = self.passed_over.add_lock(&found.parent, made, process);
        }
    }

    /// Answers the removal of a regular file without making it, if git works and the rules refuse it; `None` for any other removal.
    pub(crate) fn pass_over_removal(
        &self,
        found: &FoundName,
        real: &Path,
        verdict: Verdict,
    ) -> Option<SyscallAnswer> {
        self.repository_of_git(real, verdict)?;
        let object = found.object.as_ref().filter(|_| !found.slash)?;
        let is_file = fstat(object).is_ok_and(|stat| is(&stat, libc::S_IFREG));
        (is_file && self.passed_over.note(real, None)).then_some(SyscallAnswer::Value(0))
    }

    /// Opens a file without a name in place of one that git has removed and that is still there; `None` for any other.
    pub(crate) fn pass_over_present(
        &self,
        found: &FoundName,
        how: OpenFlags,
    ) -> Option<SyscallAnswer> {
        if self.passed_over.is_idle() {
            return None;
        }
        let real = found.real(&self.rules.areas).ok()?;
        if !self.passed_over.has_removed(&real) {
            return None;
        }
        self.file_without_name(&self.repository_at_work()?, &real, how)
    }

    /// Opens a file without a name in place of one that git makes and the rules refuse; `None` for any other.
    pub(crate) fn pass_over_file(
        &self,
        real: &Path,
        how: OpenFlags,
        verdict: Verdict,
    ) -> Option<SyscallAnswer> {
        self.file_without_name(&self.repository_of_git(real, verdict)?, real, how)
    }

    /// A file without a name in a directory, where the caller makes a new one; `None` for any other call, which the verdict answers. It
    /// can be read too.
    fn without_name(&self, directory: &OwnedFd, how: OpenFlags) -> Option<OwnedFd> {
        let makes = how.has(OFlag::O_CREAT | OFlag::O_EXCL) && !how.has(OFlag::O_TMPFILE);
        if !makes || how.flags & OFlag::O_ACCMODE == OFlag::O_RDONLY {
            return None;
        }
        let flags = OFlag::O_RDWR | OFlag::O_TMPFILE | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        self.caller
            .with_mask(|| openat(directory, ".", flags, how.mode))
            .ok()
    }

    fn file_without_name(
        &self,
        repository: &OwnedFd,
        real: &Path,
        how: OpenFlags,
    ) -> Option<SyscallAnswer> {
        let file = self.without_name(repository, how)?;
        let written = file.try_clone().ok()?;
        let answer = SyscallAnswer::Descriptor(file, how.on_exec());
        self.passed_over.note(real, Some(written)).then_some(answer)
    }

    /// The repository of the index that the caller has locked, if the rules refuse it to change a name as they do in a work tree.
    fn repository_of_git(&self, real: &Path, verdict: Verdict) -> Option<OwnedFd> {
        let Verdict::Refuse(rule) = verdict else {
            return None;
        };
        if self.passed_over.is_idle()
            || self.rules.cause(Write, real, rule) != Some(Cause::Protected)
            || self.rules.judge().is_in_git(real)
            || self.rules.judge().may_be_git(real)
        {
            return None;
        }
        self.repository_at_work()
    }

    fn repository_at_work(&self) -> Option<OwnedFd> {
        self.passed_over.directory_of(self.caller.process().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_git_is_found_behind_its_options() {
        for (arguments, command) in [
            ("git\0am\0-q\0p.patch\0", "am"),
            (
                "git\0-C\0am\0-c\0a=b\0--no-pager\0apply\0--index\0",
                "apply",
            ),
            ("/usr/bin/git\0stash\0apply\0", "stash"),
            ("git\0checkout\0apply\0", "checkout"),
        ] {
            assert_eq!(
                command_of_git(arguments.as_bytes()),
                Some(command.as_bytes())
            );
        }
        assert_eq!(command_of_git(b"git\0-c\0am"), None);
    }
}
