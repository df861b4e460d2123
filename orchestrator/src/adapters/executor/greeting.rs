//! The beginning of a connection: both sides say who they are, then the session opens. Only then is there a
//! [`Connection`], so nothing can be called before.

use super::{Connection, Endpoint, ExecutorError, socket, start};
use broker_protocol::{
    AttackReport, Decoder, ErrorKind, Failed, FromBroker, Hello, Machine, Open, Opened, Outcome, ToBroker,
    encode,
};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::net::UnixStream as AsyncStream;
use tokio::time::timeout;

/// How long an executor may take to make a session; it is slow only where something is broken.
const PATIENCE_S: u64 = 30;

/// A connection on which the greeting, and the first question, are already sent.
///
/// They go out in one piece before there is even a runtime: an executor that we start finds them when it first looks, and
/// meanwhile we prepare ourselves.
pub struct Greeting {
    socket: UnixStream,
}

impl Greeting {
    /// Reaches the executor and asks for a session.
    pub fn open(endpoint: &Endpoint, open: Open) -> Result<Self, ExecutorError> {
        Self::ask(endpoint, &ToBroker::Open(open))
    }

    /// Reaches the executor and asks what this machine offers.
    pub fn probe(endpoint: &Endpoint) -> Result<Self, ExecutorError> {
        Self::ask(endpoint, &ToBroker::Probe)
    }

    fn ask(endpoint: &Endpoint, question: &ToBroker) -> Result<Self, ExecutorError> {
        let mut frames = Vec::with_capacity(512);
        encode(&ToBroker::Hello(Hello::ours(None)), &mut frames)?;
        encode(question, &mut frames)?;
        let mut socket = match endpoint {
            Endpoint::Program(program) => start::start(program.as_deref())?,
            Endpoint::Socket(path) => socket::connect(path)?,
            Endpoint::Door(door) => door.enter()?,
        };
        socket.write_all(&frames)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Waits for the session. Needs the runtime.
    pub async fn opened(self) -> Result<Connection, ExecutorError> {
        let mut greeted = self.greeted().await?;
        let opened = greeted.opened().await?;
        Ok(Connection::new(greeted.socket.into_std()?, greeted.decoder, opened)?)
    }

    /// Waits for what this machine offers, then tries whether a session opens. Needs the runtime.
    pub async fn probed(self, open: Open) -> Result<(Machine, Result<Opened, ExecutorError>), ExecutorError> {
        let mut greeted = self.greeted().await?;
        let machine = match greeted.next().await? {
            FromBroker::Probed(machine) => machine,
            other => return Err(out_of_turn(other)),
        };
        greeted.send(&ToBroker::Open(open)).await?;
        let opened = greeted.opened().await;
        Ok((machine, opened))
    }

    /// Waits for the session, has it attacked and waits for what came of that. Needs the runtime.
    pub async fn attacked(self) -> Result<(Opened, Vec<AttackReport>), ExecutorError> {
        let mut greeted = self.greeted().await?;
        let opened = greeted.opened().await?;
        greeted.send(&ToBroker::Attack { call: 1 }).await?;
        match greeted.next().await? {
            FromBroker::Attacked { call: 1, reports } => Ok((opened, reports)),
            FromBroker::Done { call: 1, outcome, .. } => Err(ExecutorError::Fault(not_attacked(outcome))),
            other => Err(out_of_turn(other)),
        }
    }

    async fn greeted(self) -> Result<Greeted, ExecutorError> {
        let socket = AsyncStream::from_std(self.socket)?;
        let mut greeted = Greeted { socket, decoder: Decoder::new() };
        match greeted.next().await? {
            FromBroker::Hello(hello) => hello.check()?,
            other => return Err(out_of_turn(other)),
        }
        Ok(greeted)
    }
}

/// A connection whose executor has said who it is.
struct Greeted {
    socket: AsyncStream,
    decoder: Decoder,
}

impl Greeted {
    async fn opened(&mut self) -> Result<Opened, ExecutorError> {
        match self.next().await? {
            FromBroker::Opened(opened) => Ok(opened),
            other => Err(out_of_turn(other)),
        }
    }

    async fn next(&mut self) -> Result<FromBroker, ExecutorError> {
        timeout(Duration::from_secs(PATIENCE_S), self.receive())
            .await
            .map_err(|_| ExecutorError::Silent(PATIENCE_S))?
    }

    async fn receive(&mut self) -> Result<FromBroker, ExecutorError> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(message);
            }
            self.socket.readable().await?;
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return Err(ExecutorError::Lost),
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ExecutorError::Lost);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn send(&mut self, message: &ToBroker) -> Result<(), ExecutorError> {
        let mut frame = Vec::new();
        encode(message, &mut frame)?;
        let mut sent = 0;
        while sent < frame.len() {
            self.socket.writable().await?;
            match self.socket.try_write(&frame[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Why a cell was not attacked.
fn not_attacked(outcome: Outcome) -> Failed {
    let message = match outcome {
        Outcome::Failed(failed) => return failed,
        Outcome::Broken(broken) => broken.to_string(),
        Outcome::Refused(refused) => refused.to_string(),
        Outcome::Ran(_) | Outcome::Answered | Outcome::Granted => {
            "the executor did not attack its cell".into()
        }
    };
    Failed { kind: ErrorKind::Internal, message }
}

fn out_of_turn(message: FromBroker) -> ExecutorError {
    match message {
        FromBroker::Fault(failed) => ExecutorError::Fault(failed),
        _ => ExecutorError::Protocol("its greeting is out of turn"),
    }
}
