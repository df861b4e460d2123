//! Starts the executor: the only place of this program that starts another one, and the only one it starts.

use super::ExecutorError;
use crate::adapters::web::BRAVE_KEY;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "lazaret-executor";

/// Starts `program`, or the executor that was installed with us, to serve one session; returns our end of its socket.
pub fn start(program: Option<&Path>) -> Result<UnixStream, ExecutorError> {
    find(program, "broker")
}

/// An executor that serves as many sessions as it is asked for. A program that has given up starting others can still
/// get a new session when one is lost.
#[derive(Debug)]
pub struct Door(UnixStream);

impl Door {
    /// Starts one.
    pub fn open(program: Option<&Path>) -> Result<Self, ExecutorError> {
        find(program, "door").map(Self)
    }

    /// A socket whose other end it serves.
    pub fn enter(&self) -> Result<UnixStream, ExecutorError> {
        let (ours, theirs) = UnixStream::pair()?;
        let rights = [theirs.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&rights)];
        let sent =
            sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&[0])], &message, MsgFlags::MSG_NOSIGNAL, None);
        match sent {
            Ok(_) => Ok(ours),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(ExecutorError::Lost),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

fn find(program: Option<&Path>, task: &str) -> Result<UnixStream, ExecutorError> {
    if let Some(program) = program {
        return spawn(program, task)
            .map_err(|source| ExecutorError::Start { program: program.to_owned(), source });
    }
    let places = places()?;
    for program in &places {
        match spawn(program, task) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => {
                return result.map_err(|source| ExecutorError::Start { program: program.clone(), source });
            }
        }
    }
    let tried = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(" and ");
    Err(ExecutorError::NotFound { tried })
}

/// Where an executor of our release lies: beside us, or where a package puts programs that nobody calls by hand.
fn places() -> io::Result<[PathBuf; 2]> {
    let own = std::env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let package = folder.parent().unwrap_or(Path::new("/")).join("libexec/lazaret");
    Ok([folder.join(NAME), package.join(NAME)])
}

/// Its standard input is its end of the socket. It gets a process group of its own: a Ctrl-C in the terminal is for the
/// command, which gets it by way of us, and must not kill the broker around it. Nobody waits for it: it ends when
/// we do, and by then our parent waits for both.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn spawn(program: &Path, task: &str) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    Command::new(program)
        .arg(task)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .process_group(0)
        // The keys of search engines are for us: who holds the user's files has no network, and no use for them.
        .env_remove(BRAVE_KEY)
        .spawn()?;
    Ok(ours)
}
