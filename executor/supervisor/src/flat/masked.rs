//! Files of secrets that commands can read: as they are, or as a text in memory in place of the file.

use crate::answer::SyscallAnswer;
use crate::rules::AccessRules;
use crate::sealed_memory::{reopened, sealed};
use executor_spec::birth_time::born_object;
use executor_spec::readable_secret::{ReadableSecret, SecretView};
use executor_sys::notify::OnExec;
use nix::Result;
use nix::sys::stat::FileStat;
use std::os::fd::OwnedFd;
use std::path::Path;

impl AccessRules {
    /// The secret that this file is, if commands can read it. Where mounts cover masked ones, what a cell finds at the path is the mask.
    pub(crate) fn readable_secret(
        &self,
        object: &OwnedFd,
        real: &Path,
        stat: &FileStat,
    ) -> Option<&ReadableSecret> {
        self.secrets.iter().find(|secret| {
            let covered =
                self.pinned && matches!(secret.seen, SecretView::Masked(_)) && secret.path == real;
            let same = || {
                secret.id == (stat.st_dev, stat.st_ino)
                    && (secret.born.is_none() || secret.born == born_object(object))
            };
            covered || same()
        })
    }

    /// What an open of the secret for reading gives in place of the file, if that is not the file itself.
    pub(crate) fn in_place_of(
        &self,
        secret: &ReadableSecret,
        on_exec: OnExec,
    ) -> Option<Result<SyscallAnswer>> {
        match &secret.seen {
            SecretView::Masked(text) if !self.pinned => {
                let file = sealed(text).and_then(|memory| reopened(&memory));
                Some(file.map(|file| SyscallAnswer::Descriptor(file, on_exec)))
            }
            SecretView::Masked(_) | SecretView::Real => None,
        }
    }
}
