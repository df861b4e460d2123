//! Layer `descriptors`: a process has only the descriptors that are meant for it.
//!
//! *Guarantees*: what the executor was started with (sockets of a desktop, files of a terminal) reaches no cell; a cell
//! has 0, 1, 2 and no others. *Does not*: determine what those three are connected to. *Needs*: Linux 5.9
//! (`close_range`). *Order*: first in the executor, in the warden and in each cell, and again just before `execve`.
//! *Fails*: the program exits. *Tested by*: `other_processes_are_out_of_reach`, corpus `FD-*`.

use broker_protocol::Layer;
use executor_spec::error::{At, SetupError};
use executor_sys::fd;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Closes all descriptors except 0, 1, 2 and `kept`; `foreign` are the numbers that a test build keeps open.
///
/// The caller may continue only with what it kept: values that own other descriptors must not be dropped afterwards.
///
/// # Errors
/// The kernel's.
pub fn keep_only(kept: &[BorrowedFd], foreign: &[u32]) -> Result<(), SetupError> {
    let kept = kept.iter().map(|fd| fd.as_raw_fd() as u32);
    let mut numbers: Vec<u32> = kept.chain(foreign.iter().copied()).collect();
    numbers.sort_unstable();
    let mut next = 3;
    for number in numbers {
        if number > next {
            fd::close_range(next, number - 1).at(Layer::Descriptors, || "close_range".into())?;
        }
        next = next.max(number + 1);
    }
    fd::close_range(next, u32::MAX).at(Layer::Descriptors, || "close_range".into())
}

/// Redirects descriptors 0 to `last` to `/dev/null`.
///
/// # Errors
/// The kernel's.
pub fn null_stdio(last: i32) -> Result<(), SetupError> {
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .at(Layer::Descriptors, || "open /dev/null".into())?;
    for target in 0..=last {
        fd::install(null.as_fd(), target).at(Layer::Descriptors, || "dup2".into())?;
    }
    Ok(())
}
