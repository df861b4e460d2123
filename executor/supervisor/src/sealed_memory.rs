//! Files in memory that nobody can change, in place of files of the machine.

use crate::object::{by_descriptor, errno};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

/// A new file with this text.
pub(crate) fn sealed(text: &[u8]) -> Result<OwnedFd> {
    let memory = memfd_create(
        "sealed",
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

/// Opens it for reading, from its beginning.
pub(crate) fn reopened(memory: &OwnedFd) -> Result<OwnedFd> {
    open(
        by_descriptor(memory).as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_text_is_read_from_its_beginning_and_never_changed() {
        let memory = sealed(b"A=x\n").unwrap();
        for _ in 0..2 {
            let mut text = String::new();
            let mut file = File::from(reopened(&memory).unwrap());
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "A=x\n");
        }
        let again = open(
            by_descriptor(&memory).as_str(),
            OFlag::O_RDWR,
            Mode::empty(),
        );
        let written = again
            .map_err(std::io::Error::from)
            .and_then(|file| File::from(file).write_all(b"B"));
        assert!(written.is_err());
    }
}
