//! The listeners of ports of this machine that lead into the session: bound here, so that a taken port is an error of the opening, and
//! kept for the gateway's successors. Nobody accepts on them here.

use broker_protocol::PublishedPort;
use executor_spec::relay;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a port may stay taken: the client of a session that ends is gone before its broker.
const ENDING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Why a port is not published.
#[derive(Debug, Error)]
pub enum PublishError {
    #[error("port {port} of this machine cannot be published: {source}; {} (`--publish OTHER:{cell}`)", advice(.source))]
    Bind {
        port: u16,
        cell: u16,
        source: io::Error,
    },
    /// Programs of this machine would have the hosts and credentials of the session's calls.
    #[error("port {} of cells is that of their proxy, and is not published", relay::ADDRESS.port())]
    Relay,
}

/// Advice to the person who started the session.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "end what listens there, or name another",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are not for ordinary users: name another"
        }
        _ => "name another",
    }
}

/// A listener and the port of the session to which it leads.
pub type PublishedListener = (OwnedFd, u16);

/// Binds the ports on this machine's loopback: on 127.0.0.1, and on ::1 if there is IPv6.
///
/// # Errors
/// A port is taken, or not for this user; it would lead to the session's relay.
pub fn bind(ports: &[PublishedPort]) -> Result<Vec<PublishedListener>, PublishError> {
    let mut published = Vec::new();
    for PublishedPort { machine, cell } in ports.iter().copied() {
        if cell == relay::ADDRESS.port() {
            return Err(PublishError::Relay);
        }
        let failed = |source| PublishError::Bind {
            port: machine,
            cell,
            source,
        };
        let listen = |ip: IpAddr| bind_soon((ip, machine).into());
        let v4 = listen(Ipv4Addr::LOCALHOST.into()).map_err(failed)?;
        published.push((v4.into(), cell));
        match listen(Ipv6Addr::LOCALHOST.into()) {
            Ok(v6) => published.push((v6.into(), cell)),
            Err(error) if is_without_ipv6(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(published)
}

/// Binds an address, which may belong to a session that is ending.
fn bind_soon(address: SocketAddr) -> io::Result<TcpListener> {
    let until = Instant::now() + ENDING;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(PAUSE);
            }
            bound => return bound,
        }
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
    )
}
