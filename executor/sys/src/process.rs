//! Processes: fork, signals, waiting, namespaces, and calls on this process itself.

use crate::errno::check;
use libc::{c_char, c_int, c_long, c_void};
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The one of the two processes that returns from a fork.
pub enum Fork {
    Child,
    Parent(Child),
}

/// A child process, by its number and by a pidfd, which can never refer to another process.
#[derive(Debug)]
pub struct Child {
    /// The number in the caller's PID namespace.
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// `clone` with flags such as `CLONE_NEW*`: the child is a copy of this process, which must have one thread.
///
/// # Errors
/// The kernel's.
pub fn fork(flags: c_int) -> io::Result<Fork> {
    let mut pidfd: c_int = -1;
    let flags = flags | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child has its own copy of all memory, as after fork(2); this program has one
    // thread, so no lock is held by a thread that the copy lacks. `pidfd` outlives the call. The kernel takes `tls` and
    // `child_tid` in an order that depends on the architecture; both are unused (`man 2 clone`, "C library/kernel
    // differences").
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone,
            flags as u64,
            0usize,
            &raw mut pidfd,
            0usize,
            0usize,
        )
    })?;
    if pid == 0 {
        return Ok(Fork::Child);
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Fork::Parent(Child {
        pid: pid as i32,
        pidfd,
    }))
}

/// Signals for which our processes set a disposition, or whose inherited disposition is intended for them.
const OWN: [c_int; 6] = [
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
];

/// Resets all other signals to their default, for this process and those it starts. The process that started
/// us may ignore some, as Python does with SIGXFSZ, and then a limit would not end a program.
pub fn default_other_signals() {
    // The kernel's `struct sigaction` for SIG_DFL, at its longest. The C library's `signal` refuses two that it uses itself.
    let default = [0_u64; 4];
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !OWN.contains(signal)) {
        // SAFETY: the kernel reads a value that lives until the call returns; no handler is set. It refuses SIGKILL and SIGSTOP.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                0usize,
                8usize,
            )
        };
    }
}

/// Default dispositions and an empty mask: Rust ignores SIGPIPE, and this program blocks SIGCHLD.
pub(crate) fn reset_own_signals() {
    // SAFETY: plain system calls on local values. The dispositions are this process's own (no CLONE_SIGHAND).
    unsafe {
        for signal in OWN {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Sends a signal through a pidfd.
///
/// # Errors
/// `ESRCH` if it has ended; else the kernel's (`pidfd_send_signal`).
pub fn pidfd_signal(pidfd: BorrowedFd, signal: c_int) -> io::Result<()> {
    // SAFETY: no siginfo is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            0usize,
            0,
        )
    })
    .map(drop)
}

/// Lets the kernel resume this process when its parent dies, if it is stopped then: who has stopped it may be gone too, and a
/// stopped process does not see that its sockets have closed. For a process that has to kill what it started, so that SIGKILL is no
/// choice.
///
/// # Errors
/// The kernel's.
pub fn resume_with_parents_death() -> nix::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGCONT)
}

/// Sends `signal` to all processes that this one may signal, except itself and PID 1.
///
/// # Errors
/// `ESRCH` if there is none.
pub fn kill_all(signal: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::kill(-1, signal) }.into()).map(drop)
}

/// A change of a child's state.
pub struct ChildChange {
    /// The number of the child.
    pub pid: i32,
    pub state: ChildState,
    /// Its resource usage, including the children it has waited for.
    pub used: CpuAndMemory,
}

/// A child's new state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ChildState {
    /// Exited with this code.
    Exited(c_int),
    /// Killed by this signal.
    Killed(c_int),
    /// Stopped by this signal, because it has asked to be traced.
    Stopped(c_int),
}

/// The resources that processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAndMemory {
    /// Microseconds of CPU in user mode.
    pub user_us: u64,
    /// Microseconds of CPU in kernel mode.
    pub system_us: u64,
    /// Largest resident memory of one of them, in KiB.
    pub peak_kib: u64,
}

/// Waits for the next state change of any child.
///
/// # Errors
/// `ECHILD` if there is no child.
pub fn wait_any() -> nix::Result<Option<ChildChange>> {
    next_change(0)
}

/// The same without waiting; `None` if there is none yet.
///
/// # Errors
/// `ECHILD` if there is no child.
pub fn reap_any() -> nix::Result<Option<ChildChange>> {
    next_change(libc::WNOHANG)
}

/// Not with nix, whose signals are an enumeration that lacks real-time signals.
fn next_change(flags: c_int) -> nix::Result<Option<ChildChange>> {
    let mut status = 0;
    // SAFETY: status and usage live for the call; a usage of zeros is valid.
    let (pid, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        (
            Errno::result(libc::wait4(-1, &raw mut status, flags, &raw mut usage))?,
            usage,
        )
    };
    let micros =
        |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    let used = CpuAndMemory {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        peak_kib: usage.ru_maxrss.unsigned_abs(),
    };
    let state = match status {
        status if libc::WIFEXITED(status) => ChildState::Exited(libc::WEXITSTATUS(status)),
        status if libc::WIFSIGNALED(status) => ChildState::Killed(libc::WTERMSIG(status)),
        status => ChildState::Stopped(libc::WSTOPSIG(status)),
    };
    Ok((pid > 0).then_some(ChildChange { pid, state, used }))
}

/// How the kernel schedules this process, and its I/O priority: `struct sched_attr` (`man 2
/// sched_setattr`) and the result of `ioprio_get`.
///
/// # Errors
/// The kernel's (`sched_getattr`).
pub fn scheduling() -> io::Result<([u64; 7], c_long)> {
    const PROCESS: c_int = 1;
    let mut attributes = [0u64; 7];
    // SAFETY: the attributes are given with their size and live for the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
            0,
        )
    })?;
    // SAFETY: takes numbers only.
    let io = unsafe { libc::syscall(libc::SYS_ioprio_get, PROCESS, 0) };
    Ok((attributes, io))
}

/// Detaches from a stopped child that has made this process its tracer: it continues with `signal`, or without one if 0.
pub fn ptrace_detach(pid: i32, signal: c_int) {
    // SAFETY: takes numbers only. One that has died meanwhile is no longer traced.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0usize, signal as usize) };
}

/// Exits without running any handlers: there are no files to flush, and the kernel releases the rest.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: takes a number only and does not return.
    unsafe { libc::_exit(code) }
}

/// Overwrites the initial environment block of this process, which otherwise stays readable in
/// `/proc`. Afterwards the environment is empty.
pub fn wipe_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: the program has one thread and holds no reference into its environment. Each entry is a C string in
    // memory that the kernel made writable for this process.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            libc::memset((*entry).cast(), 0, libc::strlen(*entry));
            entry = entry.add(1);
        }
        environ = std::ptr::null_mut();
    }
}

/// Returns free memory to the kernel, if the C library supports it.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns memory that this process does not need in order to continue: free memory, and the program's code
/// and constants, which the kernel reads again from the file or its cache when they are next used.
pub(crate) fn release_memory() {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    trim_heap();
    let (start, end) = (&raw const __executable_start, &raw const etext);
    let (start, length) = (start.cast_mut().cast::<c_void>(), end.addr() - start.addr());
    // SAFETY: the linker says where the program's file is mapped, and begins it at a page. Up to `etext` nothing is written:
    // each page comes back as it was. A refusal leaves everything as it is.
    unsafe {
        libc::madvise(start, length, libc::MADV_DONTNEED);
    }
}

/// The effective user id.
pub fn euid() -> u32 {
    nix::unistd::geteuid().as_raw()
}
