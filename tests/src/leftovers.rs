//! Runs the tests in a child, and fails the run if processes of ours are left when it has ended.
//!
//! This process is the subreaper of everything that the tests start, so what it finds was started by this run and by no other that
//! runs beside it.

use crate::process::{Process, below, figure, until};
use crate::sys;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};
use std::process::ExitCode;
use std::time::Duration;

/// How long sessions that the last tests have ended may take to end, in seconds, where [`PATIENCE`] says nothing else.
const PATIENCE_S: u64 = 60;
/// For a run that a test expects to fail: it waits for nothing else.
pub const PATIENCE: &str = "LAZARET_LEFTOVERS_S";

/// Runs `tests`, waits for its end, and looks at what is left. To be called while this process has one thread.
pub fn watch(tests: impl FnOnce() -> ExitCode) -> ExitCode {
    prctl::set_child_subreaper(true).expect("any process can be a subreaper");
    match fork() {
        // What the tests let go becomes a child of this process. An approver is one, and must not be started by whom its client was.
        ForkResult::Child => match fork() {
            ForkResult::Child => tests(),
            ForkResult::Parent { child } => ExitCode::from(end_of(child)),
        },
        ForkResult::Parent { child } => {
            let code = end_of(child);
            let left = left();
            for process in &left {
                eprintln!("left running at the end of the run: {process:?}");
                process.kill();
            }
            if left.is_empty() {
                ExitCode::from(code)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Starts one more process, which ends with this one: whoever kills the run means the tests.
fn fork() -> ForkResult {
    let forked = sys::fork().expect("one more process can be started");
    if let ForkResult::Child = forked {
        let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    }
    forked
}

/// Reaps until `tests` has ended; returns its exit code, as a shell would say it.
fn end_of(tests: Pid) -> u8 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == tests => return code as u8,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == tests => return 128 + signal as u8,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => panic!("the tests are a child of this process: {errno}"),
        }
    }
}

fn left() -> Vec<Process> {
    let ours = || {
        while matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
        ) {}
        let mut left = below(std::process::id() as i32);
        left.retain(is_ours);
        left
    };
    let given = std::env::var(PATIENCE).ok();
    let patience = given.and_then(|given| given.parse().ok());
    let patience = Duration::from_secs(patience.unwrap_or(PATIENCE_S));
    until(patience, || ours().is_empty());
    ours()
}

/// Whether it is a program of ours, or runs behind more filters than this process, as everything in a cell does. Servers that programs
/// of the machine start for their user (`gpg-agent`) are neither.
fn is_ours(process: &Process) -> bool {
    let filters = |pid| figure(pid, "status", "Seccomp_filters");
    process.name.starts_with("lazaret") || filters(process.pid) > filters(std::process::id() as i32)
}
