//! A loopback of a cell's own where it has no network namespace: TCP between its programs, and with nobody else.
//!
//! What a program binds to 127.0.0.1, ::1 or all addresses is bound to addresses of 127.0.0.0/8 that were drawn for the
//! cell, and seems to be at 127.0.0.1 or ::1. So no client of the machine comes to a cell's server by calling these, and
//! no port there is taken from anybody.
//!
//! A connection goes to a listener of the cell and to no other: the supervisor takes a descriptor of the listener from a
//! process of the cell before it begins, and keeps it until the handshake is over. A socket listens while anybody has it
//! open; the calls that would end that sooner are made here, one after the other. So even a server of the machine that
//! listens on all addresses is not reached, whatever the program does meanwhile. The caller's own socket is used, taken
//! once, and what it may send or set before that is the filter's (`flat.json`).

use crate::answer::{Answer, Pending as PendingCall};
use crate::object::errno;
use crate::tcp::{SocketName, TcpSocket, family, inode, is_over, number};
use executor_layers::relay::{self, RelayGate};
use executor_sys::{message, peer, proc, random, socket};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, readlink};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Handshakes that may be under way at one time. Each holds two descriptors of this process.
const PENDING_MAX: usize = 200;
/// Sockets that may be bound at one time.
const BOUND_MAX: usize = 4096;
/// How often it is asked whether a listener with handshakes under way is still open elsewhere.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// An address by which a socket is disconnected (`AF_UNSPEC`).
const NOWHERE: [u8; 16] = [0; 16];

/// A cell's sockets, as far as they are known here.
#[derive(Default)]
pub struct Loopback {
    /// Where it binds: for IPv4 and for both families, and for IPv6 alone. Drawn when it is first needed.
    own: Option<[Ipv4Addr; 2]>,
    bound: Vec<Bound>,
    pending: Vec<Handshake>,
    /// When it was last asked who else has the listeners of those.
    checked: Option<Instant>,
}

/// A bound socket, and where it was seen last: a hint, as only what is taken from a process counts.
struct Bound {
    at: (Ipv4Addr, u16),
    families: Families,
    inode: u64,
    holder: (i32, i32),
}

/// The families by whose loopback a listener is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    V4,
    V6,
    Both,
}

/// A handshake that is under way.
struct Handshake {
    socket: OwnedFd,
    listener: OwnedFd,
}

impl Loopback {
    /// Whether handshakes are under way.
    pub fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Forgets handshakes that are over, and ends those with a listener that nobody but this process has left.
    pub fn check_pending(&mut self) {
        self.forget_finished();
        if self.pending.is_empty() || self.checked.is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL) {
            return;
        }
        let listeners: HashSet<u64> =
            self.pending.iter().flat_map(|pending| inode(&pending.listener)).collect();
        for listener in listeners {
            if !self.is_open(listener) {
                self.abandon(listener);
            }
        }
        self.checked = Some(Instant::now());
    }

    fn forget_finished(&mut self) {
        self.pending.retain(|pending| !is_over(&pending.socket));
    }

    fn is_open(&mut self, socket: u64) -> bool {
        let is = |bound: &&Bound| bound.inode == socket;
        if self.bound.iter().find(is).is_some_and(|bound| bound.take().is_some()) {
            return true;
        }
        self.find_all();
        self.bound.iter().any(|bound| is(&bound))
    }

    pub fn bind(&mut self, tcp: &TcpSocket, families: Families, port: u16) -> Result<()> {
        if self.bound.len() >= BOUND_MAX {
            self.find_all();
        }
        if self.bound.len() >= BOUND_MAX {
            return Err(Errno::ENOBUFS);
        }
        let own = self.own()?[usize::from(families == Families::V6)];
        let only = tcp.is_v6_only()?;
        // An address of IPv4 in the form of IPv6 is for both.
        tcp.v6_only(false)?;
        let address = SocketName { ip: own.into(), port }.write(tcp.family);
        if let Err(error) = socket::bind(tcp.socket.as_fd(), &address) {
            tcp.v6_only(only)?;
            return Err(errno(error));
        }
        let at = (own, SocketName::of(tcp, false)?.port);
        // What had it before is closed, or shares it and has gone to another process.
        if self.bound.iter().any(|bound| bound.at == at && bound.take().is_none()) {
            self.find_all();
        }
        self.bound.push(Bound { at, families, inode: inode(&tcp.socket)?, holder: tcp.holder });
        Ok(())
    }

    /// Whether a socket of this name is bound where the cell's are.
    pub fn is_own(&self, name: SocketName) -> bool {
        self.own.zip(name.v4()).is_some_and(|(own, ip)| own.contains(&ip))
    }

    /// Takes note of a listener: one that had lost its port has got another.
    pub fn listens(&mut self, tcp: &TcpSocket) -> Result<()> {
        let (inode, port) = (inode(&tcp.socket)?, SocketName::of(tcp, false)?.port);
        for bound in self.bound.iter_mut().filter(|bound| bound.inode == inode) {
            bound.at.1 = port;
        }
        Ok(())
    }

    pub fn connect(&mut self, tcp: TcpSocket, families: Families, port: u16) -> Result<Answer> {
        self.forget_finished();
        let (at, listener) = self.listener(families, port).ok_or(Errno::ECONNREFUSED)?;
        if !self.is_own(SocketName::of(&tcp, false)?) {
            // What has a port cannot be changed any more, and is refused by the kernel.
            let _ = tcp.v6_only(false);
        }
        self.begin(tcp, at, listener)
    }

    /// Connects to the relay of the session. The connection gets its address before it begins, and is announced by that: the
    /// relay serves nobody else. A socket that the program has bound keeps its address.
    pub fn connect_relay(&mut self, tcp: TcpSocket, gate: &RelayGate) -> Result<Answer> {
        self.forget_finished();
        if !self.is_own(SocketName::of(&tcp, false)?) {
            let _ = tcp.v6_only(false);
            let address = SocketName { ip: self.own()?[0].into(), port: 0 }.write(tcp.family);
            socket::bind(tcp.socket.as_fd(), &address).map_err(errno)?;
        }
        let name = SocketName::of(&tcp, false)?;
        let ip = name.v4().ok_or(Errno::EADDRNOTAVAIL)?;
        let announcement = [&ip.octets()[..], &name.port.to_be_bytes()].concat();
        message::send(gate.announcements.as_fd(), &announcement, &[]).map_err(errno)?;
        let listener = gate.listener.try_clone().map_err(errno)?;
        self.begin(tcp, (*gate.address.ip(), gate.address.port()), listener)
    }

    /// Begins the handshake with a listener that is held until it is over.
    fn begin(&mut self, tcp: TcpSocket, at: (Ipv4Addr, u16), listener: OwnedFd) -> Result<Answer> {
        if self.pending.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        let address = SocketName { ip: at.0.into(), port: at.1 }.write(tcp.family);
        let socket = tcp.socket;
        let copy = socket.try_clone().map_err(errno)?;
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        let waits = !flags.contains(OFlag::O_NONBLOCK);
        if waits {
            fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let mut begun = socket::connect(socket.as_fd(), &address).map_err(errno);
        // To a listener that has room the handshake is over by now. The second call takes note of that.
        if waits && begun == Err(Errno::EINPROGRESS) && is_over(&socket) {
            begun = socket::connect(socket.as_fd(), &address).map_err(errno);
        }
        // What was on its way before has its listener. It is kept here and not with the call, which may end before it.
        if begun != Err(Errno::EALREADY) && !is_over(&socket) {
            self.pending.push(Handshake { socket, listener });
        }
        if waits {
            fcntl(&copy, FcntlArg::F_SETFL(flags))?;
        }
        match begun {
            // The latter when a signal has begun a call again, which it does before Linux 5.19.
            Err(Errno::EINPROGRESS | Errno::EALREADY) if waits => PendingCall::handshake(copy),
            begun => begun.map(|()| Answer::Value(0)),
        }
    }

    /// A listener of the cell, as long as it is held.
    fn listener(&mut self, families: Families, port: u16) -> Option<((Ipv4Addr, u16), OwnedFd)> {
        if let Some(found) = self.take(families, port) {
            return Some(found);
        }
        // It may have gone to another process.
        let known = self.bound.iter().any(|bound| bound.at.1 == port);
        if known {
            self.find_all();
        }
        self.take(families, port).filter(|_| known)
    }

    fn take(&self, families: Families, port: u16) -> Option<((Ipv4Addr, u16), OwnedFd)> {
        let exact = self.bound.iter().filter(|bound| bound.families == families);
        let both = self.bound.iter().filter(|bound| bound.families == Families::Both);
        let mut candidates = exact.chain(both).filter(|bound| bound.at.1 == port);
        candidates.find_map(|bound| Some((bound.at, bound.take().filter(|fd| bound.listens(fd))?)))
    }

    /// Looks where the sockets are by now, and forgets those that are closed.
    fn find_all(&mut self) {
        let sockets = sockets();
        self.bound.retain_mut(|bound| match sockets.get(&bound.inode) {
            Some(holder) => {
                bound.holder = *holder;
                true
            }
            None => false,
        });
    }

    /// Ends the handshakes with a listener that is to be none any more.
    pub fn abandon(&mut self, listener: u64) {
        self.forget_finished();
        let stays = |pending: &Handshake| {
            inode(&pending.listener) != Ok(listener)
                || socket::connect(pending.socket.as_fd(), &NOWHERE).is_err()
        };
        self.pending.retain(stays);
    }

    fn own(&mut self) -> Result<[Ipv4Addr; 2]> {
        if let Some(own) = self.own {
            return Ok(own);
        }
        let [a, b, c] = random::bytes().map_err(errno)?;
        // Neither 127.0.0.0/16, which services of the machine use, nor the end, which is for broadcasts.
        let own = [c & !1, c | 1].map(|c| Ipv4Addr::new(127, 1 + a % 254, b, c));
        self.own = Some(own);
        Ok(own)
    }

    /// What an address of the cell is called in it; `gate` is where its relay is.
    pub fn name_in_cell(&self, name: SocketName, gate: Option<SocketAddrV4>) -> SocketName {
        let is_gate = |gate: SocketAddrV4| name.v4() == Some(*gate.ip()) && name.port == gate.port();
        if gate.is_some_and(is_gate) {
            let own = *relay::ADDRESS.ip();
            let ip = if name.ip.is_ipv4() { own.into() } else { own.to_ipv6_mapped().into() };
            return SocketName { ip, port: relay::ADDRESS.port() };
        }
        let ip = match (name.v4(), self.own) {
            (Some(ip), Some([_, v6])) if ip == v6 => Ipv6Addr::LOCALHOST.into(),
            (Some(ip), Some([v4, _])) if ip == v4 && name.ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            (Some(ip), Some([v4, _])) if ip == v4 => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
            _ => name.ip,
        };
        SocketName { ip, ..name }
    }
}

impl Bound {
    /// The socket, from the process that had it last.
    fn take(&self) -> Option<OwnedFd> {
        let socket = peer::descriptor(self.holder.0, self.holder.1).ok()?;
        (inode(&socket) == Ok(self.inode)).then_some(socket)
    }

    /// Whether this is the socket as it was bound, and it listens.
    fn listens(&self, socket: &OwnedFd) -> bool {
        let name = socket::name(socket.as_fd(), false).ok();
        let name = name.and_then(|name| SocketName::read(family(&name)?, &name).ok());
        let at = name.and_then(|name| Some((name.v4()?, name.port)));
        at == Some(self.at) && number(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
    }
}

/// Every socket that a process of the cell has open: by its inode, a process and the number it has there.
fn sockets() -> HashMap<u64, (i32, i32)> {
    let mut sockets = HashMap::new();
    for process in proc::descendants(std::process::id() as i32, usize::MAX) {
        let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { continue };
        for entry in open.flatten() {
            let link = readlink(&entry.path()).ok();
            let inode = link.as_ref().and_then(|link| {
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
            });
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some((inode, number)) = inode.zip(number) {
                sockets.insert(inode, (process, number));
            }
        }
    }
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_two_and_never_the_ones_that_others_use() {
        for _ in 0..2000 {
            let mut loopback = Loopback::default();
            let own = loopback.own().unwrap();
            assert_ne!(own[0], own[1]);
            assert_eq!(loopback.own(), Ok(own), "drawn once");
            for ip in own {
                assert!(ip.is_loopback() && ip.octets()[1] != 0 && ip.octets()[1] != 255, "{ip}");
            }
        }
    }
}
