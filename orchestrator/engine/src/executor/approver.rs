//! The sockets on which sessions accept answers from an approver other than their client. They are found by directory; we connect
//! to them as an approver.

use crate::executor::error::ExecutorError;
use crate::executor::socket;
use broker_protocol::{Decoder, FromApprover, Hello, ToApprover, encode};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream as AsyncStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most sockets to try in one directory.
const SOCKETS: usize = 1024;
/// Most messages that wait to be received.
const WAITING: usize = 64;

/// The sessions that accept answers from us.
pub struct ApproverConnections {
    /// Where a broker of this user may have put its socket.
    directories: Vec<PathBuf>,
    sessions: BTreeMap<String, UnixStream>,
    /// Sockets that we have connected to, or may not use.
    tried: BTreeSet<PathBuf>,
    received: Receiver<(String, FromSession)>,
    sender: Sender<(String, FromSession)>,
}

/// A message from a session.
#[derive(Debug)]
pub enum FromSession {
    Message(Box<ToApprover>),
    Ended(ExecutorError),
}

impl ApproverConnections {
    /// Searches `directories`; connects to nothing yet.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        let (sender, received) = channel(WAITING);
        Self {
            directories,
            sessions: BTreeMap::new(),
            tried: BTreeSet::new(),
            received,
            sender,
        }
    }

    /// Connects to every session that is new since the last scan. Needs a local runtime.
    pub fn scan(&mut self) {
        for path in self
            .directories
            .iter()
            .flat_map(|directory| sockets(directory))
            .collect::<Vec<_>>()
        {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if self.sessions.contains_key(&name) || self.tried.contains(&path) {
                continue;
            }
            match self.connect(&name, &path) {
                Ok(()) => {}
                // The socket of a killed session; the next session removes it.
                Err(_) => drop(self.tried.insert(path)),
            }
        }
    }

    fn connect(&mut self, name: &str, path: &Path) -> Result<(), ExecutorError> {
        let stream = socket::connect(path)?;
        stream.set_nonblocking(true)?;
        // If a session refuses us at once, the write fails, but its reason can still be read.
        let _ = send(&stream, &FromApprover::Hello(Hello::ours(None)));
        self.sessions.insert(name.to_owned(), stream.try_clone()?);
        let stream = AsyncStream::from_std(stream)?;
        let (sender, name, path) = (self.sender.clone(), name.to_owned(), path.to_owned());
        self.tried.insert(path);
        tokio::task::spawn_local(async move {
            let ended = receive(&stream, &name, &sender).await;
            // When the program ends, nobody receives this.
            let _ = sender.send((name, FromSession::Ended(ended))).await;
        });
        Ok(())
    }

    /// The next message of any session. Cancel-safe.
    pub async fn next(&mut self) -> (String, FromSession) {
        let ended = || (String::new(), FromSession::Ended(ExecutorError::Lost));
        let (name, received) = self.received.recv().await.unwrap_or_else(ended);
        if matches!(received, FromSession::Ended(_)) {
            self.sessions.remove(&name);
        }
        (name, received)
    }

    /// Sends a message to a session. If the session has ended, [`next`](Self::next) reports it.
    pub fn send(&self, session: &str, message: &FromApprover) {
        if let Some(stream) = self.sessions.get(session) {
            // A message is small and the broker reads, so a message that does not fit means that the session has ended.
            let _ = send(stream, message);
        }
    }
}

fn send(mut stream: &UnixStream, message: &FromApprover) -> Result<(), ExecutorError> {
    let mut frame = Vec::new();
    encode(message, &mut frame)?;
    Ok(stream.write_all(&frame)?)
}

async fn receive(
    stream: &AsyncStream,
    name: &str,
    sender: &Sender<(String, FromSession)>,
) -> ExecutorError {
    let mut decoder = Decoder::new();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match decoder.next::<ToApprover>() {
            Ok(Some(ToApprover::Fault(failed))) => return ExecutorError::Fault(failed),
            Ok(Some(message)) => {
                if sender
                    .send((name.to_owned(), FromSession::Message(Box::new(message))))
                    .await
                    .is_err()
                {
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

fn sockets(directory: &Path) -> Vec<PathBuf> {
    #[allow(
        clippy::disallowed_methods,
        reason = "what it lists are the names of our own sockets"
    )]
    let entries = std::fs::read_dir(directory);
    let mut paths: Vec<PathBuf> = entries
        .map(|entries| {
            entries
                .flatten()
                .take(SOCKETS)
                .map(|entry| entry.path())
                .collect()
        })
        .unwrap_or_default();
    paths.sort();
    paths
}
