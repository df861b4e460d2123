//! One supervised call: which it is, and what its arguments mean.

use super::caller::Caller;
use super::find::Search;
use super::loopback::Loopback;
use super::metadata::Whose::{self, Open, Path};
use super::open::How;
use super::repository::Worktrees;
use super::rules::Rules;
use super::terminals::Terminals;
use super::{Answer, Result};
use crate::sys::Notice;
use nix::errno::Errno;
use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::OwnedFd;

/// A call that is being made in its caller's place.
pub struct Call<'a> {
    /// What may be done.
    pub rules: &'a Rules,
    /// The device of `/proc`.
    pub proc: u64,
    /// Who asks.
    pub caller: Caller,
    /// The cell's terminals.
    pub terminals: &'a Terminals,
    /// The worktrees that were linked.
    pub worktrees: &'a Worktrees,
    /// The cell's sockets of TCP.
    pub loopback: &'a RefCell<Loopback>,
    /// Whether the caller still waits.
    pub still: &'a dyn Fn() -> bool,
}

const HERE: i32 = libc::AT_FDCWD;

impl Call<'_> {
    /// Makes it.
    ///
    /// # Errors
    /// The kernel's, or what the rules say; `EPERM` for a call that is trapped and not known here.
    pub fn make(&self, notice: &Notice) -> Result<Answer> {
        let [a, b, c, d, e, _] = notice.arguments;
        // Descriptors and flags are 32 bits to the kernel.
        let fd = |register: u64| register as i32;
        match notice.call {
            libc::SYS_openat => self.open(fd(a), b, How::new(c, d)),
            libc::SYS_truncate => self.truncate(a, b),
            libc::SYS_inotify_add_watch => self.watch(fd(a), b, c as u32),
            libc::SYS_mkdirat => self.make_directory(fd(a), b, c),
            libc::SYS_mknodat => self.make_node(fd(a), b, c),
            libc::SYS_symlinkat => self.make_link(a, fd(b), c),
            libc::SYS_unlinkat => self.remove(fd(a), b, fd(c)),
            libc::SYS_linkat => self.link((fd(a), b), (fd(c), d), fd(e)),
            libc::SYS_renameat => self.rename((fd(a), b), (fd(c), d), 0),
            libc::SYS_renameat2 => self.rename((fd(a), b), (fd(c), d), e as u32),
            libc::SYS_fchmod => self.change_mode(Open(fd(a)), b),
            libc::SYS_fchmodat => self.change_mode(Path(fd(a), b, 0), c),
            libc::SYS_fchmodat2 => self.change_mode(Path(fd(a), b, fd(d)), c),
            libc::SYS_fchown => self.change_owner(Open(fd(a)), b, c),
            libc::SYS_fchownat => self.change_owner(Path(fd(a), b, fd(e)), c, d),
            libc::SYS_utimensat if b == 0 => self.change_times(Open(fd(a)), self.times(c, 1)?),
            libc::SYS_utimensat => self.change_times(Path(fd(a), b, fd(d)), self.times(c, 1)?),
            libc::SYS_setxattr => self.set_attribute(followed(a), b, c, d, fd(e)),
            libc::SYS_lsetxattr => self.set_attribute(itself(a), b, c, d, fd(e)),
            libc::SYS_fsetxattr => self.set_attribute(Open(fd(a)), b, c, d, fd(e)),
            libc::SYS_removexattr => self.remove_attribute(followed(a), b),
            libc::SYS_lremovexattr => self.remove_attribute(itself(a), b),
            libc::SYS_fremovexattr => self.remove_attribute(Open(fd(a)), b),
            libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_listxattr | libc::SYS_llistxattr => {
                Err(Errno::EOPNOTSUPP)
            }
            libc::SYS_connect => self.connect(fd(a), b, c),
            libc::SYS_bind => self.bind(fd(a), b, c),
            libc::SYS_listen => self.listen(fd(a), fd(b)),
            libc::SYS_shutdown => self.shut_down(fd(a), fd(b)),
            libc::SYS_getsockname => self.socket_name(fd(a), false, b, c),
            libc::SYS_getpeername => self.socket_name(fd(a), true, b, c),
            libc::SYS_setsockopt if (fd(b), fd(c)) == (libc::SOL_SOCKET, libc::SO_LINGER) => {
                self.linger(fd(a), d, fd(e))
            }
            _ => self.make_old(notice),
        }
    }

    /// The forms that came before the `*at` calls.
    #[cfg(target_arch = "x86_64")]
    fn make_old(&self, notice: &Notice) -> Result<Answer> {
        let [a, b, c, ..] = notice.arguments;
        const CREAT: u64 = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
        match notice.call {
            libc::SYS_open => self.open(HERE, a, How::new(b, c)),
            libc::SYS_creat => self.open(HERE, a, How::new(CREAT, b)),
            libc::SYS_mkdir => self.make_directory(HERE, a, b),
            libc::SYS_mknod => self.make_node(HERE, a, b),
            libc::SYS_symlink => self.make_link(a, HERE, b),
            libc::SYS_unlink => self.remove(HERE, a, 0),
            libc::SYS_rmdir => self.remove(HERE, a, libc::AT_REMOVEDIR),
            libc::SYS_link => self.link((HERE, a), (HERE, b), 0),
            libc::SYS_rename => self.rename((HERE, a), (HERE, b), 0),
            libc::SYS_chmod => self.change_mode(followed(a), b),
            libc::SYS_chown => self.change_owner(followed(a), b, c),
            libc::SYS_lchown => self.change_owner(itself(a), b, c),
            libc::SYS_utime => self.change_times(followed(a), self.seconds(b)?),
            libc::SYS_utimes => self.change_times(followed(a), self.times(b, 1000)?),
            libc::SYS_futimesat => self.change_times(Path(a as i32, b, 0), self.times(c, 1000)?),
            _ => Err(Errno::EPERM),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn make_old(&self, _: &Notice) -> Result<Answer> {
        Err(Errno::EPERM)
    }

    /// A text of the caller, which was waiting when it was read.
    pub fn text(&self, address: u64) -> Result<CString> {
        let text = self.caller.text(address)?;
        self.check()?;
        Ok(text)
    }

    /// Whether what was read of the caller was the caller's: its number may be another's by now.
    pub fn check(&self) -> Result<()> {
        if (self.still)() { Ok(()) } else { Err(Errno::ESRCH) }
    }

    /// Finds paths of the caller.
    pub fn search(&self) -> Search<'_> {
        Search { caller: self.caller, rules: self.rules, proc: self.proc }
    }

    /// The file at a path.
    pub fn object(&self, from: i32, path: u64, follow: bool) -> Result<OwnedFd> {
        let path = self.text(path)?;
        let found = self.search().find(from, path.as_bytes(), follow)?;
        found.object.ok_or(Errno::ENOENT)
    }
}

fn followed(path: u64) -> Whose {
    Path(HERE, path, 0)
}

fn itself(path: u64) -> Whose {
    Path(HERE, path, libc::AT_SYMLINK_NOFOLLOW)
}
