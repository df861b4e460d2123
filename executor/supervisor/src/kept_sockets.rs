//! Copies of the sockets and watchers of a cell, where a filter of the machine lets no process take another's descriptors: there the
//! supervisor makes them for its callers, and finds its copy again by the file behind the caller's number.
//!
//! A copy keeps a socket open that its program has closed. So none is kept of a socket that is connected, whose other end waits for
//! that; and of the others, those are dropped that no process of the cell has any more, before that can matter to anybody: when
//! something is bound or connected, and when there are many.

use crate::answer::Answer;
use crate::call::Call;
use crate::loopback::open_sockets;
use crate::object::{errno, is};
use crate::tcp::inode;
use executor_layers::caller_access::SocketAccess;
use executor_sys::{file, proc, socket};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::readlink;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::fstat;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Maximum number of sockets of a cell that are neither connected nor closed.
const SOCKETS_MAX: usize = 512;
/// Maximum number of watchers of a cell; the machine's own limit for a user is 128 by default.
const WATCHERS_MAX: usize = 64;
/// Maximum number of connected sockets whose names are remembered; then all are forgotten.
const NAMES_MAX: usize = 1024;

/// What a cell's supervisor has made for its callers.
#[derive(Default)]
pub struct KeptSockets {
    /// By inode.
    sockets: HashMap<u64, OwnedFd>,
    /// Which of these are being connected.
    connecting: Vec<u64>,
    /// The kernel's names of those that were connected here, and of their peers, by inode.
    connected: HashMap<u64, [Vec<u8>; 2]>,
    /// All watchers have one inode: they are known by where they were given.
    watchers: Vec<Watcher>,
}

struct Watcher {
    process: i32,
    number: i32,
    copy: OwnedFd,
}

/// A socket of the caller.
pub enum CallersSocket {
    /// A copy.
    Copy(OwnedFd),
    /// One of which there is no copy, by its inode: connected, or received from elsewhere.
    Other(u64),
}

impl KeptSockets {
    fn keep(&mut self, made: &OwnedFd) -> Result<()> {
        if self.sockets.len() >= SOCKETS_MAX {
            self.drop_closed();
        }
        if self.sockets.len() >= SOCKETS_MAX {
            return Err(Errno::EMFILE);
        }
        self.sockets.insert(inode(made)?, made.try_clone().map_err(errno)?);
        Ok(())
    }

    /// Drops the sockets that no process of the cell has open.
    pub fn drop_closed(&mut self) {
        if !self.sockets.is_empty() {
            let open = open_sockets();
            self.sockets.retain(|inode, _| open.contains_key(inode));
        }
    }

    /// Records that a socket is being connected. The copy is dropped when it is, and kept if that fails.
    pub fn connects(&mut self, socket: u64) {
        if self.sockets.contains_key(&socket) {
            self.connecting.push(socket);
            self.drop_connected();
        }
    }

    /// Drops the sockets that are connected by now.
    pub fn drop_connected(&mut self) {
        let Self { sockets, connecting, connected, .. } = self;
        connecting.retain(|inode| {
            let Some(copy) = sockets.get(inode) else { return false };
            let names = [false, true].map(|peer| socket::name(copy.as_fd(), peer));
            let [Ok(own), Ok(peer)] = names else { return true };
            if connected.len() >= NAMES_MAX {
                connected.clear();
            }
            connected.insert(*inode, [own, peer]);
            sockets.remove(inode);
            false
        });
    }

    /// The kernel's name of a socket that was connected here, or of its peer.
    pub fn name(&self, socket: u64, peer: bool) -> Option<Vec<u8>> {
        self.connected.get(&socket).map(|names| names[usize::from(peer)].clone())
    }
}

impl Call<'_> {
    /// `socket`, where copies are kept.
    pub fn make_socket(&self, family: i32, kind: i32, protocol: i32) -> Result<Answer> {
        self.keeps()?;
        let made = socket::make(family, kind, protocol).map_err(errno)?;
        self.kept.borrow_mut().keep(&made)?;
        self.notified.give(made.as_fd(), kind & libc::SOCK_CLOEXEC != 0).map(Answer::Value)
    }

    /// `inotify_init1`, where copies are kept.
    pub fn make_watcher(&self, flags: i32) -> Result<Answer> {
        self.keeps()?;
        let made = file::watcher(flags).map_err(errno)?;
        let mut kept = self.kept.borrow_mut();
        kept.watchers.retain(|one| is_watcher(one.process, one.number));
        if kept.watchers.len() >= WATCHERS_MAX {
            return Err(Errno::EMFILE);
        }
        let number = self.notified.give(made.as_fd(), flags & libc::IN_CLOEXEC != 0)?;
        kept.watchers.push(Watcher { process: self.caller.process()?, number: number as i32, copy: made });
        Ok(Answer::Value(number))
    }

    /// These calls are supervised only where copies are kept.
    fn keeps(&self) -> Result<()> {
        match self.caller.access.sockets {
            SocketAccess::Kept => Ok(()),
            SocketAccess::Taken => Err(Errno::EPERM),
        }
    }

    /// The socket behind a descriptor of the caller.
    pub fn socket(&self, fd: i32) -> Result<CallersSocket> {
        if self.caller.access.sockets == SocketAccess::Taken {
            return self.caller.descriptor(fd).map(CallersSocket::Copy);
        }
        if fd < 0 {
            return Err(Errno::EBADF);
        }
        let stat = fstat(&self.caller.path_of(fd)?)?;
        if !is(&stat, libc::S_IFSOCK) {
            return Err(Errno::ENOTSOCK);
        }
        let copy = self.kept.borrow().sockets.get(&stat.st_ino).map(OwnedFd::try_clone).transpose();
        Ok(copy.map_err(errno)?.map_or(CallersSocket::Other(stat.st_ino), CallersSocket::Copy))
    }

    /// The socket behind a descriptor of the caller; `errno` if there is no copy of it.
    pub fn unconnected_socket(&self, fd: i32, errno: Errno) -> Result<OwnedFd> {
        match self.socket(fd)? {
            CallersSocket::Copy(socket) => Ok(socket),
            CallersSocket::Other(_) => Err(errno),
        }
    }

    /// The watcher behind a descriptor of the caller.
    pub fn watcher(&self, fd: i32) -> Result<OwnedFd> {
        if self.caller.access.sockets == SocketAccess::Taken {
            return self.caller.descriptor(fd);
        }
        let (process, kept) = (self.caller.process()?, self.kept.borrow());
        // A process that has inherited it has it under the same number.
        let own = kept.watchers.iter().rev().find(|one| (one.process, one.number) == (process, fd));
        let inherited = || kept.watchers.iter().rev().find(|one| one.number == fd);
        let copy = own.or_else(inherited).filter(|_| is_watcher(process, fd)).ok_or(Errno::EINVAL)?;
        copy.copy.try_clone().map_err(errno)
    }

    /// Closes a connected socket of the caller, of which there is no copy to shut down: a socket takes its place that can neither
    /// receive nor send. The kernel may not make the call, as the number may be a listener's by then.
    pub fn shut_other(&self, fd: i32) -> Result<Answer> {
        let (dead, _) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        let flags = proc::line(format!("/proc/{}/fdinfo/{fd}", self.caller.thread), "flags");
        let flags = flags.and_then(|flags| i32::from_str_radix(&flags, 8).ok()).ok_or(Errno::EBADF)?;
        self.notified.replace(dead.as_fd(), fd, flags & libc::O_CLOEXEC != 0)?;
        Ok(Answer::Value(0))
    }
}

/// Whether a descriptor of a process is a watcher.
fn is_watcher(process: i32, number: i32) -> bool {
    let link = readlink(format!("/proc/{process}/fd/{number}").as_str());
    link.is_ok_and(|file| file == "anon_inode:inotify")
}
