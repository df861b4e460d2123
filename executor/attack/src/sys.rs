//! Every `unsafe` block of this program: the system calls that attack, each as a thin function whose error is the kernel's.

use libc::{c_int, c_long};
use nix::unistd::{ForkResult, Pid};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(crate) enum Fork {
    Child,
    Parent(Pid),
}

pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: this program has one thread, so no lock is held by a thread that the copy lacks.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => Ok(Fork::Child),
        ForkResult::Parent { child } => Ok(Fork::Parent(child)),
    }
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn close(fd: c_long) {
    // SAFETY: the caller has just got this descriptor from the kernel, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
}

/// Makes standard input and output copies of `fd`.
pub(crate) fn redirect(fd: BorrowedFd) -> io::Result<()> {
    (0..2).try_for_each(|target| {
        // SAFETY: no value of this program owns one of these.
        check(unsafe { libc::dup2(fd.as_raw_fd(), target) }.into()).map(drop)
    })
}

/// Makes a socket, and closes it again.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into()).map(close)
}

/// Whether a descriptor is open.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: asks about a number; nothing is closed or changed.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Lets any process of this user trace this one, if the security module Yama requires that.
pub(crate) fn allow_tracers() {
    // SAFETY: takes numbers only. Without Yama it fails, and is not needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Traces a process, reads a word of its memory, and detaches.
pub(crate) fn peek(pid: c_int, address: u64) -> io::Result<c_long> {
    // SAFETY: PTRACE_ATTACH and PTRACE_DETACH take no memory of ours, PTRACE_PEEKDATA an address in the other process;
    // its result is a word and not an error when errno stays 0. No status is asked for.
    unsafe {
        check(libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0))?;
        check(libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL).into())?;
        *libc::__errno_location() = 0;
        let word = libc::ptrace(libc::PTRACE_PEEKDATA, pid, address, 0);
        let error = io::Error::last_os_error();
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
        if error.raw_os_error() == Some(0) {
            Ok(word)
        } else {
            Err(error)
        }
    }
}

/// Creates a child in a new user namespace, by the call whose flags a filter cannot see. It exits at once.
pub(crate) fn clone3_user_namespace() -> io::Result<()> {
    // `struct clone_args` of `linux/sched.h`, first version: flags, pidfd, child_tid, parent_tid, exit_signal, stack,
    // stack_size, tls.
    let arguments = [
        libc::CLONE_NEWUSER as u64,
        0,
        0,
        0,
        libc::SIGCHLD as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the arguments are given with their size and live for the call; without CLONE_VM this is a fork. The child
    // has nothing to clean up; of its end no status is asked for.
    unsafe {
        let pid = check(libc::syscall(
            libc::SYS_clone3,
            arguments.as_ptr(),
            size_of_val(&arguments),
        ))?;
        if pid == 0 {
            libc::_exit(0);
        }
        check(libc::waitpid(pid as c_int, std::ptr::null_mut(), 0).into()).map(drop)
    }
}

pub(crate) fn io_uring() -> io::Result<()> {
    // `struct io_uring_params` is 120 bytes, which the kernel fills.
    let mut parameters = [0u64; 15];
    // SAFETY: the parameters have the size of the structure and live for the call.
    check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) }).map(close)
}

/// Makes a BPF map: an array of one entry.
pub(crate) fn bpf_map() -> io::Result<()> {
    const MAP_CREATE: c_int = 0;
    // Type array, key 4 bytes, value 8 bytes, one entry.
    let attributes: [u32; 4] = [2, 4, 8, 1];
    // SAFETY: the attributes are given with their size and live for the call.
    let map = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_CREATE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    check(map).map(close)
}

/// Adds a key to this process's keyring.
pub(crate) fn add_key() -> io::Result<()> {
    const PROCESS_KEYRING: c_int = -2;
    let (kind, name) = (c"user".as_ptr(), c"lazaret".as_ptr());
    // SAFETY: type and description are C strings, the payload is given with its length; all live for the call.
    let key = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            kind,
            name,
            b"x".as_ptr(),
            1usize,
            PROCESS_KEYRING,
        )
    };
    check(key).map(drop)
}

/// Opens a userfaultfd for faults of user mode.
pub(crate) fn userfaultfd() -> io::Result<()> {
    const USER_MODE_ONLY: c_int = 1;
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY) }).map(close)
}

/// Opens a counter of this process's task clock.
pub(crate) fn perf_event() -> io::Result<()> {
    // `struct perf_event_attr`, first version (64 bytes): type software, config task clock, without kernel and
    // hypervisor.
    let mut attributes = [0u64; 8];
    attributes[0] = 1 | (64 << 32);
    attributes[1] = 1;
    attributes[5] = 1 << 5 | 1 << 6;
    // SAFETY: the attributes say their own size and live for the call.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            0,
            -1,
            -1,
            0usize,
        )
    };
    check(event).map(close)
}

/// Types a letter into a terminal, which becomes the controlling one if it can.
pub(crate) fn push_key(terminal: BorrowedFd) -> io::Result<()> {
    let key = b'x';
    // SAFETY: TIOCSCTTY takes a number, and that it failed is seen by the next call; TIOCSTI reads one byte, which lives
    // for the call.
    unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0);
        check(libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const key).into()).map(drop)
    }
}

/// `getpid` by the x32 ABI: the same entry with bit 30 of the number set.
#[cfg(target_arch = "x86_64")]
pub(crate) fn x32() -> io::Result<()> {
    // SAFETY: `getpid` takes no argument.
    check(unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) }).map(drop)
}

/// `getpid` by the i386 entry, where it has number 20.
#[cfg(target_arch = "x86_64")]
pub(crate) fn int80() -> io::Result<()> {
    let result: i64;
    // SAFETY: `getpid` takes no argument and writes no memory; the kernel keeps all registers but those named.
    unsafe {
        std::arch::asm!(
            "int 0x80", inlateout("rax") 20i64 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if result > 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(-result as i32))
    }
}

/// Other architectures have no second set of numbers.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn x32() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn int80() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}
