//! Which processes exist for a cell, and what else `/proc` does not show it.

use crate::answer::SyscallAnswer;
use crate::rules::AccessRules;
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind;
use executor_layers::mounts::KEYS;
use executor_spec::refusals::Cause;
use executor_sys::proc::Stat;
use nix::Result;
use nix::errno::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of processes between a program and one it started.
const GENERATIONS_MAX: usize = 4096;

impl AccessRules {
    /// Makes processes that do not descend from this one appear not to exist, and the sockets of the machine and the user's keys.
    pub(crate) fn check_process(&self, real: &Path) -> Result<()> {
        let Ok(below) = real.strip_prefix("/proc") else {
            return Ok(());
        };
        let mut names = below.iter().map(OsStr::as_bytes);
        let first = names.next().unwrap_or_default();
        if KEYS.iter().any(|name| name.as_bytes() == first) {
            return Err(Errno::ENOENT);
        }
        if !first.first().is_some_and(u8::is_ascii_digit) {
            return Ok(());
        }
        let number = std::str::from_utf8(first)
            .ok()
            .and_then(|text| text.parse().ok());
        let sockets = names.any(|name| name == b"net");
        let ours = number.is_some_and(is_ours);
        if ours && !sockets {
            Ok(())
        } else {
            Err(Errno::ENOENT)
        }
    }
}

impl SupervisedCall<'_> {
    /// `ptrace` that attaches to a process: one of the cell. Its number is in a register, which nobody changes until the call goes on;
    /// if another process has that number by then, Landlock refuses it, as that is in no domain of the caller's.
    pub(crate) fn attach(&self, process: i32) -> Result<SyscallAnswer> {
        if is_ours(process) {
            Ok(SyscallAnswer::GoOn)
        } else {
            Err(self.refuse("ptrace"))
        }
    }

    /// Refuses a call that the first process could make, but its program may not.
    pub(crate) fn refuse(&self, name: &str) -> Errno {
        self.note(AttemptKind::SystemCall, Cause::Process, name.as_bytes());
        Errno::EPERM
    }
}

/// Whether a process descends from this one, as everything that a program starts does: this process is their subreaper.
fn is_ours(process: i32) -> bool {
    let us = std::process::id() as i32;
    let parent = |child: &i32| Stat::of(*child).ok().map(|stat| stat.parent);
    let mut above = std::iter::successors(parent(&process), parent).take(GENERATIONS_MAX);
    above.any(|above| above == us)
}
