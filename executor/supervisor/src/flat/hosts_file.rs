//! The `/etc/hosts` of cells where no mount shows it: an open of the machine's file gives the session's, from memory. `stat` by path
//! tells of the machine's.

use crate::answer::SyscallAnswer;
use crate::sealed_memory::{reopened, sealed};
use broker_protocol::Layer;
use executor_layers::hosts_file;
use executor_spec::sandbox::SandboxSpec;
use executor_sys::notify::OnExec;
use nix::Result;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The session's file, and where the machine has its own.
pub(crate) struct HostsFile {
    memory: OwnedFd,
    /// Without links. It may be replaced while the session runs: what is there then is the machine's too.
    real: PathBuf,
}

impl HostsFile {
    /// The file of a session; `None` if it has none, or a mount shows it.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(crate) fn of(spec: &SandboxSpec) -> Result<Option<Self>> {
        let shown = spec.has(Layer::MountNamespace);
        let Some(text) = hosts_file::text(spec).filter(|_| !shown) else {
            return Ok(None);
        };
        let real = fs::canonicalize(hosts_file::PATH);
        Ok(Some(Self {
            memory: sealed(&text)?,
            real: real.unwrap_or_else(|_| hosts_file::PATH.into()),
        }))
    }

    /// Whether this path is the machine's file.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path == self.real || path == Path::new(hosts_file::PATH)
    }

    /// Opens the session's hosts for reading.
    pub(crate) fn open(&self, on_exec: OnExec) -> Result<SyscallAnswer> {
        reopened(&self.memory).map(|file| SyscallAnswer::Descriptor(file, on_exec))
    }

    /// The descriptor that a cell must keep open.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}
