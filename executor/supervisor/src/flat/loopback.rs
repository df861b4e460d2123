//! A loopback where the session has no network namespace: TCP between the programs of its cells, and with nobody else.
//!
//! What a program binds to 127.0.0.1, ::1 or all addresses is bound to addresses of 127.0.0.0/8
//! drawn at random for the session, and appears to be at 127.0.0.1 or ::1. So a client on the machine
//! that connects to these does not reach a cell's server, and a cell takes no port from anybody else.
//!
//! A connection reaches a listener of the cell and no other, or one of another cell of the session by that cell's
//! supervisor (`loopback_line.rs`): the supervisor takes a descriptor of the listener from a
//! process of the cell before the connection begins, and keeps it until the handshake is over. A socket listens while
//! any process has it open; the calls that would end that sooner are made here, one after the other. So even a server
//! of the machine that listens on all addresses is not reached, whatever the program does meanwhile. The caller's own
//! socket is used, taken once, and what it may send or set before that is up to the filter (`flat.json`).

use crate::answer::{Pending as PendingCall, SyscallAnswer};
use crate::object::errno;
use crate::tcp::{SocketName, TcpSocket, family, inode, is_closed, is_over, number};
use executor_spec::relay;
use executor_spec::relay::{Purpose, RelayGate};
use executor_sys::socket::{self, SocketEnd};
use executor_sys::{peer, proc, random};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, readlink};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Maximum number of pending handshakes. Each holds two descriptors of this process.
const PENDING_MAX: usize = 200;
/// Maximum number of bound sockets.
const BOUND_MAX: usize = 4096;
/// Maximum number of ports where nobody has listened that are reported.
const UNANSWERED_MAX: usize = 8;
/// Maximum number of connections by way of the relay whose names are remembered.
const BY_RELAY_MAX: usize = 1024;
/// Interval for checking whether a listener with pending handshakes is still open in another process.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// An address that disconnects a socket (`AF_UNSPEC`).
const NOWHERE: [u8; 16] = [0; 16];

/// The sockets of a cell that the supervisor knows.
#[derive(Default)]
pub struct Loopback {
    /// The addresses that the session's cells bind to: for IPv4 and for both families, and for IPv6 alone.
    own: Option<[Ipv4Addr; 2]>,
    bound: Vec<BoundSocket>,
    pending: Vec<Handshake>,
    /// When the listeners of pending handshakes were last checked for other holders.
    checked: Option<Instant>,
    /// Ports of the loopback where nobody has listened when a program connected, nor since.
    unanswered: Vec<SocketName>,
    /// The sockets that were connected by way of the relay, by inode, and what programs call their other ends.
    by_relay: VecDeque<(u64, SocketName)>,
}

/// A bound socket, and the process that had it last: a hint, as only a descriptor taken from a process counts.
struct BoundSocket {
    at: (Ipv4Addr, u16),
    families: Families,
    inode: u64,
    holder: (i32, i32),
    /// A copy, where none can be taken.
    copy: Option<OwnedFd>,
}

/// The families on whose loopback a listener is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    V4,
    V6,
    Both,
}

/// A pending handshake and its listener.
struct Handshake {
    socket: OwnedFd,
    listener: OwnedFd,
}

/// Draws the addresses of a session.
///
/// # Errors
/// The kernel's (`getrandom`).
pub(crate) fn draw_addresses() -> io::Result<[Ipv4Addr; 2]> {
    let [a, b, c] = random::bytes()?;
    // Outside 127.0.0.0/16, which services of the machine use, and not the last address, which is for broadcasts.
    Ok([c & !1, c | 1].map(|c| Ipv4Addr::new(127, 1 + a % 254, b, c)))
}

/// A handshake that has begun.
struct PendingHandshake {
    result: Result<()>,
    socket: OwnedFd,
    /// Whether the caller waits for its end.
    waits: bool,
}

/// The answer to a program if the gateway gets no announcement: it has too many of them, or is gone.
fn refused_by_gateway(error: io::Error) -> Errno {
    match errno(error) {
        Errno::EAGAIN => Errno::EAGAIN,
        _ => Errno::ECONNREFUSED,
    }
}

impl Loopback {
    /// A loopback at the session's addresses.
    pub fn new(own: Option<[Ipv4Addr; 2]>) -> Self {
        Self {
            own,
            ..Self::default()
        }
    }

    /// Whether any handshake is pending.
    pub fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Drops completed handshakes, and ends those whose listener is open in no other process any more.
    pub fn check_pending(&mut self) {
        self.forget_finished();
        if self.pending.is_empty()
            || self
                .checked
                .is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL)
        {
            return;
        }
        let listeners: HashSet<u64> = self
            .pending
            .iter()
            .flat_map(|pending| inode(&pending.listener))
            .collect();
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
        let is = |bound: &&BoundSocket| bound.inode == socket;
        if self
            .bound
            .iter()
            .find(is)
            .is_some_and(|bound| bound.take().is_some())
        {
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
        if tcp.keeps {
            self.find_all();
        }
        let own = self.own()?[usize::from(families == Families::V6)];
        let only = tcp.is_v6_only()?;
        // An IPv4 address in IPv6 form is for both.
        tcp.set_v6_only(false)?;
        let address = SocketName {
            ip: own.into(),
            port,
        }
        .write(tcp.family);
        if let Err(error) = socket::bind(tcp.socket.as_fd(), &address) {
            tcp.set_v6_only(only)?;
            return Err(errno(error));
        }
        let at = (own, SocketName::of(tcp, SocketEnd::Own)?.port);
        // The earlier socket with this port is closed, or shares the port and belongs to another process by now.
        if self
            .bound
            .iter()
            .any(|bound| bound.at == at && bound.take().is_none())
        {
            self.find_all();
        }
        let copy = tcp
            .keeps
            .then(|| tcp.socket.try_clone())
            .transpose()
            .map_err(errno)?;
        self.bound.push(BoundSocket {
            at,
            families,
            inode: inode(&tcp.socket)?,
            holder: tcp.holder,
            copy,
        });
        Ok(())
    }

    /// Whether a socket with this name is bound to the cell's addresses.
    pub fn is_own(&self, name: SocketName) -> bool {
        self.own
            .zip(name.v4())
            .is_some_and(|(own, ip)| own.contains(&ip))
    }

    /// Records a listener, and returns its port: one that had lost its port has been given another.
    pub fn listens(&mut self, tcp: &TcpSocket) -> Result<u16> {
        let (inode, port) = (
            inode(&tcp.socket)?,
            SocketName::of(tcp, SocketEnd::Own)?.port,
        );
        for bound in self.bound.iter_mut().filter(|bound| bound.inode == inode) {
            bound.at.1 = port;
        }
        self.answered(port);
        Ok(port)
    }

    /// Connects to a listener of the cell, if it has one there; otherwise gives the socket back.
    pub fn connect(
        &mut self,
        tcp: TcpSocket,
        families: Families,
        port: u16,
    ) -> std::result::Result<Result<SyscallAnswer>, TcpSocket> {
        self.forget_finished();
        let Some((at, listener)) = self.listener(families, port) else {
            return Err(tcp);
        };
        self.accept_v4(&tcp);
        Ok(self.begin(tcp, at, Some(listener)))
    }

    /// Connects a socket of another cell to a listener of this one.
    ///
    /// # Errors
    /// `EINPROGRESS` if the handshake goes on; otherwise the kernel's, or that there is no listener.
    pub fn connect_for_another(
        &mut self,
        tcp: TcpSocket,
        families: Families,
        port: u16,
    ) -> Result<()> {
        self.forget_finished();
        let found = self.listener(families, port);
        let (at, listener) = found.ok_or(Errno::ECONNREFUSED)?;
        self.accept_v4(&tcp);
        self.start(tcp, at, Some(listener))?.result
    }

    /// Lets a socket connect to the session's addresses, which are of IPv4.
    fn accept_v4(&self, tcp: &TcpSocket) {
        if SocketName::of(tcp, SocketEnd::Own).is_ok_and(|name| !self.is_own(name)) {
            // On a socket that has a port this fails, and the kernel refuses the call itself.
            let _ = tcp.set_v6_only(false);
        }
    }

    /// Connects to the session's relay. The connection gets its address before it begins,
    /// and is announced under that address. A socket that the program has bound keeps its address.
    pub fn connect_relay(
        &mut self,
        tcp: TcpSocket,
        gate: &RelayGate,
        purpose: Purpose,
    ) -> Result<SyscallAnswer> {
        self.forget_finished();
        // One that has a connection gets no other: what the kernel refuses must not be announced.
        if is_closed(&tcp.socket) {
            self.announce(&tcp, gate, purpose)?;
        }
        let listener = gate.listener.as_ref().map(OwnedFd::try_clone);
        let listener = listener.transpose().map_err(errno)?;
        self.begin(tcp, (*gate.address.ip(), gate.address.port()), listener)
    }

    /// Gives a socket an address, and announces it by that.
    fn announce(&self, tcp: &TcpSocket, gate: &RelayGate, purpose: Purpose) -> Result<()> {
        if self.pending.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        self.bind_for_relay(tcp)?;
        let name = SocketName::of(tcp, SocketEnd::Own)?;
        let ip = name.v4().ok_or(Errno::EADDRNOTAVAIL)?;
        // Bound to all addresses, it gets the one by which the relay is reached.
        let ip = if ip.is_unspecified() {
            *gate.address.ip()
        } else {
            ip
        };
        gate.announce(SocketAddrV4::new(ip, name.port), purpose)
            .map_err(refused_by_gateway)
    }

    fn bind_for_relay(&self, tcp: &TcpSocket) -> Result<()> {
        if self.is_own(SocketName::of(tcp, SocketEnd::Own)?) {
            return Ok(());
        }
        let _ = tcp.set_v6_only(false);
        // In a network of the session's own, programs bind by themselves.
        let ip = self.own.map_or(Ipv4Addr::LOCALHOST, |own| own[0]).into();
        let address = SocketName { ip, port: 0 }.write(tcp.family);
        match socket::bind(tcp.socket.as_fd(), &address).map_err(errno) {
            Err(Errno::EINVAL) if self.own.is_none() => Ok(()),
            bound => bound,
        }
    }

    /// Records that nobody listens at a port of the cell's loopback.
    pub fn unanswered(&mut self, name: SocketName) {
        // The relay is no port that a policy could open.
        if name.port == relay::ADDRESS.port() {
            return;
        }
        if !self.unanswered.contains(&name) && self.unanswered.len() < UNANSWERED_MAX {
            self.unanswered.push(name);
        }
    }

    /// Records that somebody listens there: a program that waits for its own server was refused before.
    pub fn answered(&mut self, port: u16) {
        self.unanswered.retain(|name| name.port != port);
    }

    /// The ports where nobody has listened.
    pub fn take_unanswered(&mut self) -> Vec<SocketName> {
        std::mem::take(&mut self.unanswered)
    }

    /// Remembers what a program calls the other end of a connection by way of the relay. Of the oldest it hears the relay's name.
    pub fn reaches(&mut self, socket: u64, name: SocketName) {
        self.by_relay.retain(|(known, _)| *known != socket);
        if self.by_relay.len() >= BY_RELAY_MAX {
            self.by_relay.pop_front();
        }
        self.by_relay.push_back((socket, name));
    }

    /// What the program calls the other end of a connection whose name is `peer`, if it leads further by way of the relay.
    pub fn name_by_relay(
        &self,
        socket: u64,
        peer: SocketName,
        gate: SocketAddrV4,
    ) -> Option<SocketName> {
        let is_relay = peer.v4() == Some(*gate.ip()) && peer.port == gate.port();
        let mut known = self.by_relay.iter().filter(|_| is_relay);
        known.find_map(|(known, name)| (*known == socket).then_some(*name))
    }

    fn begin(
        &mut self,
        tcp: TcpSocket,
        at: (Ipv4Addr, u16),
        listener: Option<OwnedFd>,
    ) -> Result<SyscallAnswer> {
        let PendingHandshake {
            result,
            socket,
            waits,
        } = self.start(tcp, at, listener)?;
        match result {
            // EALREADY comes when a signal has restarted the call, as happens before Linux 5.19.
            Err(Errno::EINPROGRESS | Errno::EALREADY) if waits => PendingCall::handshake(socket),
            result => result.map(|()| SyscallAnswer::Value(0)),
        }
    }

    /// Begins the handshake with a listener, which is held open until the handshake is over.
    fn start(
        &mut self,
        tcp: TcpSocket,
        at: (Ipv4Addr, u16),
        listener: Option<OwnedFd>,
    ) -> Result<PendingHandshake> {
        if self.pending.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        let address = SocketName {
            ip: at.0.into(),
            port: at.1,
        }
        .write(tcp.family);
        let socket = tcp.socket;
        let copy = socket.try_clone().map_err(errno)?;
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        let waits = !flags.contains(OFlag::O_NONBLOCK);
        if waits {
            fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let mut result = socket::connect(socket.as_fd(), &address).map_err(errno);
        // If the listener has room, the handshake is over by now. The second call lets the socket see that.
        if waits && result == Err(Errno::EINPROGRESS) && is_over(&socket) {
            result = socket::connect(socket.as_fd(), &address).map_err(errno);
        }
        // An earlier handshake has its listener already. The listener is kept here, not with the call, which may end first.
        if let Some(listener) = listener
            && result != Err(Errno::EALREADY)
            && !is_over(&socket)
        {
            self.pending.push(Handshake { socket, listener });
        }
        if waits {
            fcntl(&copy, FcntlArg::F_SETFL(flags))?;
        }
        Ok(PendingHandshake {
            result,
            socket: copy,
            waits,
        })
    }

    /// A listener of the cell, held open as long as the descriptor lives.
    fn listener(&mut self, families: Families, port: u16) -> Option<((Ipv4Addr, u16), OwnedFd)> {
        let mut of_port = self.bound.iter().filter(|bound| bound.at.1 == port);
        // A copy keeps a listener open that its program has closed. The kernel would share connections out to it, if others have
        // its port too.
        let is_copied = of_port.any(|bound| bound.copy.is_some());
        if is_copied {
            self.find_all();
        } else if let Some(found) = self.take(families, port) {
            return Some(found);
        } else if self.bound.iter().any(|bound| bound.at.1 == port) {
            // Another process may have it by now.
            self.find_all();
        }
        self.take(families, port)
    }

    fn take(&self, families: Families, port: u16) -> Option<((Ipv4Addr, u16), OwnedFd)> {
        let exact = self.bound.iter().filter(|bound| bound.families == families);
        let both = self
            .bound
            .iter()
            .filter(|bound| bound.families == Families::Both);
        let mut candidates = exact.chain(both).filter(|bound| bound.at.1 == port);
        candidates.find_map(|bound| Some((bound.at, bound.take().filter(|fd| bound.listens(fd))?)))
    }

    /// Finds which processes have the sockets now, and drops closed sockets.
    fn find_all(&mut self) {
        let sockets = open_sockets();
        self.bound
            .retain_mut(|bound| match sockets.get(&bound.inode) {
                Some(holder) => {
                    bound.holder = *holder;
                    true
                }
                None => false,
            });
    }

    /// Aborts the handshakes with a listener that is about to be closed.
    pub fn abandon(&mut self, listener: u64) {
        self.forget_finished();
        let stays = |pending: &Handshake| {
            inode(&pending.listener) != Ok(listener)
                || socket::connect(pending.socket.as_fd(), &NOWHERE).is_err()
        };
        self.pending.retain(stays);
    }

    fn own(&self) -> Result<[Ipv4Addr; 2]> {
        self.own.ok_or(Errno::EADDRNOTAVAIL)
    }

    /// The name that an address of the cell has inside it; `gate` is the address of its relay.
    pub fn name_in_cell(&self, name: SocketName, gate: Option<SocketAddrV4>) -> SocketName {
        let is_gate =
            |gate: SocketAddrV4| name.v4() == Some(*gate.ip()) && name.port == gate.port();
        if gate.is_some_and(is_gate) {
            let own = *relay::ADDRESS.ip();
            let ip = if name.ip.is_ipv4() {
                own.into()
            } else {
                own.to_ipv6_mapped().into()
            };
            return SocketName {
                ip,
                port: relay::ADDRESS.port(),
            };
        }
        let ip = match (name.v4(), self.own) {
            (Some(ip), Some([_, v6])) if ip == v6 => Ipv6Addr::LOCALHOST.into(),
            (Some(ip), Some([v4, _])) if ip == v4 && name.ip.is_ipv4() => {
                Ipv4Addr::LOCALHOST.into()
            }
            (Some(ip), Some([v4, _])) if ip == v4 => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
            _ => name.ip,
        };
        SocketName { ip, ..name }
    }
}

impl BoundSocket {
    /// Takes the socket from the process that had it last.
    fn take(&self) -> Option<OwnedFd> {
        let (process, number) = self.holder;
        let socket = match &self.copy {
            Some(copy) => {
                let there = readlink(format!("/proc/{process}/fd/{number}").as_str()).ok();
                there
                    .filter(|file| socket_of(file) == Some(self.inode))
                    .and(copy.try_clone().ok())?
            }
            None => peer::descriptor(process, number).ok()?,
        };
        (inode(&socket) == Ok(self.inode)).then_some(socket)
    }

    /// Whether this is the socket that was bound, and it is listening.
    fn listens(&self, socket: &OwnedFd) -> bool {
        let name = socket::name(socket.as_fd(), SocketEnd::Own).ok();
        let name = name.and_then(|name| SocketName::read(family(&name)?, &name).ok());
        let at = name.and_then(|name| Some((name.v4()?, name.port)));
        at == Some(self.at) && number(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
    }
}

/// Every socket that a process of the cell has open: inode, with a process and its descriptor number there.
pub(crate) fn open_sockets() -> HashMap<u64, (i32, i32)> {
    let mut sockets = HashMap::new();
    for process in proc::descendants(std::process::id() as i32, usize::MAX) {
        let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else {
            continue;
        };
        for entry in open.flatten() {
            let inode = readlink(&entry.path())
                .ok()
                .and_then(|file| socket_of(&file));
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some((inode, number)) = inode.zip(number) {
                sockets.insert(inode, (process, number));
            }
        }
    }
    sockets
}

/// The inode in what a link in `/proc/PID/fd` says, if that is a socket.
fn socket_of(file: &OsStr) -> Option<u64> {
    file.to_str()?
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_two_and_never_the_ones_that_others_use() {
        for _ in 0..2000 {
            let own = draw_addresses().unwrap();
            assert_ne!(own[0], own[1]);
            for ip in own {
                assert!(
                    ip.is_loopback() && ip.octets()[1] != 0 && ip.octets()[1] != 255,
                    "{ip}"
                );
            }
        }
    }
}
