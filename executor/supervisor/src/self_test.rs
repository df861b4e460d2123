//! Tests whether a process of ours can be supervised on this machine.

use crate::caller::memory;
use broker_protocol::Tier;
use executor_layers::seccomp::Supervision;
use executor_layers::{capabilities, seccomp};
use executor_spec::caller_access::{CallerAccess, MemoryAccess, SocketAccess};
use executor_sys::process::{self, Child, Fork};
use executor_sys::spawn::{ChildSetup, SpawnStack};
use executor_sys::{notify, peer};
use nix::sys::prctl;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use policies::Access;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

/// A test in a process of its own, made while the warden of a session gets ready.
pub struct SelfTest(Child);

impl SelfTest {
    /// Begins it.
    ///
    /// # Errors
    /// The fork's.
    pub fn begin(tier: Tier, access: CallerAccess) -> io::Result<Self> {
        match process::fork(0)? {
            Fork::Child => {
                let refusal = supervise_one(tier, access).err();
                let refusal = refusal.map(|error| error.raw_os_error().unwrap_or(libc::EPERM));
                process::exit_now(refusal.unwrap_or(0))
            }
            Fork::Parent(child) => Ok(Self(child)),
        }
    }

    /// Waits for its result.
    ///
    /// # Errors
    /// The operation that was refused.
    pub fn finish(self) -> io::Result<()> {
        match waitpid(Pid::from_raw(self.0.pid), None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// Does once to a process what a supervisor does to its callers, with no more rights than a supervisor has.
fn supervise_one(tier: Tier, access: CallerAccess) -> io::Result<()> {
    prctl::set_no_new_privs()?;
    capabilities::drop_all().map_err(|error| error.source)?;
    prctl::set_dumpable(true)?;
    let supervised = Some(seccomp::supervised(
        tier,
        access.sockets,
        Supervision::Whole,
    ));
    let setup = ChildSetup {
        limits: &[],
        ruleset: None,
        supervised,
    };
    let mut stack = SpawnStack::default();
    let (child, listener) = stack.prepare(&setup)?;
    let word = [0u8; 1];
    // Parent and child have equal memory and descriptors.
    match access.memory {
        MemoryAccess::Calls => peer::read_memory(child.pid(), word.as_ptr() as u64, &mut [0; 1]),
        MemoryAccess::File => {
            memory(child.pid(), Access::Write)?.read_at(&mut [0; 1], word.as_ptr() as u64)
        }
    }?;
    let listener = listener.ok_or(io::ErrorKind::InvalidData)?;
    match access.sockets {
        SocketAccess::Taken => peer::descriptor(child.pid(), listener.as_raw_fd()).map(drop)?,
        SocketAccess::Kept => {}
    }
    // No call is waiting: ENOENT shows that the kernel supports this kind of answer.
    match notify::give_fd(
        listener.as_fd(),
        0,
        listener.as_fd(),
        notify::OnExec::Close,
        notify::Wake::Now,
    ) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        given => given.map(drop),
    }
}
