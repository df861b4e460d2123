//! The broker's side of a cell.

use executor_spec::cell_order::{self, CellPlan};
use executor_spec::cell_report::{CellMessage, MESSAGE_MAX};
use executor_sys::{message, process};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A cell that waits for its order or runs it.
#[derive(Debug)]
pub struct CellHandle {
    /// Carries orders to the cell, and its report back.
    pub socket: OwnedFd,
    /// The cell's first process.
    pub pidfd: OwnedFd,
}

impl CellHandle {
    /// Sends the cell its order.
    ///
    /// # Errors
    /// `WouldBlock` if the cell does not accept it; otherwise the kernel's.
    pub fn order(&self, plan: &CellPlan, stdio: [BorrowedFd; 3]) -> io::Result<()> {
        cell_order::send(self.socket.as_fd(), plan, stdio)
    }

    /// Sends a signal for its program.
    ///
    /// # Errors
    /// `WouldBlock` if the cell does not accept it; otherwise the kernel's.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        cell_order::send_signal(self.socket.as_fd(), signal)
    }

    /// Asks all its processes to end by themselves.
    ///
    /// # Errors
    /// `WouldBlock` if the cell does not accept it; otherwise the kernel's.
    pub fn terminate(&self) -> io::Result<()> {
        cell_order::send_terminate(self.socket.as_fd())
    }

    /// Closes the direction for orders: the cell kills all its processes, reports and exits.
    pub fn end(&self) {
        // If the cell is gone, its missing report shows it.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
    }

    /// Kills its first process, and with it, if the cell has namespaces, everything in it.
    pub fn kill(&self) {
        // If this fails, it has already exited.
        let _ = process::pidfd_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }

    /// Whether the cell has ended without a message: it was killed while it waited.
    pub(crate) fn is_gone(&self) -> bool {
        let peeked = recv(
            self.socket.as_raw_fd(),
            &mut [0],
            MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
        );
        matches!(peeked, Ok(0) | Err(Errno::ECONNRESET))
    }

    /// Receives a refusal, what was left running, or the report, which is the last message of a call.
    ///
    /// # Errors
    /// `WouldBlock` if there is no message yet; `UnexpectedEof` if none will come, or it is invalid; otherwise the kernel's.
    pub fn receive(&self) -> io::Result<CellMessage> {
        let mut buffer = [0; MESSAGE_MAX];
        let mut receive = || message::receive(self.socket.as_fd(), &mut buffer);
        let received = match receive() {
            // The cell left a signal of ours unread: the kernel returns this error first, and the report afterwards.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => receive(),
            received => received,
        };
        let (length, _) = received?;
        CellMessage::decode(&buffer[..length]).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
