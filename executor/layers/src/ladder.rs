//! The ladder that applies the layers in order, and the proof that they are in force.

use crate::landlock::{self, Rulesets};
use crate::no_new_privileges::NoNewPrivileges;
use crate::{capabilities, mounts, no_new_privileges, seccomp, self_check};
use broker_protocol::{Layer, LayerSet};
use executor_spec::error::{At, SetupError};
use executor_spec::sandbox::SandboxSpec;
use executor_spec::worker::WorkerSpec;
use executor_sys::confine::seccomp_mode;
use nix::sys::prctl;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Proof that every layer is in force in this process: only [`confine`] makes one. No stranger's program starts without it.
pub struct Confined {
    program_ruleset: Option<OwnedFd>,
}

impl Confined {
    /// The additional ruleset with which the process that becomes a program confines itself, if there is one.
    pub fn program_ruleset(&self) -> Option<BorrowedFd<'_>> {
        self.program_ruleset.as_ref().map(AsFd::as_fd)
    }
}

/// Confines a cell's first process before it waits for its order. The warden has applied what does not depend
/// on the cell: namespaces, mounts, the bounding set, `no_new_privs`, the session's filter.
///
/// # Errors
/// The first layer that cannot be applied, or that the self-check finds missing.
pub fn confine(
    spec: &SandboxSpec,
    rulesets: &Rulesets,
    nnp: NoNewPrivileges,
) -> Result<Confined, SetupError> {
    if spec.has(Layer::MountNamespace) && spec.has(Layer::PidNamespace) {
        mounts::own_proc()?;
        mounts::restrict_commands(spec)?;
    }
    if spec.has(Layer::Capabilities) {
        capabilities::drop_all()?;
    }
    landlock::restrict(&rulesets.first, nnp)?;
    if spec.has(Layer::Seccomp) {
        seccomp::confine_cell(nnp)?;
    }
    check(spec.layers)?;
    // For layers whose state cannot be queried, a sample of forbidden operations is tried.
    self_check::cell(spec)?;
    let program_ruleset = rulesets
        .program
        .as_ref()
        .map(OwnedFd::try_clone)
        .transpose();
    Ok(Confined {
        program_ruleset: program_ruleset.at(Layer::Descriptors, || "keep the ruleset".into())?,
    })
}

/// Confines a file worker before its first request, in the session's namespaces.
///
/// # Errors
/// The first layer that cannot be applied, or that the self-check finds missing.
pub fn confine_worker(spec: &WorkerSpec) -> Result<(), SetupError> {
    let nnp = no_new_privileges::put_up(spec.layers)?;
    prctl::set_dumpable(false).at(Layer::Capabilities, || "PR_SET_DUMPABLE".into())?;
    if spec.layers.has(Layer::Capabilities) {
        capabilities::drop_bounding()?;
        capabilities::drop_all()?;
    }
    landlock::restrict(&landlock::worker_ruleset(spec)?, nnp)?;
    if spec.layers.has(Layer::Seccomp) {
        seccomp::confine_session(spec.tier, nnp)?;
        seccomp::confine_worker(nnp)?;
    }
    self_check::worker(spec.layers)
}

/// Queries the kernel from inside about the layers whose state can be queried.
fn check(layers: LayerSet) -> Result<(), SetupError> {
    no_new_privileges::check(layers)?;
    if layers.has(Layer::Seccomp) && seccomp_mode().ok() != Some(2) {
        let error = io::Error::other("the filter is not on after it was switched on");
        return Err(error).at(Layer::Seccomp, || "check".into());
    }
    if !layers.has(Layer::Capabilities) {
        return Ok(());
    }
    // The warden was not dumpable when it created this process.
    if prctl::get_dumpable().unwrap_or(true) {
        return Err(io::Error::other("this process is dumpable"))
            .at(Layer::Capabilities, || "check".into());
    }
    capabilities::check_none()
}
