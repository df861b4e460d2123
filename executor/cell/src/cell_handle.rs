//! The broker's side of a cell.

use crate::order::{self, CellPlan};
use crate::report::{MESSAGE_MAX, Message};
use executor_sys::{message, process};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A cell that is ready, or at work.
#[derive(Debug)]
pub struct CellHandle {
    /// Orders go down here, and the report comes up.
    pub socket: OwnedFd,
    /// The cell's first process.
    pub pidfd: OwnedFd,
}

impl CellHandle {
    /// Sends it its order.
    ///
    /// # Errors
    /// `WouldBlock` if it does not take it; else the kernel's.
    pub fn order(&self, plan: &CellPlan, stdio: [BorrowedFd; 3]) -> io::Result<()> {
        order::send(self.socket.as_fd(), plan, stdio)
    }

    /// Sends a signal for its program.
    ///
    /// # Errors
    /// `WouldBlock` if it does not take it; else the kernel's.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        order::send_signal(self.socket.as_fd(), signal)
    }

    /// Closes its way for orders: it kills everything in it, reports and ends.
    pub fn end(&self) {
        // If it is gone, its report says so.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
    }

    /// Kills its first process, and with that, where the cell has namespaces, everything in it.
    pub fn kill(&self) {
        // It is gone already if this fails.
        let _ = process::pidfd_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }

    /// Whether it has ended and says nothing: it was killed while it waited.
    pub fn is_gone(&self) -> bool {
        let peeked = recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        matches!(peeked, Ok(0) | Err(Errno::ECONNRESET))
    }

    /// Receives a refusal, or the report, which is the last message of a call.
    ///
    /// # Errors
    /// `WouldBlock` if none has come; `UnexpectedEof` if none will, or what has come is none; else the kernel's.
    pub fn receive(&self) -> io::Result<Message> {
        let mut buffer = [0; MESSAGE_MAX];
        let mut receive = || message::receive(self.socket.as_fd(), &mut buffer);
        let received = match receive() {
            // The cell left a signal of ours unread: the kernel says so first, and gives the report after that.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => receive(),
            received => received,
        };
        let (length, _) = received?;
        Message::decode(&buffer[..length]).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
