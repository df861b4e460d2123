//! A process that has stopped at a system call: its registers, memory and directories.

use nix::sys::ptrace;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

/// Maximum bytes of a path, with its NUL (`PATH_MAX`).
const PATH_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// A system call with its arguments and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub number: i64,
    pub arguments: [u64; 6],
    pub result: i64,
}

impl SystemCall {
    /// The call of a stopped process. The arguments are valid when it is about to begin, the result when it has ended.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of(pid: Pid) -> nix::Result<Self> {
        let r = ptrace::getregs(pid)?;
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        Ok(Self {
            number: r.orig_rax as i64,
            arguments,
            result: r.rax as i64,
        })
    }

    #[cfg(target_arch = "aarch64")]
    pub(crate) fn of(pid: Pid) -> nix::Result<Self> {
        let r = ptrace::getregs(pid)?.regs;
        let arguments = [r[0], r[1], r[2], r[3], r[4], r[5]];
        // At its beginning `x7` is 0, at its end 1 (`arch/arm64/kernel/ptrace.c`): the result at the beginning is set to ENOSYS here.
        let result = if r[7] == 0 {
            -i64::from(libc::ENOSYS)
        } else {
            r[0] as i64
        };
        Ok(Self {
            number: r[8] as i64,
            arguments,
            result,
        })
    }

    /// Whether it may be about to begin: the kernel then shows this as its result.
    pub(crate) fn may_begin(&self) -> bool {
        self.result == -i64::from(libc::ENOSYS)
    }

    /// The error number that it returned.
    pub(crate) fn error(&self) -> Option<i32> {
        (-4095..0)
            .contains(&self.result)
            .then(|| -self.result as i32)
    }
}

/// Reads the string at `address` of a process.
pub(crate) fn string(pid: Pid, address: u64) -> io::Result<Vec<u8>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut read = Vec::new();
    while read.len() < PATH_MAX {
        let at = address
            .checked_add(read.len() as u64)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // The next page may not be mapped.
        let mut page = vec![0; (PAGE - at % PAGE) as usize];
        let count = memory.read_at(&mut page, at)?;
        let end = page[..count].iter().position(|byte| *byte == 0);
        read.extend_from_slice(&page[..end.unwrap_or(count)]);
        if end.is_some() {
            return Ok(read);
        }
        if count == 0 {
            break;
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Makes a path absolute, which a process passed with the descriptor `directory`.
pub(crate) fn absolute(pid: Pid, directory: i32, path: &[u8]) -> io::Result<Vec<u8>> {
    if path.starts_with(b"/") {
        return Ok(path.to_vec());
    }
    let base = match directory {
        libc::AT_FDCWD => fs::read_link(format!("/proc/{pid}/cwd"))?,
        fd => fs::read_link(format!("/proc/{pid}/fd/{fd}"))?,
    };
    let mut absolute = base.into_os_string().into_vec();
    if !absolute.starts_with(b"/") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    absolute.push(b'/');
    absolute.extend_from_slice(path);
    Ok(absolute)
}
