//! Listens on a socket path, for clients that do not start the executor themselves.

use crate::serve;
use crate::user::User;
use executor_layers::descriptors::keep_only;
use executor_spec::private_directory;
use executor_sys::idle::IdleTrim;
use executor_sys::message;
use executor_sys::process::{self, Fork, euid, fork, reap_any};
use interprocess::local_socket::traits::ListenerExt as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Stream, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use nix::sys::prctl;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::exit;
use std::time::Duration;

/// Pause after a client could not be served.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until the process is killed.
///
/// # Errors
/// The directory is not private, or the socket cannot be made.
pub(crate) fn serve(path: &Path, user: &User) -> io::Result<()> {
    private_directory::make(path)?;
    let listener = ListenerOptions::new()
        .name(path.to_fs_name::<GenericFilePath>()?)
        .mode(0o600)
        .create_sync()?;
    for client in listener.incoming() {
        reap();
        let served = client.and_then(|Stream::UdSocket(client)| serve_apart(client.into(), user));
        if let Err(error) = served {
            // A client that could not be served must not end the service for others; descriptors or
            // processes may have run out for a while.
            eprintln!("lazaret-executor: a client was not served: {error}");
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Serves each client whose connected socket arrives over `clients`, until the other end is closed.
/// For a client that must not start programs and may need a second session.
///
/// # Errors
/// `clients` is no socket, or something other than a client arrives over it.
pub(crate) fn serve_handed_over(clients: OwnedFd, user: &User) -> io::Result<()> {
    prctl::set_name(c"lazaret-spawner")?;
    prctl::set_dumpable(false)?;
    process::resume_with_parents_death()?;
    let mut idle = IdleTrim::default();
    loop {
        idle.wait_readable(&clients);
        let (bytes, mut fds) = message::receive_waiting(clients.as_fd(), &mut [0])?;
        reap();
        match (bytes, fds.pop()) {
            (0, _) => return Ok(()),
            (_, Some(client)) => serve_apart(client, user)?,
            (_, None) => return Err(io::Error::other("a message without a client")),
        }
    }
}

fn reap() {
    while let Ok(Some(_)) = reap_any() {}
}

/// Serves a client in a process of its own.
fn serve_apart(client: OwnedFd, user: &User) -> io::Result<()> {
    if let Fork::Parent(_) = fork(0)? {
        return Ok(());
    }
    // Only the parent may receive further clients.
    let kept: Vec<BorrowedFd> = [client.as_fd()]
        .into_iter()
        .chain(user.worker.file())
        .chain(user.gateway.file())
        .chain(user.tickets.fd())
        .collect();
    keep_only(&kept, user.ablation.descriptors())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let served = serve_client(client, user.clone());
    // Exits without returning: the listener, which is the parent's, would remove the socket's name.
    exit(i32::from(served.is_err()))
}

/// Serves the one client at the other end of `socket`, if it belongs to this user.
pub(crate) fn serve_client(socket: OwnedFd, user: User) -> io::Result<()> {
    check_peer(&socket)?;
    leave_callers_terminal()?;
    serve::serve(socket, user, None)
}

/// Makes this process a broker: apart from its caller's terminal, closed to others, and above all that it starts.
///
/// # Errors
/// The kernel's (`prctl`).
pub(crate) fn leave_callers_terminal() -> io::Result<()> {
    prctl::set_name(c"lazaret-executor")?;
    // Leaves the caller's terminal: its Control-C is for the client, which passes it on. In the client's session the kernel would
    // also hang up the broker when the client ends while a process of the group is stopped, as those that are being killed are. For
    // a group leader this fails; it already has a session or a shell's job of its own.
    let _ = nix::unistd::setsid();
    prctl::set_dumpable(false)?;
    // Orphans of a killed warden are reparented to this process, not to init.
    prctl::set_child_subreaper(true)?;
    process::resume_with_parents_death()?;
    Ok(())
}

/// Refuses a client with another user ID.
pub(crate) fn check_peer(socket: &OwnedFd) -> io::Result<()> {
    let peer = getsockopt(&socket.as_fd(), PeerCredentials)?;
    if peer.uid() == euid() {
        return Ok(());
    }
    let what = format!(
        "the client has the user id {}, this executor {}",
        peer.uid(),
        euid()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}
