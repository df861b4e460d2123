//! The flags of an open.

use broker_protocol::AttemptKind::{self, Read, Write};
use executor_sys::notify::OnExec;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use policies_guard::Access;

/// The flags of an open, as the caller gave them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFlags {
    pub(crate) flags: OFlag,
    pub(crate) mode: Mode,
}

impl OpenFlags {
    pub(crate) fn new(flags: u64, mode: u64) -> Self {
        let flags = OFlag::from_bits_retain(flags as i32);
        Self {
            flags,
            mode: Mode::from_bits_truncate(mode as libc::mode_t),
        }
    }

    pub(crate) fn has(&self, flag: OFlag) -> bool {
        self.flags.contains(flag)
    }

    pub(crate) fn on_exec(&self) -> OnExec {
        OnExec::close_if(self.has(OFlag::O_CLOEXEC))
    }

    pub(crate) fn writes(&self) -> bool {
        self.flags & OFlag::O_ACCMODE != OFlag::O_RDONLY
            || self.has(OFlag::O_TRUNC)
            || self.has(OFlag::O_TMPFILE)
    }

    /// The flags, if they only open an existing file or directory for reading.
    pub(crate) fn only_reads(&self) -> Option<OFlag> {
        const PLAIN: OFlag = OFlag::O_CLOEXEC
            .union(OFlag::O_DIRECTORY)
            .union(OFlag::O_LARGEFILE)
            .union(OFlag::O_NOCTTY)
            .union(OFlag::O_NOFOLLOW)
            .union(OFlag::O_NONBLOCK);
        PLAIN.contains(self.flags).then_some(self.flags)
    }

    /// How much of an existing file's content an open keeps.
    pub(crate) fn kept_bytes(&self) -> u64 {
        if self.has(OFlag::O_TRUNC) {
            0
        } else {
            u64::MAX
        }
    }

    pub(crate) fn access(&self) -> Access {
        match self.writes() {
            true => Access::Write,
            false => Access::Read,
        }
    }

    pub(crate) fn kind(&self) -> AttemptKind {
        if self.writes() { Write } else { Read }
    }

    /// Flags to open an existing file through a link that must be followed. Never makes it our controlling terminal.
    pub(crate) fn reopen(&self) -> OFlag {
        let gone = OFlag::O_CREAT | OFlag::O_NOFOLLOW;
        let excl = if self.has(OFlag::O_TMPFILE) {
            OFlag::empty()
        } else {
            OFlag::O_EXCL
        };
        (self.flags - gone - excl) | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
    }
}
