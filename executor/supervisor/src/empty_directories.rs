//! Directories with protected names that a call has created for files that it could not create: `tar` and `git checkout` continue
//! without those files. An empty directory could obstruct a program of the user, so it is removed after the call.

use crate::find::FoundName;
use crate::object::errno;
use nix::Result;
use nix::unistd::{UnlinkatFlags, unlinkat};
use policies_guard::{Rule, Verdict};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Maximum number per call, as each keeps a descriptor; further ones are not created. One in a hundred npm packages contains a few.
const EMPTY_MAX: usize = 512;

/// Each as its parent directory and name, in the order in which they were created.
#[derive(Default)]
pub(crate) struct EmptyDirectories(RefCell<Vec<(OwnedFd, OsString)>>);

impl EmptyDirectories {
    /// Adds one that is about to be created.
    pub(crate) fn add(&self, found: &FoundName) -> Result<Verdict> {
        let mut all = self.0.borrow_mut();
        if all.len() >= EMPTY_MAX {
            return Ok(Verdict::Refuse(Rule::EmptyDirectories));
        }
        let parent = found.parent.try_clone().map_err(errno)?;
        all.push((parent, OsStr::from_bytes(&found.name).to_owned()));
        Ok(Verdict::Allow)
    }

    /// Removes those that are still empty.
    pub(crate) fn remove(&self) {
        for (parent, name) in self.0.take().into_iter().rev() {
            // A missing directory needs no removal, and one that contains files the session may have stays.
            let _ = unlinkat(&parent, name.as_os_str(), UnlinkatFlags::RemoveDir);
        }
    }
}
