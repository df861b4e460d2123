//! The life of a gateway: the broker's first frame, confinement, then connections of cells until the broker is gone.

use crate::confine;
use crate::control::{Control, ControlError, Received};
use crate::relay::{Relay, RelaySockets};
use crate::reports::Reports;
use broker_protocol::gateway::{FromGateway, GatewaySpec, ToGateway};
use broker_protocol::{Lease, Network};
use nix::sys::prctl;
use policies::network;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use thiserror::Error;
use tokio::io::Interest;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

/// Maximum threads that resolve names.
const RESOLVERS: usize = 16;

/// Why the gateway does not serve.
#[derive(Debug, Error)]
pub enum GatewayError {
    #[error("standard input is not a broker's socket")]
    NotStarted,
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("it cannot be confined: {0}")]
    Confine(io::Error),
    #[error("the hosts of the session cannot be read")]
    Hosts,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Serves the session whose broker is at the other end of standard input, until it is gone.
///
/// # Errors
/// Why it does not serve.
pub fn serve() -> Result<(), GatewayError> {
    let socket = control_socket()?;
    confine::end_with_parent()?;
    std::env::set_current_dir("/")?;
    prctl::set_name(c"lazaret-gateway").map_err(io::Error::from)?;
    let mut control = Control::new(socket);
    let Some((spec, sockets)) = first_frame(&mut control)? else {
        return Ok(());
    };
    let hosts = Network { lists: spec.lists };
    let policy = network::from_lists(&hosts).map_err(|_| GatewayError::Hosts)?;
    // Standard error stays until nothing can fail any more.
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null).map_err(io::Error::from)?;
    dup2_stdout(&null).map_err(io::Error::from)?;
    confine::confine().map_err(GatewayError::Confine)?;
    dup2_stderr(&null).map_err(io::Error::from)?;
    drop(null);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(RESOLVERS)
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let reports = Reports::new(control.socket().try_clone()?)?;
        let (leases, in_force) = watch::channel(Vec::new());
        let relay = Relay::new(policy, in_force, reports.clone());
        reports.send(&FromGateway::Serving(None));
        tokio::select! {
            served = relay.serve(sockets) => Ok(served?),
            () = reports.write() => Ok(()),
            heard = hear(control, &leases) => heard,
        }
    })
}

/// Takes the socket over from standard input.
fn control_socket() -> Result<UnixStream, GatewayError> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Whoever starts this program by hand has no broker there.
    socket.peer_addr().map_err(|_| GatewayError::NotStarted)?;
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Waits for the broker's first frame; `None` if the broker is gone before it.
fn first_frame(control: &mut Control) -> Result<Option<(GatewaySpec, RelaySockets)>, GatewayError> {
    let Received { frame, descriptors } = loop {
        match control.frame()? {
            Some(received) => break received,
            None if control.receive()? => {}
            None => return Ok(None),
        }
    };
    let ToGateway::Serve(spec) = frame else {
        return Err(ControlError::OutOfTurn("another first frame than Serve").into());
    };
    let too_large = |_| ControlError::OutOfTurn("more than a session may have");
    spec.check().map_err(too_large)?;
    let sockets = RelaySockets::new(descriptors)?;
    let sockets = sockets.ok_or(ControlError::OutOfTurn("other sockets than a relay has"))?;
    Ok(Some((spec, sockets)))
}

/// Handles the broker's frames until it is gone.
async fn hear(
    mut control: Control,
    leases: &watch::Sender<Vec<Lease>>,
) -> Result<(), GatewayError> {
    let socket = tokio::net::UnixStream::from_std(control.socket().try_clone()?)?;
    loop {
        while let Some(Received { frame, .. }) = control.frame()? {
            match frame {
                ToGateway::Leases(in_force) => drop(leases.send_replace(in_force)),
                ToGateway::Serve(_) => {
                    return Err(ControlError::OutOfTurn("a second Serve").into());
                }
                ToGateway::Value { .. } | ToGateway::NoValue { .. } => {
                    return Err(ControlError::OutOfTurn("a value that nobody wants").into());
                }
            }
        }
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || control.receive()) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}
