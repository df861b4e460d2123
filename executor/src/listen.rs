//! Listening on a socket path, for clients that do not start the executor themselves.

use crate::broker::User;
use crate::cell::descriptors::keep_only;
use crate::rest::Rest;
use crate::sys::{self, Fork};
use interprocess::local_socket::traits::ListenerExt as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Stream, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use nix::sys::prctl;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::process::exit;
use std::time::Duration;

/// How long to wait when a client cannot be served.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until it is ended.
///
/// # Errors
/// The directory is not private, or the socket cannot be made.
pub fn serve(path: &Path, user: &User) -> io::Result<()> {
    private_directory(path)?;
    let listener =
        ListenerOptions::new().name(path.to_fs_name::<GenericFilePath>()?).mode(0o600).create_sync()?;
    for client in listener.incoming() {
        reap();
        let served = client.and_then(|Stream::UdSocket(client)| serve_apart(client.into(), user));
        if let Err(error) = served {
            // One client that could not be served is not the end for the others; descriptors or processes may have
            // run out, and come back.
            eprintln!("lazaret-executor: a client was not served: {error}");
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Serves each client whose connected socket is handed over `door`, until nobody can hand one over any more. For a client
/// that must not start programs and may need a second session.
///
/// # Errors
/// `door` is no socket, or what comes over it is no client.
pub fn serve_handed(door: OwnedFd, user: &User) -> io::Result<()> {
    prctl::set_name(c"lazaret-door")?;
    prctl::set_dumpable(false)?;
    let mut rest = Rest::default();
    loop {
        rest.before_reading(&door);
        let (bytes, mut clients) = sys::receive(door.as_fd(), &mut [0], 0)?;
        reap();
        match (bytes, clients.pop()) {
            (0, _) => return Ok(()),
            (_, Some(client)) => serve_apart(client, user)?,
            (_, None) => return Err(io::Error::other("a message without a client")),
        }
    }
}

fn reap() {
    while waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
}

/// Serves a client in a process of its own.
fn serve_apart(client: OwnedFd, user: &User) -> io::Result<()> {
    if let Fork::Parent(_) = sys::fork(0)? {
        return Ok(());
    }
    // The way to further clients is the parent's.
    keep_only(&[client.as_fd()], user.ablation.descriptors())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let own = user.clone();
    let served = crate::serve(client, own);
    // Not by return: the listener, which is the parent's, would remove the socket's name.
    exit(i32::from(served.is_err()))
}

/// The directory of a socket, made if it is missing: its owner is who runs this, and nobody else may enter.
pub fn private_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.exists() {
        DirBuilder::new().mode(0o700).create(directory)?;
    }
    let metadata = fs::metadata(directory)?;
    if metadata.uid() != sys::euid() || metadata.mode() & 0o077 != 0 {
        let what = format!("{} must belong to you and have mode 0700", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Refuses a client with another user id.
pub fn check_peer(socket: &OwnedFd) -> io::Result<()> {
    let peer = getsockopt(&socket.as_fd(), PeerCredentials)?;
    if peer.uid() == sys::euid() {
        return Ok(());
    }
    let what = format!("the client has the user id {}, this executor {}", peer.uid(), sys::euid());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}
