//! The walls of a cell, and the one ladder by which they are put up.
//!
//! Each file is one layer. Its contract is six words: *Guarantees, Does not, Needs* (kernel), *Order, Fails, Tested by*.

pub mod plan;
pub mod probe;
pub mod ablation;
pub mod environment;
pub mod descriptors;
pub mod limits;
pub mod cgroup;
pub mod namespaces;
pub mod mounts;
pub mod protected;
pub mod capabilities;
pub mod landlock;
pub mod seccomp;
pub mod bite;

use broker_protocol::{Layer, LayerSet};
use nix::sys::prctl;
use plan::Walls;
use std::io;
use std::os::fd::OwnedFd;
use thiserror::Error;

/// A layer could not be put up. The session does not open, or the cell does not start: fail closed.
#[derive(Debug, Error)]
#[error("the layer {} cannot be put up: {step}: {source}", .layer.name())]
pub struct LayerError {
    /// Which layer.
    pub layer: Layer,
    /// What was tried, with its object.
    pub step: String,
    /// The kernel's answer.
    pub source: io::Error,
}

/// Names the layer and the step of an error.
pub trait At<T> {
    /// Turns a system error into a [`LayerError`].
    fn at(self, layer: Layer, step: impl FnOnce() -> String) -> Result<T, LayerError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, layer: Layer, step: impl FnOnce() -> String) -> Result<T, LayerError> {
        self.map_err(|error| LayerError { layer, step: step(), source: error.into() })
    }
}

/// `no_new_privs` is on in this process: what Landlock and seccomp ask of an ordinary user, made a value.
#[derive(Clone, Copy)]
pub struct NoNewPrivileges(());

/// Gives up, for ever and for all descendants, what set-user-ID programs and file capabilities could add.
pub fn no_new_privileges(layers: LayerSet) -> Result<NoNewPrivileges, LayerError> {
    if layers.has(Layer::NoNewPrivileges) {
        prctl::set_no_new_privs().at(Layer::NoNewPrivileges, || "PR_SET_NO_NEW_PRIVS".into())?;
    }
    Ok(NoNewPrivileges(()))
}

/// Every layer is on in this process. Nothing runs a stranger's code without one.
pub struct Confined {
    /// What the process that it starts confines itself with besides, if it does.
    pub program: Option<OwnedFd>,
}

/// The ladder: what a cell does to itself before it waits for its order. The warden has done before what does not
/// depend on the cell: namespaces, mounts, the bounding set, `no_new_privs`, the session's filter.
pub fn confine(
    walls: &Walls,
    rulesets: &landlock::Rulesets,
    nnp: NoNewPrivileges,
) -> Result<Confined, LayerError> {
    if walls.has(Layer::MountNamespace) && walls.has(Layer::PidNamespace) {
        mounts::own_proc()?;
        mounts::hold(walls)?;
    }
    if walls.has(Layer::Capabilities) {
        capabilities::drop_all()?;
    }
    landlock::restrict(&rulesets.first, nnp)?;
    if walls.has(Layer::Seccomp) {
        seccomp::confine_cell(nnp)?;
    }
    check(walls.layers)?;
    // Of what cannot be asked, a sample is tried.
    bite::cell(walls)?;
    let program = rulesets.program.as_ref().map(OwnedFd::try_clone).transpose();
    Ok(Confined { program: program.at(Layer::Descriptors, || "keep the ruleset".into())? })
}

/// Looks from inside whether the layers that can be asked are on.
fn check(layers: LayerSet) -> Result<(), LayerError> {
    let missing = |what: &str| io::Error::other(format!("{what} is not on after it was switched on"));
    if layers.has(Layer::NoNewPrivileges) && !prctl::get_no_new_privs().unwrap_or(false) {
        return Err(missing("no_new_privs")).at(Layer::NoNewPrivileges, || "check".into());
    }
    if layers.has(Layer::Seccomp) && crate::sys::seccomp_mode().ok() != Some(2) {
        return Err(missing("the filter")).at(Layer::Seccomp, || "check".into());
    }
    if !layers.has(Layer::Capabilities) {
        return Ok(());
    }
    // The warden was not when it made this process.
    if prctl::get_dumpable().unwrap_or(true) {
        return Err(io::Error::other("this process is dumpable")).at(Layer::Capabilities, || "check".into());
    }
    capabilities::check_none()
}
