//! The paths that one command has, for the cell that is made for it.

use crate::leased::LeaseOrder;
use crate::leases::place::HeldPath;
use broker_protocol::{Refused, Wants};
use executor_layers::protected_objects::ProtectedObjects;
use policies::Access;
use policies::network::LEASE_RULE;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

/// Checks that a call which wants paths has them: a lease may have ended since it was asked about, or lead elsewhere.
///
/// # Errors
/// It lacks one.
pub fn check_own(
    wants: &Wants,
    paths: &[(u64, Rc<HeldPath>)],
    is_shown: impl Fn(&Path) -> bool,
) -> Result<(), Refused> {
    let read = wants.read.iter().map(|path| (Access::Read, path));
    let write = wants.write.iter().map(|path| (Access::Write, path));
    for (access, text) in read.chain(write) {
        let path = Path::new(text);
        let has = paths.iter().any(|(_, held)| held.leased().covers(access, path));
        let shown = access == Access::Read && is_shown(path);
        if !has && !shown {
            let why = format!(
                "{text} is not what was granted any more: something else lies there, or the grant has ended"
            );
            return Err(refused(why));
        }
    }
    Ok(())
}

/// What a cell with these paths is made of; `None` where there are none.
///
/// # Errors
/// The kernel's.
pub fn order(
    paths: &[(u64, Rc<HeldPath>)],
    user_namespace: Option<&OwnedFd>,
) -> io::Result<Option<LeaseOrder>> {
    if paths.is_empty() {
        return Ok(None);
    }
    let opened: Vec<_> = paths.iter().map(|(_, held)| held.opened()).collect();
    let mut objects = ProtectedObjects::default();
    paths.iter().for_each(|(_, held)| objects.extend(held.objects()));
    LeaseOrder::new(user_namespace.map(AsFd::as_fd), &opened, objects).map(Some)
}

/// The refusal of a command whose paths cannot be handed to a cell.
pub fn unusable(error: &io::Error) -> Refused {
    refused(format!("what is granted cannot be given to a cell: {error}"))
}

fn refused(why: String) -> Refused {
    Refused { rule: LEASE_RULE.to_owned(), why, violation: false }
}
