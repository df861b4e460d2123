//! Runs a command and traces every system call of it and of all its descendants.

use crate::calls::{self, PathArgument};
use crate::process::{self, SystemCall};
use crate::report::{Gap, Met, TraceReport};
use libc::{EACCES, EBUSY, EDQUOT, ENOENT, ENOSPC, ENOTDIR, EPERM, EROFS};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// The state of a process.
#[derive(Clone, Copy)]
enum Doing {
    /// It has stopped for the first time, or will: nothing is known of it.
    New,
    /// It runs its own code.
    Running,
    /// It is in this call.
    Calling(SystemCall),
}

struct Tracer {
    processes: HashMap<Pid, Doing>,
    report: TraceReport<File>,
}

/// Maximum bytes of a key.
const KEY_MAX: u64 = 64;

/// Runs `command`; returns its exit code in a shell's form. The key of the report is read from
/// standard input, before any process exists that could see it.
///
/// # Errors
/// The command cannot be traced, or the report cannot be written.
pub(crate) fn run(command: &[OsString]) -> io::Result<u8> {
    let mut key = String::new();
    io::stdin().take(KEY_MAX).read_to_string(&mut key)?;
    let report = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let output = || io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
    let own = std::env::current_exe()?;
    let mut child = Command::new(own);
    child
        .arg("traced")
        .args(command)
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?);
    let child = child.spawn()?;
    let main = Pid::from_raw(child.id().cast_signed());
    match waitpid(main, None)? {
        WaitStatus::Stopped(..) => {}
        WaitStatus::Exited(_, code) => return Ok(code as u8),
        _ => return Err(io::Error::other("the command ended before it was traced")),
    }
    let all = Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(main, all)?;
    ptrace::syscall(main, None)?;
    let processes = HashMap::from([(main, Doing::Running)]);
    let mut tracer = Tracer {
        processes,
        report: TraceReport::new(report, key),
    };
    let code = tracer.follow(main)?;
    tracer.report.end()?;
    Ok(code)
}

impl Tracer {
    /// Traces all processes until `main` has ended.
    fn follow(&mut self, main: Pid) -> io::Result<u8> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Err(Errno::EINTR) => continue,
                status => status?,
            };
            match status {
                WaitStatus::Exited(pid, code) if pid == main => return Ok(code as u8),
                WaitStatus::Signaled(pid, signal, _) if pid == main => {
                    return Ok(128 + signal as u8);
                }
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                    self.processes.remove(&pid);
                }
                WaitStatus::PtraceSyscall(pid) => {
                    self.at_call(pid)?;
                    go_on(pid, None)?;
                }
                WaitStatus::PtraceEvent(pid, ..) => go_on(pid, None)?,
                WaitStatus::Stopped(pid, signal) => {
                    let signal = self.delivered(pid, signal);
                    go_on(pid, signal)?;
                }
                WaitStatus::Continued(_) | WaitStatus::StillAlive => {}
            }
        }
    }

    /// The signal to deliver to a stopped process. That of its first stop is the kernel's, and a
    /// group stop must not be kept: nobody would continue the process.
    fn delivered(&mut self, pid: Pid, signal: Signal) -> Option<Signal> {
        let doing = self.processes.entry(pid).or_insert(Doing::New);
        if let (Doing::New, Signal::SIGSTOP) = (&doing, signal) {
            *doing = Doing::Running;
            return None;
        }
        let is_group_stop = ptrace::getsiginfo(pid) == Err(Errno::EINVAL);
        (!is_group_stop).then_some(signal)
    }

    fn at_call(&mut self, pid: Pid) -> io::Result<()> {
        let Ok(call) = SystemCall::of(pid) else {
            // It was killed in the meantime.
            return Ok(());
        };
        let doing = self.processes.entry(pid).or_insert(Doing::Running);
        match *doing {
            Doing::Calling(begun) => {
                *doing = Doing::Running;
                self.ended(
                    pid,
                    SystemCall {
                        result: call.result,
                        ..begun
                    },
                )
            }
            Doing::New | Doing::Running => {
                // A new process ends a call that it never began.
                if call.may_begin() {
                    *doing = Doing::Calling(call);
                }
                Ok(())
            }
        }
    }

    /// A call has ended: notes the failure, if it failed.
    fn ended(&mut self, pid: Pid, call: SystemCall) -> io::Result<()> {
        if calls::leaves_the_trace(&call) && call.error().is_none() {
            self.report.miss(Gap::Untraced);
        }
        let Some(error) = call.error() else {
            return Ok(());
        };
        match error {
            ENOSPC | EDQUOT => self.report.miss(Gap::Full),
            EPERM if calls::traces(&call) => self.report.miss(Gap::Untraced),
            // A protected name that is there cannot be removed: `EBUSY`.
            EPERM | ENOENT | ENOTDIR | EACCES | EROFS | EBUSY => {}
            _ => return Ok(()),
        }
        for path in calls::paths(&call) {
            self.note_path(pid, &call, path)?;
        }
        if error == EPERM {
            let (number, name) = (call.number as u32, calls::name(call.number));
            self.report.note(Met::Call {
                name,
                number,
                arguments: call.arguments,
            })?;
        }
        Ok(())
    }

    fn note_path(&mut self, pid: Pid, call: &SystemCall, argument: PathArgument) -> io::Result<()> {
        let PathArgument {
            directory,
            path,
            kind,
        } = argument;
        let directory = directory.map_or(libc::AT_FDCWD, |at| call.arguments[at] as i32);
        let text = process::string(pid, call.arguments[path]);
        // The path is the descriptor's, or missing.
        if text.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(());
        }
        let Ok(path) = text.and_then(|text| process::absolute(pid, directory, &text)) else {
            self.report.miss(Gap::Unread);
            return Ok(());
        };
        match String::from_utf8(path) {
            Ok(path) => self.report.note(Met::Path { kind, path }),
            Err(_) => {
                self.report.miss(Gap::Unnamed);
                Ok(())
            }
        }
    }
}

/// Continues a process until its next stop. If it is gone, waiting for it reports that.
fn go_on(pid: Pid, signal: Option<Signal>) -> io::Result<()> {
    match ptrace::syscall(pid, signal) {
        Err(Errno::ESRCH) => Ok(()),
        done => Ok(done?),
    }
}
