//! How cells reach a network, if their session has one: through a listening socket on their loopback, which the broker passes to
//! the client. Only the client reads from it: it knows the hosts that the policy allows, and only it has a network.
//!
//! In the namespaced tier the socket listens in the session's own network namespace, so nobody else
//! can reach it. In the flat tier it listens on an address of the machine's loopback drawn for the
//! session. Any program of the machine can connect to that, so the cells' supervisors, which make
//! each connection, announce it first by its own address, and the client serves no other.

use executor_sys::{message, random};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The address at which programs find the relay. The port is neither one that a kernel assigns by itself, nor a registered one.
pub const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 61080);

/// The sockets of a session's relay, when it is created.
#[derive(Debug)]
pub struct RelaySockets {
    listener: OwnedFd,
    address: SocketAddrV4,
    /// In the flat tier: where supervisors announce connections, and where the client reads the announcements.
    announcements: Option<(OwnedFd, OwnedFd)>,
}

/// What supervisors of the flat tier need to connect programs to the relay.
#[derive(Debug)]
pub struct RelayGate {
    /// Kept open, so that nothing else can listen at the address.
    pub listener: OwnedFd,
    /// Its address on the machine's loopback.
    pub address: SocketAddrV4,
    /// Each message is the address of one connection: four bytes, then the port in network order.
    pub announcements: OwnedFd,
}

impl RelaySockets {
    /// Creates them in the network namespace of this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(own_network: bool) -> io::Result<Self> {
        let (at, announcements) = match own_network {
            true => (ADDRESS, None),
            false => (
                SocketAddrV4::new(drawn_address()?, 0),
                Some(message::pair()?),
            ),
        };
        let listener = TcpListener::bind(at)?;
        let SocketAddr::V4(address) = listener.local_addr()? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        Ok(Self {
            listener: listener.into(),
            address,
            announcements,
        })
    }

    /// The sockets for the client.
    pub fn for_client(&self) -> Vec<BorrowedFd<'_>> {
        let announced = self
            .announcements
            .as_ref()
            .map(|(_, client)| client.as_fd());
        std::iter::once(self.listener.as_fd())
            .chain(announced)
            .collect()
    }

    /// What supervisors need, if they make the connections.
    pub fn into_gate(self) -> Option<RelayGate> {
        let Self {
            listener,
            address,
            announcements,
        } = self;
        announcements.map(|(announcements, _)| RelayGate {
            listener,
            address,
            announcements,
        })
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
        let sockets = RelaySockets::open(false).unwrap();
        assert_eq!(sockets.for_client().len(), 2);
        let gate = sockets.into_gate().unwrap();
        assert!(gate.address.ip().is_loopback() && gate.address.ip().octets()[1] != 0);
    }
}
