//! What a system call attempts: which of its arguments are paths, and the kind of access to each.

use crate::process::SystemCall;

/// The position of a path among the arguments, and the access that is attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathArgument {
    /// The argument that has the descriptor of its directory, if the call has one.
    pub directory: Option<usize>,
    pub path: usize,
    pub kind: &'static str,
}

const READ: &str = "read";
const WRITE: &str = "write";
const RUN: &str = "run";
const METADATA: &str = "metadata";

/// The flags of an open that does more than read.
const WRITING: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;

fn at(directory: usize, path: usize, kind: &'static str) -> PathArgument {
    PathArgument {
        directory: Some(directory),
        path,
        kind,
    }
}

fn plain(path: usize, kind: &'static str) -> PathArgument {
    PathArgument {
        directory: None,
        path,
        kind,
    }
}

fn opened(flags: u64) -> &'static str {
    if flags & WRITING == 0 || flags & libc::O_PATH as u64 != 0 {
        READ
    } else {
        WRITE
    }
}

/// The paths of a call; empty if it takes none.
pub(crate) fn paths(call: &SystemCall) -> Vec<PathArgument> {
    let arguments = &call.arguments;
    match call.number {
        libc::SYS_openat => vec![at(0, 1, opened(arguments[2]))],
        libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_readlinkat => vec![at(0, 1, READ)],
        libc::SYS_chdir
        | libc::SYS_statfs
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr => vec![plain(0, READ)],
        libc::SYS_inotify_add_watch => vec![plain(1, READ)],
        libc::SYS_execve => vec![plain(0, RUN)],
        libc::SYS_execveat => vec![at(0, 1, RUN)],
        libc::SYS_mkdirat | libc::SYS_mknodat | libc::SYS_unlinkat => vec![at(0, 1, WRITE)],
        libc::SYS_symlinkat => vec![at(1, 2, WRITE)],
        libc::SYS_linkat => vec![at(0, 1, READ), at(2, 3, WRITE)],
        libc::SYS_renameat | libc::SYS_renameat2 => vec![at(0, 1, WRITE), at(2, 3, WRITE)],
        libc::SYS_truncate => vec![plain(0, WRITE)],
        libc::SYS_fchmodat | libc::SYS_fchownat | libc::SYS_utimensat => vec![at(0, 1, METADATA)],
        libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr => {
            vec![plain(0, METADATA)]
        }
        _ => of_the_architecture(call),
    }
}

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
fn of_the_architecture(call: &SystemCall) -> Vec<PathArgument> {
    match call.number {
        libc::SYS_open => vec![plain(0, opened(call.arguments[1]))],
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access | libc::SYS_readlink => {
            vec![plain(0, READ)]
        }
        libc::SYS_creat
        | libc::SYS_mkdir
        | libc::SYS_mknod
        | libc::SYS_unlink
        | libc::SYS_rmdir => {
            vec![plain(0, WRITE)]
        }
        libc::SYS_symlink => vec![plain(1, WRITE)],
        libc::SYS_link => vec![plain(0, READ), plain(1, WRITE)],
        libc::SYS_rename => vec![plain(0, WRITE), plain(1, WRITE)],
        libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_futimesat => vec![plain(0, METADATA)],
        _ => Vec::new(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn of_the_architecture(_: &SystemCall) -> Vec<PathArgument> {
    Vec::new()
}

/// Whether a call creates a process that is not traced with its parent.
pub(crate) fn leaves_the_trace(call: &SystemCall) -> bool {
    call.number == libc::SYS_clone && call.arguments[0] & libc::CLONE_UNTRACED as u64 != 0
}

/// Whether a call tries to trace a process, which a traced process cannot.
pub(crate) fn traces(call: &SystemCall) -> bool {
    call.number == libc::SYS_ptrace
}

/// For display, the name of a call that cells refuse and programs are known to make; for any other, its number.
pub(crate) fn name(number: i64) -> String {
    let names = [
        (libc::SYS_unshare, "unshare"),
        (libc::SYS_setns, "setns"),
        (libc::SYS_clone, "clone"),
        (libc::SYS_mount, "mount"),
        (libc::SYS_umount2, "umount2"),
        (libc::SYS_pivot_root, "pivot_root"),
        (libc::SYS_chroot, "chroot"),
        (libc::SYS_open_tree, "open_tree"),
        (libc::SYS_move_mount, "move_mount"),
        (libc::SYS_fsopen, "fsopen"),
        (libc::SYS_mount_setattr, "mount_setattr"),
        (libc::SYS_bpf, "bpf"),
        (libc::SYS_perf_event_open, "perf_event_open"),
        (libc::SYS_io_uring_setup, "io_uring_setup"),
        (libc::SYS_userfaultfd, "userfaultfd"),
        (libc::SYS_keyctl, "keyctl"),
        (libc::SYS_add_key, "add_key"),
        (libc::SYS_request_key, "request_key"),
        (libc::SYS_process_vm_readv, "process_vm_readv"),
        (libc::SYS_process_vm_writev, "process_vm_writev"),
        (libc::SYS_pidfd_getfd, "pidfd_getfd"),
        (libc::SYS_open_by_handle_at, "open_by_handle_at"),
        (libc::SYS_name_to_handle_at, "name_to_handle_at"),
        (libc::SYS_init_module, "init_module"),
        (libc::SYS_finit_module, "finit_module"),
        (libc::SYS_delete_module, "delete_module"),
        (libc::SYS_kexec_load, "kexec_load"),
        (libc::SYS_reboot, "reboot"),
        (libc::SYS_swapon, "swapon"),
        (libc::SYS_sethostname, "sethostname"),
        (libc::SYS_setdomainname, "setdomainname"),
        (libc::SYS_settimeofday, "settimeofday"),
        (libc::SYS_clock_settime, "clock_settime"),
        (libc::SYS_adjtimex, "adjtimex"),
        (libc::SYS_quotactl, "quotactl"),
        (libc::SYS_acct, "acct"),
        (libc::SYS_syslog, "syslog"),
        (libc::SYS_fanotify_init, "fanotify_init"),
        (libc::SYS_socket, "socket"),
        (libc::SYS_socketpair, "socketpair"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_prctl, "prctl"),
        (libc::SYS_seccomp, "seccomp"),
        (libc::SYS_personality, "personality"),
        (libc::SYS_kcmp, "kcmp"),
        (libc::SYS_mbind, "mbind"),
        (libc::SYS_set_mempolicy, "set_mempolicy"),
        (libc::SYS_move_pages, "move_pages"),
        (libc::SYS_migrate_pages, "migrate_pages"),
        (libc::SYS_mknodat, "mknodat"),
        (libc::SYS_fchmod, "fchmod"),
        (libc::SYS_fchmodat, "fchmodat"),
    ];
    let known = names
        .into_iter()
        .find(|(known, _)| *known == number)
        .map(|(_, name)| name);
    known.map_or_else(|| format!("number {number}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traced_call_has_its_paths_and_kinds_of_access() {
        let of = |number, arguments| {
            let found = paths(&SystemCall {
                number,
                arguments,
                result: -2,
            });
            found
                .iter()
                .map(|one| (one.path, one.kind))
                .collect::<Vec<_>>()
        };
        let open = |flags: i32| of(libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
        assert_eq!(open(libc::O_RDONLY | libc::O_CLOEXEC), [(1, READ)]);
        assert_eq!(open(libc::O_PATH | libc::O_RDWR), [(1, READ)]);
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC] {
            assert_eq!(open(flags), [(1, WRITE)]);
        }
        assert_eq!(of(libc::SYS_renameat2, [0; 6]), [(1, WRITE), (3, WRITE)]);
        assert_eq!(of(libc::SYS_execve, [0; 6]), [(0, RUN)]);
        assert!(of(libc::SYS_read, [0; 6]).is_empty());
    }
}
