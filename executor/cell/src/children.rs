//! Reaping children, and finding the processes left of a cell where neither a PID namespace nor a Landlock scope collects them.

use executor_spec::error::{At, SetupError, SetupPart};
use executor_sys::proc;
use executor_sys::process::{self, ChildChange, ChildState};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks: what has been killed needs the processor to end.
const PAUSE: Duration = Duration::from_millis(1);

/// A descriptor that is readable when a child has ended.
pub(crate) fn end_signals() -> Result<SignalFd, SetupError> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    let step = || "signalfd".to_owned();
    set.thread_block().at(SetupPart::Processes, step)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .at(SetupPart::Processes, step)
}

/// Detaches from a program that declared its parent its tracer (`PTRACE_TRACEME`) and whose parent is, or has become, ours: nobody here
/// would resume it. It continues with the signal at which it stopped, except the one that the kernel made only for its tracer.
pub(crate) fn detach(change: &ChildChange) {
    if let ChildState::Stopped(signal) = change.state {
        process::ptrace_detach(change.pid, if signal == libc::SIGTRAP { 0 } else { signal });
    }
}

/// Stops, then kills, every descendant of this process: a stopped process cannot fork away meanwhile.
pub(crate) fn kill_all() {
    kill_trees(proc::children(std::process::id() as i32));
}

/// Reaps the children that end by themselves, until none is left or `until`.
pub(crate) fn end_by_themselves(until: Instant) {
    while reap_all() && Instant::now() < until {
        sleep(PAUSE);
    }
}

/// Kills and reaps every descendant of this process, which is their subreaper; false if some are left at `until`.
///
/// Descendants whose parents have ended become children of this process, so none is left once it has no child.
pub fn end_all(until: Instant) -> bool {
    loop {
        kill_all();
        if !reap_all() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        sleep(PAUSE);
    }
}

/// Reaps the children that have ended; whether others are left.
fn reap_all() -> bool {
    loop {
        match process::reap_any() {
            Ok(Some(change)) => detach(&change),
            Err(Errno::ECHILD) => return false,
            Ok(None) | Err(_) => return true,
        }
    }
}

/// Asks every descendant of this process to end, stopped ones too: each goes on before what it leaves behind is out of reach.
pub(crate) fn terminate_all() {
    let roots = proc::children(std::process::id() as i32);
    signal_trees(roots, &[Signal::SIGTERM, Signal::SIGCONT]);
}

/// Kills the children of this process that are not in `known`, with their descendants.
pub(crate) fn kill_unknown(known: &[i32]) {
    let mut unknown = proc::children(std::process::id() as i32);
    unknown.retain(|pid| !known.contains(pid));
    kill_trees(unknown);
}

/// Children are killed before their parents. If this process is killed meanwhile, the first processes of cells are still there: the
/// kernel resumes them, and they kill what is left.
fn kill_trees(roots: Vec<i32>) {
    signal_trees(roots.clone(), &[Signal::SIGSTOP]);
    for pid in signal_trees(roots, &[]).into_iter().rev() {
        signal_one(pid, Signal::SIGKILL);
    }
}

/// Sends these signals to each of `roots` and to all of its descendants, one process after the other. Returns them, parents before
/// their children.
fn signal_trees(roots: Vec<i32>, signals: &[Signal]) -> Vec<i32> {
    let (mut found, mut next) = (roots, 0);
    while let Some(pid) = found.get(next).copied() {
        found.extend(proc::children(pid));
        signals.iter().for_each(|signal| signal_one(pid, *signal));
        next += 1;
    }
    found
}

fn signal_one(pid: i32, signal: Signal) {
    // A process that has just ended needs no signal: the error is ignored.
    let _ = kill(Pid::from_raw(pid), signal);
}
