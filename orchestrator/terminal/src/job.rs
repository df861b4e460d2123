//! This process as a job of a shell: stopped by Control-Z, and continued by `fg`.

use crate::terminal::Raw;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{getpgrp, getpid, getsid};
use std::io;

/// What is known of it, before this process gives up asking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job {
    /// Whether some shell above can continue it: else nobody could.
    can_continue: bool,
    /// Whether it is all of the job, or its first process.
    leads: bool,
}

impl Job {
    /// As this process finds it when it starts.
    pub fn of_this_process() -> Self {
        let group = getpgrp();
        let can_continue = getsid(None).is_ok_and(|session| session != group);
        Self { can_continue, leads: group == getpid() }
    }

    /// Whether [`Self::suspend`] does anything, where a terminal is raw or not.
    pub fn can_suspend(self, is_raw: bool) -> bool {
        self.can_continue && (self.leads || !is_raw)
    }

    /// Stops this process until its shell continues it, with the terminal as it was meanwhile. Where nobody would continue it, it
    /// goes on; so it does where the key came here as a byte, and others of the job have not heard of it.
    pub fn suspend(self, raw: Option<&Raw>) -> io::Result<()> {
        if !self.can_suspend(raw.is_some()) {
            return Ok(());
        }
        raw.map_or(Ok(()), Raw::give_back)?;
        raise(Signal::SIGSTOP)?;
        raw.map_or(Ok(()), Raw::reenter)
    }
}
