//! Starts the executor: the only place of this program that starts another one, and the only one it starts.

use super::ExecutorError;
use crate::adapters::web::BRAVE_KEY;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "lazaret-executor";

/// Starts `program`, or the executor that was installed with us; returns our end of its socket.
pub fn start(program: Option<&Path>) -> Result<UnixStream, ExecutorError> {
    if let Some(program) = program {
        return spawn(program).map_err(|source| ExecutorError::Start { program: program.to_owned(), source });
    }
    let places = places()?;
    for program in &places {
        match spawn(program) {
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
fn spawn(program: &Path) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    Command::new(program)
        .arg("broker")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .process_group(0)
        // The keys of search engines are for us: who holds the user's files has no network, and no use for them.
        .env_remove(BRAVE_KEY)
        .spawn()?;
    Ok(ours)
}
