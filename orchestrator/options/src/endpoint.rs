//! Where the executor is: started by us over a socket pair, or found at a socket of its own.

use crate::start::{self, Spawner};
use orchestrator_session::executor::{self, Dial, ExecutorError};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where the executor is.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A program to start; looked for beside our own if absent. With the variables of secrets that are for programs in cells.
    Program(Option<PathBuf>, BTreeSet<String>),
    /// The socket of one that listens.
    Socket(PathBuf),
    /// One that was started before, and serves again.
    Spawner(Rc<Spawner>),
}

impl Endpoint {
    /// The same for more than one session: what has to be started is started now.
    pub fn lasting(self) -> Result<Self, ExecutorError> {
        match self {
            Self::Program(program, credentials) => Spawner::start(program.as_deref(), &credentials)
                .map(|spawner| Self::Spawner(Rc::new(spawner))),
            Self::Socket(_) | Self::Spawner(_) => Ok(self),
        }
    }

    /// The program that makes the namespaces, as far as it is known here.
    pub fn program(&self) -> PathBuf {
        match self {
            Self::Program(program, _) => start::program(program.as_deref()),
            Self::Socket(_) | Self::Spawner(_) => start::program(None),
        }
    }

    /// The path of the socket, where it is reached by one.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::Socket(path) => Some(path),
            Self::Program(..) | Self::Spawner(_) => None,
        }
    }
}

impl Dial for Endpoint {
    fn dial(&self) -> Result<UnixStream, ExecutorError> {
        match self {
            Self::Program(program, credentials) => start::start(program.as_deref(), credentials),
            Self::Socket(path) => executor::connect(path),
            Self::Spawner(spawner) => spawner.spawn(),
        }
    }
}
