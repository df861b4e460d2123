//! The user's own ssh agent: connections to it come from the broker, one for each program that needs a signature. What it answers is
//! bounded, and not passed on but for the one signature that was asked for.

use crate::messages::{FAILURE, IDENTITIES, IDENTITIES_WANTED, SIGNATURE};
use crate::wire::WireReader;
use broker_protocol::gateway::FromGateway;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longest answer of an agent (OpenSSH's own limit).
const ANSWER_MAX: usize = 256 * 1024;
/// Longest wait until the broker has connected.
const CONNECT: Duration = Duration::from_secs(15);

/// Asks the broker for connections to the user's agent, in order.
pub(super) struct UserAgents {
    waiting: RefCell<VecDeque<oneshot::Sender<Result<OwnedFd, String>>>>,
    tell: Rc<dyn Fn(FromGateway)>,
}

impl UserAgents {
    pub(super) fn new(tell: Rc<dyn Fn(FromGateway)>) -> Self {
        Self {
            waiting: RefCell::default(),
            tell,
        }
    }

    /// Takes a connection from the broker, or why there is none. Answers come in the order of the questions.
    pub(super) fn deliver(&self, agent: Result<OwnedFd, String>) {
        if let Some(waiting) = self.waiting.borrow_mut().pop_front() {
            // Whoever has given up closes it.
            let _ = waiting.send(agent);
        }
    }

    pub(super) async fn connect(&self) -> io::Result<UserAgent> {
        let (waiting, delivered) = oneshot::channel();
        self.waiting.borrow_mut().push_back(waiting);
        (self.tell)(FromGateway::AgentWanted);
        let delivered = timeout(CONNECT, delivered).await?;
        let socket = delivered.map_err(io::Error::other)?;
        let socket = std::os::unix::net::UnixStream::from(socket.map_err(io::Error::other)?);
        socket.set_nonblocking(true)?;
        Ok(UserAgent(UnixStream::from_std(socket)?))
    }
}

/// A connection to the user's agent.
pub(super) struct UserAgent(UnixStream);

impl UserAgent {
    /// Repeats a binding that was checked, for keys that the user has bound to hosts. Where the agent refuses it, it will not sign.
    pub(super) async fn bind(&mut self, message: &[u8]) -> io::Result<()> {
        self.ask(message).await.map(drop)
    }

    /// The public keys that it holds.
    pub(super) async fn keys(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let answer = self.ask(&[IDENTITIES_WANTED]).await?;
        keys(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Its answer to a request to sign.
    pub(super) async fn sign(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        let answer = self.ask(message).await?;
        Ok(match answer.first() {
            Some(&SIGNATURE) => answer,
            Some(_) | None => vec![FAILURE],
        })
    }

    async fn ask(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        write_message(&mut self.0, message).await?;
        read_message(&mut self.0, ANSWER_MAX).await
    }
}

fn keys(answer: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = WireReader::new(answer);
    if reader.byte()? != IDENTITIES {
        return None;
    }
    let count = reader.number()?;
    let mut keys = Vec::new();
    for _ in 0..count {
        let (key, _comment) = (reader.string()?, reader.string()?);
        keys.push(key.to_vec());
    }
    reader.is_at_end().then_some(keys)
}

/// Reads a message of at most `max` bytes.
pub(super) async fn read_message(socket: &mut UnixStream, max: usize) -> io::Result<Vec<u8>> {
    let length = socket.read_u32().await?;
    let length = usize::try_from(length).ok().filter(|length| *length <= max);
    let mut message = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    socket.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) async fn write_message(socket: &mut UnixStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    socket
        .write_all(&[&length.to_be_bytes(), message].concat())
        .await
}
