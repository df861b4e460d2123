//! The client's gateway: makes the requests of one `lazaret`, which has no network of its own.
//!
//! `lazaret` starts it before it confines itself, and names the hosts of its settings and the policies of its profiles. A connection of
//! `lazaret` is for one host. It is HTTP/1.1 on both sides, and streams; its own part is TLS, names, and which addresses a host may be at.

mod accept;
mod admit;
mod company;
mod exchange;
mod keys;
mod openings;
#[cfg(any(test, feature = "test-support"))]
mod in_process;
mod permit;
mod reach;
mod tickets;
#[cfg(test)]
mod tests;

#[cfg(feature = "test-support")]
pub use in_process::in_process;

use crate::confine;
use crate::resolver::System;
use crate::serve::{GatewayError, confined_runtime, control_socket};
use accept::{accept, begin, descriptor};
use admit::{AllowedHosts, ClientNetwork};
use company::{CompanyNetwork, CompanyWork};
use keys::AttachedKeys;
use nix::sys::prctl;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use tokio::task::spawn_local;

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
    let company = match begin.company {
        true => Some(company_of(io::stdout().as_fd())?),
        false => None,
    };
    let line = match begin.tickets {
        true => Some(descriptor(socket.as_fd())?.ok_or(GatewayError::Begin)?),
        false => None,
    };
    let (keys, openings) = match begin.keys.is_empty() && begin.login_key.is_none() {
        true => (AttachedKeys::default(), None),
        false => {
            let line = descriptor(socket.as_fd())?.ok_or(GatewayError::Begin)?;
            let line = UnixStream::from(line);
            let keys = AttachedKeys::read(&begin.keys, begin.login_key, &line)?;
            (keys, Some(line))
        }
    };
    let runtime = confined_runtime(confine::confine_of_client)?;
    let net = ClientNetwork::new(AllowedHosts::Begun(begin), System).with_keys(keys);
    runtime.block_on(async move {
        let (net, work) = net.with_company(company)?;
        let net = Rc::new(net.with_tickets(line)?);
        if let Some(line) = openings {
            spawn_local(openings::answer(line, net.clone()));
        }
        let accepted = accept(socket, net);
        match work.map(CompanyWork::run) {
            None => Ok(accepted.await?),
            Some(work) => tokio::select! {
                accepted = accepted => Ok(accepted?),
                // Without the login that it may still need, it reaches nothing.
                ended = work => ended,
            },
        }
    })
}

/// Reads standard output, which is a socket where a company's network is told.
fn company_of(output: BorrowedFd<'_>) -> Result<CompanyNetwork, GatewayError> {
    let socket = UnixStream::from(output.try_clone_to_owned()?);
    socket.peer_addr().map_err(|_| GatewayError::NoCompany)?;
    socket.set_nonblocking(false)?;
    CompanyNetwork::read(socket)
}
