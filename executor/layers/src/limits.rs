//! Layer `rlimits`: limits that the kernel enforces for each process, always.
//!
//! *Guarantees*: no core files, and no core handler of the machine (unless our own limit is 0 already); the policy's limits on open
//! descriptors, file size, CPU seconds and private memory apply to every process of a cell, and a quarter more than its limit on
//! processes to all of them together. *Does not*: add up over processes: the cgroup layer
//! does, where there is one, and the broker (`account.rs`) ten times a second everywhere. *Needs*: nothing. *Order*: in the new
//! process, just before its program. *Fails*: the call is not started. *Tested by*: `a_limit_ends_the_call_by_its_name`, corpus `RES-*`.

use broker_protocol::Tier;
use libc::{c_uint, rlimit};
use policies::Limits;

/// Allowance for our own processes in a session's namespace, and for a burst.
const PROCESSES_SPARE: u64 = 16;

/// Bytes of a core file: too few for one. With 0 the kernel would still start a handler that `core_pattern` names, as root and
/// outside every cell; 1 is its mark for a handler's own crash, for which it starts none. Source: core(5); Linux, fs/coredump.c.
const CORE: u64 = 1;

/// Maximum queued signals and timers: the kernel counts them per user, and a program needs one for each timer.
const SIGNALS: u64 = 4096;
/// Maximum bytes of message queues: the kernel's own default.
const QUEUES: u64 = 819_200;

/// The limits as `setrlimit` takes them, soft and hard equal so that a cell cannot raise them.
pub fn rlimits(limits: &Limits, tier: Tier) -> Vec<(c_uint, rlimit)> {
    // Without a user namespace the kernel counts every process of the user on this machine, including ours,
    // and refuses without naming the limit: so except in a burst, the broker acts first and names it.
    let processes = limits.processes.filter(|_| tier == Tier::Namespaced);
    let processes = processes.map(|most| {
        most.saturating_add(most / 4)
            .saturating_add(PROCESSES_SPARE)
    });
    let named = [
        (libc::RLIMIT_CORE, Some(CORE)),
        (libc::RLIMIT_NPROC, processes),
        // Private writable memory (since Linux 4.7): unlike the address space, it excludes what a runtime only reserves.
        (libc::RLIMIT_DATA, limits.memory),
        (libc::RLIMIT_CPU, limits.cpu_s),
        (libc::RLIMIT_FSIZE, limits.file_size),
        (libc::RLIMIT_NOFILE, limits.open_files.map(below_ours)),
        (libc::RLIMIT_SIGPENDING, Some(SIGNALS)),
        (libc::RLIMIT_MSGQUEUE, Some(QUEUES)),
    ];
    named
        .into_iter()
        .filter_map(|(resource, limit)| {
            Some((resource as c_uint, bounded(resource as c_uint, limit?)))
        })
        .collect()
}

/// The limit on a cell's descriptors, if it would equal ours: those it leaves on sockets are counted with ours.
fn below_ours(most: u64) -> u64 {
    current(libc::RLIMIT_NOFILE as c_uint).map_or(most, |ours| most.min(ours - ours / 4))
}

/// Never above this process's own hard limit: raising it would fail.
fn bounded(resource: c_uint, limit: u64) -> rlimit {
    let ours = current(resource).unwrap_or(limit);
    let limit = limit.min(ours);
    rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    }
}

fn current(resource: c_uint) -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let resource = match resource {
        r if r == libc::RLIMIT_CORE as c_uint => Resource::RLIMIT_CORE,
        r if r == libc::RLIMIT_NPROC as c_uint => Resource::RLIMIT_NPROC,
        r if r == libc::RLIMIT_DATA as c_uint => Resource::RLIMIT_DATA,
        r if r == libc::RLIMIT_CPU as c_uint => Resource::RLIMIT_CPU,
        r if r == libc::RLIMIT_FSIZE as c_uint => Resource::RLIMIT_FSIZE,
        r if r == libc::RLIMIT_SIGPENDING as c_uint => Resource::RLIMIT_SIGPENDING,
        r if r == libc::RLIMIT_MSGQUEUE as c_uint => Resource::RLIMIT_MSGQUEUE,
        _ => Resource::RLIMIT_NOFILE,
    };
    getrlimit(resource).ok().map(|(_, hard)| hard)
}
