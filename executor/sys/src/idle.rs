//! Waits, and returns memory to the kernel the first time a process is idle: most of its memory was
//! only needed to start, and a session is idle most of the time.

use crate::process;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

/// Milliseconds without an event after which a process counts as idle.
const IDLE_MS: u16 = 500;

/// Returns memory in the first long wait. Doing so again would make each later call read back what it needs.
#[derive(Debug, Default)]
pub struct IdleTrim {
    done: bool,
}

impl IdleTrim {
    /// `poll`, which returns 0 once before its timeout.
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

    /// Waits until a read would return data, end of file or an error; the read then does not block.
    pub fn wait_readable(&mut self, fd: impl AsFd) {
        loop {
            match self.poll(
                &mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)],
                PollTimeout::NONE,
            ) {
                Ok(0) | Err(Errno::EINTR) => {}
                // On any other error of `poll`, the read blocks by itself.
                Ok(_) | Err(_) => return,
            }
        }
    }
}
