//! Connects to an executor that already listens. It trusts the path and the peer only after checking them.

use crate::executor::error::ExecutorError;
use interprocess::local_socket::{GenericFilePath, Stream, prelude::*};
use nix::unistd::{Uid, geteuid};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Connects to the socket at `path`, whose directory must be accessible to us alone.
///
/// # Errors
/// [`ExecutorError::Socket`], which tells the user what to do.
pub fn connect(path: &Path) -> Result<UnixStream, ExecutorError> {
    let refused = |why: String| ExecutorError::Socket {
        path: path.to_owned(),
        why,
    };
    check_directory(path).map_err(refused)?;
    let name = path
        .to_fs_name::<GenericFilePath>()
        .map_err(|error| refused(error.to_string()))?;
    let stream = Stream::connect(name).map_err(|error| {
        refused(format!(
            "{error}; start an executor there with `lazaret-executor listen --socket PATH`"
        ))
    })?;
    check_peer(&stream).map_err(refused)?;
    let Stream::UdSocket(stream) = stream;
    Ok(OwnedFd::from(stream).into())
}

/// A socket's name can be trusted only in a directory that nobody else can enter.
fn check_directory(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err("it has no directory".into()),
    };
    let folder = fs::symlink_metadata(folder).map_err(|error| format!("its directory: {error}"))?;
    if !folder.is_dir() || folder.uid() != geteuid().as_raw() {
        return Err("its directory must belong to you, and not be a symbolic link".into());
    }
    match folder.permissions().mode() & 0o777 {
        0o700 => Ok(()),
        mode => Err(format!(
            "others can enter its directory (mode {mode:o}); make it 700 with chmod"
        )),
    }
}

/// The executor must run as our user or as root.
fn check_peer(stream: &Stream) -> Result<(), String> {
    let peer = stream.peer_creds().map_err(|error| {
        format!("the user of the process that listens there is unknown: {error}")
    })?;
    match peer.euid().map(Uid::from_raw) {
        Some(uid) if uid.is_root() || uid == geteuid() => Ok(()),
        Some(uid) => Err(format!(
            "a process of user {uid} listens there; only you or root may"
        )),
        None => Err("the user of the process that listens there is unknown".into()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::os::unix::fs::DirBuilderExt;
    use std::os::unix::net::UnixListener;

    /// Creates a directory for this test with `mode`.
    fn folder(name: &str, mode: u32) -> std::path::PathBuf {
        let path =
            std::env::temp_dir().join(format!("lazaret-socket-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_socket_in_a_directory_of_ours_is_connected_to() {
        let folder = folder("ours", 0o700);
        let _listener = UnixListener::bind(folder.join("s")).unwrap();
        assert!(connect(&folder.join("s")).is_ok());
        let nobody = connect(&folder.join("t")).unwrap_err().to_string();
        assert!(nobody.contains("lazaret-executor listen"), "{nobody}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_directory_that_others_enter_is_refused() {
        let folder = folder("open", 0o755);
        let _listener = UnixListener::bind(folder.join("s")).unwrap();
        let error = connect(&folder.join("s")).unwrap_err().to_string();
        assert!(error.contains("mode 755"), "{error}");
        let link = folder.with_extension("link");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let error = connect(&link.join("s")).unwrap_err().to_string();
        assert!(error.contains("not be a symbolic link"), "{error}");
        fs::remove_file(link).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
