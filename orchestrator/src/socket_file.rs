//! The file of a socket that we listen on: made for this user alone, and removed when we are gone.

use nix::unistd::Uid;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Binds a socket that only this user can connect to. One that nobody listens on any more is put away.
///
/// # Errors
/// Somebody listens there, others may write in its directory, or those of the file system.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    let metadata = fs::symlink_metadata(path);
    if metadata
        .as_ref()
        .is_ok_and(|metadata| metadata.file_type().is_socket())
    {
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a socket of ours that nobody listens on"
        )]
        fs::remove_file(path)?;
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = fs::metadata(folder)?;
    if folder.uid() != Uid::effective().as_raw() || folder.mode() & 0o022 != 0 {
        let why = "its directory is not ours, or others may write there";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Says on standard output that it knows the socket, waits until nobody is at the other end of standard input, and removes the
/// socket, unless another one is there by then.
///
/// # Errors
/// There is none, or those of the file system.
pub(crate) fn remove_later(path: &Path) -> io::Result<()> {
    // The number alone may be another file's by then; the time of its last change is not.
    let identity = |path| {
        fs::symlink_metadata(path)
            .map(|file| (file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
    };
    let ours = identity(path)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(b"\n").and_then(|()| stdout.flush())?;
    // The bytes mean nothing; only the end of the input does.
    let mut bytes = [0; 64];
    while io::stdin().lock().read(&mut bytes)? > 0 {}
    #[expect(
        clippy::disallowed_methods,
        reason = "the socket of the one that has started us"
    )]
    if identity(path).is_ok_and(|now| now == ours) {
        fs::remove_file(path)
    } else {
        Ok(())
    }
}
