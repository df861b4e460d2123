//! A gateway on a thread, for tests of what asks one: it serves the same way, is not confined, and takes every host for one of the
//! settings.

use super::accept::{accept, begin as first_frame, descriptor};
use super::admit::{AllowedHosts, ClientNetwork};
use super::keys::AttachedKeys;
use orchestrator_http::ClientGateway;
use orchestrator_http::ask::Begin;
use orchestrator_logins::ServerLogins;
use orchestrator_reach::guard::Resolve;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use tokio::runtime::{Builder, LocalOptions};

/// Starts it; it ends with the last clone of what this returns.
///
/// # Errors
/// No thread, or no socket.
#[cfg(feature = "test-support")]
pub fn in_process<R: Resolve + Send + 'static>(resolver: R) -> io::Result<ClientGateway> {
    on_thread(resolver, &Begin::default(), None, |_| AllowedHosts::All)
}

/// Starts one that is told what it serves.
pub(super) fn on_thread<R: Resolve + Send + 'static>(
    resolver: R,
    begin: &Begin,
    tickets: Option<OwnedFd>,
    allowed: fn(Begin) -> AllowedHosts,
) -> io::Result<ClientGateway> {
    let (ours, mut theirs) = UnixStream::pair()?;
    thread::Builder::new().spawn(move || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())?;
        if let Ok(Some(begin)) = first_frame(&mut theirs) {
            let line = match begin.tickets {
                true => descriptor(theirs.as_fd())?,
                false => None,
            };
            let mut keys = AttachedKeys::default();
            if begin.login_key.is_some() {
                keys.logins = ServerLogins::new(&"k".repeat(64));
            }
            let net = ClientNetwork::new(allowed(begin), resolver).with_keys(keys);
            runtime.block_on(async { accept(theirs, Rc::new(net.with_tickets(line)?)).await })?;
        }
        Ok::<_, io::Error>(())
    })?;
    ClientGateway::begin(ours, begin, tickets, None).map_err(io::Error::other)
}
