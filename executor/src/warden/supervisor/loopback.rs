//! A loopback of a cell's own where it has no network namespace: TCP between its programs, and with nobody else.
//!
//! What a program binds to 127.0.0.1, ::1 or all addresses is bound to addresses of 127.0.0.0/8 that were drawn for the
//! cell, and is said to be at 127.0.0.1 or ::1. So no client of the machine comes to a cell's server by calling these, and
//! no port there is taken from anybody.
//!
//! A connection goes to a listener of the cell and to no other: the supervisor takes a descriptor of the listener from a
//! process of the cell before it begins, and keeps it until the handshake is over. A socket listens while anybody has it
//! open; the calls that would end that sooner are made here, one after the other. So even a server of the machine that
//! listens on all addresses is not reached, whatever the program does meanwhile. The caller's own socket is used, taken
//! once, and what it may send or set before that is the filter's (`flat.json`).

use super::call::Call;
use super::caller::errno;
use super::tcp::{Name, Tcp, family, inode, is_over, number};
use super::waiting::Waiting;
use super::{Answer, Result};
use crate::sys;
use crate::warden::descendants;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, readlink};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Handshakes that may be under way at one time. Each holds two descriptors of this process.
const PENDING_MAX: usize = 200;
/// Sockets that may be bound at one time.
const BOUND_MAX: usize = 4096;
/// How often it is asked whether a listener with handshakes under way is still open elsewhere.
const LOOK: Duration = Duration::from_millis(50);
/// An address by which a socket is disconnected (`AF_UNSPEC`).
const NOWHERE: [u8; 16] = [0; 16];

/// A cell's sockets, as far as they are known here.
#[derive(Default)]
pub struct Loopback {
    /// Where it binds: for IPv4 and for both families, and for IPv6 alone. Drawn when it is first needed.
    own: Option<[Ipv4Addr; 2]>,
    bound: Vec<Bound>,
    pending: Vec<Pending>,
    /// When it was last asked who else has the listeners of those.
    looked: Option<Instant>,
}

/// A bound socket, and where it was seen last: a hint, as only what is taken from a process counts.
struct Bound {
    at: (Ipv4Addr, u16),
    reach: Reach,
    inode: u64,
    holder: (i32, i32),
}

/// By which family's loopback a listener is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    V4,
    V6,
    Both,
}

/// A handshake that is under way.
struct Pending {
    socket: OwnedFd,
    listener: OwnedFd,
}

impl Call<'_> {
    /// `bind` of a TCP socket.
    pub fn bind_tcp(&self, socket: i32, address: &[u8]) -> Result<Answer> {
        let tcp = self.tcp(socket)?.map_err(|_| Errno::EAFNOSUPPORT)?;
        let name = Name::read(tcp.family, address)?;
        let only = tcp.is_v6_only()?;
        let reach = match (name.ip, name.v4()) {
            (_, Some(ip)) if only || !is_local(ip) => return Err(Errno::EADDRNOTAVAIL),
            (_, Some(_)) => Reach::V4,
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), _) if !only => Reach::Both,
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED | Ipv6Addr::LOCALHOST), _) => Reach::V6,
            _ => return Err(Errno::EADDRNOTAVAIL),
        };
        self.loopback.borrow_mut().bind(&tcp, reach, name.port)?;
        Ok(Answer::Value(0))
    }

    /// `listen`. A socket of TCP that is not bound would be bound to all addresses of the machine.
    pub fn listen(&self, socket: i32, backlog: i32) -> Result<Answer> {
        let tcp = match self.tcp(socket)? {
            Ok(tcp) => tcp,
            Err(other) => {
                sys::listen(other.as_fd(), backlog).map_err(errno)?;
                return Ok(Answer::Value(0));
            }
        };
        let mut loopback = self.loopback.borrow_mut();
        // By its address: a socket whose connection has failed says a port that it has no more.
        if !loopback.is_own(Name::of(&tcp, false)?) {
            let reach = match tcp.family {
                libc::AF_INET => Reach::V4,
                _ if tcp.is_v6_only()? => Reach::V6,
                _ => Reach::Both,
            };
            loopback.bind(&tcp, reach, 0)?;
        }
        sys::listen(tcp.socket.as_fd(), backlog).map_err(errno)?;
        loopback.listens(&tcp)?;
        Ok(Answer::Value(0))
    }

    /// `connect` of a TCP socket.
    pub fn connect_tcp(&self, socket: i32, address: &[u8]) -> Result<Answer> {
        let tcp = self.tcp(socket)?.map_err(|_| Errno::EAFNOSUPPORT)?;
        let name = Name::read(tcp.family, address)?;
        let reach = match (name.ip, name.v4()) {
            (_, Some(ip)) if is_local(ip) => Reach::V4,
            (_, Some(ip)) if ip.is_loopback() => return Err(Errno::ECONNREFUSED),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED | Ipv6Addr::LOCALHOST), _) => Reach::V6,
            _ => return Err(Errno::ENETUNREACH),
        };
        self.loopback.borrow_mut().connect(tcp, reach, name.port)
    }

    /// `shutdown` of more than sending.
    pub fn shut_down(&self, socket: i32, how: i32) -> Result<Answer> {
        use nix::sys::socket::{Shutdown, shutdown};
        use std::os::fd::AsRawFd;
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        };
        let socket = match self.tcp(socket)? {
            Ok(tcp) => {
                self.loopback.borrow_mut().abandon(inode(&tcp.socket)?);
                tcp.socket
            }
            Err(other) => other,
        };
        shutdown(socket.as_raw_fd(), how)?;
        Ok(Answer::Value(0))
    }

    /// `getsockname` and `getpeername`: what a socket of the cell's loopback is called there.
    pub fn socket_name(&self, socket: i32, peer: bool, address: u64, length: u64) -> Result<Answer> {
        let name = match self.tcp(socket)? {
            Ok(tcp) => {
                let name = Name::of(&tcp, peer)?;
                self.loopback.borrow().shown(name).write(tcp.family)
            }
            Err(other) => sys::socket_name(other.as_fd(), peer).map_err(errno)?,
        };
        let room = self.caller.bytes(length, 4)?;
        let room = i32::from_ne_bytes(*room.first_chunk().ok_or(Errno::EFAULT)?);
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        self.check()?;
        self.caller.write(address, &name[..room.min(name.len())])?;
        self.caller.write(length, &(name.len() as u32).to_ne_bytes())?;
        Ok(Answer::Value(0))
    }

    /// `SO_LINGER`, which may not make `close` wait: the last to close a socket may be this process.
    pub fn linger(&self, socket: i32, value: u64, length: i32) -> Result<Answer> {
        if length < 8 {
            return Err(Errno::EINVAL);
        }
        let value = self.caller.bytes(value, 8)?;
        let [on, seconds] =
            [0, 4].map(|at| value[at..].first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)));
        let (on, seconds) = on.zip(seconds).ok_or(Errno::EFAULT)?;
        let socket = self.caller.descriptor(socket)?;
        self.check()?;
        let on = i32::from(on != 0 && seconds == 0);
        sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &[on, 0]).map_err(errno)?;
        Ok(Answer::Value(0))
    }
}

impl Loopback {
    /// Whether handshakes are under way.
    pub fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Lets go of handshakes that are over, and ends those with a listener that nobody but this process has left.
    pub fn look(&mut self) {
        self.settle();
        if self.pending.is_empty() || self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        let listeners: HashSet<u64> =
            self.pending.iter().flat_map(|pending| inode(&pending.listener)).collect();
        for listener in listeners {
            if !self.is_open(listener) {
                self.abandon(listener);
            }
        }
        self.looked = Some(Instant::now());
    }

    fn settle(&mut self) {
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

    fn bind(&mut self, tcp: &Tcp, reach: Reach, port: u16) -> Result<()> {
        if self.bound.len() >= BOUND_MAX {
            self.find_all();
        }
        if self.bound.len() >= BOUND_MAX {
            return Err(Errno::ENOBUFS);
        }
        let own = self.own()?[usize::from(reach == Reach::V6)];
        let only = tcp.is_v6_only()?;
        // An address of IPv4 in the form of IPv6 is for both.
        tcp.v6_only(false)?;
        let address = Name { ip: own.into(), port }.write(tcp.family);
        if let Err(error) = sys::bind(tcp.socket.as_fd(), &address) {
            tcp.v6_only(only)?;
            return Err(errno(error));
        }
        let at = (own, Name::of(tcp, false)?.port);
        // What had it before is closed, or shares it and has gone to another process.
        if self.bound.iter().any(|bound| bound.at == at && bound.take().is_none()) {
            self.find_all();
        }
        self.bound.push(Bound { at, reach, inode: inode(&tcp.socket)?, holder: tcp.holder });
        Ok(())
    }

    /// Whether a socket of this name is bound where the cell's are.
    fn is_own(&self, name: Name) -> bool {
        self.own.zip(name.v4()).is_some_and(|(own, ip)| own.contains(&ip))
    }

    /// Takes note of a listener: one that had lost its port has got another.
    fn listens(&mut self, tcp: &Tcp) -> Result<()> {
        let (inode, port) = (inode(&tcp.socket)?, Name::of(tcp, false)?.port);
        for bound in self.bound.iter_mut().filter(|bound| bound.inode == inode) {
            bound.at.1 = port;
        }
        Ok(())
    }

    fn connect(&mut self, tcp: Tcp, reach: Reach, port: u16) -> Result<Answer> {
        self.settle();
        let (at, listener) = self.listener(reach, port).ok_or(Errno::ECONNREFUSED)?;
        if self.pending.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        if !self.is_own(Name::of(&tcp, false)?) {
            // What has a port cannot be changed any more, and is refused by the kernel.
            let _ = tcp.v6_only(false);
        }
        let address = Name { ip: at.0.into(), port: at.1 }.write(tcp.family);
        let socket = tcp.socket;
        let copy = socket.try_clone().map_err(errno)?;
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        let waits = !flags.contains(OFlag::O_NONBLOCK);
        if waits {
            fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let mut begun = sys::connect(socket.as_fd(), &address).map_err(errno);
        // To a listener that has room the handshake is over by now. The second call takes note of that.
        if waits && begun == Err(Errno::EINPROGRESS) && is_over(&socket) {
            begun = sys::connect(socket.as_fd(), &address).map_err(errno);
        }
        // What was on its way before has its listener. It is kept here and not with the call, which may end before it.
        if begun != Err(Errno::EALREADY) && !is_over(&socket) {
            self.pending.push(Pending { socket, listener });
        }
        if waits {
            fcntl(&copy, FcntlArg::F_SETFL(flags))?;
        }
        match begun {
            // The latter when a signal has begun a call again, which it does before Linux 5.19.
            Err(Errno::EINPROGRESS | Errno::EALREADY) if waits => Waiting::handshake(copy),
            begun => begun.map(|()| Answer::Value(0)),
        }
    }

    /// A listener of the cell, as long as it is held.
    fn listener(&mut self, reach: Reach, port: u16) -> Option<((Ipv4Addr, u16), OwnedFd)> {
        if let Some(found) = self.held(reach, port) {
            return Some(found);
        }
        // It may have gone to another process.
        let known = self.bound.iter().any(|bound| bound.at.1 == port);
        if known {
            self.find_all();
        }
        self.held(reach, port).filter(|_| known)
    }

    fn held(&self, reach: Reach, port: u16) -> Option<((Ipv4Addr, u16), OwnedFd)> {
        let exact = self.bound.iter().filter(|bound| bound.reach == reach);
        let both = self.bound.iter().filter(|bound| bound.reach == Reach::Both);
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
    fn abandon(&mut self, listener: u64) {
        self.settle();
        let stays = |pending: &Pending| {
            inode(&pending.listener) != Ok(listener)
                || sys::connect(pending.socket.as_fd(), &NOWHERE).is_err()
        };
        self.pending.retain(stays);
    }

    fn own(&mut self) -> Result<[Ipv4Addr; 2]> {
        if let Some(own) = self.own {
            return Ok(own);
        }
        let mut random = [0; 3];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(errno)?;
        let [a, b, c] = random;
        // Neither 127.0.0.0/16, which services of the machine use, nor the end, which is for broadcasts.
        let own = [c & !1, c | 1].map(|c| Ipv4Addr::new(127, 1 + a % 254, b, c));
        self.own = Some(own);
        Ok(own)
    }

    /// What an address of the cell is called in it.
    fn shown(&self, name: Name) -> Name {
        let ip = match (name.v4(), self.own) {
            (Some(ip), Some([_, v6])) if ip == v6 => Ipv6Addr::LOCALHOST.into(),
            (Some(ip), Some([v4, _])) if ip == v4 && name.ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            (Some(ip), Some([v4, _])) if ip == v4 => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
            _ => name.ip,
        };
        Name { ip, ..name }
    }
}

impl Bound {
    /// The socket, from the process that had it last.
    fn take(&self) -> Option<OwnedFd> {
        let socket = sys::descriptor_of(self.holder.0, self.holder.1).ok()?;
        (inode(&socket) == Ok(self.inode)).then_some(socket)
    }

    /// Whether this is the socket as it was bound, and it listens.
    fn listens(&self, socket: &OwnedFd) -> bool {
        let name = sys::socket_name(socket.as_fd(), false).ok();
        let name = name.and_then(|name| Name::read(family(&name)?, &name).ok());
        let at = name.and_then(|name| Some((name.v4()?, name.port)));
        at == Some(self.at) && number(socket, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
    }
}

/// What programs call their own machine: `0.0.0.0` is that to `connect`, and all addresses, of which a cell has one, to
/// `bind`.
fn is_local(ip: Ipv4Addr) -> bool {
    matches!(ip, Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED)
}

/// Every socket that a process of the cell has open: by its inode, a process and the number it has there.
fn sockets() -> HashMap<u64, (i32, i32)> {
    let mut sockets = HashMap::new();
    for process in descendants::all() {
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
