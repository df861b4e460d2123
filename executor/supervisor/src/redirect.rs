//! Makes a caller call again by another path: what it does to itself (`chdir`, `execve`), nobody can do in its place.
//!
//! Its memory keeps what it has: the path is put below its stack, where nothing of a program lives, and the register that named the
//! old one names that. To set a register it is traced for a moment, which only this process may (`supervised.json`).

use executor_sys::notify;
use nix::Result;
use nix::errno::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// Has the caller of a call begin it again with `path` as its first argument.
///
/// # Errors
/// It is traced by another, or gone, and not answered.
#[cfg(target_arch = "x86_64")]
pub fn call_by(listener: BorrowedFd, id: u64, thread: i32, path: &CStr) -> Result<()> {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;
    let pid = Pid::from_raw(thread);
    ptrace::seize(pid, ptrace::Options::empty()).map_err(|_| Errno::EACCES)?;
    // It stops when its call is answered, and sees nothing of that answer.
    let stopped = ptrace::interrupt(pid).and_then(|()| {
        // Without that it stops too, where a signal has ended its call meanwhile.
        let _ = notify::begin_again(listener, id);
        waitpid(pid, Some(WaitPidFlag::__WALL))
    });
    let signal = match stopped {
        Ok(WaitStatus::PtraceEvent(..)) => {
            // Where that fails the call says so, and is not begun again for ever.
            let _ = by_register(thread, path).or_else(|errno| fail(thread, errno));
            None
        }
        Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
        // It is gone.
        Ok(_) | Err(_) => None,
    };
    let _ = ptrace::detach(pid, signal);
    Ok(())
}

/// Sets the first argument of a stopped thread.
#[cfg(target_arch = "x86_64")]
fn by_register(thread: i32, path: &CStr) -> Result<()> {
    use nix::sys::ptrace;
    /// What a function may use below its stack pointer without moving it.
    const RED_ZONE: u64 = 128;
    let pid = nix::unistd::Pid::from_raw(thread);
    let bytes = path.to_bytes_with_nul();
    let mut registers = ptrace::getregs(pid)?;
    let below = RED_ZONE + bytes.len() as u64;
    registers.rdi = registers.rsp.checked_sub(below).ok_or(Errno::EFAULT)?;
    crate::caller::Caller { thread }.write(registers.rdi, bytes)?;
    ptrace::setregs(pid, registers)
}

/// Has a stopped thread's call end with an error.
#[cfg(target_arch = "x86_64")]
fn fail(thread: i32, errno: Errno) -> Result<()> {
    use nix::sys::ptrace;
    let pid = nix::unistd::Pid::from_raw(thread);
    let mut registers = ptrace::getregs(pid)?;
    registers.rax = -(errno as i64) as u64;
    registers.orig_rax = u64::MAX;
    ptrace::setregs(pid, registers)
}

/// Other processors begin a call again with the argument that it had.
///
/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub fn call_by(_: BorrowedFd, _: u64, _: i32, _: &CStr) -> Result<()> {
    Err(Errno::ENOENT)
}
