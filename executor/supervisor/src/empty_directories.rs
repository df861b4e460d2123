//! Directories with protected names that a call has made on the way to files that it could not make: `tar` and `git checkout` go
//! on without those. An empty one may be in the way of a program of the user, so it goes when the call is over.

use crate::find::Found;
use crate::object::errno;
use nix::Result;
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Most of them in one call, of which each keeps a descriptor; the next is not made. Packages of npm bring a few in a hundred.
const EMPTY_MAX: usize = 512;

/// Each by its parent directory and name, in the order in which they were made.
#[derive(Default)]
pub struct EmptyDirectories(RefCell<Vec<(OwnedFd, OsString)>>);

impl EmptyDirectories {
    /// Adds one that is about to be made.
    pub fn add(&self, found: &Found) -> Result<()> {
        let mut all = self.0.borrow_mut();
        if all.len() >= EMPTY_MAX {
            return Err(Errno::EACCES);
        }
        let parent = found.parent.try_clone().map_err(errno)?;
        all.push((parent, OsStr::from_bytes(&found.name).to_owned()));
        Ok(())
    }

    /// Removes those that are still empty.
    pub fn remove(&self) {
        for (parent, name) in self.0.take().into_iter().rev() {
            // What is gone needs no removal, and what holds something that the session may have stays.
            let _ = unlinkat(&parent, name.as_os_str(), UnlinkatFlags::RemoveDir);
        }
    }
}
