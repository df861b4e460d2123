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
use broker_protocol::Layer;
use libc::c_int;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, sethostname};
use std::fs;

/// A session's namespaces.
pub const SESSION: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// What each cell has of its own inside them: its processes, and a mount namespace for their `/proc`.
pub const CELL: c_int = libc::CLONE_NEWPID | libc::CLONE_NEWNS;

/// Settles in, as the first process of new namespaces. `uid` and `gid` are those of the executor outside.
pub fn settle(uid: Uid, gid: Gid) -> Result<(), LayerError> {
    // The kernel shows a process its own map files only while it is dumpable.
    prctl::set_dumpable(true).at(Layer::UserNamespace, || "PR_SET_DUMPABLE".into())?;
    // An ordinary user may map its group only after giving up setgroups (`man 7 user_namespaces`).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
    sethostname("lazaret").at(Layer::UtsNamespace, || "sethostname".into())?;
    sys::loopback_up().at(Layer::NetworkNamespace, || "bring up the loopback interface".into())
}

/// Closes user namespaces below this one. Called when `/proc` is the session's own and still writable.
pub fn close_user_namespaces() -> Result<(), LayerError> {
    write("/proc/sys/user/max_user_namespaces", "0")
}

fn write(path: &str, text: &str) -> Result<(), LayerError> {
    fs::write(path, text).at(Layer::UserNamespace, || format!("write {path}"))
}
