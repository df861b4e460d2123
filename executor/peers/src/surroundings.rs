//! Properties that a process gives to those that it starts, besides its environment: user, rights, limits, namespaces, groups of processes that
//! share limits, scheduling. A broker that was started for a client before it came serves only a client with the same.
//!
//! *Does not* see a Landlock domain, which the kernel shows to nobody: `lazaret warm` has clients prove that they are in none that it
//! is not in itself. Who is in a cell has filters that no broker has.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use thiserror::Error;

/// Lines of `/proc/PID/status` that count.
const STATUS: [&str; 18] = [
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Speculation_Store_Bypass",
    "SpeculationIndirectBranch",
    "Cpus_allowed",
    "Mems_allowed",
    "THP_enabled",
    "untag_mask",
];
/// Files that count as a whole.
const FILES: [&str; 4] = ["limits", "cgroup", "oom_score_adj", "timens_offsets"];
const NAMESPACES: [&str; 10] = [
    "cgroup",
    "ipc",
    "mnt",
    "net",
    "pid",
    "pid_for_children",
    "time",
    "time_for_children",
    "user",
    "uts",
];
/// Fields of `/proc/PID/stat`, as the manual counts: niceness, real-time priority, scheduling policy.
const STAT: [usize; 3] = [19, 40, 41];

#[derive(Debug, PartialEq, Eq)]
pub struct Surroundings {
    status: Vec<String>,
    files: Vec<Option<String>>,
    namespaces: Vec<String>,
    scheduling: Vec<String>,
}

/// Why a process is not served by a broker that stood ready.
#[derive(Debug, Error)]
pub enum NotServed {
    #[error("/proc does not show the process: {0}")]
    Unknown(io::Error),
    #[error("user, rights, limits, groups, namespaces or scheduling are others")]
    Others,
}

impl Surroundings {
    /// Those of this process, before it has changed any.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn own() -> Result<Self, NotServed> {
        Self::of("self")
    }

    /// Whether the process that connected `socket` has these.
    ///
    /// # Errors
    /// It has others, or they cannot be read.
    pub fn check_peer(&self, socket: BorrowedFd) -> Result<(), NotServed> {
        let peer = getsockopt(&socket, PeerCredentials);
        let peer = peer.map_err(|errno| NotServed::Unknown(errno.into()))?;
        match Self::of(&peer.pid().to_string())? == *self {
            true => Ok(()),
            false => Err(NotServed::Others),
        }
    }

    fn of(process: &str) -> Result<Self, NotServed> {
        let path = |name: &str| format!("/proc/{process}/{name}");
        let status = fs::read_to_string(path("status")).map_err(NotServed::Unknown)?;
        let status: Vec<String> = status
            .lines()
            .filter(|line| STATUS.iter().any(|key| is_of(line, key)))
            .map(str::to_owned)
            .collect();
        let namespace = |name: &&str| {
            let link = fs::read_link(path(&format!("ns/{name}")))?;
            Ok(link.to_string_lossy().into_owned())
        };
        let namespaces: io::Result<Vec<String>> = NAMESPACES.iter().map(namespace).collect();
        let stat = fs::read_to_string(path("stat")).map_err(NotServed::Unknown)?;
        // The second field, a name in parentheses, may contain anything.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, fields)| fields)
            .split_whitespace()
            .collect();
        let field = |number: &usize| fields.get(number - 3).copied().unwrap_or("").to_owned();
        Ok(Self {
            status,
            // A kernel need not have all of them; then neither process has.
            files: FILES
                .iter()
                .map(|name| fs::read_to_string(path(name)).ok())
                .collect(),
            namespaces: namespaces.map_err(NotServed::Unknown)?,
            scheduling: STAT.iter().map(field).collect(),
        })
    }
}

fn is_of(line: &str, key: &str) -> bool {
    line.strip_prefix(key)
        .is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_of_this_kernel_are_found() {
        let own = Surroundings::own().unwrap();
        for key in &STATUS[..12] {
            assert!(own.status.iter().any(|line| is_of(line, key)), "{key}");
        }
        assert!(
            own.files[0]
                .as_deref()
                .is_some_and(|limits| limits.contains("Max open files"))
        );
        assert!(
            own.scheduling[0].parse::<i32>().is_ok(),
            "{:?}",
            own.scheduling
        );
        assert_eq!(own.namespaces.len(), NAMESPACES.len());
    }
}
