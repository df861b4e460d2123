//! Names in transit: the name that a program gives a file before renaming it to a protected name. A descriptor of `.git/config.lock`, taken
//! while the user's git writes it, is one of `.git/config` a moment later. The forms are the policy's data (`[[transit]]`).

use crate::rules::AccessRules;
use policies_guard::{Protection, Rule, TransitTarget, Verdict};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl AccessRules {
    /// The protection of the name for which `real` is in transit, if there is one and `real` is not protected itself.
    pub(crate) fn transit(&self, real: &Path) -> Option<Protection> {
        let protections = self
            .targets(real)
            .into_iter()
            .map(|(protection, _)| protection);
        protections
            .max()
            .filter(|_| self.protection(real).is_none())
    }

    /// May a name in transit be created here? Not if its final name is the host's: the host's
    /// program renames by path, and would not know what it renames.
    pub(crate) fn may_set_out(&self, real: &Path) -> Verdict {
        let theirs = |(_, target): &(Protection, PathBuf)| {
            target.symlink_metadata().is_ok() && !self.created.has_at(target)
        };
        let closed = self.targets(real).iter().any(theirs) && self.protection(real).is_none();
        Verdict::refuse_if(closed, Rule::Transit)
    }

    /// May a file in transit be changed, linked or moved? Only one that this session has created: any other is on its way from the host.
    pub(crate) fn may_divert(&self, real: &Path, object: impl AsFd) -> Verdict {
        let theirs = self.transit(real).is_some() && !self.created.has(object);
        Verdict::refuse_if(theirs, Rule::Transit)
    }

    /// The protected names for which `real` may be in transit.
    fn targets(&self, real: &Path) -> Vec<(Protection, PathBuf)> {
        let mut targets = Vec::new();
        for (named, path) in self.protected_as(real) {
            for TransitTarget { name, path } in self.names(real).transit(&path) {
                let last = Path::new(OsStr::from_bytes(&path)).file_name();
                targets.extend(last.map(|last| (name.protection, named.with_file_name(last))));
            }
        }
        targets
    }
}
