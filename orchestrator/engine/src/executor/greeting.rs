//! The beginning of a connection: both sides exchange hellos, then the session opens. Only that yields a [`ExecutorConnection`], so no call
//! can come before it.

use crate::executor::connection::ExecutorConnection;
use crate::executor::error::ExecutorError;
use broker_protocol::{
    Bash, Challenge, Channel, Coverage, Decoder, Extent, Findings, FromBroker, Grant, Hello,
    Machine, Open, Opened, Outcome, Request, ToBroker, encode,
};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::net::UnixStream as AsyncStream;
use tokio::time::timeout;

/// How long an executor may take to open a session, in seconds. Only a broken one takes this long.
const OPEN_TIMEOUT_S: u64 = 30;

/// A way to an executor.
pub trait Dial {
    /// A new socket to one.
    ///
    /// # Errors
    /// If no executor can be reached.
    fn dial(&self) -> Result<UnixStream, ExecutorError>;
}

/// A connection that has sent the hello. The executor starts and reads the policies while its client finds out what to request.
pub struct Dialed {
    socket: UnixStream,
}

impl Dialed {
    /// Connects to the executor.
    ///
    /// # Errors
    /// If the executor cannot be reached.
    pub fn dial(executor: &(impl Dial + ?Sized)) -> Result<Self, ExecutorError> {
        Self::greet(executor.dial()?)
    }

    /// Greets the executor at the other end of `socket`.
    ///
    /// # Errors
    /// It is gone.
    pub fn greet(mut socket: UnixStream) -> Result<Self, ExecutorError> {
        let mut frame = Vec::with_capacity(32);
        encode(&ToBroker::Hello(Hello::ours(None)), &mut frame)?;
        socket.write_all(&frame)?;
        Ok(Self { socket })
    }

    /// Requests a session.
    ///
    /// # Errors
    /// If the executor cannot be reached any more.
    pub fn open(self, open: Open) -> Result<Greeting, ExecutorError> {
        self.request(&ToBroker::Open(open))
    }

    fn request(mut self, request: &ToBroker) -> Result<Greeting, ExecutorError> {
        let mut frame = Vec::with_capacity(512);
        encode(request, &mut frame)?;
        // An executor that has ended may have said why.
        if let Err(error) = self.socket.write_all(&frame)
            && !matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            )
        {
            return Err(error.into());
        }
        self.socket.set_nonblocking(true)?;
        Ok(Greeting {
            socket: self.socket,
        })
    }
}

/// A connection that has already sent the hello and the first request. Both are sent before there is a runtime: the executor
/// answers while we prepare ourselves.
pub struct Greeting {
    socket: UnixStream,
}

impl Greeting {
    /// Connects to the executor and requests a session.
    ///
    /// # Errors
    /// If the executor cannot be reached.
    pub fn open(executor: &(impl Dial + ?Sized), open: Open) -> Result<Self, ExecutorError> {
        Dialed::dial(executor)?.open(open)
    }

    /// Connects to the executor and requests a probe of this machine.
    ///
    /// # Errors
    /// If the executor cannot be reached.
    pub fn probe(executor: &(impl Dial + ?Sized)) -> Result<Self, ExecutorError> {
        Dialed::dial(executor)?.request(&ToBroker::Probe)
    }

    /// Waits for the session. Needs a local runtime.
    ///
    /// # Errors
    /// Why the executor does not open it.
    pub async fn opened(self) -> Result<ExecutorConnection, ExecutorError> {
        let mut greeted = self.greeted().await?;
        let opened = greeted.opened().await?;
        let Greeted { socket, decoder } = greeted;
        Ok(ExecutorConnection::new(
            socket.into_std()?,
            decoder,
            opened,
        )?)
    }

    /// Waits for the result of the probe, then tries to open a session and to run a command in it. Needs a runtime.
    ///
    /// # Errors
    /// If the executor does not answer.
    pub async fn probed(
        self,
        open: Open,
        command: Bash,
    ) -> Result<(Machine, Result<Tried, ExecutorError>), ExecutorError> {
        let mut greeted = self.greeted().await?;
        let machine = match greeted.next().await? {
            FromBroker::Probed(machine) => machine,
            other => return Err(out_of_turn(other)),
        };
        Ok((machine, greeted.tried(open, command).await))
    }

    /// Waits for the session and runs one command in it until it ends. Approves a question about it if the policy accepts that
    /// here, because a person has requested this very command. Needs a runtime.
    ///
    /// # Errors
    /// If no session opens or the connection is lost.
    pub async fn run(self, command: Bash) -> Result<(Opened, Outcome), ExecutorError> {
        let mut greeted = self.greeted().await?;
        let opened = greeted.opened().await?;
        greeted
            .send(&ToBroker::Call {
                call: 1,
                request: Request::Bash(command),
            })
            .await?;
        loop {
            match greeted.next().await? {
                FromBroker::Done {
                    call: 1, outcome, ..
                } => return Ok((opened, outcome)),
                FromBroker::Asked { call: 1, challenge }
                    if challenge.channel == Channel::Relay
                        && challenge.covers != Coverage::Request =>
                {
                    let Challenge { digest, nonce, .. } = challenge;
                    let grant = Grant {
                        call: 1,
                        digest,
                        nonce,
                        extent: Extent::Once,
                    };
                    greeted.send(&ToBroker::Grant(grant)).await?;
                }
                FromBroker::Asked { call: 1, challenge }
                    if challenge.channel == Channel::Relay
                        && challenge.covers == Coverage::Request =>
                {
                    greeted.send(&ToBroker::Refuse { call: 1 }).await?;
                }
                // What was found is for results; a single command of ours has none.
                FromBroker::Asked { call: 1, .. } | FromBroker::Found(_) => {}
                other => return Err(out_of_turn(other)),
            }
        }
    }

    async fn greeted(self) -> Result<Greeted, ExecutorError> {
        let socket = AsyncStream::from_std(self.socket)?;
        let mut greeted = Greeted {
            socket,
            decoder: Decoder::new(),
        };
        match greeted.next().await? {
            FromBroker::Hello(hello) => hello.check()?,
            other => return Err(out_of_turn(other)),
        }
        Ok(greeted)
    }
}

/// A connection after the executor's hello.
struct Greeted {
    socket: AsyncStream,
    decoder: Decoder,
}

/// A session that was opened to try it.
#[derive(Debug)]
pub struct Tried {
    pub opened: Opened,
    /// The outcome of a command in it; `None` if the policy asks a person about that first.
    pub outcome: Option<Outcome>,
    /// What was found in the project: by this command, or by earlier sessions that could not report it.
    pub found: Findings,
}

impl Greeted {
    async fn tried(&mut self, open: Open, command: Bash) -> Result<Tried, ExecutorError> {
        self.send(&ToBroker::Open(open)).await?;
        let opened = self.opened().await?;
        self.send(&ToBroker::Call {
            call: 1,
            request: Request::Bash(command),
        })
        .await?;
        let mut found = Findings::default();
        let outcome = loop {
            match self.next().await? {
                FromBroker::Done {
                    call: 1, outcome, ..
                } => break Some(outcome),
                FromBroker::Asked { call: 1, .. } => break None,
                FromBroker::Found(more) => found.append(more),
                other => return Err(out_of_turn(other)),
            }
        };
        Ok(Tried {
            opened,
            outcome,
            found,
        })
    }

    async fn opened(&mut self) -> Result<Opened, ExecutorError> {
        match self.next().await? {
            FromBroker::Opened(opened) => Ok(opened),
            other => Err(out_of_turn(other)),
        }
    }

    async fn next(&mut self) -> Result<FromBroker, ExecutorError> {
        timeout(Duration::from_secs(OPEN_TIMEOUT_S), self.receive())
            .await
            .map_err(|_| ExecutorError::Silent(OPEN_TIMEOUT_S))?
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

fn out_of_turn(message: FromBroker) -> ExecutorError {
    match message {
        FromBroker::Fault(failed) => ExecutorError::Fault(failed),
        _ => ExecutorError::Protocol("a message out of turn in its greeting"),
    }
}
