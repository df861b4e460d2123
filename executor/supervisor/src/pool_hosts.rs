//! Connections to the addresses that stand for allowed hosts (`host_pool.rs` of `executor-spec`): they are made to the relay's socket, and
//! announced with the host's name, so that the gateway decides about them as about a request for it.
//!
//! Nobody else answers at these addresses: no socket is bound to one, in the session's own network because this is refused here and
//! because they are no addresses of its interface, but for the one that no host has.

use crate::answer::SyscallAnswer;
use crate::machine_ports::{connect_by_relay, is_loopback};
use crate::object::errno;
use crate::rules::RelayWay;
use crate::supervised_call::SupervisedCall;
use crate::tcp::{SocketName, TcpSocket, family, inode};
use broker_protocol::AttemptKind;
use executor_spec::refusals::Cause;
use executor_spec::relay::{self, Purpose};
use nix::Result;
use nix::errno::Errno;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

impl SupervisedCall<'_> {
    /// Connects a socket to the host that this address stands for; gives the socket back if the address is none of the pool.
    pub(crate) fn connect_host(
        &self,
        tcp: TcpSocket,
        name: SocketName,
    ) -> std::result::Result<Result<SyscallAnswer>, TcpSocket> {
        let Some(ip) = name.v4().filter(|ip| self.rules.hosts.has(*ip)) else {
            return Err(tcp);
        };
        // As in the kernel: it has no way to an address of IPv4.
        if tcp.is_v6_only() != Ok(false) {
            return Ok(Err(Errno::ENETUNREACH));
        }
        let Some(way) = self.rules.way_to_host(ip, name.port) else {
            let target = SocketAddr::new(name.ip, name.port).to_string();
            self.note(AttemptKind::Connect, Cause::Network, target.as_bytes());
            return Ok(Err(Errno::ECONNREFUSED));
        };
        Ok(self.lead(tcp, name, way))
    }

    /// Connects a socket by way of the relay, and remembers that it is connecting.
    fn lead(&self, tcp: TcpSocket, name: SocketName, way: RelayWay) -> Result<SyscallAnswer> {
        let connecting = inode(&tcp.socket)?;
        let begun = connect_by_relay(&mut self.loopback.borrow_mut(), tcp, name, way);
        if matches!(begun, Ok(_) | Err(Errno::EINPROGRESS)) {
            self.kept.borrow_mut().connects(connecting);
        }
        begun
    }

    /// Makes a connection in the session's own network that leads to the relay, for itself or for a host; gives any other socket back.
    pub(crate) fn led_in_network(
        &self,
        socket: OwnedFd,
        address: &[u8],
    ) -> Result<std::result::Result<Result<SyscallAnswer>, OwnedFd>> {
        let is_led = |name: &SocketName| self.is_pool(*name) || self.is_relay(*name);
        if socket_name(address).filter(is_led).is_none() {
            return Ok(Err(socket));
        }
        // Of another protocol: the kernel answers.
        let Ok(tcp) = TcpSocket::of_another_cell(socket.try_clone().map_err(errno)?) else {
            return Ok(Err(socket));
        };
        let name = SocketName::read(tcp.family, address)?;
        Ok(Ok(
            match (self.connect_host(tcp, name), self.rules.relay()) {
                (Ok(begun), _) => begun,
                (Err(tcp), Some(gate)) => self.lead(tcp, name, (gate, Purpose::Request)),
                (Err(_), None) => return Ok(Err(socket)),
            },
        ))
    }

    /// Whether a socket with this address would be one of the pool.
    pub(crate) fn is_of_pool(&self, address: &[u8]) -> bool {
        socket_name(address).is_some_and(|name| self.is_pool(name))
    }

    fn is_pool(&self, name: SocketName) -> bool {
        name.v4().is_some_and(|ip| self.rules.hosts.has(ip))
    }

    fn is_relay(&self, name: SocketName) -> bool {
        let is_v4 = name.v4().is_some() && is_loopback(name);
        is_v4 && name.port == relay::ADDRESS.port() && self.rules.relay().is_some()
    }
}

fn socket_name(address: &[u8]) -> Option<SocketName> {
    SocketName::read(family(address)?, address).ok()
}
