//! Connecting to a host: the first of its checked addresses that answers.

use crate::relay::proxy_fault::ProxyFault;
use orchestrator_reach::ReachError;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Seconds in which to try one address.
const ADDRESS_S: u64 = 10;

/// Why a host is not connected to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ConnectError {
    /// It may not be reached, or its name has no address.
    #[error("{0}")]
    Reach(#[from] ReachError),
    /// None of its addresses answers.
    #[error("cannot connect: {0}")]
    NoAnswer(String),
    /// The company's proxy opens no tunnel to it.
    #[error("the proxy {proxy} {fault}")]
    Proxy { proxy: String, fault: ProxyFault },
    /// It took longer than this many seconds.
    #[error("not done within {0} s")]
    TimedOut(u32),
}

/// Connects to the first address that answers.
pub(crate) async fn first_of(addresses: &[SocketAddr]) -> Result<TcpStream, ConnectError> {
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match timeout(Duration::from_secs(ADDRESS_S), TcpStream::connect(address)).await {
            Ok(Ok(host)) => {
                // A failure only makes small messages slower, and keeps a quiet connection to a dead host.
                let _ = host.set_nodelay(true);
                let _ = keep_alive(&host);
                return Ok(host);
            }
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = format!("no answer within {ADDRESS_S} s"),
        }
    }
    Err(ConnectError::NoAnswer(last))
}

/// Has the kernel probe a quiet connection: it fails about three minutes after its host has vanished.
fn keep_alive(host: &TcpStream) -> rustix::io::Result<()> {
    const QUIET: Duration = Duration::from_secs(60);
    const INTERVAL: Duration = Duration::from_secs(30);
    const PROBES: u32 = 4;
    sockopt::set_socket_keepalive(host, true)?;
    sockopt::set_tcp_keepidle(host, QUIET)?;
    sockopt::set_tcp_keepintvl(host, INTERVAL)?;
    sockopt::set_tcp_keepcnt(host, PROBES)
}
