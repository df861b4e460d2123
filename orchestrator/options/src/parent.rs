//! The process that started this one. When it ends, so does the session, even if somebody still holds the other end of
//! standard input.
//!
//! A death signal (`PR_SET_PDEATHSIG`) would come when the *thread* ends that started us, which in many runtimes is soon; a
//! descriptor of the process (`pidfd_open`, Linux 5.3) says it of the process, whichever thread it was.

use rustix::process::{PidfdFlags, getppid, pidfd_open};
use std::future::pending;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The process that started this one.
#[derive(Debug)]
pub struct Parent(Option<OwnedFd>);

impl Parent {
    /// The parent as it is now; nobody, where it has ended before, or lies outside this PID namespace, or its end is not to
    /// matter. Called before the filter is in force.
    pub fn now(matters: bool) -> Self {
        let open = |parent| {
            pidfd_open(parent, PidfdFlags::NONBLOCK).or_else(|_| pidfd_open(parent, PidfdFlags::empty()))
        };
        let parent = getppid().filter(|parent| matters && !parent.is_init());
        let opened = parent.and_then(|parent| open(parent).ok());
        // A parent that ended meanwhile may have left its number to another process.
        Self(opened.filter(|_| getppid() == parent))
    }

    /// Waits until it has ended; for ever where there is none. Needs the runtime.
    pub async fn ended(&self) {
        let watched = self.0.as_ref().and_then(|parent| watch(parent.as_fd()).ok());
        match watched {
            // An error is no end.
            Some(watched) if watched.readable().await.is_ok() => {}
            _ => pending().await,
        }
    }
}

/// Deprecated for types whose descriptor may change or close under it; an `OwnedFd` keeps what the successor asks for, which
/// is `unsafe` because a trait cannot ask for it.
#[allow(deprecated)]
fn watch(parent: BorrowedFd<'_>) -> std::io::Result<AsyncFd<BorrowedFd<'_>>> {
    AsyncFd::with_interest(parent, Interest::READABLE)
}
