//! Files of secrets that commands can read: as they are, or as a text in memory in place of the file.

use crate::answer::Answer;
use crate::object::{by_descriptor, errno};
use crate::rules::AccessRules;
use executor_spec::birth_time::born_object;
use executor_spec::readable_secret::{ReadableSecret, Seen};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{FileStat, Mode, fchmod};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
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
                self.pinned && matches!(secret.seen, Seen::Masked(_)) && secret.path == real;
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
        close_on_exec: bool,
    ) -> Option<Result<Answer>> {
        match &secret.seen {
            Seen::Masked(text) if !self.pinned => {
                Some(in_memory(text).map(|file| Answer::Descriptor(file, close_on_exec)))
            }
            Seen::Masked(_) | Seen::Real => None,
        }
    }
}

/// A new file in memory that nobody can change, open for reading.
fn in_memory(text: &[u8]) -> Result<OwnedFd> {
    open(
        by_descriptor(&sealed(text)?).as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// A new file in memory that nobody can change.
pub(crate) fn sealed(text: &[u8]) -> Result<OwnedFd> {
    let memory = memfd_create(
        "masked",
        MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
    )?;
    fchmod(&memory, Mode::from_bits_truncate(0o444))?;
    let mut file = File::from(memory.try_clone().map_err(errno)?);
    file.write_all(text).map_err(|_| Errno::ENOSPC)?;
    let all = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(all))?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_masked_text_is_read_from_its_beginning_and_never_changed() {
        let file = in_memory(b"A=x\n").unwrap();
        let mut text = String::new();
        File::from(file.try_clone().unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "A=x\n");
        let again = open(by_descriptor(&file).as_str(), OFlag::O_RDWR, Mode::empty());
        let written = again
            .map_err(std::io::Error::from)
            .and_then(|file| File::from(file).write_all(b"B"));
        assert!(written.is_err());
    }
}
