//! Waiting, and giving memory back the first time that nothing happens: most of what a process was started with was needed to
//! start only, and a session is idle most of the time.

use crate::process;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// Milliseconds in which nothing has to happen.
const IDLE_MS: u16 = 500;

/// Gives memory back in the first long wait. Later ones would cost each call after them what is read again then.
#[derive(Debug, Default)]
pub struct IdleTrim {
    done: bool,
}

impl IdleTrim {
    /// `poll`, which once returns 0 before its time is over.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn poll(&mut self, fds: &mut [PollFd], timeout: PollTimeout) -> nix::Result<i32> {
        let idle = PollTimeout::from(IDLE_MS);
        if self.done || timeout.is_some() && timeout < idle {
            return poll(fds, timeout);
        }
        let ready = poll(fds, idle)?;
        if ready == 0 {
            self.done = true;
            process::release_memory();
        }
        Ok(ready)
    }

    /// Waits until a read has something to read, or an end or an error to report; then that read does not wait.
    pub fn wait_readable(&mut self, fd: impl AsFd) {
        loop {
            match self.poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                Ok(0) | Err(Errno::EINTR) => {}
                // What else `poll` refuses, the read waits for by itself.
                Ok(_) | Err(_) => return,
            }
        }
    }
}
