//! Layer `seccomp`: an allow-list of system calls, with rules on arguments where they matter.
//!
//! *Guarantees*: a call that is not in `policies/seccomp/session.json` fails with `EPERM`; nobody makes a set-user-ID file
//! (`modes.json`); without namespaces all sockets but streams of Unix and TCP are closed too (`flat.json`); cells lose what
//! only the warden needs (`cell.json`); foreign ABIs (i386, x32) kill the process; what libc can do without is absent
//! (`absent.json`, `clone3.json`, `ENOSYS`). Calls that make names (`names.json`), or without namespaces all that take paths
//! or addresses (`supervised.json`, `reads.json`), are answered by the cell's first process. *Does not*: read memory, so it knows no paths
//! and no addresses. *Needs*: Linux 5.14. *Order*: last; the session's list in the warden, the rest in each cell, the
//! supervised calls in the program. *Fails*: the session does not open. *Tested by*: `the_kernel_is_not_reached`,
//! `no_socket_leads_out`, `own_socket_files_work_and_those_of_the_machine_do_not`,
//! `no_program_of_the_machine_comes_to_a_cells_server`, corpus `SYS-*`, `NET-*`, `NS-*`.

use crate::no_new_privileges::NoNewPrivileges;
use broker_protocol::{Layer, Tier};
use executor_spec::caller_access::SocketAccess;
use executor_spec::error::{At, SetupError};
use executor_sys::confine;
use libc::sock_filter;

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// Installs the filter for the file worker, the warden and all its descendants.
///
/// # Errors
/// The kernel's.
pub fn confine_session(tier: Tier, _: NoNewPrivileges) -> Result<(), SetupError> {
    match tier {
        Tier::Namespaced => install("session", &SESSION),
        Tier::Flat => install("session_flat", &SESSION_FLAT),
    }
}

/// Installs the additional filter of a cell. It costs time for each: what can be in the session's list is there.
///
/// # Errors
/// The kernel's.
pub(crate) fn confine_cell(_: NoNewPrivileges) -> Result<(), SetupError> {
    install("cell", &CELL)
}

/// Which calls of a flat cell's program its first process answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// Calls that take paths, change something, or name a socket.
    Whole,
    /// Only those that do more than look at a path, enter, read or run it: where the profile hides nothing.
    Changes,
}

/// The additional filter of a cell's program, which the cell's first process does not have: that
/// calls `openat2`, and answers the calls of the last list.
///
/// In the namespaced tier nothing that reads is among them, whatever `supervision` says.
pub fn supervised(
    tier: Tier,
    sockets: SocketAccess,
    supervision: Supervision,
) -> &'static [sock_filter] {
    match (tier, sockets, supervision) {
        (Tier::Namespaced, SocketAccess::Taken, _) => &NAMES,
        (Tier::Namespaced, SocketAccess::Kept, _) => &NAMES_KEPT,
        (Tier::Flat, SocketAccess::Taken, Supervision::Whole) => &SUPERVISED,
        (Tier::Flat, SocketAccess::Kept, Supervision::Whole) => &SUPERVISED_KEPT,
        (Tier::Flat, SocketAccess::Taken, Supervision::Changes) => &CHANGES,
        (Tier::Flat, SocketAccess::Kept, Supervision::Changes) => &CHANGES_KEPT,
    }
}

/// Whether the session's list or the cells' refuses a call of this number with these arguments. For display: the kernel decides.
pub fn refuses(tier: Tier, number: u32, arguments: &[u64; 6]) -> bool {
    let session: &[sock_filter] = match tier {
        Tier::Namespaced => &SESSION,
        Tier::Flat => &SESSION_FLAT,
    };
    [session, &CELL].iter().any(|filter| {
        let answer = evaluate(filter, number, arguments);
        answer
            .is_some_and(|answer| answer & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ERRNO)
    })
}

/// The action that a filter returns, as the kernel would evaluate it; `None` if it contains an instruction that ours do not.
fn evaluate(filter: &[sock_filter], number: u32, arguments: &[u64; 6]) -> Option<u32> {
    // `struct seccomp_data`: the number, the architecture, the address of the instruction, six arguments.
    let word = |offset: u32| match offset {
        0 => Some(number),
        4 => Some(ARCHITECTURE),
        16.. if offset.is_multiple_of(4) => {
            let argument = arguments.get((offset as usize - 16) / 8)?;
            Some((argument >> (offset % 8 * 8)) as u32)
        }
        _ => None,
    };
    let (mut at, mut held) = (0_usize, 0_u32);
    loop {
        let step = filter.get(at)?;
        let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        at += 1 + match u32::from(step.code) {
            LOAD => {
                held = word(step.k)?;
                0
            }
            AND => {
                held &= step.k;
                0
            }
            JUMP => step.k as usize,
            IF_EQUAL => jump(held == step.k),
            IF_GREATER => jump(held > step.k),
            IF_NOT_LESS => jump(held >= step.k),
            IF_SET => jump(held & step.k != 0),
            ANSWER => return Some(step.k),
            _ => return None,
        };
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const IF_NOT_LESS: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;

/// Installs the file worker's own, much shorter list.
///
/// # Errors
/// The kernel's.
pub fn confine_worker(_: NoNewPrivileges) -> Result<(), SetupError> {
    install("worker", &WORKER)
}

fn install(name: &str, filter: &[sock_filter]) -> Result<(), SetupError> {
    confine::add_filter(filter).at(Layer::Seccomp, || format!("install the list `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_judged_as_the_kernel_judges_it() {
        let refused = |number: i64, first: u64| {
            refuses(Tier::Namespaced, number as u32, &[first, 0, 0, 0, 0, 0])
        };
        assert!(
            refused(libc::SYS_unshare, libc::CLONE_NEWUSER as u64) && refused(libc::SYS_bpf, 0)
        );
        assert!(refused(libc::SYS_mount, 0) && refused(libc::SYS_clone, libc::CLONE_NEWNET as u64));
        assert!(
            !refused(libc::SYS_unshare, libc::CLONE_FILES as u64) && !refused(libc::SYS_read, 0)
        );
        assert!(!refused(libc::SYS_clone, libc::SIGCHLD as u64));
    }

    #[test]
    fn every_instruction_of_our_lists_is_known() {
        for filter in [&SESSION[..], &SESSION_FLAT, &CELL] {
            for number in 0..600 {
                assert!(
                    evaluate(filter, number, &[u64::MAX; 6]).is_some(),
                    "{number}"
                );
            }
        }
    }
}
