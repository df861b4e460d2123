//! Connections of programs to their agent, as supervisors pass them on: a descriptor, with the call in eight bytes. There is no socket file
//! that anybody else could connect to.

use crate::filter::AgentFilter;
use broker_protocol::CallId;
use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// The socket on which supervisors pass connections.
#[derive(Debug)]
pub struct AgentSocket(UnixDatagram);

impl AgentSocket {
    /// Takes the socket over, before this process is confined.
    ///
    /// # Errors
    /// The descriptor is no socket.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixDatagram::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Serves programs until the session is gone; without a filter it closes what comes. Dropped, it ends all connections.
    ///
    /// # Errors
    /// The socket cannot be watched.
    pub async fn serve(self, filter: Option<Rc<AgentFilter>>) -> io::Result<()> {
        let socket = tokio::net::UnixDatagram::from_std(self.0)?;
        let mut clients = JoinSet::new();
        loop {
            while clients.try_join_next().is_some() {}
            socket.readable().await?;
            let (program, call) = match socket.try_io(Interest::READABLE, || receive(&socket)) {
                Ok(Some(received)) => received,
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                // No supervisor is left.
                Err(_) => std::future::pending().await,
            };
            if let (Some(filter), Ok(program)) = (filter.clone(), stream(program)) {
                clients.spawn_local(async move { filter.serve(program, call).await });
            }
        }
    }
}

fn stream(program: OwnedFd) -> io::Result<UnixStream> {
    let program = std::os::unix::net::UnixStream::from(program);
    program.set_nonblocking(true)?;
    UnixStream::from_std(program)
}

/// Receives one connection; `None` for a message of another form.
fn receive(socket: &tokio::net::UnixDatagram) -> io::Result<Option<(OwnedFd, CallId)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut call = [0; 8];
    let mut parts = [IoSliceMut::new(&mut call)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut program = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message {
            program = sockets.next();
        }
    }
    match (program, received.bytes) {
        (Some(program), 8) => Ok(Some((program, CallId::from_be_bytes(call)))),
        // A SEQPACKET socket whose other ends are closed.
        (None, 0) => Err(io::ErrorKind::UnexpectedEof.into()),
        (Some(_) | None, _) => Ok(None),
    }
}
