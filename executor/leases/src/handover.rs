//! Hands leased paths to one cell: from the broker, which has opened and checked them, to that
//! cell's own mounts and rules. Such a cell is made for its call and serves no other.
//!
//! With mounts, a process of the broker's takes the trees from the machine and attaches them in the namespace of the
//! cell, before the cell confines itself. Without mounts, the cell gets a descriptor of each for its rules.

use crate::path::{HeldPath, LeasedPath};
use broker_protocol::frame;
use executor_layers::leased_mounts::{self, LeasedMount};
use executor_spec::known_directories::KnownDirectories;
use executor_spec::leased_cell::{ATTACHED, CellLeases, ZoneLease};
use executor_spec::protected_objects::ProtectedObjects;
use executor_sys::message;
use executor_sys::process::{self, Child, Fork};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// What the warden receives for one cell with leases.
#[derive(Debug)]
pub struct LeaseHandover {
    /// Connects the cell and the process that mounts for it; without mounts, carries descriptors of the paths.
    channel: OwnedFd,
    /// Encoded [`CellLeases`].
    order: OwnedFd,
    mounting: Option<Mounting>,
}

/// The process that mounts for one cell. It exits by itself when it is done, and is killed when this value is dropped.
#[derive(Debug)]
pub struct Mounting(Child);

/// How long a cell has all of its paths.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldFor {
    Session,
    /// One of them ends before the session may.
    Shorter,
}

impl LeaseHandover {
    /// The handover to a cell with these paths; `None` without paths. `user_namespace` is the session's, if it has mounts.
    ///
    /// # Errors
    /// The kernel's, or a path that cannot be encoded.
    pub(crate) fn new(
        paths: &[(u64, Rc<HeldPath>)],
        duration: HeldFor,
        user_namespace: Option<&OwnedFd>,
    ) -> io::Result<Option<Self>> {
        if paths.is_empty() {
            return Ok(None);
        }
        let mounts: Vec<_> = paths.iter().map(|(_, held)| held.mount()).collect();
        let encoded = CellLeases {
            ends: duration == HeldFor::Shorter,
            ..of_cell(paths, &mounts)
        };
        let encoded = frame::encode_whole(&encoded).map_err(io::Error::other)?;
        let mut file = File::from(memfd_create(c"leases", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&encoded)?;
        file.rewind()?;
        let (ours, channel) = message::pair()?;
        let Some(namespace) = user_namespace else {
            let mut objects = paths.iter().map(|(_, held)| held.object());
            objects.try_for_each(|object| message::send(ours.as_fd(), b"o", &[object]))?;
            return Ok(Some(Self {
                channel,
                order: file.into(),
                mounting: None,
            }));
        };
        match process::fork(0)? {
            Fork::Parent(child) => Ok(Some(Self {
                channel,
                order: file.into(),
                mounting: Some(Mounting(child)),
            })),
            Fork::Child => {
                drop(channel);
                mount_for_cell(namespace.as_fd(), &mounts, &ours)
            }
        }
    }

    /// The descriptors that the warden receives with the request.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.channel.as_fd(), self.order.as_fd()]
    }

    /// The process that mounts, once the warden has the rest. Closes the channel, so that the cell notices if nobody mounts.
    pub fn into_mounting(self) -> Option<Mounting> {
        self.mounting
    }
}

impl Mounting {
    /// Whether the process has exited.
    pub fn has_ended(&self) -> bool {
        let ended = waitid(
            Id::Pid(Pid::from_raw(self.0.pid)),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT,
        );
        ended != Ok(WaitStatus::StillAlive)
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        // If this fails, it has already exited.
        let _ = process::pidfd_signal(self.0.pidfd.as_fd(), libc::SIGKILL);
        let _ = waitpid(Pid::from_raw(self.0.pid), None);
    }
}

/// Leased paths, as a cell needs to know them.
fn of_cell(paths: &[(u64, Rc<HeldPath>)], mounts: &[LeasedMount]) -> CellLeases {
    let mut objects = ProtectedObjects::default();
    let mut directories = KnownDirectories::default();
    for (_, held) in paths {
        objects.extend(held.objects());
        directories.extend(held.directories());
    }
    let in_zones = paths.iter().map(|(_, held)| held.leased());
    let in_zones = in_zones.filter(|leased| leased.is_in_zone());
    let zone_file = |leased: &LeasedPath| ZoneLease {
        path: leased.path().to_owned(),
        access: leased.access(),
        id: leased.object_id(),
    };
    CellLeases {
        paths: mounts
            .iter()
            .map(|mount| (mount.path.clone(), mount.access))
            .collect(),
        zone_files: in_zones.map(zone_file).collect(),
        objects,
        directories,
        ends: false,
    }
}

/// Runs the process that mounts for one cell, whose first message names the cell's namespace.
fn mount_for_cell(user_namespace: BorrowedFd, mounts: &[LeasedMount], cell: &OwnedFd) -> ! {
    let _ = prctl::set_name(c"lazaret-mount");
    let attached = leased_mounts::take(user_namespace, mounts).and_then(|trees| {
        let (_, fds) = message::receive_waiting(cell.as_fd(), &mut [0])?;
        let namespace = fds.first().ok_or(io::ErrorKind::UnexpectedEof)?;
        leased_mounts::attach(namespace.as_fd(), mounts, &trees)
    });
    let answer = match attached {
        Ok(()) => ATTACHED,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO).to_le_bytes(),
    };
    // If the cell is gone, nobody waits for it.
    let _ = message::send_waiting(cell.as_fd(), &answer, &[]);
    process::exit_now(0)
}
