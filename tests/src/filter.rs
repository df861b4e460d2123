//! Handwritten seccomp filters for helpers that simulate an older or a stricter machine.
//!
//! They are written as instructions, without a compiler: a compiler's preamble kills foreign ABIs, and a helper that did so would
//! block attacks that the product must block by itself.

use seccompiler::{BpfProgram, sock_filter};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The flags that request a new namespace: mount, cgroup, UTS, IPC, user, PID, network. `CLONE_NEWTIME` shares its bit with the
/// exit signal of `clone` and is requested with other flags.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

pub(crate) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Executes the command of these words on such a machine; the process ID stays the same. Otherwise returns the helper's exit code
/// after reporting why: 2 without a command, with a usage message; 125 if there is no filter; 127 if the program does not exist.
/// Sets `no_new_privs`, as every filter of an ordinary user requires.
pub fn become_on(
    machine: &BpfProgram,
    usage: &str,
    mut words: impl Iterator<Item = OsString>,
) -> ExitCode {
    let Some(program) = words.next() else {
        eprintln!("usage: {usage}");
        return ExitCode::from(2);
    };
    let helper = usage.split(' ').next().unwrap_or(usage);
    if let Err(error) = seccompiler::apply_filter(machine) {
        eprintln!("{helper}: cannot install the filter: {error}");
        return ExitCode::from(125);
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("{helper}: cannot start {}: {error}", program.display());
    ExitCode::from(127)
}

/// A machine that denies namespaces, like AppArmor on Ubuntu or a container: `clone` and `unshare` with a namespace flag return
/// `EPERM`, and `clone3`, whose flags a filter cannot read, returns `ENOSYS`.
pub fn without_namespaces() -> BpfProgram {
    let mut program = preamble();
    program.extend(when_call(libc::SYS_clone3, &[answer(fail(libc::ENOSYS))]));
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        let has_flag = jump(libc::BPF_JSET, NEW_NAMESPACES, 0, 1);
        program.extend(when_call(
            call,
            &[
                load(argument(0)),
                has_flag,
                answer(fail(libc::EPERM)),
                answer(ALLOW),
            ],
        ));
    }
    program.push(answer(ALLOW));
    program
}

/// What [`refusing`] can deny, as far as a filter can recognise it in system calls.
pub const PRIVILEGES: &[&str] = &[
    "clone",
    "host-name",
    "loopback",
    "netlink",
    "mount",
    "move-mount",
    "pivot-root",
    "bounding",
];

/// A machine that denies one operation in new namespaces.
pub fn refusing(privilege: &str) -> Option<BpfProgram> {
    let call = match privilege {
        "clone" => {
            let users = jump(libc::BPF_JSET, libc::CLONE_NEWUSER as u32, 0, 1);
            when_argument(libc::SYS_clone, 0, users, libc::ENOSPC)
        }
        "host-name" => when_call(libc::SYS_sethostname, &[answer(fail(libc::EPERM))]),
        "loopback" => {
            let up = jump(libc::BPF_JEQ, libc::SIOCSIFFLAGS as u32, 0, 1);
            when_argument(libc::SYS_ioctl, 1, up, libc::EPERM)
        }
        "netlink" => {
            let netlink = jump(libc::BPF_JEQ, libc::AF_NETLINK as u32, 0, 1);
            when_argument(libc::SYS_socket, 0, netlink, libc::EPERM)
        }
        "mount" => {
            let private = jump(
                libc::BPF_JEQ,
                (libc::MS_REC | libc::MS_PRIVATE) as u32,
                0,
                1,
            );
            when_argument(libc::SYS_mount, 3, private, libc::EACCES)
        }
        "move-mount" => when_call(libc::SYS_move_mount, &[answer(fail(libc::EACCES))]),
        // The kernel's own answer where the root is an initramfs.
        "pivot-root" => when_call(libc::SYS_pivot_root, &[answer(fail(libc::EINVAL))]),
        "bounding" => {
            let drops = jump(libc::BPF_JEQ, libc::PR_CAPBSET_DROP as u32, 0, 1);
            when_argument(libc::SYS_prctl, 0, drops, libc::EPERM)
        }
        _ => return None,
    };
    let mut program = preamble();
    program.extend(call);
    program.push(answer(ALLOW));
    Some(program)
}

pub fn without_landlock() -> BpfProgram {
    let mut program = preamble();
    let calls = [
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
    ];
    for call in calls {
        program.extend(when_call(call, &[answer(fail(libc::ENOSYS))]));
    }
    program.push(answer(ALLOW));
    program
}

/// A machine whose Landlock reports success without effect: `landlock_restrict_self` returns 0 and is not carried out.
pub fn pretending_landlock() -> BpfProgram {
    let mut program = preamble();
    program.extend(when_call(
        libc::SYS_landlock_restrict_self,
        &[answer(fail(0))],
    ));
    program.push(answer(ALLOW));
    program
}

/// A machine on which a supervisor is already above us: no filter may have a listener (`EBUSY`).
pub fn without_listeners() -> BpfProgram {
    let mut program = preamble();
    let listens = jump(
        libc::BPF_JSET,
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32,
        0,
        1,
    );
    program.extend(when_argument(libc::SYS_seccomp, 1, listens, libc::EBUSY));
    program.push(answer(ALLOW));
    program
}

/// A machine on which no process may inspect another, as with Yama's `ptrace_scope` 2 or 3.
pub fn without_looking() -> BpfProgram {
    let mut program = preamble();
    // As there, calls with wrong arguments have the kernel's own answer: it is no filter that refuses.
    let no_flags = jump(libc::BPF_JEQ, 0, 0, 1);
    let no_descriptor = jump(libc::BPF_JEQ, u32::MAX, 1, 0);
    for (call, index, test) in [
        (libc::SYS_process_vm_readv, 5, no_flags),
        (libc::SYS_pidfd_getfd, 0, no_descriptor),
    ] {
        let body = [
            load(argument(index)),
            test,
            answer(fail(libc::EPERM)),
            answer(ALLOW),
        ];
        program.extend(when_call(call, &body));
    }
    program.push(answer(ALLOW));
    program
}

/// A kernel before Linux 5.14, whose listeners cannot answer with a descriptor.
pub fn without_descriptors() -> BpfProgram {
    const ADD: u32 = 0x4018_2103;
    let mut program = preamble();
    let adds = jump(libc::BPF_JEQ, ADD, 0, 1);
    program.extend(when_argument(libc::SYS_ioctl, 1, adds, libc::EINVAL));
    program.push(answer(ALLOW));
    program
}

/// Admits other ABIs, then loads the system call's number.
pub(crate) fn preamble() -> BpfProgram {
    const NUMBER: u32 = 0;
    const ABI: u32 = 4;
    vec![
        load(ABI),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(ALLOW),
        load(NUMBER),
    ]
}

/// Fails a call with this error if its argument passes the test, and allows it otherwise.
fn when_argument(call: i64, number: u32, test: sock_filter, error: i32) -> Vec<sock_filter> {
    let failed = answer(fail(error));
    when_call(call, &[load(argument(number)), test, failed, answer(ALLOW)])
}

/// Executes `body` for one system call; `body` ends with a verdict.
fn when_call(number: libc::c_long, body: &[sock_filter]) -> BpfProgram {
    let mut program = vec![jump(libc::BPF_JEQ, number as u32, 0, body.len() as u8)];
    program.extend_from_slice(body);
    program
}

/// Offset of the lower half of an argument in `struct seccomp_data`, on a little-endian machine.
pub(crate) fn argument(index: u32) -> u32 {
    16 + 8 * index
}

pub(crate) fn fail(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

pub(crate) fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

pub(crate) fn jump(test: u32, value: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: (libc::BPF_JMP | test | libc::BPF_K) as u16,
        jt,
        jf,
        k: value,
    }
}

pub(crate) fn answer(action: u32) -> sock_filter {
    sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: action,
    }
}
