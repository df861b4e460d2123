//! Layers `user-`, `pid-`, `network-`, `ipc-`, `uts-`, `cgroup-namespace`: they isolate a session from the rest of the machine.
//!
//! *Guarantees*: a cell sees only the session's processes, network, IPC objects, host name and cgroup; each
//! cell has a PID namespace inside the session's, so that killing it kills all of it; the caller keeps its
//! own uid and gid inside and has no others; further user namespaces are closed (`user.max_user_namespaces`
//! is 0, and the filter refuses the flags); half of the user's inotify instances and watches are left to
//! programs outside. *Does not*: close files (mounts and Landlock do). *Needs*: user namespaces for the user
//! who runs the executor. *Order*: first, by `clone` of the warden; the code here runs in it before the
//! mounts. *Fails*: the session opens in the flat tier, and reports it, or not at all if the policy requires
//! a namespace. *Tested by*: `other_processes_are_out_of_reach`, `no_socket_leads_out`,
//! `the_kernel_is_not_reached`, corpus `NS-*`, `NET-*`, `IPC-*`, `PROC-*`.

use broker_protocol::{Layer, LayerSet};
use executor_spec::error::{At, Privilege, SetupError};
use executor_spec::sandbox::HOST_NAME;
use executor_sys::socket;
use libc::c_int;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, sethostname};
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// Namespaces, their `clone` flags, and their names below `/proc/self/ns`. In the order in which
/// they are entered: the user namespace gives the right to enter the others.
pub const FLAGS: [(Layer, c_int, &str); 7] = [
    (Layer::UserNamespace, libc::CLONE_NEWUSER, "user"),
    (Layer::PidNamespace, libc::CLONE_NEWPID, "pid"),
    (Layer::MountNamespace, libc::CLONE_NEWNS, "mnt"),
    (Layer::NetworkNamespace, libc::CLONE_NEWNET, "net"),
    (Layer::IpcNamespace, libc::CLONE_NEWIPC, "ipc"),
    (Layer::UtsNamespace, libc::CLONE_NEWUTS, "uts"),
    (Layer::CgroupNamespace, libc::CLONE_NEWCGROUP, "cgroup"),
];

fn of(layers: LayerSet) -> impl Iterator<Item = (Layer, c_int, &'static str)> {
    FLAGS
        .into_iter()
        .filter(move |(layer, ..)| layers.has(*layer))
}

/// Number of namespaces that a session has of its own.
pub fn count(layers: LayerSet) -> usize {
    of(layers).count()
}

/// The flags of a session's namespaces: none in the flat tier.
pub fn session_flags(layers: LayerSet) -> c_int {
    of(layers).fold(0, |flags, (_, flag, _)| flags | flag)
}

/// The flags of each cell's own namespaces inside them: one for its processes, and a mount namespace for their `/proc`.
pub fn cell_flags(layers: LayerSet) -> c_int {
    session_flags(layers) & (libc::CLONE_NEWPID | libc::CLONE_NEWNS)
}

/// Opens a descriptor of each namespace that this process is in.
///
/// # Errors
/// The kernel's.
pub fn open_own(layers: LayerSet) -> Result<Vec<OwnedFd>, SetupError> {
    let open = |(layer, _, name)| {
        let file = File::open(format!("/proc/self/ns/{name}"));
        file.map(OwnedFd::from)
            .at(layer, || format!("open its {name} namespace"))
    };
    of(layers).map(open).collect()
}

/// Enters a session's namespaces with the descriptors that [`open_own`] returned there. The PID namespace applies only to children.
///
/// # Errors
/// The kernel's.
pub fn enter(layers: LayerSet, namespaces: &[OwnedFd]) -> Result<(), SetupError> {
    of(layers)
        .zip(namespaces)
        .try_for_each(|((layer, flag, name), fd)| {
            setns(fd, CloneFlags::from_bits_retain(flag))
                .at(layer, || format!("enter the session's {name} namespace"))
        })
}

/// Tries what is done later in a session's namespaces: its file worker enters them, and a cell with a lease has mounts of its own.
///
/// # Errors
/// The kernel's.
pub(crate) fn try_later_steps() -> Result<(), SetupError> {
    let at = Layer::MountNamespace;
    let name = File::open("/proc/self/ns/uts").at(at, || "open the own namespace".into())?;
    setns(name, CloneFlags::CLONE_NEWUTS)
        .at_privileged(at, Privilege::Namespaces, || "setns".into())?;
    unshare(CloneFlags::CLONE_NEWNS).at_privileged(at, Privilege::Namespaces, || "unshare".into())
}

/// Sets up new namespaces from their first process. `uid` and `gid` are those of the executor outside, and `more` is an address that the
/// loopback gets besides its own.
///
/// # Errors
/// The kernel's.
pub fn set_up(
    layers: LayerSet,
    (uid, gid): (Uid, Gid),
    more: Option<Ipv4Addr>,
) -> Result<(), SetupError> {
    if layers.has(Layer::UserNamespace) {
        map(uid, gid)?;
    }
    if layers.has(Layer::UtsNamespace) {
        let step = || "sethostname".into();
        sethostname(HOST_NAME).at_privileged(Layer::UtsNamespace, Privilege::HostName, step)?;
    }
    if layers.has(Layer::NetworkNamespace) {
        let step = || "bring up the loopback interface".into();
        socket::loopback_up().at_privileged(Layer::NetworkNamespace, Privilege::Loopback, step)?;
        let step = || "give the loopback interface an address".into();
        more.map_or(Ok(()), socket::add_to_loopback).at_privileged(
            Layer::NetworkNamespace,
            Privilege::Loopback,
            step,
        )?;
    }
    Ok(())
}

/// Maps this user and group, and nobody else, in a user namespace of this process's own.
///
/// # Errors
/// The kernel's.
pub fn map(uid: Uid, gid: Gid) -> Result<(), SetupError> {
    // A process can open its own map files only while it is dumpable.
    prctl::set_dumpable(true).at(Layer::UserNamespace, || "PR_SET_DUMPABLE".into())?;
    // An ordinary user may map its group only after giving up setgroups (`man 7 user_namespaces`).
    let privilege = Privilege::IdMap;
    write("/proc/self/setgroups", "deny", privilege)?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"), privilege)?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"), privilege)
}

/// Closes user namespaces below the session's. Called when `/proc` is the session's own and still writable.
///
/// # Errors
/// The kernel's.
pub fn close_user_namespaces(layers: LayerSet) -> Result<(), SetupError> {
    // The limit of the user namespace that this process is in: never the machine's.
    if !layers.has(Layer::UserNamespace) {
        return Ok(());
    }
    write(
        "/proc/sys/user/max_user_namespaces",
        "0",
        Privilege::UserLimit,
    )
}

/// What the kernel counts both for all of a user's programs and per user namespace, with the file
/// that has the user's limit.
const COUNTERS: [(&str, &str); 2] = [
    (
        "/proc/sys/user/max_inotify_instances",
        "/proc/sys/fs/inotify/max_user_instances",
    ),
    (
        "/proc/sys/user/max_inotify_watches",
        "/proc/sys/fs/inotify/max_user_watches",
    ),
];

/// Leaves half of the user's limits on these to programs outside the session. Called when `/proc`
/// is as for [`close_user_namespaces`].
///
/// # Errors
/// The kernel's.
pub fn bound_counters(layers: LayerSet) -> Result<(), SetupError> {
    if !layers.has(Layer::UserNamespace) {
        return Ok(());
    }
    for (own, users) in COUNTERS {
        // Without the file, the kernel has no inotify.
        let Ok(text) = fs::read_to_string(users) else {
            continue;
        };
        let most = text.trim().parse::<u32>().map_err(io::Error::other);
        let most = most.at(Layer::UserNamespace, || format!("read {users}"))?;
        write(own, &(most / 2).to_string(), Privilege::UserLimit)?;
    }
    Ok(())
}

fn write(path: &str, text: &str, privilege: Privilege) -> Result<(), SetupError> {
    fs::write(path, text).at_privileged(Layer::UserNamespace, privilege, || format!("write {path}"))
}
