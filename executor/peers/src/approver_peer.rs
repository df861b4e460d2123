//! Decides whether the peer at an approver's socket may answer for the user.
//!
//! The client may not: it may be the very program that was compromised. So a peer is refused when it is the client, descends from
//! it or from the process that started it, shares their process session, or shares its terminal (on which the client could paint
//! over what the user sees); and, unless the policy waives that, when it has no terminal of its own: a program that answers by
//! itself has none. What a process cannot remove is checked too: a client that has confined itself has a seccomp filter, and so
//! has every process that it starts, even if reparented; a peer must have fewer filters. In a container everybody has the runtime's,
//! so only a client with more filters than the process that started it counts as confined.
//!
//! Does not tell a client *without* a filter from the user. Such a program runs with all rights of the user, and could
//! as well change the policy; its processes are refused only as long as they do not hide their origin.

use executor_sys::proc::{self, Stat};
use executor_sys::process::euid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use thiserror::Error;

/// Maximum number of ancestors that are read.
const GENERATIONS: usize = 128;

/// The client of a session, as a process.
#[derive(Debug)]
pub struct ClientProcess {
    pub pid: i32,
    /// Its start time, which distinguishes it from a later process with its number.
    started: u64,
    /// The process that started it and drives the session, with its start time; `None` for the first process of all.
    driver: Option<(i32, u64)>,
    /// How many filters that process had: those of a container, say, which its client has not installed. 0 if it is not known.
    surroundings: u64,
    /// The process sessions of the client and its driver.
    sessions: Vec<i32>,
    /// Whether an approver must have a terminal.
    terminal: bool,
}

/// Why a peer may not approve.
#[derive(Debug, Error)]
pub enum NotAdmitted {
    /// It belongs to another user.
    #[error("the approver has the user id {0}, this session another")]
    OtherUser(u32),
    /// It could not be read, or has ended.
    #[error("the process that connects is unknown: {0}")]
    Unknown(io::Error),
    /// The session's client cannot be read, so no approver can be distinguished from it.
    #[error("the session's client has ended or cannot be read")]
    NoClient,
    /// It is the client, or descends from it or shares its process session.
    #[error("the session's own client may not answer, nor may its descendants or ancestors")]
    OfTheClient,
    /// It descends from the process that started the client, or shares its process session.
    #[error(
        "this process may not answer: it started the session's client, or shares its origin; use a separately opened terminal"
    )]
    OfTheDriver,
    /// It has no terminal.
    #[error(
        "an approver needs a terminal of its own; `[approval] terminal = false` in a policy lifts this"
    )]
    NoTerminal,
    /// It descends from the session's own processes.
    #[error("a process in the session may not answer")]
    OfTheSession,
    /// It shares the client's terminal.
    #[error("the session's client can write to this terminal; use another one")]
    SameTerminal,
    /// It has the filters of the client.
    #[error("the approver is confined like the session's client, and may have been made by it")]
    Marked,
}

/// A process as `/proc` shows it.
#[derive(Debug, PartialEq, Eq)]
struct PeerProcess {
    parent: i32,
    session: i32,
    /// The device number of its terminal, 0 for none.
    terminal: u64,
    started: u64,
    /// How many seccomp filters it has (`Seccomp_filters`, Linux 5.9). Filters are inherited and cannot be removed.
    filters: u64,
}

impl PeerProcess {
    fn of(pid: i32) -> io::Result<Self> {
        let Stat {
            parent,
            session,
            terminal,
            started,
            ..
        } = Stat::of(pid)?;
        let filters =
            proc::figure(pid, "status", "Seccomp_filters").ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            parent,
            session,
            terminal,
            started,
            filters,
        })
    }
}

impl ClientProcess {
    /// The client connected to `socket`; `terminal` says whether an approver must have one. The
    /// process that started the client is recorded now: after its end nothing leads to it.
    pub fn of(socket: BorrowedFd, terminal: bool) -> io::Result<Self> {
        let pid = getsockopt(&socket, sockopt::PeerCredentials)?.pid();
        let PeerProcess {
            parent,
            session,
            started,
            ..
        } = PeerProcess::of(pid)?;
        let driver = if parent > 1 {
            Stat::of(parent).ok()
        } else {
            None
        };
        let surroundings = PeerProcess::of(parent).map_or(0, |parent| parent.filters);
        let sessions = [Some(session), driver.map(|driver| driver.session)];
        let sessions = sessions
            .into_iter()
            .flatten()
            .filter(|session| *session > 1)
            .collect();
        let driver = driver.map(|driver| (parent, driver.started));
        Ok(Self {
            pid,
            started,
            driver,
            surroundings,
            sessions,
            terminal,
        })
    }

    fn read(&self) -> Result<PeerProcess, NotAdmitted> {
        let process = PeerProcess::of(self.pid).map_err(|_| NotAdmitted::NoClient)?;
        if process.started == self.started {
            Ok(process)
        } else {
            Err(NotAdmitted::NoClient)
        }
    }

    /// Checks whether the peer of `socket` may answer.
    pub fn admit(&self, socket: BorrowedFd) -> Result<(), NotAdmitted> {
        let unknown = |error: nix::Error| NotAdmitted::Unknown(error.into());
        let peer = getsockopt(&socket, sockopt::PeerCredentials).map_err(unknown)?;
        if peer.uid() != euid() {
            return Err(NotAdmitted::OtherUser(peer.uid()));
        }
        // Needs Linux 6.5; on an older kernel, if a peer ends at once, a later process with its number may be checked instead.
        let pidfd = getsockopt(&socket, sockopt::PeerPidfd).ok();
        let process = PeerProcess::of(peer.pid()).map_err(NotAdmitted::Unknown)?;
        let client = self.read()?;
        self.check(peer.pid(), &process, &client)?;
        let ended = |pidfd: &std::os::fd::OwnedFd| {
            poll(
                &mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)],
                PollTimeout::ZERO,
            ) != Ok(0)
        };
        if pidfd.as_ref().is_some_and(ended) {
            return Err(NotAdmitted::Unknown(io::ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    fn check(&self, pid: i32, peer: &PeerProcess, client: &PeerProcess) -> Result<(), NotAdmitted> {
        let own = std::process::id().cast_signed();
        let above = ancestors(pid, peer.parent);
        if above.contains(&own) || pid == own {
            return Err(NotAdmitted::OfTheSession);
        }
        if pid == self.pid
            || above.contains(&self.pid)
            || ancestors(self.pid, client.parent).contains(&pid)
        {
            return Err(NotAdmitted::OfTheClient);
        }
        let is_driver = |pid: i32| {
            self.driver.is_some_and(|(driver, started)| {
                pid == driver && Stat::of(pid).is_ok_and(|stat| stat.started == started)
            })
        };
        if self.sessions.contains(&peer.session) || above.iter().any(|pid| is_driver(*pid)) {
            return Err(NotAdmitted::OfTheDriver);
        }
        if self.terminal && peer.terminal == 0 {
            return Err(NotAdmitted::NoTerminal);
        }
        if peer.terminal != 0 && peer.terminal == client.terminal {
            return Err(NotAdmitted::SameTerminal);
        }
        if client.filters > self.surroundings && peer.filters >= client.filters {
            return Err(NotAdmitted::Marked);
        }
        Ok(())
    }
}

/// The ancestors of a process, nearest first, without the first process of all, as far as they can be read.
fn ancestors(pid: i32, parent: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let (mut last, mut next) = (pid, parent);
    while next > 1 && next != last && found.len() < GENERATIONS {
        found.push(next);
        (last, next) = (next, Stat::of(next).map_or(0, |stat| stat.parent));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: i32, terminal: u64, filters: u64) -> PeerProcess {
        PeerProcess {
            parent,
            session: 4_000_100,
            terminal,
            started: 7,
            filters,
        }
    }

    fn client(terminal: bool) -> ClientProcess {
        let own = Stat::of(std::process::id().cast_signed()).unwrap();
        // The process that started this test stands for the one that started a client.
        let driver = Some((own.parent, Stat::of(own.parent).unwrap().started));
        ClientProcess {
            pid: 4_000_001,
            started: 7,
            driver,
            surroundings: 0,
            sessions: vec![4_000_200],
            terminal,
        }
    }

    #[test]
    fn approver_below_the_driver_or_in_its_session_is_refused() {
        let check =
            |peer: PeerProcess| client(true).check(4_000_002, &peer, &process(4_000_009, 5, 0));
        assert!(check(process(1, 6, 0)).is_ok());
        assert!(matches!(
            check(process(1, 0, 0)),
            Err(NotAdmitted::NoTerminal)
        ));
        let driver = client(true).driver.unwrap().0;
        assert!(matches!(
            check(process(driver, 6, 0)),
            Err(NotAdmitted::OfTheDriver)
        ));
        let member = PeerProcess {
            session: 4_000_200,
            ..process(1, 6, 0)
        };
        assert!(matches!(check(member), Err(NotAdmitted::OfTheDriver)));
        // A later process with the same number is not the driver.
        let later = ClientProcess {
            driver: Some((driver, 1)),
            ..client(true)
        };
        assert!(
            later
                .check(4_000_002, &process(driver, 6, 0), &process(4_000_009, 5, 0))
                .is_ok()
        );
    }

    #[test]
    fn approver_of_the_client_is_refused_and_a_stranger_is_not() {
        let client = client(false);
        let check = |pid, peer: PeerProcess, filters| {
            client.check(pid, &peer, &process(4_000_009, 5, filters))
        };
        assert!(check(4_000_002, process(1, 6, 0), 0).is_ok());
        assert!(matches!(
            check(4_000_001, process(1, 6, 0), 0),
            Err(NotAdmitted::OfTheClient)
        ));
        assert!(matches!(
            check(4_000_002, process(4_000_001, 6, 0), 0),
            Err(NotAdmitted::OfTheClient)
        ));
        assert!(matches!(
            check(4_000_009, process(1, 6, 0), 0),
            Err(NotAdmitted::OfTheClient)
        ));
        let own = std::process::id().cast_signed();
        assert!(matches!(
            check(4_000_002, process(own, 6, 0), 0),
            Err(NotAdmitted::OfTheSession)
        ));
        assert!(matches!(
            check(4_000_002, process(1, 5, 0), 0),
            Err(NotAdmitted::SameTerminal)
        ));
    }

    /// A process cannot remove a filter by forking twice.
    #[test]
    fn a_peer_with_the_filters_of_the_client_is_refused() {
        let client = client(false);
        let check = |peer, of_client| {
            client.check(4_000_002, &process(1, 0, peer), &process(1, 0, of_client))
        };
        assert!(check(0, 1).is_ok() && check(1, 2).is_ok() && check(1, 0).is_ok());
        for (peer, of_client) in [(1, 1), (2, 1), (2, 2)] {
            assert!(
                matches!(check(peer, of_client), Err(NotAdmitted::Marked)),
                "{peer} {of_client}"
            );
        }
    }

    #[test]
    fn filters_of_a_container_are_nobodys_own() {
        let client = ClientProcess {
            surroundings: 1,
            ..client(false)
        };
        let check = |peer, of_client| {
            client.check(4_000_002, &process(1, 0, peer), &process(1, 0, of_client))
        };
        assert!(check(1, 1).is_ok() && check(1, 2).is_ok() && check(2, 3).is_ok());
        for (peer, of_client) in [(2, 2), (3, 2), (3, 3)] {
            assert!(
                matches!(check(peer, of_client), Err(NotAdmitted::Marked)),
                "{peer} {of_client}"
            );
        }
    }
}
