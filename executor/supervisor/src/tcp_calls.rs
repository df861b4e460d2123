//! Calls on TCP sockets, by which programs use the cell's loopback.

use crate::answer::SyscallAnswer;
use crate::flat::loopback::Families;
use crate::kept_sockets::CallersSocket;
use crate::machine_ports::connect_by_relay;
use crate::object::errno;
use crate::supervised_call::SupervisedCall;
use crate::tcp::{SocketName, TcpSocket, family, inode, number};
use executor_spec::caller_access::SocketAccess;
use executor_spec::relay::{self, Purpose};
use executor_sys::socket::{self, SocketEnd};
use nix::Result;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

impl SupervisedCall<'_> {
    /// `bind` of a TCP socket.
    pub(crate) fn bind_tcp(&self, socket: i32, address: &[u8]) -> Result<SyscallAnswer> {
        let tcp = self.unconnected_tcp(socket, Errno::EINVAL)?;
        let name = SocketName::read(tcp.family, address)?;
        let only = tcp.is_v6_only()?;
        let families = match (name.ip, name.v4()) {
            (_, Some(ip)) if only || !is_local(ip) => return Err(Errno::EADDRNOTAVAIL),
            (_, Some(_)) => Families::V4,
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), _) if !only => Families::Both,
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED | Ipv6Addr::LOCALHOST), _) => Families::V6,
            _ => return Err(Errno::EADDRNOTAVAIL),
        };
        // In use, as in the session's own network namespace.
        if families != Families::V6
            && name.port == relay::ADDRESS.port()
            && self.rules.relay().is_some()
        {
            return Err(Errno::EADDRINUSE);
        }
        // What programs have closed must not keep a port.
        self.kept.borrow_mut().drop_closed();
        self.loopback.borrow_mut().bind(&tcp, families, name.port)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `listen`. An unbound TCP socket would be bound to all addresses of the machine.
    pub(crate) fn listen(&self, socket: i32, backlog: i32) -> Result<SyscallAnswer> {
        let tcp = match self.tcp(socket)? {
            SocketRole::Tcp(tcp) => tcp,
            SocketRole::Unix(unix) => {
                socket::listen(unix.as_fd(), backlog).map_err(errno)?;
                return Ok(SyscallAnswer::Value(0));
            }
            SocketRole::Other(_) => return Err(Errno::EINVAL),
        };
        let mut loopback = self.loopback.borrow_mut();
        // Checked by address: a socket whose connection has failed reports a port that it no longer has.
        if !loopback.is_own(SocketName::of(&tcp, SocketEnd::Own)?) {
            let families = match tcp.family {
                libc::AF_INET => Families::V4,
                _ if tcp.is_v6_only()? => Families::V6,
                _ => Families::Both,
            };
            loopback.bind(&tcp, families, 0)?;
        }
        socket::listen(tcp.socket.as_fd(), backlog).map_err(errno)?;
        let port = loopback.listens(&tcp)?;
        self.line.iter().for_each(|line| line.announce(port));
        Ok(SyscallAnswer::Value(0))
    }

    /// `connect` of a TCP socket.
    pub(crate) fn connect_tcp(&self, socket: i32, address: &[u8]) -> Result<SyscallAnswer> {
        // A listener that its program has closed must be closed.
        self.kept.borrow_mut().drop_closed();
        let tcp = self.unconnected_tcp(socket, Errno::EISCONN)?;
        let connecting = inode(&tcp.socket)?;
        let name = SocketName::read(tcp.family, address)?;
        let tcp = match self.connect_host(tcp, name) {
            Ok(begun) => return begun,
            Err(tcp) => tcp,
        };
        let families = match (name.ip, name.v4()) {
            (_, Some(ip)) if is_local(ip) => Families::V4,
            (_, Some(ip)) if ip.is_loopback() => return Err(Errno::ECONNREFUSED),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED | Ipv6Addr::LOCALHOST), _) => Families::V6,
            _ => return Err(Errno::ENETUNREACH),
        };
        let relay = self
            .rules
            .relay()
            .filter(|_| families == Families::V4 && name.port == relay::ADDRESS.port());
        let mut loopback = self.loopback.borrow_mut();
        let begun = match relay {
            Some(gate) => connect_by_relay(&mut loopback, tcp, name, (gate, Purpose::Request)),
            None => {
                let way = self.rules.way_to_machine(name.port);
                match (loopback.connect(tcp, families, name.port), way, self.line) {
                    (Ok(begun), _, _) => begun,
                    (Err(tcp), Some(way), _) => connect_by_relay(&mut loopback, tcp, name, way),
                    (Err(tcp), None, Some(line)) => line.connect(tcp, families, name),
                    (Err(_), None, None) => Err(Errno::ECONNREFUSED),
                }
            }
        };
        if matches!(begun, Ok(SyscallAnswer::Value(_))) {
            loopback.answered(name.port);
        }
        if matches!(begun, Ok(_) | Err(Errno::EINPROGRESS)) {
            self.kept.borrow_mut().connects(connecting);
        }
        begun
    }

    /// `shutdown` of more than the sending side.
    pub(crate) fn shut_down(&self, fd: i32, how: i32) -> Result<SyscallAnswer> {
        use nix::sys::socket::{Shutdown, shutdown};
        use std::os::fd::AsRawFd;
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        };
        let socket = match self.tcp(fd)? {
            SocketRole::Tcp(tcp) => {
                self.loopback.borrow_mut().abandon(inode(&tcp.socket)?);
                tcp.socket
            }
            SocketRole::Unix(unix) => unix,
            SocketRole::Other(_) => return self.shut_other(fd),
        };
        shutdown(socket.as_raw_fd(), how)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `getsockname` and `getpeername`: the cell's own name for a socket on its loopback; the program's for a Unix socket.
    pub(crate) fn socket_name(
        &self,
        socket: i32,
        end: SocketEnd,
        address: u64,
        length: u64,
    ) -> Result<SyscallAnswer> {
        let netlink = self.netlink_name(socket).filter(|_| end == SocketEnd::Own);
        if let Some(name) = netlink {
            return self.write_name(&name, address, length);
        }
        let name = match self.tcp(socket)? {
            SocketRole::Tcp(tcp) => {
                let name = socket::name(tcp.socket.as_fd(), end).map_err(errno)?;
                self.tcp_name(inode(&tcp.socket)?, name, end)
            }
            SocketRole::Unix(unix) => {
                let name = socket::name(unix.as_fd(), end).map_err(errno)?;
                // A peer is another socket, whose inode is unknown.
                let inode = match end {
                    SocketEnd::Own => inode(&unix)?,
                    SocketEnd::Peer => 0,
                };
                self.socket_names.borrow().asked(inode, name)
            }
            SocketRole::Other(inode) => match self.other_name(inode, end) {
                Some(name) => name,
                // An accepted one: the kernel says its own name for it, and nothing is decided about that.
                None => return Ok(SyscallAnswer::GoOn),
            },
        };
        self.write_name(&name, address, length)
    }

    fn write_name(&self, name: &[u8], address: u64, length: u64) -> Result<SyscallAnswer> {
        let room = self.caller.bytes(length, 4)?;
        let room = i32::from_ne_bytes(*room.first_chunk().ok_or(Errno::EFAULT)?);
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        self.check()?;
        self.caller.write(address, &name[..room.min(name.len())])?;
        self.caller
            .write(length, &(name.len() as u32).to_ne_bytes())?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `SO_LINGER`, which must not make `close` block: the last to close a socket may be this process.
    pub(crate) fn linger(&self, socket: i32, value: u64, length: i32) -> Result<SyscallAnswer> {
        if length < 8 {
            return Err(Errno::EINVAL);
        }
        let value = self.caller.bytes(value, 8)?;
        let [on, seconds] = [0, 4].map(|at| {
            value[at..]
                .first_chunk()
                .map(|bytes| i32::from_ne_bytes(*bytes))
        });
        let (on, seconds) = on.zip(seconds).ok_or(Errno::EFAULT)?;
        let CallersSocket::Copy(socket) = self.socket(socket)? else {
            return Ok(SyscallAnswer::Value(0));
        };
        self.check()?;
        let on = i32::from(on != 0 && seconds == 0);
        socket::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &[on, 0])
            .map_err(errno)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// The name of a socket that was connected here and of which there is no copy any more, or of its peer.
    fn other_name(&self, inode: u64, end: SocketEnd) -> Option<Vec<u8>> {
        let name = self.kept.borrow().name(inode, end)?;
        Some(match family(&name) {
            Some(libc::AF_INET | libc::AF_INET6) => self.tcp_name(inode, name, end),
            Some(_) | None => {
                let inode = match end {
                    SocketEnd::Own => inode,
                    SocketEnd::Peer => 0,
                };
                self.socket_names.borrow().asked(inode, name)
            }
        })
    }

    /// The name of a TCP socket or of its peer as the cell knows it: `kernel` is the kernel's.
    fn tcp_name(&self, inode: u64, kernel: Vec<u8>, end: SocketEnd) -> Vec<u8> {
        let read = family(&kernel)
            .and_then(|family| Some((family, SocketName::read(family, &kernel).ok()?)));
        let Some((family, name)) = read else {
            return kernel;
        };
        let gate = self.rules.relay().map(|gate| gate.address);
        let loopback = self.loopback.borrow();
        let by_relay = gate.filter(|_| end == SocketEnd::Peer);
        let by_relay = by_relay.and_then(|gate| loopback.name_by_relay(inode, name, gate));
        match by_relay {
            Some(name) => name.write(family),
            None if self.rules.has_own_network() => kernel,
            None => loopback.name_in_cell(name, gate).write(family),
        }
    }

    /// The caller's socket, which must be TCP; `connected` if it cannot be one that is to be bound or connected.
    fn unconnected_tcp(&self, fd: i32, connected: Errno) -> Result<TcpSocket> {
        match self.tcp(fd)? {
            SocketRole::Tcp(tcp) => Ok(tcp),
            SocketRole::Unix(_) => Err(Errno::EAFNOSUPPORT),
            SocketRole::Other(_) => Err(connected),
        }
    }

    fn tcp(&self, fd: i32) -> Result<SocketRole> {
        let socket = match self.socket(fd)? {
            CallersSocket::Copy(socket) => socket,
            CallersSocket::Other(inode) => {
                self.check()?;
                return Ok(SocketRole::Other(inode));
            }
        };
        let is = |option, value| number(&socket, libc::SOL_SOCKET, option).map(|has| has == value);
        let family = number(&socket, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
        let internet = matches!(family, libc::AF_INET | libc::AF_INET6);
        let tcp = internet
            && is(libc::SO_TYPE, libc::SOCK_STREAM)?
            && is(libc::SO_PROTOCOL, libc::IPPROTO_TCP)?;
        // Computed only where needed: bash calls `getpeername` whenever it starts.
        let answer = match tcp {
            true => SocketRole::Tcp(TcpSocket {
                socket,
                family,
                holder: (self.caller.process()?, fd),
                keeps: self.caller.access.sockets == SocketAccess::Kept,
            }),
            false => SocketRole::Unix(socket),
        };
        self.check()?;
        Ok(answer)
    }
}

/// A socket of the caller.
enum SocketRole {
    Tcp(TcpSocket),
    /// One that is not TCP.
    Unix(OwnedFd),
    /// One of which there is no copy, by its inode.
    Other(u64),
}

/// The addresses that programs use for their own machine: `0.0.0.0` means that to `connect`, and
/// all addresses, of which a cell has one, to `bind`.
fn is_local(ip: Ipv4Addr) -> bool {
    matches!(ip, Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED)
}
