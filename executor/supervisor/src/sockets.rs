//! Binds and connects the caller's sockets: Unix sockets by paths inside the zones and the scratch space, and only to those that
//! cells of this session have bound or the policy names; TCP sockets, in the flat tier, on the session's own loopback
//! (`loopback.rs`). In the session's own network namespace, addresses other than paths mean nothing outside it.
//!
//! Datagrams carry their receiver's address in memory with each message: the filter does not allow Unix datagram
//! sockets. In the flat tier, where abstract names are shared with the whole machine, they are refused.

use crate::answer::{Pending, SyscallAnswer};
use crate::find::LastLink;
use crate::machine_ports::is_loopback;
use crate::object::{by_descriptor, errno, is, real};
use crate::supervised_call::SupervisedCall;
use crate::tcp::{SocketName, family, inode};
use broker_protocol::AttemptKind;
use executor_spec::created::identity_of;
use executor_spec::refusals::Cause;
use executor_sys::socket::{self, SocketEnd};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::sys::socket::{UnixAddr, bind};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{chdir, fchdir};
use policies_guard::{New, ObjectKind};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The port of name servers.
const DNS: u16 = 53;

/// A refusal of a socket's address. The judge has none of these: it judges names and objects, not who listens.
enum SocketRefusal<'p> {
    /// The server at this path belongs neither to the cell nor to the policy.
    Server(&'p Path),
    /// Other cells could reach it at an abstract name.
    AbstractName,
    /// At an abstract name nobody of the cell listens.
    NoServer,
}

impl SupervisedCall<'_> {
    /// Notes a refusal, and returns the error with which it is answered.
    fn refuse_socket(&self, refusal: SocketRefusal) -> Errno {
        match refusal {
            SocketRefusal::Server(real) => {
                let target = real.as_os_str().as_bytes();
                self.note(AttemptKind::Connect, Cause::Network, target);
                Errno::EACCES
            }
            SocketRefusal::AbstractName => Errno::EACCES,
            // X clients then try the next way, which they do not after `EACCES`.
            SocketRefusal::NoServer => Errno::ECONNREFUSED,
        }
    }

    /// `connect`.
    pub(crate) fn connect(&self, socket: i32, address: u64, length: u64) -> Result<SyscallAnswer> {
        let address = self.socket_address(address, length)?;
        self.note_lookup(&address);
        let path = match self.address(&address)? {
            SocketAddressKind::Abstract => return Err(self.refuse_socket(SocketRefusal::NoServer)),
            SocketAddressKind::Tcp => {
                return self
                    .connect_tcp(socket, &address)
                    .map_err(self.unreached(&address));
            }
            SocketAddressKind::OwnNetwork => {
                return self
                    .connect_in_network(socket, &address)
                    .map_err(self.unreached(&address));
            }
            SocketAddressKind::Path(path) => path,
        };
        if let Some(gate) = self.rules.way_to_agent(path) {
            return self.connect_agent(socket, gate);
        }
        let object = self
            .search()
            .find(libc::AT_FDCWD, path, LastLink::Follow)?
            .object
            .ok_or(Errno::ENOENT)?;
        if !is(&fstat(&object)?, libc::S_IFSOCK) {
            return Err(Errno::ECONNREFUSED);
        }
        let real = real(&object)?;
        if !self.rules.sockets.may_connect(&object, &real) {
            return Err(self.refuse_socket(SocketRefusal::Server(&real)));
        }
        let address = UnixAddr::new(by_descriptor(&object).as_str())?;
        // A listener that its program has closed must be closed.
        self.kept.borrow_mut().drop_closed();
        let socket = self.unconnected_socket(socket, Errno::EISCONN)?;
        self.check()?;
        let connecting = inode(&socket)?;
        let answer = Pending::connect(socket, object, address)?;
        self.kept.borrow_mut().connects(connecting);
        Ok(answer)
    }

    /// `bind`.
    pub(crate) fn bind(&self, socket: i32, address: u64, length: u64) -> Result<SyscallAnswer> {
        let address = self.socket_address(address, length)?;
        if family(&address) == Some(libc::AF_NETLINK) && self.netlink_name(socket).is_some() {
            return Ok(SyscallAnswer::Value(0));
        }
        let asked = match self.address(&address)? {
            SocketAddressKind::Abstract => {
                return Err(self.refuse_socket(SocketRefusal::AbstractName));
            }
            SocketAddressKind::Tcp => return self.bind_tcp(socket, &address),
            SocketAddressKind::OwnNetwork => {
                // What programs have closed must not keep an address.
                self.kept.borrow_mut().drop_closed();
                let socket = self.unconnected_socket(socket, Errno::EINVAL)?;
                self.check()?;
                if self.is_of_pool(&address) {
                    return Err(Errno::EADDRNOTAVAIL);
                }
                socket::bind(socket.as_fd(), &address).map_err(errno)?;
                return Ok(SyscallAnswer::Value(0));
            }
            SocketAddressKind::Path(asked) => asked,
        };
        let found = self.search().find(libc::AT_FDCWD, asked, LastLink::Keep)?;
        if found.object.is_some() {
            return Err(Errno::EADDRINUSE);
        }
        let _lock = self.rules.lock_renames()?;
        let path = found.real(&self.rules.areas)?;
        let new = New::Object(ObjectKind::Other);
        let verdict = self.judge_new(&found, &path, new)?;
        self.admit(AttemptKind::Write, &path, self.rules.enforce(verdict))?;
        let unix = UnixAddr::new(&found.name_for_kernel())?;
        let socket = self.unconnected_socket(socket, Errno::EINVAL)?;
        self.check()?;
        // An address is too short for the path of every directory.
        fchdir(&found.parent)?;
        let bound = self.caller.with_mask(|| bind(socket.as_raw_fd(), &unix));
        chdir("/")?;
        bound?;
        self.check_made(&found, &path, new)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = openat(
            &found.parent,
            OsStr::from_bytes(&found.name),
            flags,
            Mode::empty(),
        )?;
        self.note_name(&path, ObjectKind::Other, verdict, None, || {
            identity_of(&made)
        });
        // One that is not remembered cannot be connected to.
        self.rules.sockets.add_bound(made)?;
        let bound = socket::name(socket.as_fd(), SocketEnd::Own).map_err(errno)?;
        // As the kernel says a path: with its end.
        let asked = [&address[..2], asked, &[0]].concat();
        self.socket_names
            .borrow_mut()
            .add(inode(&socket)?, bound, asked);
        Ok(SyscallAnswer::Value(0))
    }

    /// `connect` in the session's own network namespace.
    fn connect_in_network(&self, socket: i32, address: &[u8]) -> Result<SyscallAnswer> {
        // A listener that its program has closed must be closed.
        self.kept.borrow_mut().drop_closed();
        let socket = self.unconnected_socket(socket, Errno::EISCONN)?;
        self.check()?;
        let socket = match self.led_in_network(socket, address)? {
            Ok(begun) => return begun,
            Err(socket) => socket,
        };
        let connecting = inode(&socket)?;
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        let waits = !flags.contains(OFlag::O_NONBLOCK);
        if waits {
            fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        let begun = socket::connect(socket.as_fd(), address).map_err(errno);
        let begun = self.or_machine(&socket, address, begun)?;
        if waits {
            fcntl(&socket, FcntlArg::F_SETFL(flags))?;
        }
        self.note_answer(&socket, address, begun);
        if matches!(begun, Ok(()) | Err(Errno::EINPROGRESS | Errno::EALREADY)) {
            self.kept.borrow_mut().connects(connecting);
        }
        match begun {
            Err(Errno::EINPROGRESS | Errno::EALREADY) if waits => Pending::handshake(socket),
            // The queue of an abstract listener is full: there is no descriptor to wait on, and programs expect this answer.
            begun => begun.map(|()| SyscallAnswer::Value(0)),
        }
    }

    /// Notes that an address was unreachable because a cell has no network, or that nobody listens at a port of its loopback.
    fn unreached(&self, address: &[u8]) -> impl Fn(Errno) -> Errno {
        move |errno| {
            let name = family(address).and_then(|family| SocketName::read(family, address).ok());
            match (errno, name) {
                (Errno::ENETUNREACH | Errno::EHOSTUNREACH, Some(name)) if name.port != DNS => {
                    self.note_address(AttemptKind::Connect, name);
                }
                (Errno::ECONNREFUSED, Some(name)) if name.port != DNS && is_loopback(name) => {
                    self.loopback.borrow_mut().unanswered(name);
                }
                (_, Some(_) | None) => {}
            }
            errno
        }
    }

    /// Notes that a program tries to reach a name server: a cell has none, as no program may bind that port.
    fn note_lookup(&self, address: &[u8]) {
        let name = family(address).and_then(|family| SocketName::read(family, address).ok());
        if let Some(name) = name.filter(|name| name.port == DNS) {
            self.note_address(AttemptKind::Resolve, name);
        }
    }

    fn note_address(&self, kind: AttemptKind, name: SocketName) {
        let target = std::net::SocketAddr::new(name.ip, name.port).to_string();
        self.note(kind, Cause::Network, target.as_bytes());
    }

    /// Reads an address of the caller, once.
    fn socket_address(&self, address: u64, length: u64) -> Result<Vec<u8>> {
        let max = size_of::<libc::sockaddr_storage>();
        // To the kernel a length has 32 bits.
        let length = usize::try_from(length as i32)
            .ok()
            .filter(|length| *length <= max)
            .ok_or(Errno::EINVAL)?;
        let bytes = self.caller.bytes(address, length)?;
        self.check()?;
        if bytes.len() < length {
            Err(Errno::EFAULT)
        } else {
            Ok(bytes)
        }
    }

    fn address<'a>(&self, address: &'a [u8]) -> Result<SocketAddressKind<'a>> {
        let own_network = self.rules.has_own_network();
        match family(address).ok_or(Errno::EINVAL)? {
            libc::AF_UNIX if address.len() > size_of::<libc::sockaddr_un>() => Err(Errno::EINVAL),
            libc::AF_UNIX => match address[2..]
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default()
            {
                [] if own_network => Ok(SocketAddressKind::OwnNetwork),
                [] => Ok(SocketAddressKind::Abstract),
                path => Ok(SocketAddressKind::Path(path)),
            },
            _ if own_network => Ok(SocketAddressKind::OwnNetwork),
            libc::AF_INET | libc::AF_INET6 => Ok(SocketAddressKind::Tcp),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }
}

/// The kind of address of a socket in a cell.
enum SocketAddressKind<'a> {
    Path(&'a [u8]),
    /// An abstract name, in the flat tier.
    Abstract,
    /// TCP, in the flat tier.
    Tcp,
    /// An address other than a path, in a network invisible to the machine.
    OwnNetwork,
}
