//! Hands leased paths to one cell: from the broker, which has opened and checked them, to that
//! cell's own mounts and rules. Such a cell is made for its call and serves no other.
//!
//! With mounts, a process of the broker's takes the trees from the machine and attaches them in the namespace of the
//! cell, before the cell confines itself. Without mounts, the cell gets a descriptor of each for its rules.

use crate::cell::SessionRules;
use crate::leases::path::HeldPath;
use broker_protocol::{Layer, frame};
use executor_layers::error::{At, LayerError};
use executor_layers::known_directories::KnownDirectories;
use executor_layers::landlock::LandlockRules;
use executor_layers::leased_mounts::{self, LeasedMount};
use executor_layers::protected_objects::ProtectedObjects;
use executor_layers::spec::SandboxSpec;
use executor_sys::message;
use executor_sys::process::{self, Child, Fork};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use policies::Access;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

/// Maximum bytes of one cell's order: the protected objects in its paths, and their names.
const ORDER_MAX: u64 = 16 << 20;
/// Sent by the mounting process when everything is attached; otherwise it sends an error number.
const ATTACHED: [u8; 4] = [0; 4];

/// A cell's leases, as the cell needs to know them.
#[derive(Serialize, Deserialize)]
struct CellLeases {
    paths: Vec<(PathBuf, Access)>,
    objects: ProtectedObjects,
    directories: KnownDirectories,
    /// Whether one of them can end before the session.
    ends: bool,
}

/// What the warden receives for one cell with leases.
#[derive(Debug)]
pub struct LeaseHandover {
    /// Connects the cell and the process that mounts for it; without mounts, carries descriptors of the paths.
    pub(crate) channel: OwnedFd,
    /// Encoded [`CellLeases`].
    pub(crate) order: OwnedFd,
    mounting: Option<Mounting>,
}

/// The process that mounts for one cell. It exits by itself when it is done, and is killed when this value is dropped.
#[derive(Debug)]
pub struct Mounting(Child);

impl LeaseHandover {
    /// The handover to a cell with these paths, one of which `ends` before the session may; `None`
    /// without paths. `user_namespace` is the session's, if it has mounts.
    ///
    /// # Errors
    /// The kernel's, or a path that cannot be encoded.
    pub(crate) fn new(
        paths: &[(u64, Rc<HeldPath>)],
        ends: bool,
        user_namespace: Option<&OwnedFd>,
    ) -> io::Result<Option<Self>> {
        if paths.is_empty() {
            return Ok(None);
        }
        let mounts: Vec<_> = paths.iter().map(|(_, held)| held.mount()).collect();
        let mut objects = ProtectedObjects::default();
        paths
            .iter()
            .for_each(|(_, held)| objects.extend(held.objects()));
        let mut directories = KnownDirectories::default();
        paths
            .iter()
            .for_each(|(_, held)| directories.extend(held.directories()));
        let places = mounts
            .iter()
            .map(|mount| (mount.path.clone(), mount.access))
            .collect();
        let encoded = frame::encode_whole(&CellLeases {
            paths: places,
            objects,
            directories,
            ends,
        });
        let encoded = encoded.map_err(io::Error::other)?;
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

/// Adds what came with the request for this cell to its mounts and `rules`, in the process that will be its first.
///
/// # Errors
/// The kernel's; `ESTALE` if another object lies at a path than was granted.
pub(crate) fn receive(
    spec: &SandboxSpec,
    rules: &mut SessionRules,
    fds: Vec<OwnedFd>,
) -> Result<(), LayerError> {
    let layer = if spec.has(Layer::MountNamespace) {
        Layer::MountNamespace
    } else {
        Layer::LandlockFiles
    };
    let step = || "open what is granted for a while".to_owned();
    let missing = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let [channel, order] = <[OwnedFd; 2]>::try_from(fds)
        .map_err(|_| missing())
        .at(layer, step)?;
    let CellLeases {
        paths,
        objects,
        directories,
        ends,
    } = read(order).at(layer, step)?;
    let opened = match spec.has(Layer::MountNamespace) {
        true => attached(&channel, &paths),
        false => paths.iter().map(|_| received(&channel)).collect(),
    };
    let mut landlock = LandlockRules::open(spec)?;
    for (fd, (_, access)) in opened.at(layer, step)?.into_iter().zip(&paths) {
        landlock.add_leased(fd, *access)?;
    }
    rules.rulesets = landlock.rulesets(spec)?;
    if let Some(access) = &mut rules.access {
        let names = spec.policy.lease_names();
        let names = names.map_err(io::Error::other).at(layer, step)?;
        access.add_leased(paths.into_iter(), names, objects, directories);
        if ends {
            access.separate_sockets().at(layer, step)?;
        }
    }
    Ok(())
}

fn read(order: OwnedFd) -> io::Result<CellLeases> {
    let mut bytes = Vec::new();
    File::from(order).take(ORDER_MAX).read_to_end(&mut bytes)?;
    frame::decode_whole(&bytes).map_err(io::Error::other)
}

/// Waits until the paths are mounted here, and opens them.
fn attached(channel: &OwnedFd, paths: &[(PathBuf, Access)]) -> io::Result<Vec<OwnedFd>> {
    let namespace = leased_mounts::own_namespace()?;
    message::send_waiting(channel.as_fd(), b"n", &[namespace.as_fd()])?;
    let mut answer = [0; 4];
    let (length, _) = message::receive_waiting(channel.as_fd(), &mut answer)?;
    match (length, answer) {
        (4, ATTACHED) => {}
        (4, errno) => return Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))),
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    paths
        .iter()
        .map(|(path, _)| Ok(leased_mounts::open_without_links(path)?))
        .collect()
}

fn received(channel: &OwnedFd) -> io::Result<OwnedFd> {
    let (_, fds) = message::receive_waiting(channel.as_fd(), &mut [0])?;
    fds.into_iter()
        .next()
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
