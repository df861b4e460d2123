//! Decodes which call it is, and what its arguments mean.

use crate::answer::SyscallAnswer;
use crate::metadata::MetadataTarget::{self, Fd, Path};
use crate::open_flags::OpenFlags;
use crate::supervised_call::SupervisedCall;
use executor_sys::file::SYS_FCHMODAT2;
use executor_sys::notify::Notification;
use executor_sys::socket::SocketEnd;
use nix::Result;
use nix::errno::Errno;

const HERE: i32 = libc::AT_FDCWD;

impl SupervisedCall<'_> {
    /// Makes the call: an error is the kernel's or the rules', or `EPERM` for a supervised call that is not handled here.
    pub(crate) fn make(&self, notification: &Notification) -> Result<SyscallAnswer> {
        let [a, b, c, d, e, _] = notification.arguments;
        // Descriptors and flags are 32 bits to the kernel.
        let fd = |register: u64| register as i32;
        match notification.call {
            libc::SYS_openat => self.open(fd(a), b, OpenFlags::new(c, d)),
            libc::SYS_newfstatat => self.state(b, c, fd(d)),
            libc::SYS_statx => self.extended_state(b, fd(c), d as u32, e),
            libc::SYS_faccessat | libc::SYS_faccessat2 => self.access(b, fd(c)),
            libc::SYS_readlinkat => self.read_link(b, c, d),
            libc::SYS_chdir | libc::SYS_execve => self.go(a),
            libc::SYS_truncate => self.truncate(a, b),
            libc::SYS_inotify_add_watch => self.watch(fd(a), b, c as u32),
            libc::SYS_mkdirat => self.make_directory(fd(a), b, c),
            libc::SYS_mknodat => self.make_node(fd(a), b, c),
            libc::SYS_symlinkat => self.make_link(a, fd(b), c),
            libc::SYS_unlinkat => self.remove(fd(a), b, fd(c)),
            libc::SYS_linkat => self.link((fd(a), b), (fd(c), d), fd(e)),
            libc::SYS_renameat => self.rename((fd(a), b), (fd(c), d), 0),
            libc::SYS_renameat2 => self.rename((fd(a), b), (fd(c), d), e as u32),
            libc::SYS_fchmod => self.change_mode(Fd(fd(a)), b),
            libc::SYS_fchmodat => self.change_mode(Path(fd(a), b, 0), c),
            SYS_FCHMODAT2 => self.change_mode(Path(fd(a), b, fd(d)), c),
            libc::SYS_fchown => self.change_owner(Fd(fd(a)), b, c),
            libc::SYS_fchownat => self.change_owner(Path(fd(a), b, fd(e)), c, d),
            libc::SYS_utimensat if b == 0 => self.change_times(Fd(fd(a)), self.times(c, 1)?),
            libc::SYS_utimensat => self.change_times(Path(fd(a), b, fd(d)), self.times(c, 1)?),
            libc::SYS_setxattr => self.set_attribute(followed(a), b, c, d, fd(e)),
            libc::SYS_lsetxattr => self.set_attribute(itself(a), b, c, d, fd(e)),
            libc::SYS_fsetxattr => self.set_attribute(Fd(fd(a)), b, c, d, fd(e)),
            libc::SYS_removexattr => self.remove_attribute(followed(a), b),
            libc::SYS_lremovexattr => self.remove_attribute(itself(a), b),
            libc::SYS_fremovexattr => self.remove_attribute(Fd(fd(a)), b),
            libc::SYS_getxattr
            | libc::SYS_lgetxattr
            | libc::SYS_listxattr
            | libc::SYS_llistxattr => Err(Errno::EOPNOTSUPP),
            libc::SYS_socket => self.make_socket(fd(a), fd(b), fd(c)),
            libc::SYS_sendto => self.send_netlink(fd(a), b, c),
            libc::SYS_ioctl => self.interfaces(fd(a), b as u32, c),
            libc::SYS_inotify_init1 => self.make_watcher(fd(a)),
            libc::SYS_connect => self.connect(fd(a), b, c),
            libc::SYS_bind => self.bind(fd(a), b, c),
            libc::SYS_listen => self.listen(fd(a), fd(b)),
            libc::SYS_shutdown => self.shut_down(fd(a), fd(b)),
            libc::SYS_getsockname => self.socket_name(fd(a), SocketEnd::Own, b, c),
            libc::SYS_getpeername => self.socket_name(fd(a), SocketEnd::Peer, b, c),
            libc::SYS_setsockopt if (fd(b), fd(c)) == (libc::SOL_SOCKET, libc::SO_LINGER) => {
                self.linger(fd(a), d, fd(e))
            }
            libc::SYS_shmget => self.get_segment(fd(a), b, fd(c)),
            libc::SYS_shmat => self.attach_segment(fd(a)),
            libc::SYS_shmctl => self.control_segment(fd(a), fd(b), c),
            libc::SYS_ptrace => self.attach(fd(b)),
            libc::SYS_process_vm_readv => Err(self.refuse("process_vm_readv")),
            libc::SYS_process_vm_writev => Err(self.refuse("process_vm_writev")),
            libc::SYS_pidfd_getfd => Err(self.refuse("pidfd_getfd")),
            _ => match self.make_ipc(notification) {
                Some(answer) => answer,
                // An older form of the calls above: `open`, `mkdir`, `rename` and the like.
                None => self.make_old(notification),
            },
        }
    }

    /// The older calls that the `*at` calls replaced.
    #[cfg(target_arch = "x86_64")]
    fn make_old(&self, notification: &Notification) -> Result<SyscallAnswer> {
        let [a, b, c, ..] = notification.arguments;
        const CREAT: u64 = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
        match notification.call {
            libc::SYS_open => self.open(HERE, a, OpenFlags::new(b, c)),
            libc::SYS_stat => self.state(a, b, 0),
            libc::SYS_lstat => self.state(a, b, libc::AT_SYMLINK_NOFOLLOW),
            libc::SYS_access => self.access(a, b as i32),
            libc::SYS_readlink => self.read_link(a, b, c),
            libc::SYS_creat => self.open(HERE, a, OpenFlags::new(CREAT, b)),
            libc::SYS_inotify_init => self.make_watcher(0),
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
    fn make_old(&self, _: &Notification) -> Result<SyscallAnswer> {
        Err(Errno::EPERM)
    }
}

fn followed(path: u64) -> MetadataTarget {
    Path(HERE, path, 0)
}

fn itself(path: u64) -> MetadataTarget {
    Path(HERE, path, libc::AT_SYMLINK_NOFOLLOW)
}
