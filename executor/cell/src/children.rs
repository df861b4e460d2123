//! What becomes of children, and finding what is left of a cell where neither a PID namespace nor a Landlock scope gathers it.

use broker_protocol::Layer;
use executor_layers::error::{At, LayerError};
use executor_sys::proc;
use executor_sys::process::{self, ChildChange, ChildState};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// A descriptor that is readable when a child has ended.
pub fn end_signals() -> Result<SignalFd, LayerError> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    let step = || "signalfd".to_owned();
    set.thread_block().at(Layer::PidNamespace, step)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).at(Layer::PidNamespace, step)
}

/// Detaches from a program that says that its parent traces it, and whose parent is ours or has become ours: nobody here would
/// let it go on. It goes on with the signal at which it stopped, but for the one that the kernel made only for its tracer.
pub fn detach(change: &ChildChange) {
    if let ChildState::Stopped(signal) = change.state {
        process::ptrace_detach(change.pid, if signal == libc::SIGTRAP { 0 } else { signal });
    }
}

/// Stops, then kills, every descendant of this process: one that is stopped cannot fork away meanwhile.
pub fn kill_all() {
    kill_trees(proc::children(std::process::id() as i32));
}

/// Kills the children of this process that are not `known`, and all below them; returns whether there were any.
pub fn kill_unknown(known: &[i32]) -> bool {
    let mut unknown = proc::children(std::process::id() as i32);
    unknown.retain(|pid| !known.contains(pid));
    let any = !unknown.is_empty();
    kill_trees(unknown);
    any
}

fn kill_trees(roots: Vec<i32>) {
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        let mut left = roots.clone();
        while let Some(pid) = left.pop() {
            left.extend(proc::children(pid));
            // One that has just ended is what is wanted.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}
