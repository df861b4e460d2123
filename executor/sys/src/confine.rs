//! Landlock and seccomp, on this process.

use crate::errno::{check, new_fd};
use libc::{c_int, c_uint, c_void};
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel's Landlock ABI; 0 if it is unsupported or switched off.
pub fn landlock_abi() -> u32 {
    const VERSION: c_uint = 1;
    // SAFETY: with this flag the call takes no pointer and creates nothing.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Confines this thread, which must be the only one, with a Landlock ruleset.
///
/// # Errors
/// The kernel's (`landlock_restrict_self`).
pub fn landlock_restrict_self(ruleset: BorrowedFd) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and flags.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

/// Adds a seccomp filter to this process. It cannot be removed.
///
/// # Errors
/// `E2BIG` if it has more than 65,535 instructions; otherwise the kernel's (`seccomp`).
pub fn add_filter(filter: &[libc::sock_filter]) -> io::Result<()> {
    const SET_MODE_FILTER: c_uint = 1;
    let length =
        u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog {
        len: length,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions from `filter` and keeps no pointer.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) })
        .map(drop)
}

/// The seccomp mode of this process: 0 none, 1 strict, 2 filters (`/proc/self/status`, `Seccomp`).
///
/// # Errors
/// The kernel's (`PR_GET_SECCOMP`).
pub fn seccomp_mode() -> io::Result<c_int> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::prctl(libc::PR_GET_SECCOMP) }.into()).map(|mode| mode as c_int)
}

/// Removes a capability from this process's bounding set permanently.
///
/// # Errors
/// The kernel's (`PR_CAPBSET_DROP`); `EINVAL` where it knows no capability of this number.
pub fn drop_bounding(capability: u8) -> io::Result<()> {
    // SAFETY: numbers only.
    check(
        unsafe {
            libc::prctl(
                libc::PR_CAPBSET_DROP,
                libc::c_ulong::from(capability),
                0,
                0,
                0,
            )
        }
        .into(),
    )
    .map(drop)
}

/// Tries to create a socket, and closes it again.
///
/// # Errors
/// The refusal.
pub fn try_socket(family: c_int, kind: c_int, protocol: c_int) -> Result<(), Errno> {
    // SAFETY: takes numbers only; the descriptor is new and nobody else's.
    let made = unsafe { new_fd(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol).into()) };
    made.map(drop)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

/// Tries to call `clone3` with arguments of size zero, which a kernel that has the call refuses with `EINVAL`.
///
/// # Errors
/// The refusal.
pub fn try_clone3() -> Result<(), Errno> {
    // SAFETY: the kernel reads nothing from arguments of no size, and starts nothing.
    Errno::result(unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<c_void>(), 0usize) })
        .map(drop)
}
