//! This process as a shell's job: stopped by Control-Z and continued by `fg`.

use crate::stdio::terminal::Raw;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{getpgrp, getpid, getsid};
use std::io;

/// The state of the job, determined before this process gives up the right to ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job {
    /// Whether a shell above us can continue it: otherwise nobody could.
    can_continue: bool,
    /// Whether this process is the whole job, or its first process.
    leads: bool,
}

impl Job {
    /// Determines the state for this process at its start.
    pub fn of_this_process() -> Self {
        let group = getpgrp();
        let can_continue = getsid(None).is_ok_and(|session| session != group);
        Self {
            can_continue,
            leads: group == getpid(),
        }
    }

    /// Whether [`Self::suspend`] has an effect, depending on whether the terminal is raw.
    pub fn can_suspend(self, is_raw: bool) -> bool {
        self.can_continue && (self.leads || !is_raw)
    }

    /// Stops this process until its shell continues it, with the terminal restored meanwhile. Does nothing if nobody would continue
    /// it, or if the key arrived here as a byte and other processes of the job have received no signal.
    pub fn suspend(self, raw: Option<&Raw>) -> io::Result<()> {
        if !self.can_suspend(raw.is_some()) {
            return Ok(());
        }
        raw.map_or(Ok(()), Raw::give_back)?;
        raise(Signal::SIGSTOP)?;
        raw.map_or(Ok(()), Raw::reenter)
    }
}
