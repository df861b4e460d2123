//! Copies of the sockets and watchers of a cell, where a filter of the machine lets no process take another's descriptors: there the
//! supervisor makes them for its callers, and finds its copy again by the file behind the caller's number.
//!
//! A copy keeps a socket open that its program has closed. So none is kept of a socket that is connected, whose other end waits for
//! that; and of the others, those are dropped that no process of the cell has any more, before that can matter to anybody: when
//! something is bound or connected, and when there are many.

use crate::flat::loopback::open_sockets;
use crate::object::errno;
use crate::tcp::inode;
use executor_sys::socket::{self, SocketEnd};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::readlink;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Maximum number of sockets of a cell that are neither connected nor closed.
const SOCKETS_MAX: usize = 512;
/// Maximum number of watchers of a cell; the machine's own limit for a user is 128 by default.
pub(crate) const WATCHERS_MAX: usize = 64;
/// Maximum number of connected sockets whose names are remembered; then all are forgotten.
const NAMES_MAX: usize = 1024;

/// The sockets that a cell's supervisor has made for its callers.
#[derive(Default)]
pub(crate) struct KeptSockets {
    pub(crate) sockets: HashMap<u64, OwnedFd>,
    /// The sockets among these that are being connected.
    pub(crate) connecting: Vec<u64>,
    /// The kernel's names of those that were connected here, and of their peers, by inode.
    pub(crate) connected: HashMap<u64, [Vec<u8>; 2]>,
    /// All watchers have one inode: they are known by where they were given.
    pub(crate) watchers: Vec<Watcher>,
}

pub(crate) struct Watcher {
    pub(crate) process: i32,
    pub(crate) number: i32,
    pub(crate) copy: OwnedFd,
}

/// A socket of the caller.
pub(crate) enum CallersSocket {
    Copy(OwnedFd),
    /// One of which there is no copy, by its inode: connected, or received from elsewhere.
    Other(u64),
}

impl KeptSockets {
    pub(crate) fn retain(&mut self, made: &OwnedFd) -> Result<()> {
        if self.sockets.len() >= SOCKETS_MAX {
            self.drop_closed();
        }
        if self.sockets.len() >= SOCKETS_MAX {
            return Err(Errno::EMFILE);
        }
        self.sockets
            .insert(inode(made)?, made.try_clone().map_err(errno)?);
        Ok(())
    }

    /// Drops the sockets that no process of the cell has open.
    pub(crate) fn drop_closed(&mut self) {
        if !self.sockets.is_empty() {
            let open = open_sockets();
            self.sockets.retain(|inode, _| open.contains_key(inode));
        }
    }

    /// Records that a socket is being connected. The copy is dropped when it is, and kept if that fails.
    pub(crate) fn connects(&mut self, socket: u64) {
        if self.sockets.contains_key(&socket) {
            self.connecting.push(socket);
            self.drop_connected();
        }
    }

    /// Drops the sockets that are connected by now.
    pub(crate) fn drop_connected(&mut self) {
        let Self {
            sockets,
            connecting,
            connected,
            ..
        } = self;
        connecting.retain(|inode| {
            let Some(copy) = sockets.get(inode) else {
                return false;
            };
            let names =
                [SocketEnd::Own, SocketEnd::Peer].map(|end| socket::name(copy.as_fd(), end));
            let [Ok(own), Ok(peer)] = names else {
                return true;
            };
            if connected.len() >= NAMES_MAX {
                connected.clear();
            }
            connected.insert(*inode, [own, peer]);
            sockets.remove(inode);
            false
        });
    }

    /// The kernel's name of a socket that was connected here, or of its peer.
    pub(crate) fn name(&self, socket: u64, end: SocketEnd) -> Option<Vec<u8>> {
        let [own, peer] = self.connected.get(&socket)?;
        Some(match end {
            SocketEnd::Own => own.clone(),
            SocketEnd::Peer => peer.clone(),
        })
    }
}

/// Whether a descriptor of a process is a watcher.
pub(crate) fn is_watcher(process: i32, number: i32) -> bool {
    let link = readlink(format!("/proc/{process}/fd/{number}").as_str());
    link.is_ok_and(|file| file == "anon_inode:inotify")
}
