//! The beginning of a connection: both sides exchange hellos, then the session opens. Only that yields an [`ExecutorConnection`], so no call
//! of a front end can come before it.

use crate::executor::connection::ExecutorConnection;
use crate::executor::error::ExecutorError;
use broker_protocol::{Decoder, FromBroker, GatewaySupply, Hello, Open, Opened, ToBroker, encode};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
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

    /// The line over which the executor has gateways started on this side, if it is to.
    fn gateways(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A connection that has sent the hello. The executor starts and reads the policies while its client finds out what to request.
pub struct Dialed {
    socket: UnixStream,
    /// Who starts the gateways of its session.
    supply: GatewaySupply,
}

impl Dialed {
    /// Connects to the executor.
    ///
    /// # Errors
    /// If the executor cannot be reached.
    pub fn dial(executor: &(impl Dial + ?Sized)) -> Result<Self, ExecutorError> {
        let mut dialed = Self::greet(executor.dial()?)?;
        if let Some(line) = executor.gateways() {
            dialed.send_line(line)?;
            dialed.supply = GatewaySupply::Client;
        }
        Ok(dialed)
    }

    fn send_line(&mut self, line: BorrowedFd<'_>) -> Result<(), ExecutorError> {
        let mut frame = Vec::with_capacity(16);
        encode(&ToBroker::GatewayLine, &mut frame)?;
        let rights = [line.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&rights)];
        let (parts, flags) = ([IoSlice::new(&frame)], MsgFlags::MSG_NOSIGNAL);
        let sent = sendmsg::<()>(self.socket.as_raw_fd(), &parts, &message, flags, None);
        let sent = sent.map_err(io::Error::from)?;
        Ok(self.socket.write_all(&frame[sent..])?)
    }

    /// Greets the executor at the other end of `socket`.
    ///
    /// # Errors
    /// It is gone.
    pub fn greet(mut socket: UnixStream) -> Result<Self, ExecutorError> {
        let mut frame = Vec::with_capacity(32);
        encode(&ToBroker::Hello(Hello::ours(None)), &mut frame)?;
        socket.write_all(&frame)?;
        Ok(Self {
            socket,
            supply: GatewaySupply::Executor,
        })
    }

    /// Requests a session.
    ///
    /// # Errors
    /// If the executor cannot be reached any more.
    pub fn open(self, mut open: Open) -> Result<Greeting, ExecutorError> {
        if let Some(network) = &mut open.network {
            network.gateway = self.supply;
        }
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

    pub(super) async fn greeted(self) -> Result<Greeted, ExecutorError> {
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
pub(super) struct Greeted {
    socket: AsyncStream,
    decoder: Decoder,
}

impl Greeted {
    pub(super) async fn opened(&mut self) -> Result<Opened, ExecutorError> {
        match self.next().await? {
            FromBroker::Opened(opened) => Ok(opened),
            other => Err(out_of_turn(other)),
        }
    }

    pub(super) async fn next(&mut self) -> Result<FromBroker, ExecutorError> {
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

    pub(super) async fn send(&mut self, message: &ToBroker) -> Result<(), ExecutorError> {
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

pub(super) fn out_of_turn(message: FromBroker) -> ExecutorError {
    match message {
        FromBroker::Fault(failed) => ExecutorError::Fault(failed),
        _ => ExecutorError::Protocol("a message out of turn in its greeting"),
    }
}
