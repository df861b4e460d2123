//! A few forbidden operations, tried from inside by every process that has just confined itself.
//!
//! When a call to enable a layer succeeds, that is only the kernel's word; this is the proof. It takes some
//! microseconds, and a cell spends them before its call arrives. The self-attack tests the layers in full.

use crate::mounts;
use broker_protocol::{Layer, LayerSet, Tier};
use executor_spec::error::{At, SetupError};
use executor_spec::sandbox::{SandboxSpec, ViewKind};
use executor_sys::confine;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, open, openat2};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::getppid;
use std::io;
use std::path::Path;

/// Checks a cell's layers.
///
/// # Errors
/// The first layer that allows a forbidden operation.
pub(crate) fn cell(spec: &SandboxSpec) -> Result<(), SetupError> {
    files(spec)?;
    if spec.has(Layer::Seccomp) {
        calls(spec.tier)?;
    }
    signals(spec)
}

/// Checks the file worker's layers. Its list of system calls allows opening only by `openat2`.
///
/// # Errors
/// The first layer that allows a forbidden operation.
pub(crate) fn worker(layers: LayerSet) -> Result<(), SetupError> {
    if layers.has(Layer::LandlockFiles) {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = openat2(AT_FDCWD, "/", OpenHow::new().flags(flags)).map(drop);
        refused(Layer::LandlockFiles, "list the root", opened, Errno::EACCES)?;
    }
    if layers.has(Layer::Seccomp) {
        let socket = confine::try_socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        refused(Layer::Seccomp, "make a socket", socket, Errno::EPERM)?;
    }
    Ok(())
}

/// Tries what mode and mount would allow, but no rule does: writing a file of the root's own, or listing a directory outside.
fn files(spec: &SandboxSpec) -> Result<(), SetupError> {
    let (path, flags) = match &spec.scratch.host {
        _ if !spec.has(Layer::LandlockFiles) => return Ok(()),
        None => (Path::new(mounts::CHECKED_FILE), OFlag::O_WRONLY),
        // The parent of the private directories: the rules name those, but not this one.
        Some(host) if !is_visible(spec, host) => (host.as_path(), OFlag::O_RDONLY),
        Some(_) => return Ok(()),
    };
    let opened = open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).map(drop);
    refused(
        Layer::LandlockFiles,
        "open a path outside",
        opened,
        Errno::EACCES,
    )
}

fn is_visible(spec: &SandboxSpec, path: &Path) -> bool {
    let views = spec.views.iter().filter(|view| {
        matches!(
            view.kind,
            ViewKind::Zone(_) | ViewKind::Repository(_) | ViewKind::System
        )
    });
    let listed = spec.policy.listed.iter().map(|path| path.as_path());
    views
        .map(|view| view.path.as_path())
        .chain(listed)
        .any(|visible| path.starts_with(visible))
}

/// Tries system calls that every kernel supports and would answer otherwise without the filters: one for each list.
fn calls(tier: Tier) -> Result<(), SetupError> {
    let mptcp = confine::try_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    refused(Layer::Seccomp, "make an MPTCP socket", mptcp, Errno::EPERM)?;
    refused(
        Layer::Seccomp,
        "call clone3",
        confine::try_clone3(),
        Errno::ENOSYS,
    )?;
    if tier == Tier::Flat {
        let datagram = confine::try_socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
        refused(
            Layer::Seccomp,
            "make a datagram socket",
            datagram,
            Errno::EPERM,
        )?;
        // A program's is answered by this process, for which nobody answers.
        let udp = confine::try_socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        refused(Layer::Seccomp, "make a UDP socket", udp, Errno::ENOSYS)?;
    }
    Ok(())
}

/// Tries to signal the warden, which without a PID namespace is visible, and outside the scope.
fn signals(spec: &SandboxSpec) -> Result<(), SetupError> {
    if spec.has(Layer::PidNamespace) || !spec.has(Layer::LandlockScopes) {
        return Ok(());
    }
    refused(
        Layer::LandlockScopes,
        "signal the warden",
        kill(getppid(), None),
        Errno::EPERM,
    )
}

/// Checks that the attempt failed, with the error of this layer.
fn refused(
    layer: Layer,
    what: &str,
    attempt: Result<(), Errno>,
    expected: Errno,
) -> Result<(), SetupError> {
    if attempt == Err(expected) {
        return Ok(());
    }
    let how = attempt.err().map_or("it was let pass".to_owned(), |errno| {
        errno.desc().to_owned()
    });
    Err(io::Error::other(how)).at(layer, || format!("check by trying to {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process has no layer: each check must report its layer.
    #[test]
    fn a_layer_that_is_not_in_force_is_reported() {
        for tier in [Tier::Namespaced, Tier::Flat] {
            assert_eq!(calls(tier).unwrap_err().part, Layer::Seccomp.into());
        }
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), OFlag::O_RDONLY, Mode::empty()).map(drop);
        let error = refused(
            Layer::LandlockFiles,
            "open a path outside",
            opened,
            Errno::EACCES,
        )
        .unwrap_err();
        assert_eq!(error.part, Layer::LandlockFiles.into());
        assert!(error.to_string().contains("it was let pass"), "{error}");
        let signalled = kill(getppid(), None);
        assert!(refused(Layer::LandlockScopes, "signal", signalled, Errno::EPERM).is_err());
    }

    /// Another error is not the layer's refusal.
    #[test]
    fn only_the_layers_own_refusal_counts() {
        let missing = Err(Errno::ENOENT);
        assert!(refused(Layer::LandlockFiles, "open", missing, Errno::EACCES).is_err());
        assert!(
            refused(
                Layer::LandlockFiles,
                "open",
                Err(Errno::EACCES),
                Errno::EACCES
            )
            .is_ok()
        );
    }
}
