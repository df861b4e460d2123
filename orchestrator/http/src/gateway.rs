//! This process's end of the client's gateway: connections are asked for by passing a socket.

use crate::ask::{ASK_MAX, Ask, BEGIN_MAX, Begin};
use crate::named::named_hosts;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use policies::web::WebTable;
use serde::Serialize;
use std::io::{self, IoSlice, Write};
use std::os::fd::AsRawFd;
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
pub enum GatewayError {
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
pub struct Gateway(Option<Arc<UnixStream>>);

static OF_PROCESS: OnceLock<Gateway> = OnceLock::new();

impl Gateway {
    /// The gateway at the other end of `control`, which is told what it serves.
    ///
    /// # Errors
    /// If it has ended, or there is too much of it.
    pub fn begin(control: UnixStream, begin: &Begin) -> Result<Self, GatewayError> {
        (&control).write_all(&framed(begin, BEGIN_MAX)?)?;
        control.set_nonblocking(true)?;
        Ok(Self(Some(Arc::new(control))))
    }

    /// Makes it the one that [`Gateway::of_process`] returns from now on; the first one stays.
    pub fn install(self) {
        let _ = OF_PROCESS.set(self);
    }

    /// This process's gateway. Before one is installed, and in commands without a network, nothing can be asked of it.
    pub fn of_process() -> Self {
        OF_PROCESS.get().cloned().unwrap_or_default()
    }

    /// A connection by way of the gateway.
    pub(crate) async fn connect(&self, ask: &Ask) -> Result<tokio::net::UnixStream, GatewayError> {
        let ask = framed(ask, ASK_MAX)?;
        let (ours, theirs) = UnixStream::pair()?;
        self.pass(&theirs).await?;
        drop(theirs);
        ours.set_nonblocking(true)?;
        let mut ours = tokio::net::UnixStream::from_std(ours)?;
        ours.write_all(&ask).await.map_err(|_| GatewayError::Gone)?;
        Ok(ours)
    }

    async fn pass(&self, socket: &UnixStream) -> Result<(), GatewayError> {
        let control = self.0.as_ref().ok_or(GatewayError::None)?;
        let rights = [socket.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&rights)];
        for _ in 0..TRIES {
            let sent = sendmsg::<()>(
                control.as_raw_fd(),
                &[IoSlice::new(&[0])],
                &message,
                MsgFlags::MSG_NOSIGNAL,
                None,
            );
            match sent {
                Ok(_) => return Ok(()),
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ETOOMANYREFS) => sleep(PAUSE).await,
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(GatewayError::Gone),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Err(GatewayError::Busy)
    }
}

/// Tells the gateway at the other end of `control` what it serves, and makes it this process's: for the hosts that settings have named,
/// and for policies with the tables `webs`.
///
/// # Errors
/// If it has ended, or there is too much of it.
pub fn begin(control: UnixStream, webs: Vec<WebTable>) -> io::Result<()> {
    let named = named_hosts();
    let gateway = Gateway::begin(control, &Begin { webs, named });
    gateway.map_err(io::Error::other)?.install();
    Ok(())
}

/// Four bytes of length, then JSON.
fn framed(value: &impl Serialize, max: usize) -> Result<Vec<u8>, GatewayError> {
    let json = serde_json::to_vec(value).map_err(io::Error::from)?;
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    if json.len() > max {
        return Err(GatewayError::TooLong(max));
    }
    Ok([&length.to_be_bytes()[..], &json].concat())
}
