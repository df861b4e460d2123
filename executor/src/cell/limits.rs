//! Layer `rlimits`: bounds that the kernel keeps for each process, always.
//!
//! *Guarantees*: no core files; the policy's bounds on open descriptors, file size, CPU seconds, processes and private
//! memory hold for every process of a cell. *Does not*: add up over processes: the cgroup layer does, where there is
//! one, and the broker's account (`broker/account.rs`) ten times a second everywhere. *Needs*: nothing. *Order*: in the new process, just before its program. *Fails*: the
//! call is not started. *Tested by*: `a_limit_ends_the_call_by_its_name`, corpus `RES-*`.

use broker_protocol::Tier;
use libc::{c_uint, rlimit};
use policies::Limits;

/// The limits as `setrlimit` takes them, soft and hard alike so that a cell cannot raise them.
pub fn rlimits(limits: &Limits, tier: Tier) -> Vec<(c_uint, rlimit)> {
    // Without a user namespace the kernel counts every process of the user on this machine.
    let processes = limits.processes.filter(|_| tier == Tier::Namespaced);
    let named = [
        (libc::RLIMIT_CORE, Some(0)),
        (libc::RLIMIT_NPROC, processes),
        // Private writable memory (since Linux 4.7): unlike the address space, not what a runtime only reserves.
        (libc::RLIMIT_DATA, limits.memory),
        (libc::RLIMIT_CPU, limits.cpu_s),
        (libc::RLIMIT_FSIZE, limits.file_size),
        (libc::RLIMIT_NOFILE, limits.open_files),
    ];
    named
        .into_iter()
        .filter_map(|(resource, limit)| Some((resource as c_uint, bounded(resource as c_uint, limit?))))
        .collect()
}

/// Never above the hard limit this process has: raising it would fail.
fn bounded(resource: c_uint, limit: u64) -> rlimit {
    let ours = current(resource).unwrap_or(limit);
    let limit = limit.min(ours);
    rlimit { rlim_cur: limit, rlim_max: limit }
}

fn current(resource: c_uint) -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let resource = match resource {
        r if r == libc::RLIMIT_CORE as c_uint => Resource::RLIMIT_CORE,
        r if r == libc::RLIMIT_NPROC as c_uint => Resource::RLIMIT_NPROC,
        r if r == libc::RLIMIT_DATA as c_uint => Resource::RLIMIT_DATA,
        r if r == libc::RLIMIT_CPU as c_uint => Resource::RLIMIT_CPU,
        r if r == libc::RLIMIT_FSIZE as c_uint => Resource::RLIMIT_FSIZE,
        _ => Resource::RLIMIT_NOFILE,
    };
    getrlimit(resource).ok().map(|(_, hard)| hard)
}
