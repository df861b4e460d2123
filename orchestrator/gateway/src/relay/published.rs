//! Ports of this machine that lead to a port of the session's loopback: for this user's programs alone, byte for byte.
//!
//! The broker has bound them. Who is inside is the warden's business: it makes each connection there, or passes our socket on to the
//! supervisor that has the listener. So nothing of the session is reached that it does not know to be published.

use crate::relay::connect::ConnectError;
use broker_protocol::gateway::published_request;
use orchestrator_reach::owners::Owners;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum number of clients of all published ports; further ones wait.
pub(super) const CLIENTS: usize = 64;
/// How long the session may take to answer, and the server to accept.
const ANSWER: Duration = Duration::from_secs(10);

/// The published ports of a session.
#[derive(Debug)]
pub(super) struct PublishedSockets {
    /// Each with its port in the session.
    pub(super) listeners: Vec<(TcpListener, u16)>,
    pub(super) ways: Ways,
}

/// How the session's servers are reached, and by whom.
#[derive(Debug)]
pub(super) struct Ways {
    line: OwnedFd,
    pub(super) owners: Owners,
    pub(super) places: Arc<Semaphore>,
}

impl PublishedSockets {
    /// Takes over listeners, each with the port in the session to which it leads, and the socket on which connections into the session
    /// are asked for. Before this process is confined.
    ///
    /// # Errors
    /// They are no sockets; nobody says whose a connection is.
    pub(super) fn new(listeners: Vec<OwnedFd>, ports: &[u16], line: OwnedFd) -> io::Result<Self> {
        let listeners = listeners.into_iter().map(TcpListener::from);
        let listeners: Vec<_> = listeners.zip(ports.iter().copied()).collect();
        for (listener, _) in &listeners {
            listener.set_nonblocking(true)?;
        }
        let owners = Owners::open()?;
        Ok(Self {
            listeners,
            ways: Ways {
                line,
                owners,
                places: Arc::new(Semaphore::new(CLIENTS)),
            },
        })
    }
}

impl Ways {
    /// Connects to a port of the session's loopback: of IPv4, or of IPv6 if nobody listens there.
    pub(super) async fn connect(&self, port: u16) -> Result<TcpStream, ConnectError> {
        let both = async {
            match self.connect_by(port, false).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.connect_by(port, true).await
                }
                connected => connected,
            }
        };
        let seconds = ANSWER.as_secs() as u32;
        let connected = timeout(ANSWER, both).await;
        let connected = connected.map_err(|_| ConnectError::TimedOut(seconds))?;
        connected.map_err(|error| ConnectError::NoAnswer(error.to_string()))
    }

    async fn connect_by(&self, port: u16, v6: bool) -> io::Result<TcpStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let own = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        let (answer, theirs) = UnixStream::pair()?;
        self.ask(published_request(port, v6), [theirs.as_fd(), own.as_fd()])?;
        drop(theirs);
        answer.set_nonblocking(true)?;
        let answer = tokio::net::UnixStream::from_std(answer)?;
        let (errno, made) = loop {
            answer.readable().await?;
            match answer.try_io(Interest::READABLE, || receive(&answer)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => break received?,
            }
        };
        if errno != 0 && Errno::from_raw_os_error(errno) != Errno::INPROGRESS {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // In the flat tier it is our own that was connected.
        let socket = std::net::TcpStream::from(made.unwrap_or(own));
        socket.set_nonblocking(true)?;
        let socket = TcpStream::from_std(socket)?;
        socket.writable().await?;
        match socket.take_error()? {
            Some(error) => Err(error),
            None => Ok(socket),
        }
    }

    fn ask(&self, request: [u8; 4], fds: [std::os::fd::BorrowedFd<'_>; 2]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.line, &[IoSlice::new(&request)], &mut control, flags)?;
        Ok(())
    }
}

/// The answer to a request: an error number, and the socket if the warden made it. Nobody who answers means that nobody listens.
fn receive(answer: &tokio::net::UnixStream) -> io::Result<(i32, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut errno = [0; 4];
    let received = recvmsg(
        answer,
        &mut [IoSliceMut::new(&mut errno)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let received = match received {
        // The other end is closed, and has unread bytes of ours: none are sent.
        Err(Errno::CONNRESET) => return Err(io::ErrorKind::ConnectionRefused.into()),
        received => received?,
    };
    let mut made = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message {
            made = sockets.next();
        }
    }
    match received.bytes {
        4 => Ok((i32::from_le_bytes(errno), made)),
        _ => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}
