//! Whether the layers bite: a few forbidden things, tried from inside by every process that has just confined itself.
//!
//! That a call to switch a layer on has succeeded is the kernel's word; this is the proof. It costs some microseconds, and
//! a cell pays them before its call comes. What the layers hold in full is tried by the self-attack (`attack/`).

use super::plan::{ViewKind, Walls};
use super::{At, LayerError, mounts};
use crate::sys;
use broker_protocol::{Layer, Tier};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, open, openat2};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::getppid;
use std::io;
use std::path::Path;

/// Tries a cell's layers.
///
/// # Errors
/// The first layer that does not bite.
pub fn cell(walls: &Walls) -> Result<(), LayerError> {
    files(walls, |path, flags| open(path, flags, Mode::empty()).map(drop))?;
    if walls.has(Layer::Seccomp) {
        calls(walls.tier)?;
    }
    signals(walls)
}

/// Tries the file worker's.
pub fn worker(walls: &Walls) -> Result<(), LayerError> {
    // Its list has the newer call only.
    files(walls, |path, flags| openat2(AT_FDCWD, path, OpenHow::new().flags(flags)).map(drop))?;
    if !walls.has(Layer::Seccomp) {
        return Ok(());
    }
    let socket = sys::try_socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
    refused(Layer::Seccomp, "make a socket", socket, Errno::EPERM)
}

/// What mode and mount would allow, and no rule does: to write a file of the root's own, or to list a directory outside.
fn files(walls: &Walls, open: impl Fn(&Path, OFlag) -> Result<(), Errno>) -> Result<(), LayerError> {
    let (path, flags) = match &walls.scratch.host {
        _ if !walls.has(Layer::LandlockFiles) => return Ok(()),
        None => (Path::new(mounts::OUTSIDE), OFlag::O_WRONLY),
        // It holds the private directories, which the rules name, and is not one.
        Some(host) if !is_seen(walls, host) => (host.as_path(), OFlag::O_RDONLY),
        Some(_) => return Ok(()),
    };
    let opened = open(path, flags | OFlag::O_CLOEXEC);
    refused(Layer::LandlockFiles, "open a path outside", opened, Errno::EACCES)
}

fn is_seen(walls: &Walls, path: &Path) -> bool {
    let views = walls.views.iter().filter(|view| matches!(view.kind, ViewKind::Zone(_) | ViewKind::System));
    let listed = walls.policy.listed.iter().map(|path| path.as_path());
    views.map(|view| view.path.as_path()).chain(listed).any(|seen| path.starts_with(seen))
}

/// Calls that every kernel knows and answers otherwise without the lists: each list has one of its own.
fn calls(tier: Tier) -> Result<(), LayerError> {
    let mptcp = sys::try_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    refused(Layer::Seccomp, "make an MPTCP socket", mptcp, Errno::EPERM)?;
    refused(Layer::Seccomp, "call clone3", sys::try_clone3(), Errno::ENOSYS)?;
    if tier == Tier::Flat {
        let datagram = sys::try_socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
        refused(Layer::Seccomp, "make a datagram socket", datagram, Errno::EPERM)?;
    }
    Ok(())
}

/// Without a PID namespace the warden is there to be signalled, and outside.
fn signals(walls: &Walls) -> Result<(), LayerError> {
    if walls.has(Layer::PidNamespace) || !walls.has(Layer::LandlockScopes) {
        return Ok(());
    }
    refused(Layer::LandlockScopes, "signal the warden", kill(getppid(), None), Errno::EPERM)
}

/// The attempt must have failed, and in the way of the layer.
fn refused(layer: Layer, what: &str, attempt: Result<(), Errno>, expected: Errno) -> Result<(), LayerError> {
    if attempt == Err(expected) {
        return Ok(());
    }
    let how = attempt.err().map_or("it was let pass".to_owned(), |errno| errno.desc().to_owned());
    Err(io::Error::other(how)).at(layer, || format!("check by trying to {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process has no layer: each check must say so, with its layer.
    #[test]
    fn a_layer_that_is_not_there_is_missed() {
        for tier in [Tier::Namespaced, Tier::Flat] {
            assert_eq!(calls(tier).unwrap_err().layer, Layer::Seccomp);
        }
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), OFlag::O_RDONLY, Mode::empty()).map(drop);
        let error = refused(Layer::LandlockFiles, "open a path outside", opened, Errno::EACCES).unwrap_err();
        assert_eq!(error.layer, Layer::LandlockFiles);
        assert!(error.to_string().contains("it was let pass"), "{error}");
        let signalled = kill(getppid(), None);
        assert!(refused(Layer::LandlockScopes, "signal", signalled, Errno::EPERM).is_err());
    }

    /// A refusal of another kind is not the layer's.
    #[test]
    fn only_the_layers_own_refusal_counts() {
        let missing = Err(Errno::ENOENT);
        assert!(refused(Layer::LandlockFiles, "open", missing, Errno::EACCES).is_err());
        assert!(refused(Layer::LandlockFiles, "open", Err(Errno::EACCES), Errno::EACCES).is_ok());
    }
}
