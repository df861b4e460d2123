//! Every `unsafe` block of this program.

use seccompiler::sock_filter;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Installs a filter in this process, for what it starts later, and returns the supervisor's end.
pub fn install_with_listener(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the program and the instructions it points to live until the call returns, and the kernel only reads
    // them. Both `sock_filter` types are the kernel's structure.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Waits for one question and answers it with `value`.
pub fn answer(listener: &OwnedFd, value: i64) -> io::Result<()> {
    // SAFETY: the structure is numbers only, for which all zeros is a value; the kernel asks for zeros.
    let mut question: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: NOTIF_RECV writes one `seccomp_notif`, which lives until the call returns.
    if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut question) } < 0 {
        return ignore_gone(io::Error::last_os_error());
    }
    let mut reply = libc::seccomp_notif_resp { id: question.id, val: value, error: 0, flags: 0 };
    // SAFETY: NOTIF_SEND reads one `seccomp_notif_resp`, which lives until the call returns.
    if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut reply) } < 0 {
        return ignore_gone(io::Error::last_os_error());
    }
    Ok(())
}

/// The one who asked may have been killed meanwhile, and a signal may interrupt: neither ends the service.
fn ignore_gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}
