//! The process that started this one. When it ends, so does the session, even if another process still holds the other end of
//! standard input.
//!
//! A death signal (`PR_SET_PDEATHSIG`) is sent when the *thread* that started us ends, which in many runtimes is soon. A descriptor
//! of the process (`pidfd_open`, Linux 5.3) reports the end of the whole process.

use rustix::process::{PidfdFlags, getppid, pidfd_open};
use std::future::pending;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The process that started this one.
#[derive(Debug)]
pub struct Parent(Option<OwnedFd>);

impl Parent {
    /// No parent, for a process that outlives its own.
    pub fn ignored() -> Self {
        Self(None)
    }

    /// The current parent; none if it has already ended or lies outside this PID namespace. Must be called before the filter is in
    /// force.
    pub fn now() -> Self {
        let open = |parent| {
            pidfd_open(parent, PidfdFlags::NONBLOCK)
                .or_else(|_| pidfd_open(parent, PidfdFlags::empty()))
        };
        let parent = getppid().filter(|parent| !parent.is_init());
        let opened = parent.and_then(|parent| open(parent).ok());
        // If the parent ended meanwhile, its process ID may belong to another process.
        Self(opened.filter(|_| getppid() == parent))
    }

    /// Waits until the parent has ended; for ever if there is none. Needs the runtime.
    pub async fn ended(&self) {
        let watched = self
            .0
            .as_ref()
            .and_then(|parent| watch(parent.as_fd()).ok());
        match watched {
            // An error does not mean that it ended.
            Some(watched) if watched.readable().await.is_ok() => {}
            _ => pending().await,
        }
    }
}

/// Deprecated for types whose descriptor may change or close while watched. An `OwnedFd` never does; the successor requires that as
/// an `unsafe` promise, because a trait cannot check it.
#[allow(deprecated)]
fn watch(parent: BorrowedFd<'_>) -> std::io::Result<AsyncFd<BorrowedFd<'_>>> {
    AsyncFd::with_interest(parent, Interest::READABLE)
}
