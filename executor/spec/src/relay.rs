//! How cells reach a network, if their session has one: through a listening socket on their loopback, which the broker passes to
//! the session's gateway. Only the gateway reads from it: it knows the hosts and ports that the policy allows, and only it has a
//! network.
//!
//! In the namespaced tier the socket listens in the session's own network namespace, so nobody else can reach it. In the flat tier it
//! listens on an address of the machine's loopback drawn for the session, and any program of the machine can connect to that.
//!
//! The cells' supervisors make each connection, and announce it first by its own address, with what it is for: no program can. The gateway
//! serves no other. The call comes with it, because questions about what leaves are asked of those who wait for that call. So one that was announced and did not come about says nothing of the next one from the same address.

use broker_protocol::CallId;
use broker_protocol::limit::RELAY_PORT;
use executor_sys::{message, random};
use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The address at which programs find the relay. The port is neither one that a kernel assigns by itself, nor a registered one.
pub const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, RELAY_PORT);

/// Path of the session's ssh agent. There is no file: supervisors know the path, and pass each connection to the gateway with
/// its call, so nobody else can connect.
pub const AGENT: &str = "/run/lazaret-ssh-agent";

/// The purpose of a connection to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// A request, which names a host.
    Request,
    /// A port of this machine's loopback.
    Machine(NonZeroU16),
    /// A port of this host, to whose address a program has connected (`host_pool.rs`).
    Host(&'a str, NonZeroU16),
}

/// The sockets of a session's relay, when it is created.
#[derive(Debug)]
pub struct RelaySockets {
    listener: OwnedFd,
    address: SocketAddrV4,
    /// Where supervisors announce connections, and where the gateway reads the announcements.
    announcements: (OwnedFd, OwnedFd),
    /// Where the gateway asks for connections to published ports, and where it is heard.
    published: (OwnedFd, OwnedFd),
    /// The line on which supervisors pass connections to the ssh agent, and the gateway's end of it.
    agents: (OwnedFd, OwnedFd),
}

/// Descriptors that supervisors need to connect programs to the relay.
#[derive(Debug)]
pub struct RelayGate {
    /// Kept open in the flat tier, so that nothing else of the machine can listen at the address.
    pub listener: Option<OwnedFd>,
    /// Its address on the loopback where supervisors connect.
    pub address: SocketAddrV4,
    announcements: OwnedFd,
    agents: OwnedFd,
    /// The call whose programs connect now: each cell's supervisor has its own copy of this.
    call: Cell<CallId>,
}

/// The network in which a session's cells run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellNetwork {
    Own,
    OfMachine,
}

impl RelaySockets {
    /// Creates them in the network namespace of this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(network: CellNetwork) -> io::Result<Self> {
        let at = match network {
            CellNetwork::Own => ADDRESS,
            CellNetwork::OfMachine => SocketAddrV4::new(drawn_address()?, 0),
        };
        let listener = TcpListener::bind(at)?;
        let SocketAddr::V4(address) = listener.local_addr()? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        Ok(Self {
            listener: listener.into(),
            address,
            announcements: message::pair()?,
            published: message::pair()?,
            agents: message::pair()?,
        })
    }

    /// The sockets for the gateway.
    pub fn for_gateway(&self) -> [BorrowedFd<'_>; 4] {
        let [announced, published] = [&self.announcements.1, &self.published.1];
        [&self.listener, announced, published, &self.agents.1].map(AsFd::as_fd)
    }

    /// The parts that stay in the session: the gate of supervisors, and the socket by which the gateway asks for connections to
    /// published ports. In a network of the session's own, the gateway's descriptors are the only ones of the listener: without a gateway,
    /// connections are refused.
    pub fn into_gate(self, network: CellNetwork) -> (RelayGate, OwnedFd) {
        let Self {
            listener,
            address,
            announcements: (announcements, _),
            published: (published, _),
            agents: (agents, _),
        } = self;
        let gate = RelayGate {
            listener: match network {
                CellNetwork::Own => None,
                CellNetwork::OfMachine => Some(listener),
            },
            address,
            announcements,
            agents,
            call: Cell::default(),
        };
        (gate, published)
    }
}

impl RelayGate {
    /// Connections are those of this call's programs from now on.
    pub fn begin_call(&self, call: CallId) {
        self.call.set(call);
    }

    /// Announces a connection by its own address, before it begins.
    ///
    /// # Errors
    /// The kernel's: the gateway is gone, or takes nothing.
    pub fn announce(&self, from: SocketAddrV4, purpose: Purpose) -> io::Result<()> {
        let (port, host) = match purpose {
            Purpose::Request => (0, ""),
            Purpose::Machine(port) => (port.get(), ""),
            Purpose::Host(host, port) => (port.get(), host),
        };
        let [at, port] = [from.port(), port].map(u16::to_be_bytes);
        let (ip, call) = (from.ip().octets(), self.call.get().to_be_bytes());
        let announcement = [&ip[..], &at, &port, &call, host.as_bytes()].concat();
        message::send(self.announcements.as_fd(), &announcement, &[])
    }

    /// Passes one end of a connection to the gateway's ssh agent.
    ///
    /// # Errors
    /// The kernel's: the gateway is gone, or takes nothing.
    pub fn pass_to_agent(&self, connection: BorrowedFd) -> io::Result<()> {
        let call = self.call.get().to_be_bytes();
        message::send(self.agents.as_fd(), &call, &[connection])
    }

    /// The descriptors that a cell must keep open.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let lines = [&self.announcements, &self.agents];
        self.listener.iter().chain(lines).map(AsFd::as_fd)
    }
}

/// An address of the machine's loopback that is not in common use.
fn drawn_address() -> io::Result<Ipv4Addr> {
    let [a, b, c] = random::bytes()?;
    // Outside 127.0.0.0/16, which services of the machine use, and not the last address, which is for broadcasts.
    Ok(Ipv4Addr::new(127, 1 + a % 254, b, 1 + c % 254))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_of_the_machine_is_where_nobody_looks() {
        let (gate, _) = RelaySockets::open(CellNetwork::OfMachine)
            .unwrap()
            .into_gate(CellNetwork::OfMachine);
        assert!(gate.address.ip().is_loopback() && gate.address.ip().octets()[1] != 0);
    }

    #[test]
    fn announcement_has_connection_and_purpose() {
        let sockets = RelaySockets::open(CellNetwork::OfMachine).unwrap();
        let theirs = sockets.announcements.1.try_clone().unwrap();
        let (gate, _) = sockets.into_gate(CellNetwork::OfMachine);
        let from = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 0x0405);
        let port = NonZeroU16::new(0x1538).unwrap();
        for (call, purpose, rest) in [
            (0, Purpose::Request, &b"\0\0\0\0\0\0\0\0\0\0"[..]),
            (1, Purpose::Machine(port), b"\x15\x38\0\0\0\0\0\0\0\x01"),
            (
                u64::MAX,
                Purpose::Host("a.example", port),
                b"\x15\x38\xff\xff\xff\xff\xff\xff\xff\xffa.example",
            ),
        ] {
            gate.begin_call(call);
            gate.announce(from, purpose).unwrap();
            let mut message = [0; 32];
            let (length, _) = message::receive(theirs.as_fd(), &mut message).unwrap();
            assert_eq!(message[..length], [&[127, 1, 2, 3, 4, 5], rest].concat());
        }
    }
}
