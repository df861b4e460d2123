//! Layer `capabilities`: a cell has none, in any of the five sets, and cannot come to have one.
//!
//! *Guarantees*: effective, permitted, inheritable and ambient sets are empty, and the bounding set too where the
//! process may empty it (as root or in its own user namespace; an ordinary user without one has nothing that it could
//! bound). Started as root, a cell is uid 0 without a single capability. *Does not*: change what uid 0 may do as the
//! owner of files; mounts and Landlock stand in front of those. *Needs*: nothing. *Order*: the bounding set in the
//! warden, the others last before Landlock, after the last mount. *Fails*: the session does not open. *Tested by*:
//! `other_processes_are_out_of_reach`, corpus `NS-*`, `DEV-*`.

use crate::error::{At, LayerError, Privilege};
use broker_protocol::Layer;
use caps::{CapSet, errors::CapsError};
use executor_sys::confine;
use std::io;

/// Empties the bounding set, as far as this process may.
pub fn drop_bounding() -> Result<(), LayerError> {
    let may = caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).map_err(refused);
    if may.at(Layer::Capabilities, || "read the effective set".into())? {
        // The kernel knows how many there are, and may know more than any list.
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
pub fn drop_all() -> Result<(), LayerError> {
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).map_err(refused).at(Layer::Capabilities, || format!("{set:?} set"))?;
    }
    Ok(())
}

/// Empties them in a process of a user namespace of its own that makes another. Where it is root, it keeps one: the kernel lets nobody
/// map root without it (`CAP_SETFCAP`, Linux 5.12), and over files outside the namespace it gives nothing.
pub fn drop_but_to_map(is_root: bool) -> Result<(), LayerError> {
    if !is_root {
        return drop_all();
    }
    let one = [caps::Capability::CAP_SETFCAP].into_iter().collect();
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &one).map_err(refused).at(Layer::Capabilities, || format!("{set:?} set"))?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(refused).at(Layer::Capabilities, || format!("{set:?} set"))?;
    }
    Ok(())
}

/// Reads the sets back. The ambient set holds nothing that is not permitted and inheritable (`man 7 capabilities`), and
/// has to be asked for each capability by itself.
pub fn check_none() -> Result<(), LayerError> {
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        let left =
            caps::read(None, set).map_err(refused).at(Layer::Capabilities, || format!("read {set:?} set"))?;
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
