//! Layer `seccomp`: an allow-list of system calls, by argument where the argument matters.
//!
//! *Guarantees*: a call that is not in `policies/seccomp/session.json` fails with `EPERM`; nobody makes a set-user-ID file
//! (`modes.json`); without namespaces all sockets but streams of Unix and TCP are closed too (`flat.json`); cells lose what
//! only the warden needs (`cell.json`); foreign ABIs (i386, x32) kill the process; what libc can do without is absent
//! (`absent.json`, `clone3.json`, `ENOSYS`). Calls that make names (`names.json`), or without namespaces all that take paths
//! or addresses (`supervised.json`), are answered by the cell's first process. *Does not*: read memory, so it knows no paths
//! and no addresses. *Needs*: Linux 5.14. *Order*: last; the session's list in the warden, the rest in each cell, the
//! supervised calls in the program. *Fails*: the session does not open. *Tested by*: `the_kernel_is_not_reached`,
//! `no_socket_leads_out`, `own_socket_files_work_and_those_of_the_machine_do_not`,
//! `no_program_of_the_machine_comes_to_a_cells_server`, corpus `SYS-*`, `NET-*`, `NS-*`.

use crate::error::{At, LayerError};
use crate::no_new_privileges::NoNewPrivileges;
use broker_protocol::{Layer, Tier};
use executor_sys::confine;
use libc::sock_filter;

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// The list that the warden and everything below it, and the file worker, stand under.
///
/// # Errors
/// The kernel's.
pub fn confine_session(tier: Tier, _: NoNewPrivileges) -> Result<(), LayerError> {
    match tier {
        Tier::Namespaced => install("session", &SESSION),
        Tier::Flat => install("session_flat", &SESSION_FLAT),
    }
}

/// What a cell loses in addition. It is installed for each: what can stand in the session's list stands there.
///
/// # Errors
/// The kernel's.
pub fn confine_cell(_: NoNewPrivileges) -> Result<(), LayerError> {
    install("cell", &CELL)
}

/// What a cell's program stands under besides, and the cell's first process does not: that one calls `openat2`, and
/// answers the calls of the last list.
pub fn supervised(tier: Tier) -> &'static [sock_filter] {
    match tier {
        Tier::Namespaced => &NAMES,
        Tier::Flat => &SUPERVISED,
    }
}

/// The file worker's own, much shorter list.
///
/// # Errors
/// The kernel's.
pub fn confine_worker(_: NoNewPrivileges) -> Result<(), LayerError> {
    install("worker", &WORKER)
}

fn install(name: &str, filter: &[sock_filter]) -> Result<(), LayerError> {
    confine::add_filter(filter).at(Layer::Seccomp, || format!("install the list `{name}`"))
}
