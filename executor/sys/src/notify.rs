//! Supervised calls (`man 2 seccomp_unotify`): answers the calls that a filter stops. Only calls about which nothing is decided continue.

use crate::errno::check;
use libc::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    pub id: u64,
    /// The thread that made it.
    pub thread: i32,
    /// The number of the system call.
    pub call: c_long,
    /// The arguments, as they were in registers.
    pub arguments: [u64; 6],
}

/// Asks the kernel to run the caller next when its call is answered, if it can (Linux 6.6).
pub fn prefer_caller(listener: BorrowedFd) {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: takes a number.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SYNC_WAKE_UP,
        )
    };
}

/// Takes the next call. The listener must be readable.
///
/// # Errors
/// `ENOENT` if its caller has died in the meantime.
pub fn next(listener: BorrowedFd) -> io::Result<Notification> {
    // SAFETY: a seccomp_notif of zeros is valid, and the kernel wants it so; it lives for the call.
    let notif = unsafe {
        let mut notif = std::mem::zeroed::<libc::seccomp_notif>();
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        check(libc::ioctl(listener.as_raw_fd(), request, &raw mut notif).into())?;
        notif
    };
    let (thread, call) = (notif.pid as i32, notif.data.nr.into());
    Ok(Notification {
        id: notif.id,
        thread,
        call,
        arguments: notif.data.args,
    })
}

/// Whether a call is still waiting: then what was read of its caller before was really the caller's.
pub fn is_valid(listener: BorrowedFd, id: u64) -> bool {
    // SAFETY: the number lives for the call.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        ) == 0
    }
}

/// Answers a call with a value, or with an error number.
///
/// # Errors
/// `ENOENT` if its caller is gone.
pub fn answer(listener: BorrowedFd, id: u64, answer: Result<i64, c_int>) -> io::Result<()> {
    let (val, error) = answer.map_or_else(|errno| (0, -errno), |value| (value, 0));
    send(
        listener,
        libc::seccomp_notif_resp {
            id,
            val,
            error,
            flags: 0,
        },
    )
}

/// Lets a call continue, with whatever its arguments point to by then: only for calls about which nothing is decided here.
///
/// # Errors
/// `ENOENT` if its caller is gone.
pub fn go_on(listener: BorrowedFd, id: u64) -> io::Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    send(
        listener,
        libc::seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags,
        },
    )
}

fn send(listener: BorrowedFd, response: libc::seccomp_notif_resp) -> io::Result<()> {
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: the structure lives for the call.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const response) }.into())
        .map(drop)
}

/// When the caller of a call continues after receiving a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Together with the descriptor (Linux 5.14).
    Now,
    /// When the call is answered, which the user of this function must do.
    Later,
}

/// Whether a descriptor stays open when its process becomes another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExec {
    Close,
    Keep,
}

impl OnExec {
    pub fn close_if(closes: bool) -> Self {
        match closes {
            true => Self::Close,
            false => Self::Keep,
        }
    }
}

/// Puts a copy of `fd` in place of the caller's descriptor `number`, which is closed. The call must still be answered.
///
/// # Errors
/// `ENOENT` if its caller is gone.
pub fn replace_fd(
    listener: BorrowedFd,
    id: u64,
    fd: BorrowedFd,
    number: u32,
    on_exec: OnExec,
) -> io::Result<()> {
    const FLAG_SETFD: u32 = 1;
    add(listener, id, fd, on_exec, (FLAG_SETFD, number)).map(drop)
}

/// Adds a copy of `fd` to the caller's descriptors; returns its number there.
///
/// # Errors
/// `ENOENT` if its caller is gone, `EMFILE` if it has too many.
pub fn give_fd(
    listener: BorrowedFd,
    id: u64,
    fd: BorrowedFd,
    on_exec: OnExec,
    wake: Wake,
) -> io::Result<i64> {
    const FLAG_SEND: u32 = 2;
    add(
        listener,
        id,
        fd,
        on_exec,
        (if wake == Wake::Now { FLAG_SEND } else { 0 }, 0),
    )
}

fn add(
    listener: BorrowedFd,
    id: u64,
    fd: BorrowedFd,
    on_exec: OnExec,
    (flags, number): (u32, u32),
) -> io::Result<i64> {
    let answer = libc::seccomp_notif_addfd {
        id,
        flags,
        srcfd: fd.as_raw_fd() as u32,
        newfd: number,
        newfd_flags: match on_exec {
            OnExec::Close => libc::O_CLOEXEC as u32,
            OnExec::Keep => 0,
        },
    };
    let request = libc::SECCOMP_IOCTL_NOTIF_ADDFD;
    // SAFETY: the structure lives for the call.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const answer) }.into())
}
