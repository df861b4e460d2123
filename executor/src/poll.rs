//! The descriptors that a broker waits for.

use broker_protocol::CallId;
use nix::poll::{PollFd, PollFlags};
use std::os::fd::BorrowedFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A signal that asks the broker to end.
    End,
    Client,
    Warden,
    Worker,
    Gateway,
    /// The worker that is asked about repositories.
    Question,
    /// The worker that is asked what git settings name in a path of this call.
    Lease(CallId),
    /// The program that gives the value of a credential.
    Credential(u16),
    Report(CallId),
    /// A command's standard output or error.
    Output(CallId),
    /// A command's standard input.
    Input(CallId),
    /// The socket that approvers connect to.
    Approvers,
    Approver(u64),
    /// The output or the report of a background process.
    Background(u64),
}

/// The frames that wait to be sent to the client. While they fill their room, nothing is read that would add to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientQueue {
    HasRoom,
    Full,
}

/// Descriptors to wait for, each with its meaning.
#[derive(Default)]
pub(crate) struct Waited<'s> {
    pub tokens: Vec<Token>,
    pub fds: Vec<PollFd<'s>>,
}

impl<'s> Waited<'s> {
    pub(crate) fn add(&mut self, token: Token, fd: BorrowedFd<'s>, flags: PollFlags) {
        self.tokens.push(token);
        self.fds.push(PollFd::new(fd, flags));
    }

    pub(crate) fn add_input(&mut self, token: Token, fd: BorrowedFd<'s>) {
        self.add(token, fd, PollFlags::POLLIN);
    }
}
