//! The ssh agent of the session: a program that connects to its path gets a connection to the gateway, which has the agent. The policy decides
//! whether there is one (`[ssh]`).

use crate::answer::{SyscallAnswer, set_flags};
use crate::object::errno;
use crate::supervised_call::SupervisedCall;
use executor_spec::relay::RelayGate;
use executor_sys::notify::OnExec;
use executor_sys::socket;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::AsFd;

impl SupervisedCall<'_> {
    /// Puts one end of a new connection in the place of the caller's socket, which has none, and passes the other one to the gateway.
    pub(crate) fn connect_agent(&self, number: i32, gate: &RelayGate) -> Result<SyscallAnswer> {
        let own = self.unconnected_socket(number, Errno::EISCONN)?;
        self.check()?;
        let option = |name| socket::option(own.as_fd(), libc::SOL_SOCKET, name).map_err(errno);
        if option(libc::SO_DOMAIN)? != libc::AF_UNIX || option(libc::SO_TYPE)? != libc::SOCK_STREAM
        {
            return Err(Errno::EPROTOTYPE);
        }
        let (program, gateway) = socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let flags = OFlag::from_bits_retain(fcntl(&own, FcntlArg::F_GETFL)?);
        set_flags(&program, flags)?;
        let passed = gate.pass_to_agent(gateway.as_fd());
        passed.map_err(|_| Errno::ECONNREFUSED)?;
        // No client of an agent means to hand its connection to another program.
        self.notified
            .replace(program.as_fd(), number, OnExec::Close)?;
        Ok(SyscallAnswer::Value(0))
    }
}
