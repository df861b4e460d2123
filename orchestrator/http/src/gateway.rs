//! This process's end of the client's gateway: connections are asked for by passing a socket.

use crate::ask::{ASK_MAX, BEGIN_MAX, Begin, ConnectionAsk};
use crate::named::{NamedHosts, named_hosts};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use policies::web::WebTable;
use serde::Serialize;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

/// How often and how long to wait while the gateway has not taken earlier connections.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Why the gateway cannot be asked.
#[derive(Debug, Error)]
pub enum ClientGatewayError {
    #[error("this command has no network")]
    None,
    #[error("the program `lazaret-gateway` has ended, and with it the network")]
    Gone,
    #[error("the program `lazaret-gateway` takes no connection")]
    Busy,
    #[error("a request of more than {0} bytes")]
    TooLong(usize),
    #[error("no socket for a request: {0}")]
    Io(#[from] io::Error),
}

/// The way to a gateway. All clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ClientGateway(Option<Arc<UnixStream>>);

static OF_PROCESS: OnceLock<ClientGateway> = OnceLock::new();

impl ClientGateway {
    /// The gateway at the other end of `control`, which is told what it serves, and gets its end of the line for `tickets` if web tools
    /// need them, and the line with `keys` if it puts some into requests.
    ///
    /// # Errors
    /// If it has ended, or there is too much of it.
    pub fn begin(
        control: UnixStream,
        begin: &Begin,
        tickets: Option<OwnedFd>,
        keys: Option<OwnedFd>,
    ) -> Result<Self, ClientGatewayError> {
        (&control).write_all(&framed(begin, BEGIN_MAX)?)?;
        for line in tickets.into_iter().chain(keys) {
            send_descriptor(&control, &line).map_err(io::Error::from)?;
        }
        control.set_nonblocking(true)?;
        Ok(Self(Some(Arc::new(control))))
    }

    /// Makes it the one that [`ClientGateway::of_process`] returns from now on; the first one stays.
    pub fn install(self) {
        let _ = OF_PROCESS.set(self);
    }

    /// This process's gateway. Before one is installed, and in commands without a network, nothing can be asked of it.
    pub fn of_process() -> Self {
        OF_PROCESS.get().cloned().unwrap_or_default()
    }

    /// A connection by way of the gateway.
    ///
    /// # Errors
    /// The gateway is gone, or cannot be asked.
    pub async fn connect(
        &self,
        ask: &ConnectionAsk,
    ) -> Result<tokio::net::UnixStream, ClientGatewayError> {
        let ask = framed(ask, ASK_MAX)?;
        let (ours, theirs) = UnixStream::pair()?;
        self.pass(&theirs).await?;
        drop(theirs);
        ours.set_nonblocking(true)?;
        let mut ours = tokio::net::UnixStream::from_std(ours)?;
        ours.write_all(&ask)
            .await
            .map_err(|_| ClientGatewayError::Gone)?;
        Ok(ours)
    }

    async fn pass(&self, socket: &UnixStream) -> Result<(), ClientGatewayError> {
        let control = self.0.as_ref().ok_or(ClientGatewayError::None)?;
        for _ in 0..TRIES {
            match send_descriptor(control, socket) {
                Ok(()) => return Ok(()),
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ETOOMANYREFS) => sleep(PAUSE).await,
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(ClientGatewayError::Gone),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Err(ClientGatewayError::Busy)
    }
}

fn send_descriptor(control: &UnixStream, descriptor: impl AsFd) -> nix::Result<()> {
    let rights = [descriptor.as_fd().as_raw_fd()];
    let message = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(
        control.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &message,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map(drop)
}

/// Tells the gateway at the other end of `control` what it serves, and makes it this process's: for the hosts that settings have named,
/// and for policies with the tables `webs`; by way of a `company`'s network, of which it is told by another process; with its end of the
/// line for `tickets`; with the line on which `keys` come.
///
/// # Errors
/// If it has ended, or there is too much of it.
pub fn begin(
    control: UnixStream,
    webs: Vec<WebTable>,
    company: bool,
    tickets: Option<OwnedFd>,
    keys: Option<OwnedFd>,
) -> io::Result<()> {
    let NamedHosts {
        named,
        requests,
        strangers,
        logins,
        engines,
        keys: held,
        login_key,
    } = named_hosts();
    let keys = keys.filter(|_| !held.is_empty() || login_key.is_some());
    let begin = Begin {
        webs,
        named: named.into_iter().collect(),
        requests: requests.into_iter().collect(),
        strangers: strangers.into_iter().collect(),
        logins,
        engines: engines.into_iter().collect(),
        keys: held.into_iter().collect(),
        login_key,
        tickets: tickets.is_some(),
        company,
    };
    let gateway = ClientGateway::begin(control, &begin, tickets, keys);
    gateway.map_err(io::Error::other)?.install();
    Ok(())
}

/// Four bytes of length, then JSON.
fn framed(value: &impl Serialize, max: usize) -> Result<Vec<u8>, ClientGatewayError> {
    let json = serde_json::to_vec(value).map_err(io::Error::from)?;
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    if json.len() > max {
        return Err(ClientGatewayError::TooLong(max));
    }
    Ok([&length.to_be_bytes()[..], &json].concat())
}
