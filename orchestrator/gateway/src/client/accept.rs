//! Connections of `lazaret`: what it serves is said first, then one socket for each.

use super::admit::ClientNetwork;
use super::exchange::ClientExchange;
use crate::serve::GatewayError;
use orchestrator_http::ask::{ASK_MAX, BEGIN_MAX, Begin, ConnectionAsk};
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::target::Target;
use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::timeout;

/// Maximum connections of `lazaret` at a time. Those of more wait.
const CONNECTIONS_MAX: usize = 512;
/// How long what a connection is for may take to arrive.
const BEGINNING: Duration = Duration::from_secs(15);

/// The first frame; `None` if `lazaret` is gone before it.
pub(super) fn begin(socket: &mut UnixStream) -> Result<Option<Begin>, GatewayError> {
    let mut length = [0; 4];
    match socket.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > BEGIN_MAX {
        return Err(GatewayError::Begin);
    }
    let mut json = vec![0; length];
    socket.read_exact(&mut json)?;
    let begin = serde_json::from_slice(&json).map_err(|_| GatewayError::Begin)?;
    Ok(Some(begin))
}

/// The descriptor that comes with the next message; `None` if there is none.
pub(super) fn descriptor(control: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    Ok(match receive(control)? {
        ReceivedSocket::Connection(socket) => Some(socket),
        ReceivedSocket::Nothing | ReceivedSocket::End => None,
    })
}

/// Takes connections from `control` until `lazaret` is gone.
///
/// # Errors
/// Those of the socket, but that it would block.
pub(super) async fn accept<R: Resolve + 'static>(
    control: UnixStream,
    net: Rc<ClientNetwork<R>>,
) -> io::Result<()> {
    control.set_nonblocking(true)?;
    let control = tokio::net::UnixStream::from_std(control)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let of_tickets = net.clone();
    spawn_local(async move { of_tickets.take_tickets().await });
    loop {
        // The semaphore is never closed.
        let place = places.clone().acquire_owned().await.ok();
        control.readable().await?;
        match control.try_io(Interest::READABLE, || receive(control.as_fd())) {
            Ok(ReceivedSocket::Connection(socket)) => {
                let net = net.clone();
                spawn_local(async move {
                    // An error of a connection is the end of that connection, which `lazaret` sees.
                    let _ = carry(net, socket).await;
                    drop(place);
                });
            }
            Ok(ReceivedSocket::Nothing) => {}
            Ok(ReceivedSocket::End) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

enum ReceivedSocket {
    Connection(OwnedFd),
    Nothing,
    End,
}

fn receive(control: BorrowedFd<'_>) -> io::Result<ReceivedSocket> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(control, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let mut sockets = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok(match sockets.next() {
        Some(socket) => ReceivedSocket::Connection(socket),
        None if received.bytes > 0 => ReceivedSocket::Nothing,
        None => ReceivedSocket::End,
    })
}

/// Serves one connection until either side ends it.
async fn carry<R: Resolve + 'static>(net: Rc<ClientNetwork<R>>, socket: OwnedFd) -> io::Result<()> {
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(socket)?;
    let ask = timeout(BEGINNING, ask(&mut stream)).await??;
    let target = Target::parse(&ask.url).map_err(io::Error::other)?;
    let exchange = ClientExchange::new(net, ask.by, target);
    Rc::new(exchange).serve(stream).await
}

async fn ask(stream: &mut tokio::net::UnixStream) -> io::Result<ConnectionAsk> {
    let length = stream.read_u32().await? as usize;
    if length > ASK_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut json = vec![0; length];
    stream.read_exact(&mut json).await?;
    Ok(serde_json::from_slice(&json)?)
}
