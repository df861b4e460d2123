//! Who is at the other end of an approver's socket, and whether it may answer for the user.
//!
//! The client may not: it may be the very program that was talked into something. So a peer is refused when it is the
//! client, descends from it or has started it, or shares its terminal (on which the client could paint over what the
//! user is shown). What a process cannot shake off is checked too: a client that has confined itself carries a system
//! call filter, and so does every process that it makes or that its children leave to others; a peer must carry fewer.
//!
//! Does not: tell a client *without* a filter from the user. Such a program runs with all rights of the user, who could
//! as well change the policy; its processes are refused only as long as they do not hide where they come from.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use thiserror::Error;

/// Most ancestors that are looked at.
const GENERATIONS: usize = 128;

/// The client of a session, as a process.
#[derive(Debug)]
pub struct Client {
    /// Its process id.
    pub pid: i32,
    /// When it began: tells it from a later process of its number.
    started: u64,
}

/// Why a peer may not approve.
#[derive(Debug, Error)]
pub enum NotAdmitted {
    /// It is another user's.
    #[error("the approver has the user id {0}, this session another")]
    OtherUser(u32),
    /// Nothing is known of it, or it has ended.
    #[error("who connects cannot be found out: {0}")]
    Unknown(io::Error),
    /// The session's client cannot be looked at, so nothing can be told from it.
    #[error("the session's client has ended or cannot be looked at")]
    NoClient,
    /// It is the client, or belongs to it.
    #[error("the session's own client may not answer, nor what it has started, nor what has started it")]
    OfTheClient,
    /// It runs below the session.
    #[error("what runs in the session may not answer")]
    OfTheSession,
    /// It shares the client's terminal.
    #[error("the session's client can write to this terminal; use another one")]
    SameTerminal,
    /// It carries the filters of the client.
    #[error("the approver is confined like the session's client, and may have been made by it")]
    Marked,
}

/// A process as `/proc` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    /// The number of its terminal, 0 for none.
    terminal: i64,
    started: u64,
    /// System call filters it carries. They are inherited, and never taken off.
    filters: u32,
}

impl Process {
    fn of(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Self::parse(&stat, &status).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads `stat` behind the name, which may hold anything, and one line of `status` (Linux 5.9).
    fn parse(stat: &str, status: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let filters = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?;
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            terminal: fields.get(4)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            filters: filters.trim().parse().ok()?,
        })
    }
}

impl Client {
    /// Who made the connection behind `socket`.
    pub fn of(socket: BorrowedFd) -> io::Result<Self> {
        let pid = getsockopt(&socket, sockopt::PeerCredentials)?.pid();
        Ok(Self { pid, started: Process::of(pid)?.started })
    }

    fn look(&self) -> Result<Process, NotAdmitted> {
        let process = Process::of(self.pid).map_err(|_| NotAdmitted::NoClient)?;
        if process.started == self.started { Ok(process) } else { Err(NotAdmitted::NoClient) }
    }

    /// Whether who has connected `socket` may answer.
    pub fn admit(&self, socket: BorrowedFd) -> Result<(), NotAdmitted> {
        let unknown = |error: nix::Error| NotAdmitted::Unknown(error.into());
        let peer = getsockopt(&socket, sockopt::PeerCredentials).map_err(unknown)?;
        if peer.uid() != crate::sys::euid() {
            return Err(NotAdmitted::OtherUser(peer.uid()));
        }
        // Linux 6.5; on an older kernel a peer that ends at once may be taken for the next process of its number.
        let pidfd = getsockopt(&socket, sockopt::PeerPidfd).ok();
        let process = Process::of(peer.pid()).map_err(NotAdmitted::Unknown)?;
        let client = self.look()?;
        self.check(peer.pid(), &process, &client)?;
        let ended = |pidfd: &std::os::fd::OwnedFd| {
            poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
        };
        if pidfd.as_ref().is_some_and(ended) {
            return Err(NotAdmitted::Unknown(io::ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    fn check(&self, pid: i32, peer: &Process, client: &Process) -> Result<(), NotAdmitted> {
        let own = std::process::id().cast_signed();
        let above = ancestors(pid, peer.parent);
        if above.contains(&own) || pid == own {
            return Err(NotAdmitted::OfTheSession);
        }
        if pid == self.pid || above.contains(&self.pid) || ancestors(self.pid, client.parent).contains(&pid) {
            return Err(NotAdmitted::OfTheClient);
        }
        if peer.terminal != 0 && peer.terminal == client.terminal {
            return Err(NotAdmitted::SameTerminal);
        }
        if client.filters > 0 && peer.filters >= client.filters {
            return Err(NotAdmitted::Marked);
        }
        Ok(())
    }
}

/// The ancestors of a process, nearest first, without the first process of all, as far as they can be seen.
fn ancestors(pid: i32, parent: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let (mut last, mut next) = (pid, parent);
    while next > 1 && next != last && found.len() < GENERATIONS {
        found.push(next);
        (last, next) = (next, Process::of(next).map_or(0, |process| process.parent));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: i32, terminal: i64, filters: u32) -> Process {
        Process { parent, terminal, started: 7, filters }
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) R 1 (b)) S 17 42 42 34817 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 998877 10 20";
        let status = "Name:\ta\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let want = Process { parent: 17, terminal: 34817, started: 998_877, filters: 3 };
        assert_eq!(Process::parse(stat, status), Some(want));
        assert_eq!(Process::parse(stat, "Seccomp:\t2\n"), None);
        assert_eq!(Process::parse("42 (x) S", status), None);
    }

    #[test]
    fn who_belongs_to_the_client_is_refused_and_a_stranger_is_not() {
        let client = Client { pid: 4_000_001, started: 7 };
        let check = |pid, peer: Process, filters| client.check(pid, &peer, &process(4_000_009, 5, filters));
        assert!(check(4_000_002, process(1, 6, 0), 0).is_ok());
        assert!(matches!(check(4_000_001, process(1, 6, 0), 0), Err(NotAdmitted::OfTheClient)));
        assert!(matches!(check(4_000_002, process(4_000_001, 6, 0), 0), Err(NotAdmitted::OfTheClient)));
        assert!(matches!(check(4_000_009, process(1, 6, 0), 0), Err(NotAdmitted::OfTheClient)));
        let own = std::process::id().cast_signed();
        assert!(matches!(check(4_000_002, process(own, 6, 0), 0), Err(NotAdmitted::OfTheSession)));
        assert!(matches!(check(4_000_002, process(1, 5, 0), 0), Err(NotAdmitted::SameTerminal)));
    }

    /// A filter is what a process cannot shake off by forking twice.
    #[test]
    fn a_peer_with_the_filters_of_the_client_is_refused() {
        let client = Client { pid: 4_000_001, started: 7 };
        let check =
            |peer, of_client| client.check(4_000_002, &process(1, 0, peer), &process(1, 0, of_client));
        assert!(check(0, 1).is_ok() && check(1, 2).is_ok() && check(1, 0).is_ok());
        for (peer, of_client) in [(1, 1), (2, 1), (2, 2)] {
            assert!(matches!(check(peer, of_client), Err(NotAdmitted::Marked)), "{peer} {of_client}");
        }
    }
}
