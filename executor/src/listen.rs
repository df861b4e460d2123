//! Listening on a socket path, for clients that do not start the executor themselves.

use crate::broker::User;
use crate::sys::{self, Fork};
use interprocess::local_socket::traits::ListenerExt as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Stream, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Serves clients until it is ended.
///
/// # Errors
/// The directory is not private, or the socket cannot be made.
pub fn serve(path: &Path, user: &User) -> io::Result<()> {
    private_directory(path)?;
    let listener =
        ListenerOptions::new().name(path.to_fs_name::<GenericFilePath>()?).mode(0o600).create_sync()?;
    for client in listener.incoming() {
        while waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
        let Stream::UdSocket(client) = client?;
        match sys::fork(0)? {
            Fork::Parent(_) => {}
            Fork::Child => {
                let own = User { variables: user.variables.clone(), home: user.home.clone() };
                crate::serve(OwnedFd::from(client), own)?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The directory of a socket, made if it is missing: its owner is who runs this, and nobody else may enter.
fn private_directory(path: &Path) -> io::Result<()> {
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
