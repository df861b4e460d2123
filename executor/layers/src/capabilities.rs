//! Layer `capabilities`: a cell has none, in any of the five sets, and cannot gain one.
//!
//! *Guarantees*: effective, permitted, inheritable and ambient sets are empty, and so is the bounding set
//! where the process may empty it (as root or in its own user namespace; an ordinary user without one has
//! nothing to limit). Started as root, a cell is uid 0 without a single capability. *Does not*: change what
//! uid 0 may do as the owner of files; mounts and Landlock protect those. *Needs*: nothing. *Order*: the
//! bounding set in the warden, the others last before Landlock, after the last mount. *Fails*: the session
//! does not open. *Tested by*: `other_processes_are_out_of_reach`, corpus `NS-*`, `DEV-*`.

use broker_protocol::Layer;
use caps::{CapSet, errors::CapsError};
use executor_spec::error::{At, Privilege, SetupError};
use executor_sys::confine;
use nix::unistd::Uid;
use std::io;

/// Empties the bounding set, as far as this process may.
pub fn drop_bounding() -> Result<(), SetupError> {
    let may =
        caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).map_err(refused);
    if may.at(Layer::Capabilities, || "read the effective set".into())? {
        // The kernel knows how many capabilities there are, and may know more than any list of ours.
        for number in 0..64 {
            match confine::drop_bounding(number) {
                Err(error) if number > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
                dropped => {
                    let step = || "PR_CAPBSET_DROP".into();
                    dropped.at_privileged(Layer::Capabilities, Privilege::Bounding, step)?
                }
            }
        }
    }
    Ok(())
}

/// Empties the other four sets.
pub fn drop_all() -> Result<(), SetupError> {
    for set in [
        CapSet::Ambient,
        CapSet::Effective,
        CapSet::Permitted,
        CapSet::Inheritable,
    ] {
        caps::clear(None, set)
            .map_err(refused)
            .at(Layer::Capabilities, || format!("{set:?} set"))?;
    }
    Ok(())
}

/// Empties all sets in a process of its own user namespace that will create another. If it is root it keeps one capability: without it
/// (`CAP_SETFCAP`, Linux 5.12) the kernel does not let it map root, and it gives no rights over files outside the namespace.
pub fn drop_but_to_map(user: Uid) -> Result<(), SetupError> {
    if !user.is_root() {
        return drop_all();
    }
    let one = [caps::Capability::CAP_SETFCAP].into_iter().collect();
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &one)
            .map_err(refused)
            .at(Layer::Capabilities, || format!("{set:?} set"))?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set)
            .map_err(refused)
            .at(Layer::Capabilities, || format!("{set:?} set"))?;
    }
    Ok(())
}

/// Reads the sets back. The ambient set contains only permitted and inheritable capabilities (`man
/// 7 capabilities`), and must be queried for each one.
pub(crate) fn check_none() -> Result<(), SetupError> {
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        let left = caps::read(None, set)
            .map_err(refused)
            .at(Layer::Capabilities, || format!("read {set:?} set"))?;
        if !left.is_empty() {
            let error = io::Error::other(format!("{left:?} are left"));
            return Err(error).at(Layer::Capabilities, || format!("check {set:?} set"));
        }
    }
    Ok(())
}

fn refused(error: CapsError) -> io::Error {
    io::Error::other(error.to_string())
}
