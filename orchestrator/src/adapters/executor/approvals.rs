//! The sockets on which sessions take answers from somebody else than their client: found by their directory, spoken to
//! as an approver.

use super::{ExecutorError, socket};
use crate::adapters::state;
use broker_protocol::{Decoder, FromApprover, Hello, ToApprover, encode};
use nix::unistd::geteuid;
use policies::directories;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream as AsyncStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Sockets of one directory that are looked at.
const SOCKETS: usize = 1024;
/// Messages that wait to be taken.
const WAITING: usize = 64;

/// The sessions that take answers from us.
pub struct Approvals {
    sessions: BTreeMap<String, UnixStream>,
    /// Sockets that were tried and are not ours to use.
    given_up: BTreeSet<PathBuf>,
    heard: Receiver<(String, Heard)>,
    hears: Sender<(String, Heard)>,
}

/// What came from a session.
#[derive(Debug)]
pub enum Heard {
    /// A message.
    Said(Box<ToApprover>),
    /// It is over.
    Over(ExecutorError),
}

impl Approvals {
    /// No session yet.
    pub fn new() -> Self {
        let (hears, heard) = channel(WAITING);
        Self { sessions: BTreeMap::new(), given_up: BTreeSet::new(), heard, hears }
    }

    /// Connects to every session that was not there before. Needs the runtime.
    pub fn scan(&mut self) {
        for path in directories().iter().flat_map(|directory| sockets(directory)) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if self.sessions.contains_key(&name) || self.given_up.contains(&path) {
                continue;
            }
            match self.connect(&name, &path) {
                Ok(()) => {}
                // The socket of a session that was killed; its next one sweeps it away.
                Err(_) => drop(self.given_up.insert(path)),
            }
        }
    }

    fn connect(&mut self, name: &str, path: &Path) -> Result<(), ExecutorError> {
        let stream = socket::connect(path)?;
        stream.set_nonblocking(true)?;
        // Who is sent away at once cannot be written to any more; why is there to be read.
        let _ = send(&stream, &FromApprover::Hello(Hello::ours(None)));
        self.sessions.insert(name.to_owned(), stream.try_clone()?);
        let stream = AsyncStream::from_std(stream)?;
        let (hears, name, path) = (self.hears.clone(), name.to_owned(), path.to_owned());
        self.given_up.insert(path);
        tokio::task::spawn_local(async move {
            let over = listen(&stream, &name, &hears).await;
            // With nobody to hear it there is nothing to say.
            let _ = hears.send((name, Heard::Over(over))).await;
        });
        Ok(())
    }

    /// What comes next, of any session.
    pub async fn next(&mut self) -> (String, Heard) {
        let heard = self.heard.recv().await;
        let (name, heard) = heard.unwrap_or_else(|| (String::new(), Heard::Over(ExecutorError::Lost)));
        if matches!(heard, Heard::Over(_)) {
            self.sessions.remove(&name);
        }
        (name, heard)
    }

    /// Says something to a session. One that is over has said so.
    pub fn send(&self, session: &str, message: &FromApprover) {
        if let Some(stream) = self.sessions.get(session) {
            // A message is small, and the broker reads: what does not fit now means that the session is over.
            let _ = send(stream, message);
        }
    }
}

fn send(mut stream: &UnixStream, message: &FromApprover) -> Result<(), ExecutorError> {
    let mut frame = Vec::new();
    encode(message, &mut frame)?;
    Ok(stream.write_all(&frame)?)
}

async fn listen(stream: &AsyncStream, name: &str, hears: &Sender<(String, Heard)>) -> ExecutorError {
    let mut decoder = Decoder::new();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match decoder.next::<ToApprover>() {
            Ok(Some(ToApprover::Fault(failed))) => return ExecutorError::Fault(failed),
            Ok(Some(message)) => {
                if hears.send((name.to_owned(), Heard::Said(Box::new(message)))).await.is_err() {
                    return ExecutorError::Lost;
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => return error.into(),
        }
        if let Err(error) = stream.readable().await {
            return error.into();
        }
        match stream.try_read(&mut bytes) {
            Ok(0) => return ExecutorError::Lost,
            Ok(count) => decoder.push(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error.into(),
        }
    }
}

/// Where a broker of this user may have put its socket.
fn directories() -> Vec<PathBuf> {
    directories::approvals(&state::home(), geteuid().as_raw(), &state::variable)
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "what it lists are the names of our own sockets")]
    let entries = std::fs::read_dir(directory);
    let mut paths: Vec<PathBuf> = entries
        .map(|entries| entries.flatten().take(SOCKETS).map(|entry| entry.path()).collect())
        .unwrap_or_default();
    paths.sort();
    paths
}
