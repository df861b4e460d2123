//! Layer `seccomp`: an allow-list of system calls, by argument where the argument matters.
//!
//! *Guarantees*: a call that is not in `policies/seccomp/session.json` fails with `EPERM`; cells lose what only the
//! warden needs (`cell.json`); foreign ABIs (i386, x32) kill the process; what libc can do without is absent
//! (`absent.json`, `clone3.json`, `ENOSYS`); without namespaces all sockets but Unix streams are closed too (`flat.json`),
//! and calls that take paths are answered by the cell's first process (`supervised.json`). *Does not*: read memory, so it
//! knows no paths and no addresses. *Needs*: Linux 4.14 with `CONFIG_SECCOMP_FILTER`; 5.14 without namespaces. *Order*:
//! last; the session's list in the warden, the rest in each cell, the supervised calls in the program. *Fails*: the session
//! does not open. *Tested by*: `the_kernel_is_not_reached`, `no_socket_leads_out`,
//! `own_socket_files_work_and_those_of_the_machine_do_not`, corpus `SYS-*`, `NET-*`, `NS-*`.

use super::{At, LayerError, NoNewPrivileges};
use crate::sys::{self, Supervised};
use broker_protocol::{Layer, Tier};
use libc::sock_filter;
use std::os::fd::BorrowedFd;

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// The list that the warden and everything below it stand under.
pub fn confine_session(tier: Tier, _: NoNewPrivileges) -> Result<(), LayerError> {
    match tier {
        Tier::Namespaced => install("session", &SESSION),
        Tier::Flat => install("session", &SESSION_FLAT),
    }
}

/// What a cell loses in addition.
pub fn confine_cell(tier: Tier, _: NoNewPrivileges) -> Result<(), LayerError> {
    match tier {
        Tier::Namespaced => install("cell", &CELL),
        Tier::Flat => install("cell_flat", &CELL_FLAT),
    }
}

/// What the program of a flat cell puts on just before it is started, and its cell's first process has not: that one
/// calls `openat2`, and answers the calls of the last list.
pub fn supervised(socket: BorrowedFd<'_>) -> Supervised<'_> {
    Supervised { trapped: &SUPERVISED, socket }
}

/// The file worker's own, much shorter list.
pub fn confine_worker(_: NoNewPrivileges) -> Result<(), LayerError> {
    install("worker", &WORKER)
}

fn install(name: &str, filter: &[sock_filter]) -> Result<(), LayerError> {
    sys::seccomp(filter).at(Layer::Seccomp, || format!("install the list `{name}`"))
}
