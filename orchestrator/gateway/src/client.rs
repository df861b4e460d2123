//! The client's gateway: makes the requests of one `lazaret`, which has no network of its own.
//!
//! `lazaret` starts it before it confines itself, and names the hosts of its settings and the policies of its profiles. A connection of
//! `lazaret` is for one host. It is HTTP/1.1 on both sides, and streams; its own part is TLS, names, and which addresses a host may be at.

mod admit;
mod exchange;
mod in_process;
#[cfg(test)]
mod tests;

pub use admit::Allowed;
pub use in_process::in_process;

use crate::confine;
use crate::ended::{HostTls, Roots};
use crate::resolver::System;
use crate::serve::{GatewayError, control_socket, null_device};
use exchange::Exchange;
use nix::sys::prctl;
use orchestrator_http::ask::{ASK_MAX, Ask, BEGIN_MAX, Begin};
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::target::Target;
use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::cell::OnceCell;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::timeout;

/// Maximum connections of `lazaret` at a time. Those of more wait.
const CONNECTIONS_MAX: usize = 512;
/// Maximum threads that resolve names.
const RESOLVERS: usize = 16;
/// How long what a connection is for may take to arrive.
const BEGINNING: Duration = Duration::from_secs(15);

/// What all connections of a `lazaret` share.
pub struct Net<R> {
    allowed: Allowed,
    resolver: R,
    tls: OnceCell<HostTls>,
}

impl<R> Net<R> {
    pub fn new(allowed: Allowed, resolver: R) -> Self {
        Self {
            allowed,
            resolver,
            tls: OnceCell::new(),
        }
    }

    /// TLS with the machine's certificates, which are read when they are first needed.
    fn tls(&self) -> &HostTls {
        self.tls.get_or_init(|| HostTls::new(Roots::of_machine()))
    }
}

/// Serves the `lazaret` at the other end of standard input, until it is gone.
///
/// # Errors
/// Why it does not serve.
pub fn serve() -> Result<(), GatewayError> {
    let mut socket = control_socket()?;
    confine::end_with_parent()?;
    std::env::set_current_dir("/")?;
    prctl::set_name(c"lazaret-network").map_err(io::Error::from)?;
    let Some(begin) = begin(&mut socket)? else {
        return Ok(());
    };
    // Standard error stays until nothing can fail any more.
    let null = null_device()?;
    dup2_stdin(&null).map_err(io::Error::from)?;
    dup2_stdout(&null).map_err(io::Error::from)?;
    confine::confine_of_client().map_err(GatewayError::Confine)?;
    dup2_stderr(&null).map_err(io::Error::from)?;
    drop(null);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(RESOLVERS)
        .build_local(LocalOptions::default())?;
    let net = Net::new(Allowed::Begun(begin), System);
    Ok(runtime.block_on(accept(socket, Rc::new(net)))?)
}

/// The first frame; `None` if `lazaret` is gone before it.
fn begin(socket: &mut UnixStream) -> Result<Option<Begin>, GatewayError> {
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

/// Takes connections from `control` until `lazaret` is gone.
///
/// # Errors
/// Those of the socket.
pub async fn accept<R: Resolve + 'static>(control: UnixStream, net: Rc<Net<R>>) -> io::Result<()> {
    control.set_nonblocking(true)?;
    let control = tokio::net::UnixStream::from_std(control)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let place = places.clone().acquire_owned().await.ok();
        control.readable().await?;
        match control.try_io(Interest::READABLE, || receive(control.as_fd())) {
            Ok(Received::Connection(socket)) => {
                let net = net.clone();
                spawn_local(async move {
                    // An error of a connection is the end of that connection, which `lazaret` sees.
                    let _ = carry(net, socket).await;
                    drop(place);
                });
            }
            Ok(Received::Nothing) => {}
            Ok(Received::End) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

enum Received {
    Connection(OwnedFd),
    Nothing,
    End,
}

fn receive(control: BorrowedFd<'_>) -> io::Result<Received> {
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
        Some(socket) => Received::Connection(socket),
        None if received.bytes > 0 => Received::Nothing,
        None => Received::End,
    })
}

/// Serves one connection until either side ends it.
async fn carry<R: Resolve + 'static>(net: Rc<Net<R>>, socket: OwnedFd) -> io::Result<()> {
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(socket)?;
    let ask = timeout(BEGINNING, ask(&mut stream)).await??;
    let target = Target::parse(&ask.url).map_err(io::Error::other)?;
    let exchange = Exchange::new(net, ask.by, target);
    Rc::new(exchange).serve(stream).await
}

async fn ask(stream: &mut tokio::net::UnixStream) -> io::Result<Ask> {
    let length = stream.read_u32().await? as usize;
    if length > ASK_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut json = vec![0; length];
    stream.read_exact(&mut json).await?;
    Ok(serde_json::from_slice(&json)?)
}
