//! How to reach the executor: started by us over a socket pair, or listening on a socket of its own.

use crate::start::{self, BrokerSpawner};
use crate::tickets::TicketPair;
use broker_protocol::{Cleaned, Cleanup, Failed, frame, limit};
use orchestrator_confine::Files;
use orchestrator_engine::executor::{self, Dial, ExecutorError};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How to reach the executor.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A program to start, by default the one beside ours, with the secret variables that are meant for programs in cells, and an end of
    /// the line for tickets.
    Program(Option<PathBuf>, BTreeSet<String>, Rc<TicketPair>),
    /// The socket of an executor that listens, and over which line it has gateways started here, if it does.
    Socket(PathBuf, Option<Rc<OwnedFd>>),
    /// An executor that was started before and serves further sessions.
    Spawner(Rc<BrokerSpawner>),
}

impl Endpoint {
    /// The endpoint for more than one session: an executor that has to be started is started now.
    pub(crate) fn for_many_sessions(self, _: &Files) -> Result<Self, ExecutorError> {
        match self {
            Self::Program(program, credentials, tickets) => {
                let spawner = BrokerSpawner::start(program.as_deref(), &credentials, &tickets)?;
                Ok(Self::Spawner(Rc::new(spawner)))
            }
            Self::Socket(..) | Self::Spawner(_) => Ok(self),
        }
    }

    /// The program that creates the namespaces, as far as it is known here.
    pub fn program(&self) -> PathBuf {
        match self {
            Self::Program(program, ..) => start::program(program.as_deref()),
            Self::Socket(..) | Self::Spawner(_) => start::program(None),
        }
    }

    /// The answer of an executor to a request for a cleanup. One that listens somewhere has other users' roots, or the same: it is
    /// not asked.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub fn clean_up(&self, _: &Files, request: &Cleanup) -> Result<Cleaned, Failed> {
        let program = match self {
            Self::Program(program, ..) => program.as_deref(),
            Self::Socket(..) | Self::Spawner(_) => None,
        };
        let mut socket = start::start_cleanup(program)?;
        let lost = |error: io::Error| Failed::internal(format!("the executor is lost: {error}"));
        let request = frame::encode_whole(request);
        let request = request.map_err(|error| Failed::internal(error.to_string()))?;
        socket.write_all(&request).map_err(lost)?;
        socket.shutdown(Shutdown::Write).map_err(lost)?;
        let mut answer = Vec::new();
        let read = socket.take(limit::ANSWER as u64).read_to_end(&mut answer);
        read.map_err(lost)?;
        frame::decode_whole(&answer).map_err(|error| Failed::internal(error.to_string()))
    }

    /// The socket's path, if the executor has one.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::Socket(path, _) => Some(path),
            Self::Program(..) | Self::Spawner(_) => None,
        }
    }
}

impl Dial for Endpoint {
    fn dial(&self) -> Result<UnixStream, ExecutorError> {
        match self {
            Self::Program(program, credentials, tickets) => {
                start::start(program.as_deref(), credentials, tickets)
            }
            Self::Socket(path, _) => executor::connect(path),
            Self::Spawner(spawner) => spawner.spawn(),
        }
    }

    fn gateways(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Socket(_, line) => line.as_ref().map(|line| line.as_fd()),
            Self::Program(..) | Self::Spawner(_) => None,
        }
    }
}
