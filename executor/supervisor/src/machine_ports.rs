//! Ports of this machine's loopback that the policy opens: a connection that finds no listener in the session is made to the relay's
//! socket, and announced to the gateway with its port. The gateway alone connects to the machine.
//!
//! A program that listens at such a port itself has it, as without the policy: so a listener of the cell comes first.

use crate::answer::SyscallAnswer;
use crate::flat::loopback::Loopback;
use crate::object::errno;
use crate::rules::RelayWay;
use crate::supervised_call::SupervisedCall;
use crate::tcp::{SocketName, TcpSocket, family, inode, is_closed, is_over};
use executor_sys::socket;
use nix::Result;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

/// An address that disconnects a socket (`AF_UNSPEC`).
const NOWHERE: [u8; 16] = [0; 16];
/// Milliseconds that the loopback may take to say that nobody listens: it takes none, unless the machine is busy.
const REFUSED_MS: u8 = 20;

/// Connects a socket to what the program calls `name`, by way of the relay.
pub(crate) fn connect_by_relay(
    loopback: &mut Loopback,
    tcp: TcpSocket,
    name: SocketName,
    (gate, purpose): RelayWay,
) -> Result<SyscallAnswer> {
    let socket = inode(&tcp.socket)?;
    let begun = loopback.connect_relay(tcp, gate, purpose);
    if matches!(begun, Ok(_) | Err(Errno::EINPROGRESS)) {
        loopback.reaches(socket, reached(name));
    }
    begun
}

/// The name of the other end: no address to connect to means the loopback.
fn reached(name: SocketName) -> SocketName {
    let ip = match name.ip {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketName { ip, ..name }
}

/// Whether this address means the loopback, where a port of this machine may be.
pub(crate) fn is_loopback(name: SocketName) -> bool {
    match name.v4() {
        Some(ip) => matches!(ip, Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED),
        None => matches!(
            name.ip,
            IpAddr::V6(Ipv6Addr::LOCALHOST | Ipv6Addr::UNSPECIFIED)
        ),
    }
}

impl SupervisedCall<'_> {
    /// What becomes of a connection that has begun in the session's own network, on a socket that does not block: if nobody listens
    /// at a port that the policy opens, it goes there.
    pub(crate) fn or_machine(
        &self,
        socket: &OwnedFd,
        address: &[u8],
        begun: Result<()>,
    ) -> Result<Result<()>> {
        let name = family(address).and_then(|family| SocketName::read(family, address).ok());
        let name = name.filter(|name| is_loopback(*name));
        let way = name.and_then(|name| Some((name, self.rules.way_to_machine(name.port)?)));
        let Some((name, way)) = way else {
            return Ok(begun);
        };
        let copy = socket.try_clone().map_err(errno)?;
        // Of another protocol, which no port of a policy is for.
        let Ok(tcp) = TcpSocket::of_another_cell(copy) else {
            return Ok(begun);
        };
        let begun = decided(socket, address, begun);
        if begun != Err(Errno::ECONNREFUSED) {
            return Ok(begun);
        }
        socket::connect(socket.as_fd(), &NOWHERE).map_err(errno)?;
        let mut loopback = self.loopback.borrow_mut();
        Ok(connect_by_relay(&mut loopback, tcp, name, way).map(drop))
    }
}

impl SupervisedCall<'_> {
    /// Notes whether somebody listens at a port of the session's own loopback, as far as that is known when a connection has begun.
    pub(crate) fn note_answer(&self, socket: &OwnedFd, address: &[u8], begun: Result<()>) {
        let name = family(address).and_then(|family| SocketName::read(family, address).ok());
        let Some(name) = name.filter(|name| is_loopback(*name)) else {
            return;
        };
        match begun {
            Ok(()) => self.loopback.borrow_mut().answered(name.port),
            // The caller hears of it later, by way of the kernel alone.
            Err(Errno::EINPROGRESS) if is_closed(socket) => {
                self.loopback.borrow_mut().unanswered(name);
            }
            Err(_) => {}
        }
    }
}

/// The result of a connection that has begun, once the loopback has decided: the second call lets the socket see it.
fn decided(socket: &OwnedFd, address: &[u8], begun: Result<()>) -> Result<()> {
    if begun != Err(Errno::EINPROGRESS) {
        return begun;
    }
    if !is_over(socket) {
        // A listener whose queue is full takes longer, and is a listener.
        let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        let _ = poll(&mut ready, PollTimeout::from(REFUSED_MS));
    }
    if is_over(socket) {
        socket::connect(socket.as_fd(), address).map_err(errno)
    } else {
        begun
    }
}
