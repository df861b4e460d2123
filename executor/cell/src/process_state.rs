//! The state of a first process that a program could change through its PID. A process that serves
//! several calls compares it between them, and makes way for a new one if it has changed.

use executor_sys::process;
use nix::libc::rlim_t;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use std::io;

/// The limits that every program inherits (`man 2 getrlimit`).
const LIMITS: [Resource; 16] = [
    Resource::RLIMIT_AS,
    Resource::RLIMIT_CORE,
    Resource::RLIMIT_CPU,
    Resource::RLIMIT_DATA,
    Resource::RLIMIT_FSIZE,
    Resource::RLIMIT_LOCKS,
    Resource::RLIMIT_MEMLOCK,
    Resource::RLIMIT_MSGQUEUE,
    Resource::RLIMIT_NICE,
    Resource::RLIMIT_NOFILE,
    Resource::RLIMIT_NPROC,
    Resource::RLIMIT_RSS,
    Resource::RLIMIT_RTPRIO,
    Resource::RLIMIT_RTTIME,
    Resource::RLIMIT_SIGPENDING,
    Resource::RLIMIT_STACK,
];

/// Priorities, processors and limits of this process.
#[derive(PartialEq, Eq)]
pub(crate) struct ProcessState {
    scheduling: ([u64; 7], libc::c_long),
    processors: CpuSet,
    limits: Vec<(rlim_t, rlim_t)>,
}

impl ProcessState {
    pub(crate) fn now() -> io::Result<Self> {
        Ok(Self {
            scheduling: process::scheduling()?,
            processors: sched_getaffinity(Pid::from_raw(0))?,
            limits: LIMITS
                .into_iter()
                .map(getrlimit)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::setrlimit;

    /// In this test's process, its own under `nextest` or not, nothing else depends on this limit.
    #[test]
    fn a_change_is_seen() {
        let before = ProcessState::now().unwrap();
        assert!(before == ProcessState::now().unwrap());
        let (soft, hard) = getrlimit(Resource::RLIMIT_LOCKS).unwrap();
        setrlimit(Resource::RLIMIT_LOCKS, soft.min(1000), hard).unwrap();
        assert!(before != ProcessState::now().unwrap());
        setrlimit(Resource::RLIMIT_LOCKS, soft, hard).unwrap();
        assert!(before == ProcessState::now().unwrap());
    }
}
