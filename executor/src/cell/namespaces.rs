//! Layers `user-`, `pid-`, `network-`, `ipc-`, `uts-`, `cgroup-namespace`: a machine of its own for a session.
//!
//! *Guarantees*: a cell sees no process, network, IPC object, host name or cgroup but the session's; each cell has a
//! PID namespace inside the session's, so that it dies whole; the caller keeps its own uid and gid inside and has no
//! others; further user namespaces are closed (`user.max_user_namespaces` is 0, and the filter refuses the flags).
//! *Does not*: close files (mounts and Landlock do). *Needs*: user namespaces for the user who runs the executor.
//! *Order*: first, by `clone` of the warden; what stands here runs in it before the mounts. *Fails*: the session opens
//! in the flat tier, which says so, or not at all if the policy requires a namespace. *Tested by*:
//! `other_processes_are_out_of_reach`, `no_socket_leads_out`, `the_kernel_is_not_reached`,
//!, corpus `NS-*`, `NET-*`, `IPC-*`, `PROC-*`.

use super::{At, LayerError};
use crate::sys;
use broker_protocol::{Layer, LayerSet};
use libc::c_int;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, sethostname};
use std::fs;

/// Namespaces, and the flags that ask for them.
const FLAGS: [(Layer, c_int); 7] = [
    (Layer::UserNamespace, libc::CLONE_NEWUSER),
    (Layer::MountNamespace, libc::CLONE_NEWNS),
    (Layer::PidNamespace, libc::CLONE_NEWPID),
    (Layer::NetworkNamespace, libc::CLONE_NEWNET),
    (Layer::IpcNamespace, libc::CLONE_NEWIPC),
    (Layer::UtsNamespace, libc::CLONE_NEWUTS),
    (Layer::CgroupNamespace, libc::CLONE_NEWCGROUP),
];

/// The flags of a session's namespaces: none in the flat tier.
pub fn session(layers: LayerSet) -> c_int {
    FLAGS.iter().filter(|(layer, _)| layers.has(*layer)).fold(0, |flags, (_, flag)| flags | flag)
}

/// The flags of what each cell has of its own inside them: its processes, and a mount namespace for their `/proc`.
pub fn cell(layers: LayerSet) -> c_int {
    session(layers) & (libc::CLONE_NEWPID | libc::CLONE_NEWNS)
}

/// Settles in, as the first process of new namespaces. `uid` and `gid` are those of the executor outside.
pub fn settle(layers: LayerSet, uid: Uid, gid: Gid) -> Result<(), LayerError> {
    if layers.has(Layer::UserNamespace) {
        map(uid, gid)?;
    }
    if layers.has(Layer::UtsNamespace) {
        sethostname("lazaret").at(Layer::UtsNamespace, || "sethostname".into())?;
    }
    if layers.has(Layer::NetworkNamespace) {
        sys::loopback_up().at(Layer::NetworkNamespace, || "bring up the loopback interface".into())?;
    }
    Ok(())
}

fn map(uid: Uid, gid: Gid) -> Result<(), LayerError> {
    // The kernel shows a process its own map files only while it is dumpable.
    prctl::set_dumpable(true).at(Layer::UserNamespace, || "PR_SET_DUMPABLE".into())?;
    // An ordinary user may map its group only after giving up setgroups (`man 7 user_namespaces`).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

/// Closes user namespaces below the session's. Called when `/proc` is the session's own and still writable.
pub fn close_user_namespaces(layers: LayerSet) -> Result<(), LayerError> {
    // The number of the user namespace that this process is in: never the machine's.
    if !layers.has(Layer::UserNamespace) {
        return Ok(());
    }
    write("/proc/sys/user/max_user_namespaces", "0")
}

fn write(path: &str, text: &str) -> Result<(), LayerError> {
    fs::write(path, text).at(Layer::UserNamespace, || format!("write {path}"))
}
