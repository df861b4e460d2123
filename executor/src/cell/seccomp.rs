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

/// x32 calls have the number of an x86_64 call with this bit set (`arch/x86/include/uapi/asm/unistd.h`).
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// The list that the warden and everything below it stand under.
pub fn confine_session(tier: Tier, _: NoNewPrivileges) -> Result<(), LayerError> {
    match tier {
        Tier::Namespaced => install("session", &SESSION),
        Tier::Flat => install("session", &SESSION_FLAT),
    }
}

/// What a cell loses in addition.
pub fn confine_cell(tier: Tier, _: NoNewPrivileges) -> Result<(), LayerError> {
    install("cell", &CELL)?;
    match tier {
        Tier::Namespaced => install("absent", &ABSENT)?,
        Tier::Flat => {
            install("clone3", &CLONE3)?;
            install("flat", &FLAT)?;
        }
    }
    install("x32", &foreign())
}

/// What the program of a flat cell puts on just before it is started, and its cell's first process has not: that one
/// calls `openat2`, and answers the calls of the last list.
pub fn supervised(socket: BorrowedFd<'_>) -> Supervised<'_> {
    Supervised { absent: &ABSENT, trapped: &SUPERVISED, socket }
}

/// The file worker's own, much shorter list.
pub fn confine_worker(_: NoNewPrivileges) -> Result<(), LayerError> {
    // Last, as it allows no further filter.
    install("x32", &foreign())?;
    install("worker", &WORKER)
}

fn install(name: &str, filter: &[sock_filter]) -> Result<(), LayerError> {
    sys::seccomp(filter).at(Layer::Seccomp, || format!("install the list `{name}`"))
}

/// Kills the process on an x32 call. seccompiler tells architectures apart, and x32 has that of x86_64.
#[cfg(target_arch = "x86_64")]
fn foreign() -> Vec<sock_filter> {
    const NUMBER: u32 = 0; // offsetof(struct seccomp_data, nr)
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_BIT),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Other architectures have no second set of numbers.
#[cfg(not(target_arch = "x86_64"))]
fn foreign() -> Vec<sock_filter> {
    vec![sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }]
}
