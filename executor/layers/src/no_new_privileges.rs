//! Layer `no-new-privileges`: set-user-ID programs and file capabilities add nothing, for ever and for all descendants.
//!
//! *Guarantees*: a program that a cell starts has no right that the cell does not have. *Does not*: remove any right.
//! *Needs*: nothing. *Order*: first in the warden and in the file worker; for an ordinary user, Landlock and seccomp
//! require it. *Fails*: the session does not open. *Tested by*: `other_processes_are_out_of_reach`, corpus `NS-*`.

use broker_protocol::{Layer, LayerSet};
use executor_spec::error::{At, SetupError};
use nix::sys::prctl;
use std::io;

/// Proof that the layer is in force in this process, unless it is left out: Landlock and seccomp require it.
#[derive(Clone, Copy)]
pub struct NoNewPrivileges(());

/// Puts it up.
///
/// # Errors
/// The kernel's.
pub fn put_up(layers: LayerSet) -> Result<NoNewPrivileges, SetupError> {
    if layers.has(Layer::NoNewPrivileges) {
        prctl::set_no_new_privs().at(Layer::NoNewPrivileges, || "PR_SET_NO_NEW_PRIVS".into())?;
    }
    Ok(NoNewPrivileges(()))
}

/// Queries whether the layer is in force.
///
/// # Errors
/// The layer is not in force.
pub fn check(layers: LayerSet) -> Result<(), SetupError> {
    let is_on = !layers.has(Layer::NoNewPrivileges) || prctl::get_no_new_privs().unwrap_or(false);
    let error = || io::Error::other("it is not on after it was switched on");
    is_on
        .then_some(())
        .ok_or_else(error)
        .at(Layer::NoNewPrivileges, || "check".into())
}
