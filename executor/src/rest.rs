//! What a process gives back once it has nothing to do for the first time: most of what it was started with was needed to
//! start only, and a session is idle most of the time.

use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long nothing has to happen.
const IDLE: Duration = Duration::from_millis(500);

/// Waits for descriptors, and gives memory back during the first long wait. Later ones would cost each call after them what is
/// read again then.
#[derive(Debug, Default)]
pub struct Rest {
    done: bool,
}

impl Rest {
    /// `poll`, which once says that nothing has happened before its time is over.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn poll(&mut self, fds: &mut [PollFd], timeout: PollTimeout) -> nix::Result<i32> {
        let idle = PollTimeout::try_from(IDLE).unwrap_or(PollTimeout::MAX);
        if self.done || timeout.is_some() && timeout < idle {
            return poll(fds, timeout);
        }
        let ready = poll(fds, idle)?;
        if ready == 0 {
            self.done = true;
            sys::give_back();
        }
        Ok(ready)
    }

    /// Waits until a read has something to read, or an end or an error to tell; then that read does not wait.
    pub fn before_reading(&mut self, from: impl AsFd) {
        // What else `poll` refuses, the read waits for by itself.
        while self.poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)
            == Err(Errno::EINTR)
        {}
    }
}
