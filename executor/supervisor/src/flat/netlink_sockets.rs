//! The pairs of Unix sockets that a flat cell has in place of sockets of netlink.

use nix::Result;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, OwnedFd};

/// Maximum number of such sockets of a cell.
const SOCKETS_MAX: usize = 16;

/// The other ends of the pairs, each by the inode of the caller's.
#[derive(Default)]
pub(crate) struct NetlinkSockets(Vec<(u64, OwnedFd)>);

impl NetlinkSockets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the other end of a new pair.
    ///
    /// # Errors
    /// `EMFILE` if the cell has as many.
    pub(crate) fn add(&mut self, inode: u64, other: OwnedFd) -> Result<()> {
        self.0.retain(|(_, other)| is_open(other));
        if self.0.len() >= SOCKETS_MAX {
            return Err(Errno::EMFILE);
        }
        self.0.push((inode, other));
        Ok(())
    }

    /// The other end of a pair that is still open.
    pub(crate) fn other_end(&self, inode: u64) -> Option<&OwnedFd> {
        let found = self
            .0
            .iter()
            .find(|(of, other)| *of == inode && is_open(other));
        found.map(|(_, other)| other)
    }
}

/// Whether any process still has the caller's end open.
fn is_open(other: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(other.as_fd(), PollFlags::empty())];
    let polled = poll(&mut ready, PollTimeout::ZERO);
    let hung_up = ready[0]
        .revents()
        .is_some_and(|events| events.contains(PollFlags::POLLHUP));
    polled.is_ok() && !hung_up
}
