//! The lists of `seccomp/`: each compiles on both architectures, and does what it says. The compiled program is run
//! here on calls that are never made.

use seccompiler::{BpfProgram, TargetArch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

#[path = "../../build/seccomp.rs"]
#[allow(dead_code, reason = "nothing is written here")]
mod build;

const LISTS: [&str; 18] = [
    "session",
    "modes",
    "cell",
    "clone3",
    "answered",
    "flat",
    "absent",
    "terminal",
    "names",
    "supervised",
    "reads",
    "kept",
    "worker",
    "orchestrator",
    "orchestrator-web",
    "orchestrator-unix",
    "orchestrator-serve",
    "gateway",
];
const EPERM: Answer = Answer::Errno(1);
const ENOSYS: Answer = Answer::Errno(38);
use Answer::Allow;

fn read(file: &str) -> Option<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seccomp")
        .join(file);
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}")))
}

/// NAME.json, with the entries of NAME.ARCH.json after its own where there is one. `A+B` is A with the entries of B.
fn merged(name: &str, arch: &str) -> Value {
    if let Some((name, other)) = name.rsplit_once('+') {
        let mut list = merged(name, arch);
        let more = merged(other, arch)["main"]["filter"]
            .as_array()
            .unwrap()
            .clone();
        list["main"]["filter"].as_array_mut().unwrap().extend(more);
        return list;
    }
    let mut list = read(&format!("{name}.json")).unwrap();
    if let Some(mut more) = read(&format!("{name}.{arch}.json")) {
        for action in ["mismatch_action", "match_action"] {
            assert_eq!(
                list["main"][action], more["main"][action],
                "{name}.{arch}.json"
            );
        }
        let more = more["main"]["filter"]
            .as_array_mut()
            .unwrap()
            .drain(..)
            .collect::<Vec<_>>();
        list["main"]["filter"].as_array_mut().unwrap().extend(more);
    }
    list
}

fn compile(name: &str, arch: &str) -> BpfProgram {
    let text = merged(name, arch).to_string();
    let target = TargetArch::try_from(arch).unwrap();
    let mut programs = seccompiler::compile_from_json(text.as_bytes(), target)
        .unwrap_or_else(|e| panic!("{name} {arch}: {e}"));
    programs.remove("main").unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allow,
    /// The cell's first process answers: the build makes `SECCOMP_RET_USER_NOTIF` of the action `trace`.
    Supervised,
    Errno(u32),
    Kill,
}

impl Answer {
    fn of(value: u32) -> Self {
        match value & 0xffff_0000 {
            0x7fff_0000 => Answer::Allow,
            0x7ff0_0000 | 0x7fc0_0000 => Answer::Supervised,
            0x0005_0000 => Answer::Errno(value & 0xffff),
            0x8000_0000 => Answer::Kill,
            other => panic!("an action no list has: {other:#x}"),
        }
    }
}

/// The input of a filter from the kernel: `struct seccomp_data`, as 32-bit words.
fn data(arch: u32, call: i64, arguments: &[u64]) -> [u32; 16] {
    let mut words = [0; 16];
    words[0] = call as u32;
    words[1] = arch;
    for (index, argument) in arguments.iter().enumerate() {
        words[4 + 2 * index] = *argument as u32;
        words[5 + 2 * index] = (*argument >> 32) as u32;
    }
    words
}

/// Runs a classic BPF program, of which seccompiler writes these instructions and no others.
fn run(program: &BpfProgram, data: &[u32; 16]) -> Answer {
    let (mut at, mut a) = (0, 0);
    loop {
        let op = &program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { op.jt } else { op.jf });
        match op.code {
            0x20 => a = data[op.k as usize / 4], // ld [k]
            0x54 => a &= op.k,                   // and #k
            0x05 => at += op.k as usize,         // ja k
            0x15 => at += jump(a == op.k),       // jeq
            0x25 => at += jump(a > op.k),        // jgt
            0x35 => at += jump(a >= op.k),       // jge
            0x06 => return Answer::of(op.k),     // ret #k
            other => panic!("instruction {other:#x}"),
        }
    }
}

/// Architectures that the lists are compiled for, with the kernel's number of each (`AUDIT_ARCH_*` in `linux/audit.h`).
const ARCHITECTURES: [(&str, u32); 2] = [("x86_64", 0xc000_003e), ("aarch64", 0xc000_00b7)];
const NATIVE: u32 = ARCHITECTURES[cfg!(target_arch = "aarch64") as usize].1;

/// Programs of lists, in the order in which they are put on.
struct Stack(Vec<BpfProgram>);

impl Stack {
    fn of(names: &[&str]) -> Self {
        Self(
            names
                .iter()
                .map(|name| compile(name, std::env::consts::ARCH))
                .collect(),
        )
    }

    /// As the kernel: the newest filter first; a later answer wins only if it is stricter.
    fn answer(&self, call: i64, arguments: &[u64]) -> Answer {
        let data = data(NATIVE, call, arguments);
        let answers = self.0.iter().rev().map(|program| run(program, &data));
        answers.fold(Allow, |before, next| match (before, next) {
            (Answer::Kill, _) => before,
            (Answer::Errno(_), Answer::Allow | Answer::Supervised | Answer::Errno(_)) => before,
            (Answer::Supervised, Answer::Allow) => before,
            (_, next) => next,
        })
    }

    fn check(&self, call: i64, arguments: &[u64], want: Answer) {
        assert_eq!(
            self.answer(call, arguments),
            want,
            "call {call} {arguments:x?}"
        );
    }
}

fn warden() -> Stack {
    Stack::of(&["session", "modes"])
}

fn cell() -> Stack {
    Stack::of(&["session", "modes", "cell", "clone3"])
}

/// Filters on the program of a cell.
fn program() -> Stack {
    Stack::of(&[
        "session", "modes", "cell", "clone3", "absent", "terminal", "names",
    ])
}

/// Filters on the first process of a flat cell. A call that `answered` stops there has nobody to ask: the kernel says `ENOSYS`.
fn flat_cell() -> Stack {
    flat(&["cell", "clone3"])
}

/// The list of a flat session, as the build chains it, and then these.
fn flat(others: &[&str]) -> Stack {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seccomp");
    let session: build::Lists = &[&["modes"], &["answered"], &["flat"], &["session"]];
    let mut stack = Stack::of(others);
    let session = build::program(&folder, session, std::env::consts::ARCH);
    stack.0.insert(0, session);
    stack
}

/// Filters on the program of a flat cell.
fn flat_program() -> Stack {
    flat(&[
        "cell",
        "clone3",
        "absent",
        "terminal",
        "supervised+reads+answered",
    ])
}

/// Filters on such a program where a profile hides nothing.
fn flat_program_that_reads() -> Stack {
    flat(&[
        "cell",
        "clone3",
        "absent",
        "terminal",
        "supervised+answered",
    ])
}

fn worker() -> Stack {
    Stack::of(&["session", "modes", "worker"])
}

/// A signed argument as it stands in a register.
fn minus(number: i64) -> u64 {
    (-number) as u64
}

#[test]
fn every_list_compiles_for_both_architectures() {
    for name in LISTS {
        for arch in ["x86_64", "aarch64"] {
            assert!(compile(name, arch).len() < 4096, "{name} {arch}");
        }
    }
}

/// The filters that the build makes of lists, which programs put on, answer as seccompiler's programs of them do; but calls that these do
/// not know are absent.
#[test]
fn the_build_changes_no_answer_but_of_unknown_calls() {
    const LAST: i64 = 462;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seccomp");
    let chains: [&[&str]; 14] = [
        &["modes", "session"],
        &["modes", "answered", "flat", "session"],
        &["clone3", "cell"],
        &["absent", "terminal", "names"],
        &["absent", "terminal", "supervised+reads+answered"],
        &["absent", "terminal", "supervised+answered"],
        &["absent", "terminal", "names+kept"],
        &["absent", "terminal", "supervised+reads+answered+kept"],
        &["absent", "terminal", "supervised+answered+kept"],
        &["worker"],
        &["orchestrator"],
        &["orchestrator+orchestrator-web+orchestrator-unix"],
        &["orchestrator+orchestrator-serve"],
        &["gateway"],
    ];
    // What the lists compare arguments with, and numbers nearby.
    let mut values: Vec<u64> = [0, 1, 2, 3, 15, 1 << 32, u64::MAX, 0o4755, 0o6755].to_vec();
    values.extend((0..32).map(|bit| 1 << bit));
    let mut asked = 0_u32;
    for (arch, own, chain) in chains
        .iter()
        .flat_map(|chain| ARCHITECTURES.map(|(arch, own)| (arch, own, *chain)))
    {
        let parts: Vec<Vec<&str>> = chain.iter().map(|list| list.split('+').collect()).collect();
        let lists: Vec<&[&str]> = parts.iter().map(Vec::as_slice).collect();
        let built = build::program(&folder, &lists, arch);
        let stack: Vec<BpfProgram> = chain.iter().map(|list| compile(list, arch)).collect();
        for call in (0..600).chain([1 << 20, 0x3fff_ffff]) {
            for (at, value) in values.iter().enumerate() {
                let arguments: Vec<u64> = (0..6)
                    .map(|i| values[(at * (i + 1)) % values.len()])
                    .collect();
                for arguments in [[*value; 6].to_vec(), arguments] {
                    let data = data(own, call, &arguments);
                    let unknown = Some(ENOSYS).filter(|_| call > LAST);
                    // In a chain the first list that does not let pass answers; of programs, the strictest.
                    let first = stack
                        .iter()
                        .map(|program| run(program, &data))
                        .find(|a| *a != Allow);
                    assert_eq!(
                        run(&built, &data),
                        unknown.or(first).unwrap_or(Allow),
                        "{arch} {chain:?} {call} {arguments:x?}"
                    );
                    asked += 1;
                }
            }
        }
        assert_eq!(
            run(&built, &data(0x4000_0003, 1, &[])),
            Answer::Kill,
            "{chain:?}: i386"
        );
        if arch == "x86_64" {
            assert_eq!(
                run(&built, &data(own, 0x4000_0000, &[])),
                Answer::Kill,
                "{chain:?}: x32"
            );
        }
    }
    assert!(asked > 200_000);
}

#[test]
fn every_file_of_the_folder_is_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seccomp");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let list = name.strip_suffix(".json").unwrap();
        let list = list.strip_suffix(".x86_64").unwrap_or(list);
        assert!(LISTS.contains(&list), "{name}");
    }
}

/// seccompiler takes a call that stands both with and without arguments as one with arguments only, and says nothing.
#[test]
fn no_call_stands_twice_without_arguments_or_both_ways() {
    for name in LISTS {
        let list = merged(name, "x86_64");
        let mut bare: BTreeMap<&str, bool> = BTreeMap::new();
        for rule in list["main"]["filter"].as_array().unwrap() {
            let call = rule["syscall"].as_str().unwrap();
            let without = rule.get("args").is_none();
            if let Some(before) = bare.insert(call, without) {
                assert!(!before && !without, "{name}: {call}");
            }
        }
        assert_eq!(list.as_object().unwrap().len(), 1, "{name}: one thread");
    }
}

#[test]
fn every_group_names_who_needs_it() {
    for file in [
        "session.json",
        "session.x86_64.json",
        "modes.json",
        "modes.x86_64.json",
        "cell.json",
        "absent.json",
        "terminal.json",
        "clone3.json",
        "answered.json",
        "flat.json",
        "supervised.json",
        "supervised.x86_64.json",
        "reads.json",
        "reads.x86_64.json",
        "names.json",
        "names.x86_64.json",
        "worker.json",
        "worker.x86_64.json",
        "orchestrator.json",
        "orchestrator.x86_64.json",
        "orchestrator-web.json",
        "orchestrator-unix.json",
        "orchestrator-serve.json",
        "gateway.json",
        "gateway.x86_64.json",
    ] {
        let list = read(file).unwrap();
        let first = &list["main"]["filter"][0];
        assert!(
            first["comment"]
                .as_str()
                .is_some_and(|words| words.len() > 10),
            "{file}"
        );
    }
}

#[test]
fn another_architecture_is_killed() {
    let i386 = data(0x4000_0003, libc::SYS_read, &[]);
    for name in LISTS {
        assert_eq!(
            run(&compile(name, std::env::consts::ARCH), &i386),
            Answer::Kill,
            "{name}"
        );
    }
}

#[test]
fn sockets_are_chosen_by_family_type_and_protocol() {
    const FLAGS: u64 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let cell = cell();
    let allowed = [
        (1, 1, 0),
        (1, 5, 0),
        (2, 1, 0),
        (2, 1, 6),
        (2, 2, 0),
        (2, 2, 17),
        (10, 1, 0),
        (10, 1, 6),
        (10, 2, 0),
        (10, 2, 17),
        (16, 3, 0),
        (16, 2, 0),
    ];
    for family in 0..=46 {
        for kind in 0..=15 {
            for protocol in [0, 1, 6, 15, 16, 17, 33, 58, 132, 136, 255, 256, 262] {
                let want = if allowed.contains(&(family, kind, protocol)) {
                    Allow
                } else {
                    EPERM
                };
                cell.check(libc::SYS_socket, &[family, kind, protocol], want);
                cell.check(libc::SYS_socket, &[family, kind | FLAGS, protocol], want);
            }
        }
    }
    // The kernel looks at 32 bits of each.
    cell.check(libc::SYS_socket, &[1 << 32 | 2, 1, 1 << 32 | 262], EPERM);
    // A datagram of a Unix socket names its receiver in memory.
    for (family, kind, want) in [
        (1, 1, Allow),
        (1, 5, Allow),
        (1, 2, EPERM),
        (1, 3, EPERM),
        (2, 1, EPERM),
        (30, 1, EPERM),
    ] {
        cell.check(libc::SYS_socketpair, &[family, kind | FLAGS, 0], want);
    }
}

#[test]
fn a_flat_cell_has_streams_of_unix_and_tcp_only() {
    const FLAGS: u64 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let flat = flat_cell();
    for (family, kind, protocol) in [
        (1, 2, 0),
        (1, 3, 0),
        (2, 1, 262),
        (2, 1, 132),
        (2, 2, 1),
        (2, 2, 136),
        (2, 3, 1),
        (2, 3, 17),
        (10, 1, 262),
        (10, 2, 58),
        (10, 2, 136),
        (16, 1, 0),
        (16, 3, 4),
        (16, 2, 15),
        (40, 1, 0),
    ] {
        flat.check(libc::SYS_socket, &[family, kind, protocol], EPERM);
        flat.check(libc::SYS_socket, &[family, kind | FLAGS, protocol], EPERM);
    }
    // For these there is another socket, which the first process gives its program, and which nobody gives that itself.
    for (family, kind, protocol) in [
        (2, 2, 0),
        (2, 2, 17),
        (10, 2, 0),
        (10, 2, 17),
        (16, 2, 0),
        (16, 3, 0),
    ] {
        for stack in [&flat, &flat_program()] {
            let arguments = [family, kind | FLAGS, protocol];
            stack.check(libc::SYS_socket, &arguments, Answer::Supervised);
        }
    }
    for (kind, want) in [(1, Allow), (5, Allow), (2, EPERM), (3, EPERM)] {
        flat.check(libc::SYS_socket, &[1, kind, 0], want);
        flat.check(libc::SYS_socketpair, &[1, kind | FLAGS, 0], want);
    }
    for family in [2, 10] {
        for protocol in [0, 6] {
            flat.check(libc::SYS_socket, &[family, 1 | FLAGS, protocol], Allow);
        }
        flat.check(libc::SYS_socketpair, &[family, 1, 0], EPERM);
    }
}

/// A call that connects without `connect`, or sends packets past the loopback, would be a way out of the flat tier.
#[test]
fn a_flat_cell_connects_in_one_way_only() {
    const FAST: u64 = libc::MSG_FASTOPEN as u64;
    let (flat, program, cell) = (flat_cell(), flat_program(), cell());
    for (call, before) in [
        (libc::SYS_sendto, 3),
        (libc::SYS_sendmsg, 2),
        (libc::SYS_sendmmsg, 3),
    ] {
        for (flags, want) in [
            (0, Allow),
            (0x4000, Allow),
            (FAST, EPERM),
            (FAST | 0x4000, EPERM),
        ] {
            let arguments: Vec<u64> = [0; 3].into_iter().take(before).chain([flags]).collect();
            flat.check(call, &arguments, want);
            cell.check(call, &arguments, Allow);
        }
    }
    for (flags, length, want) in [
        (0, 12, Answer::Supervised),
        (0, 16, Allow),
        (0x40, 12, Allow),
        (FAST, 12, EPERM),
    ] {
        for stack in [&flat, &program] {
            stack.check(libc::SYS_sendto, &[3, 0, 0, flags, 0, length], want);
        }
    }
    let set = |level: i32, option: i32| [3, level as u64, option as u64, 0, 4];
    let (socket, ip, tcp, v6) = (
        libc::SOL_SOCKET,
        libc::IPPROTO_IP,
        libc::IPPROTO_TCP,
        libc::IPPROTO_IPV6,
    );
    for (level, option) in [
        (ip, libc::IP_OPTIONS),
        (ip, libc::IP_TRANSPARENT),
        (ip, libc::IP_FREEBIND),
        (ip, libc::IP_UNICAST_IF),
        (ip, libc::IP_BIND_ADDRESS_NO_PORT),
        (v6, libc::IPV6_RTHDR),
        (v6, libc::IPV6_ADDRFORM),
        (v6, libc::IPV6_UNICAST_IF),
        (tcp, libc::TCP_FASTOPEN_CONNECT),
        (tcp, libc::TCP_FASTOPEN),
        (tcp, libc::TCP_REPAIR),
        (tcp, libc::TCP_ULP),
        (tcp, libc::TCP_CONGESTION),
        (socket, libc::SO_BINDTODEVICE),
        (socket, libc::SO_BINDTOIFINDEX),
        (socket, libc::SO_ATTACH_FILTER),
        (socket, libc::SO_ATTACH_BPF),
        (socket, libc::SO_ATTACH_REUSEPORT_CBPF),
        (socket, libc::SO_ATTACH_REUSEPORT_EBPF),
        (libc::SOL_NETLINK, 1),
        (284, 1), // SOL_MPTCP
    ] {
        flat.check(libc::SYS_setsockopt, &set(level, option), EPERM);
        cell.check(libc::SYS_setsockopt, &set(level, option), Allow);
    }
    for (level, option) in [
        (socket, libc::SO_REUSEADDR),
        (socket, libc::SO_REUSEPORT),
        (socket, libc::SO_RCVBUF),
        (socket, libc::SO_KEEPALIVE),
        (tcp, libc::TCP_NODELAY),
        (tcp, libc::TCP_CORK),
        (tcp, libc::TCP_KEEPIDLE),
        (tcp, libc::TCP_KEEPINTVL),
        (tcp, libc::TCP_KEEPCNT),
        (tcp, libc::TCP_QUICKACK),
        (tcp, libc::TCP_USER_TIMEOUT),
        (ip, libc::IP_TOS),
        (v6, libc::IPV6_V6ONLY),
    ] {
        program.check(libc::SYS_setsockopt, &set(level, option), Allow);
    }
    program.check(
        libc::SYS_setsockopt,
        &set(socket, libc::SO_LINGER),
        Answer::Supervised,
    );
    for (how, want) in [(0, Answer::Supervised), (1, Allow), (2, Answer::Supervised)] {
        program.check(libc::SYS_shutdown, &[3, how], want);
    }
    for request in [0x890b, 0x8914, 0x8916, 0x891d, 0x8924, 0x8955, 0x89ff] {
        flat.check(libc::SYS_ioctl, &[3, request], EPERM);
    }
    for request in [0x8910, 0x8912, 0x8913, 0x8915, 0x8921, 0x8927, 0x8933] {
        for stack in [&flat, &program] {
            stack.check(libc::SYS_ioctl, &[3, request], Answer::Supervised);
        }
    }
    for request in [0x541b, 0x5421, 0x8905, 0x8906] {
        flat.check(libc::SYS_ioctl, &[3, request], Allow);
    }
}

/// A call that takes a path, or changes metadata, and is not here, is not held in the flat tier.
#[test]
fn a_flat_program_is_supervised() {
    const PATH_ONLY: u64 = libc::O_PATH as u64;
    let program = flat_program();
    for call in [
        libc::SYS_openat,
        libc::SYS_renameat2,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_unlinkat,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_truncate,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        // `fchmodat2`, which `libc` does not have for every architecture.
        452,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_getxattr,
        libc::SYS_inotify_add_watch,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_shutdown,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
    ] {
        program.check(call, &[], Answer::Supervised);
    }
    program.check(libc::SYS_openat, &[3, 0, PATH_ONLY], Allow);
    for (call, of_first) in [(libc::SYS_openat2, Allow), (libc::SYS_clone3, ENOSYS)] {
        flat_cell().check(call, &[], of_first);
        program.check(call, &[], ENOSYS);
    }
    program.check(libc::SYS_fchmod, &[3, 0o4755], EPERM);
    program.check(libc::SYS_fcntl, &[3, 1024], EPERM);
    // By a path in the machine's `/tmp` these mean the session's own; by a descriptor nobody names that.
    let (here, empty) = (u64::from(libc::AT_FDCWD as u32), libc::AT_EMPTY_PATH as u64);
    for call in [libc::SYS_chdir, libc::SYS_execve] {
        program.check(call, &[], Answer::Supervised);
    }
    for (call, flags) in [
        (libc::SYS_newfstatat, 3),
        (libc::SYS_statx, 2),
        (libc::SYS_faccessat, 5),
        (libc::SYS_faccessat2, 5),
        (libc::SYS_readlinkat, 5),
    ] {
        program.check(call, &[here], Answer::Supervised);
        program.check(call, &[3], Allow);
        let mut by_descriptor = [here, 0, 0, 0, 0, 0];
        by_descriptor[flags] = empty;
        program.check(
            call,
            &by_descriptor,
            if flags == 5 {
                Answer::Supervised
            } else {
                Allow
            },
        );
    }
    for call in [
        libc::SYS_read,
        libc::SYS_fstat,
        libc::SYS_execveat,
        libc::SYS_close,
        libc::SYS_fchdir,
    ] {
        program.check(call, &[], Allow);
    }
}

/// Where a profile hides nothing, what a flat program looks at or reads stops nowhere, and what it changes does all the same.
#[test]
fn a_flat_program_that_hides_nothing_asks_for_changes_alone() {
    let (all, changes) = (flat_program(), flat_program_that_reads());
    let here = u64::from(libc::AT_FDCWD as u32);
    let flags = [
        0,
        1,
        2,
        3,
        64,
        512,
        libc::O_APPEND,
        libc::O_CLOEXEC,
        libc::O_NONBLOCK,
    ];
    let looks = [
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_faccessat,
        libc::SYS_faccessat2,
        libc::SYS_readlinkat,
        libc::SYS_chdir,
        libc::SYS_execve,
        libc::SYS_getxattr,
        libc::SYS_lgetxattr,
        libc::SYS_listxattr,
        libc::SYS_llistxattr,
    ];
    for call in looks {
        all.check(call, &[here], Answer::Supervised);
        changes.check(call, &[here], Allow);
    }
    for one in flags {
        for other in flags {
            let flags = (one | other) as u64;
            if flags as i32 == libc::O_RDWR | libc::O_NONBLOCK {
                continue;
            }
            let changes_a_file = flags & (1 | 2 | 64 | 512) != 0;
            let want = if changes_a_file {
                Answer::Supervised
            } else {
                Allow
            };
            changes.check(libc::SYS_openat, &[here, 0, flags], want);
            all.check(libc::SYS_openat, &[here, 0, flags], Answer::Supervised);
        }
    }
    // Of all other calls the two say the same.
    for call in (0..463).filter(|call| !looks.contains(call) && *call != libc::SYS_openat) {
        #[cfg(target_arch = "x86_64")]
        if [
            libc::SYS_open,
            libc::SYS_stat,
            libc::SYS_lstat,
            libc::SYS_access,
            libc::SYS_readlink,
        ]
        .contains(&call)
        {
            changes.check(call, &[], Allow);
            continue;
        }
        for arguments in [[0; 6], [3; 6], [1, 1, 1, 1, 1, 1], [2, 2, 0, 0, 0, 0]] {
            assert_eq!(
                all.answer(call, &arguments),
                changes.answer(call, &arguments),
                "{call} {arguments:?}"
            );
        }
    }
}

/// A call that makes a name, or opens a file to change it, and is not here, makes protected names.
#[test]
fn a_program_asks_for_names_and_not_for_reading() {
    let program = program();
    for flags in [
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_CREAT,
        libc::O_TRUNC,
        libc::O_TMPFILE | libc::O_RDWR,
        3,
    ] {
        for others in [
            0,
            libc::O_NONBLOCK | libc::O_CLOEXEC,
            libc::O_APPEND,
            libc::O_CLOEXEC | libc::O_NOFOLLOW,
        ] {
            program.check(
                libc::SYS_openat,
                &[3, 0, (flags | others) as u64],
                Answer::Supervised,
            );
        }
    }
    for program in [&program, &flat_program()] {
        program.check(
            libc::SYS_openat,
            &[3, 0, (libc::O_RDWR | libc::O_NONBLOCK) as u64],
            Answer::Errno(6),
        );
    }
    for flags in [
        libc::O_RDONLY,
        libc::O_NONBLOCK,
        libc::O_DIRECTORY | libc::O_CLOEXEC,
        libc::O_PATH,
    ] {
        program.check(libc::SYS_openat, &[3, 0, flags as u64], Allow);
    }
    for call in [
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_unlinkat,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_truncate,
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_getsockname,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_vm_writev,
    ] {
        program.check(call, &[], Answer::Supervised);
    }
    for (fd, answer) in [
        (0, Answer::Allow),
        (1, Answer::Supervised),
        (-1_i32 as u32 as u64, Answer::Supervised),
    ] {
        program.check(libc::SYS_getpeername, &[fd], answer);
    }
    for call in [libc::SYS_openat2, libc::SYS_clone3] {
        program.check(call, &[], ENOSYS);
    }
    for call in [
        libc::SYS_read,
        libc::SYS_newfstatat,
        libc::SYS_fchmodat,
        libc::SYS_listen,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
    ] {
        program.check(call, &[], Allow);
    }
    for (number, want) in [(1, Allow), (0, EPERM), (2, EPERM)] {
        for program in [&program, &flat_program()] {
            program.check(
                libc::SYS_prctl,
                &[libc::PR_SET_DUMPABLE as u64, number],
                want,
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_asks_for_names_by_the_old_calls_too() {
    let program = program();
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC] {
        program.check(libc::SYS_open, &[0, flags as u64], Answer::Supervised);
    }
    program.check(libc::SYS_open, &[0, libc::O_RDONLY as u64], Allow);
    for call in [
        libc::SYS_creat,
        libc::SYS_rename,
        libc::SYS_link,
        libc::SYS_symlink,
        libc::SYS_unlink,
        libc::SYS_rmdir,
        libc::SYS_mkdir,
        libc::SYS_mknod,
    ] {
        program.check(call, &[], Answer::Supervised);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_old_calls_of_x86_64_are_supervised_too() {
    let program = flat_program();
    for call in [
        libc::SYS_open,
        libc::SYS_creat,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_access,
        libc::SYS_readlink,
        libc::SYS_rename,
        libc::SYS_link,
        libc::SYS_symlink,
        libc::SYS_unlink,
        libc::SYS_rmdir,
        libc::SYS_mkdir,
        libc::SYS_mknod,
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ] {
        program.check(call, &[], Answer::Supervised);
    }
    program.check(libc::SYS_open, &[0, libc::O_PATH as u64], Allow);
}

const NEW: [u64; 8] = [
    0x80,
    0x2_0000,
    0x200_0000,
    0x400_0000,
    0x800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];

#[test]
fn namespaces_are_made_by_the_warden_only() {
    const SIGCHLD: u64 = 17;
    const THREAD: u64 = 0x003d_0f00; // what pthread_create asks for
    let (warden, cell) = (warden(), cell());
    for flags in [SIGCHLD, THREAD, 0x4100 | SIGCHLD, 0x0120_0000 | SIGCHLD] {
        cell.check(libc::SYS_clone, &[flags], Allow);
    }
    for flag in &NEW[1..] {
        for flags in [*flag, flag | SIGCHLD, flag | THREAD, flag | 1 << 40] {
            cell.check(libc::SYS_clone, &[flags], EPERM);
            warden.check(libc::SYS_clone, &[flags], Allow);
        }
    }
    for flag in NEW {
        for stack in [&warden, &cell] {
            stack.check(libc::SYS_unshare, &[flag], EPERM);
            stack.check(libc::SYS_unshare, &[flag | 0x200], EPERM);
        }
    }
    cell.check(libc::SYS_unshare, &[0x200 | 0x400], Allow);
    for (call, of_warden, of_cell) in [
        (libc::SYS_clone3, Allow, ENOSYS),
        (libc::SYS_openat2, Allow, Allow),
        (libc::SYS_mount, Allow, EPERM),
        (libc::SYS_umount2, Allow, EPERM),
        (libc::SYS_setns, EPERM, EPERM),
        (libc::SYS_pivot_root, EPERM, EPERM),
        (libc::SYS_chroot, EPERM, EPERM),
    ] {
        warden.check(call, &[], of_warden);
        cell.check(call, &[], of_cell);
    }
}

#[test]
fn setuid_and_setgid_bits_are_never_set() {
    const CREATE: u64 = libc::O_CREAT as u64 | 1;
    const TEMPORARY: u64 = libc::O_TMPFILE as u64 | 1;
    let (cell, program) = (cell(), program());
    // A directory may have S_ISGID: of that the cell's first process decides.
    for (mode, want, of_directory) in [
        (0o644, Allow, Allow),
        (0o1777, Allow, Allow),
        (0o4755, EPERM, EPERM),
        (0o2755, EPERM, Answer::Supervised),
        (0o6755, EPERM, EPERM),
        (0o7777, EPERM, EPERM),
    ] {
        program.check(libc::SYS_fchmod, &[3, mode], of_directory);
        program.check(libc::SYS_fchmodat, &[3, 0, mode], of_directory);
        program.check(452, &[3, 0, mode, 0x100], of_directory); // fchmodat2
        cell.check(libc::SYS_openat, &[3, 0, CREATE, mode], want);
        cell.check(libc::SYS_openat, &[3, 0, TEMPORARY, mode], want);
        cell.check(libc::SYS_mknodat, &[3, 0, 0o10_0000 | mode], want);
        // What the register held when no mode was given.
        cell.check(
            libc::SYS_openat,
            &[3, 0, libc::O_RDONLY as u64, mode],
            Allow,
        );
    }
}

#[test]
fn no_device_is_made() {
    let cell = cell();
    for (kind, want) in [
        (0, Allow),
        (libc::S_IFREG, Allow),
        (libc::S_IFIFO, Allow),
        (libc::S_IFSOCK, Allow),
        (libc::S_IFCHR, EPERM),
        (libc::S_IFBLK, EPERM),
        (libc::S_IFDIR, EPERM),
    ] {
        cell.check(libc::SYS_mknodat, &[3, 0, u64::from(kind | 0o600)], want);
    }
}

#[test]
fn only_known_ioctls_are_allowed() {
    let cell = cell();
    // TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, BTRFS_IOC_SNAP_CREATE, _SUBVOL_CREATE,
    // _SNAP_CREATE_V2, _SUBVOL_CREATE_V2, OCFS2_IOC_REFLINK, SIOCSIFFLAGS, one that nobody has.
    for command in [
        0x5412,
        0x541c,
        0x5423,
        0x541d,
        0x4008_6602,
        0x401c_5820,
        0x5000_9401,
        0x5000_940e,
        0x5000_9417,
        0x5000_9418,
        0x4018_6f04,
        0x8914,
        0x1234_5678,
    ] {
        cell.check(libc::SYS_ioctl, &[0, command], EPERM);
        // The kernel ignores the upper half of the command.
        cell.check(libc::SYS_ioctl, &[0, 1 << 32 | command], EPERM);
    }
    for command in [
        0x5401,
        0x5413,
        0x5410,
        0x5421,
        0x5450,
        0x541b,
        0x8008_6601,
        0x4004_9409,
        0x8912,
        0x8927,
    ] {
        cell.check(libc::SYS_ioctl, &[0, command], Allow);
        cell.check(libc::SYS_ioctl, &[0, 1 << 32 | command], Allow);
    }
}

#[test]
fn nobody_waits_for_a_lease() {
    // F_SETLEASE, F_NOTIFY, F_CANCELLK, F_SETDELEG.
    for (command, want) in [
        (1024, EPERM),
        (1026, EPERM),
        (1029, EPERM),
        (1040, EPERM),
        (0, Allow),
        (7, Allow),
        (38, Allow),
        (1030, Allow),
    ] {
        cell().check(libc::SYS_fcntl, &[3, command], want);
        flat_cell().check(libc::SYS_fcntl, &[3, command], want);
    }
}

#[test]
fn only_the_personalities_of_debuggers_are_taken() {
    for (persona, want) in [
        (0, Allow),
        (0x40000, Allow),
        (0xffff_ffff, Allow),
        (u64::MAX, Allow),
        (8, EPERM),
        (0x40_0000, EPERM),
        (0x44_0000, EPERM),
        (0x8_0000, EPERM),
        (1, EPERM),
    ] {
        cell().check(libc::SYS_personality, &[persona], want);
    }
}

#[test]
fn doors_into_the_kernel_and_into_other_processes_are_closed() {
    for call in [
        libc::SYS_pidfd_getfd,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
    ] {
        worker().check(call, &[], EPERM);
        for program in [program(), flat_program()] {
            program.check(call, &[], Answer::Supervised);
        }
    }
    for stack in [warden(), cell(), flat_cell(), worker()] {
        for call in [
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_userfaultfd,
            libc::SYS_bpf,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_keyctl,
            libc::SYS_perf_event_open,
            libc::SYS_kcmp,
            libc::SYS_name_to_handle_at,
            libc::SYS_open_by_handle_at,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_acct,
            libc::SYS_quotactl,
            libc::SYS_fsopen,
            libc::SYS_fsmount,
            libc::SYS_fsconfig,
            libc::SYS_fspick,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_mount_setattr,
            libc::SYS_fanotify_init,
            libc::SYS_fanotify_mark,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_adjtimex,
            libc::SYS_clock_adjtime,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_syslog,
            libc::SYS_vhangup,
            libc::SYS_move_pages,
            libc::SYS_migrate_pages,
            libc::SYS_mbind,
            libc::SYS_io_setup,
            libc::SYS_io_submit,
            libc::SYS_remap_file_pages,
            libc::SYS_memfd_secret,
            457,
            458, // statmount, listmount
        ] {
            stack.check(call, &[], EPERM);
        }
    }
    // Newer than the tables: the build, of which the flat list is, has them absent.
    for call in [463, 467, 500, 4095] {
        for stack in [warden(), cell(), worker()] {
            stack.check(call, &[], EPERM);
        }
        flat_cell().check(call, &[], ENOSYS);
    }
}

#[test]
fn flat_cell_may_change_its_own_scheduling_only() {
    let (cell, flat) = (cell(), flat_cell());
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
    ] {
        flat.check(call, &[0], Allow);
        flat.check(call, &[1], EPERM);
        flat.check(call, &[minus(1)], EPERM);
        cell.check(call, &[1], Allow);
    }
    for (call, user) in [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)] {
        flat.check(call, &[0, 0], Allow);
        flat.check(call, &[0, 77], EPERM);
        flat.check(call, &[user, 0], EPERM);
        cell.check(call, &[user, 77], Allow);
    }
    // Attaching to a process is judged; asking to be traced is allowed.
    for request in [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE] {
        let request = u64::from(request);
        flat_program().check(libc::SYS_ptrace, &[request, 77], Answer::Supervised);
        flat_program().check(
            libc::SYS_ptrace,
            &[request | 1 << 32, 77],
            Answer::Supervised,
        );
    }
    for request in [
        libc::PTRACE_TRACEME,
        libc::PTRACE_DETACH,
        libc::PTRACE_SETOPTIONS,
    ] {
        flat_program().check(libc::SYS_ptrace, &[request.into(), 77], Allow);
    }
    for call in [
        libc::SYS_process_madvise,
        libc::SYS_process_mrelease,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_mq_timedsend,
        libc::SYS_mq_timedreceive,
        libc::SYS_mq_notify,
        libc::SYS_mq_getsetattr,
    ] {
        flat.check(call, &[], EPERM);
        cell.check(call, &[], Allow);
    }
    for call in [
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgctl,
    ] {
        flat_program().check(call, &[], Answer::Supervised);
        flat.check(call, &[], Allow);
        cell.check(call, &[], Allow);
    }
    // Use of the machine's objects: without a supervisor, none at all.
    for call in [
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
    ] {
        flat_program().check(call, &[], Answer::Supervised);
        flat.check(call, &[], Answer::Supervised);
        cell.check(call, &[], Allow);
    }
    flat.check(libc::SYS_kill, &[77, 9], Allow);
}

#[test]
fn programs_may_call_what_they_need() {
    for stack in [cell(), flat_cell()] {
        for call in [
            libc::SYS_read,
            libc::SYS_write,
            libc::SYS_openat,
            libc::SYS_close,
            libc::SYS_close_range,
            libc::SYS_mmap,
            libc::SYS_mprotect,
            libc::SYS_brk,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_wait4,
            libc::SYS_waitid,
            libc::SYS_exit_group,
            libc::SYS_futex,
            libc::SYS_rseq,
            libc::SYS_set_robust_list,
            libc::SYS_getrandom,
            libc::SYS_statx,
            libc::SYS_newfstatat,
            libc::SYS_getdents64,
            libc::SYS_renameat2,
            libc::SYS_unlinkat,
            libc::SYS_fchmodat,
            libc::SYS_utimensat,
            libc::SYS_faccessat2,
            libc::SYS_inotify_init1,
            libc::SYS_epoll_pwait2,
            libc::SYS_pidfd_open,
            libc::SYS_pidfd_send_signal,
            libc::SYS_memfd_create,
            libc::SYS_copy_file_range,
            libc::SYS_setpgid,
            libc::SYS_setsid,
            libc::SYS_kill,
            libc::SYS_prctl,
            libc::SYS_seccomp,
            libc::SYS_setuid,
            libc::SYS_setxattr,
            libc::SYS_landlock_restrict_self,
            libc::SYS_timerfd_create,
            libc::SYS_sched_getaffinity,
        ] {
            stack.check(call, &[], Allow);
        }
    }
    cell().check(libc::SYS_ptrace, &[], Allow);
}

#[test]
fn the_worker_reads_and_writes_files_and_nothing_else() {
    let worker = worker();
    for call in [
        libc::SYS_read,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_openat2,
        libc::SYS_getdents64,
        libc::SYS_renameat2,
        libc::SYS_unlinkat,
        libc::SYS_linkat,
        libc::SYS_fsync,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_exit_group,
    ] {
        worker.check(call, &[], Allow);
    }
    for call in [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_ptrace,
        libc::SYS_kill,
        libc::SYS_ioctl,
        libc::SYS_mount,
        libc::SYS_symlinkat,
        libc::SYS_mknodat,
        libc::SYS_fchownat,
        libc::SYS_fchmodat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_memfd_create,
        libc::SYS_setuid,
        libc::SYS_unshare,
        libc::SYS_seccomp,
        libc::SYS_pkey_mprotect,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_setpriority,
        libc::SYS_inotify_init1,
    ] {
        worker.check(call, &[], EPERM);
    }
    for (protection, want) in [
        (0, Allow),
        (1, Allow),
        (3, Allow),
        (4, EPERM),
        (5, EPERM),
        (7, EPERM),
    ] {
        worker.check(libc::SYS_mmap, &[0, 4096, protection], want);
        worker.check(libc::SYS_mprotect, &[0, 4096, protection], want);
    }
    for (mode, want) in [(0o644, Allow), (0o4755, EPERM), (0o2755, EPERM)] {
        worker.check(libc::SYS_openat, &[3, 0, libc::O_CREAT as u64, mode], want);
        worker.check(libc::SYS_fchmod, &[3, mode], want);
    }
    for (command, want) in [
        (0, Allow),
        (1030, Allow),
        (3, Allow),
        (8, EPERM),
        (10, EPERM),
        (1024, EPERM),
        (1026, EPERM),
    ] {
        worker.check(libc::SYS_fcntl, &[3, command], want);
    }
    for (option, want) in [
        (15, Allow),
        (21, Allow),
        (39, Allow),
        (4, EPERM),
        (22, EPERM),
        (38, EPERM),
        (0x5961_6d61, EPERM),
    ] {
        worker.check(libc::SYS_prctl, &[option], want);
    }
    worker.check(libc::SYS_prlimit64, &[0, 7, 0, 1], Allow);
    worker.check(libc::SYS_prlimit64, &[0, 7, 1, 0], EPERM);
    worker.check(libc::SYS_prlimit64, &[0, 7, 1 << 32, 0], EPERM);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_old_calls_of_x86_64_follow_the_new() {
    let (cell, worker) = (cell(), worker());
    for call in [
        libc::SYS_open,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_access,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_pipe,
        libc::SYS_poll,
        libc::SYS_select,
        libc::SYS_dup2,
        libc::SYS_getdents,
        libc::SYS_epoll_wait,
        libc::SYS_arch_prctl,
        libc::SYS_readlink,
        libc::SYS_rename,
        libc::SYS_mkdir,
        libc::SYS_rmdir,
        libc::SYS_utimes,
        libc::SYS_alarm,
    ] {
        cell.check(call, &[], Allow);
    }
    for call in [
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS_uselib,
        libc::SYS_sysfs,
        libc::SYS_lookup_dcookie,
    ] {
        cell.check(call, &[], EPERM);
    }
    for (mode, want, of_directory) in [
        (0o755, Allow, Allow),
        (0o4755, EPERM, EPERM),
        (0o2755, EPERM, Answer::Supervised),
    ] {
        program().check(libc::SYS_chmod, &[0, mode], of_directory);
        cell.check(libc::SYS_creat, &[0, mode], want);
        cell.check(libc::SYS_open, &[0, libc::O_CREAT as u64, mode], want);
        cell.check(libc::SYS_open, &[0, libc::O_RDONLY as u64, mode], Allow);
        cell.check(libc::SYS_mknod, &[0, u64::from(libc::S_IFIFO) | mode], want);
    }
    cell.check(
        libc::SYS_mknod,
        &[0, u64::from(libc::S_IFCHR) | 0o600],
        EPERM,
    );
    worker.check(libc::SYS_open, &[0, libc::O_CREAT as u64, 0o644], Allow);
    worker.check(libc::SYS_open, &[0, libc::O_CREAT as u64, 0o4755], EPERM);
    worker.check(libc::SYS_fork, &[], EPERM);
    // The x32 numbers meet no entry of an allow-list.
    cell.check(0x4000_0000 | libc::SYS_openat, &[], EPERM);
}

/// Calls that neither `lazaret` nor its gateway makes.
const CLOSED_TO_OURS: [i64; 42] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone3,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_memfd_create,
    libc::SYS_openat2,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mknodat,
    libc::SYS_truncate,
    libc::SYS_setuid,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_seccomp,
];

#[test]
fn the_orchestrator_keeps_what_it_needs_and_no_more() {
    let bare = Stack::of(&["orchestrator"]);
    let web = Stack::of(&["orchestrator+orchestrator-web"]);
    let unix = Stack::of(&["orchestrator+orchestrator-web+orchestrator-unix"]);
    let serve = Stack::of(&["orchestrator+orchestrator-serve"]);
    for list in [&bare, &web, &unix, &serve] {
        for call in CLOSED_TO_OURS {
            list.check(call, &[], ENOSYS);
        }
        list.check(libc::SYS_openat, &[], Allow);
        list.check(libc::SYS_mmap, &[0, 4096, 3], Allow);
        for code in [4, 5, 7] {
            list.check(libc::SYS_mmap, &[0, 4096, code], ENOSYS);
            list.check(libc::SYS_mprotect, &[0, 4096, code], ENOSYS);
        }
        // TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCCONS.
        for request in [0x5412, 0x541c, 0x540e, 0x541d] {
            list.check(libc::SYS_ioctl, &[0, request], ENOSYS);
        }
        list.check(libc::SYS_ioctl, &[0, 0x5413], Allow);
        list.check(libc::SYS_fcntl, &[0, libc::F_SETOWN as u64], ENOSYS);
        list.check(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64], ENOSYS);
        list.check(libc::SYS_prlimit64, &[0, 7, 1], ENOSYS);
        for (kind, want) in [(1, Allow), (2, ENOSYS), (5, ENOSYS)] {
            list.check(libc::SYS_socketpair, &[1, kind, 0], want);
        }
    }
    bare.check(libc::SYS_accept4, &[], ENOSYS);
    web.check(libc::SYS_accept4, &[], Allow);
    // Who serves makes no connection, and no thread.
    serve.check(libc::SYS_accept4, &[], Allow);
    serve.check(libc::SYS_setsockopt, &[], Allow);
    for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_clone] {
        serve.check(call, &[2, 1, 0], ENOSYS);
    }
    // Only the gateway forwards bytes of cells.
    web.check(libc::SYS_splice, &[], ENOSYS);
    // No connection but to the executor's path, and that only with `--socket`.
    for (family, kind, protocol) in [
        (2, 1, 0),
        (2, 1, 6),
        (10, 1, 6),
        (2, 2, 0),
        (10, 2, 17),
        (2, 1, 262),
        (2, 3, 1),
        (2, 2, 136),
        (1, 2, 0),
        (16, 3, 0),
        (17, 3, 0),
        (40, 1, 0),
    ] {
        for list in [&bare, &web, &unix] {
            list.check(libc::SYS_socket, &[family, kind, protocol], ENOSYS);
        }
    }
    bare.check(libc::SYS_connect, &[], ENOSYS);
    web.check(libc::SYS_connect, &[], ENOSYS);
    unix.check(libc::SYS_connect, &[], Allow);
    web.check(libc::SYS_socket, &[1, 1, 0], ENOSYS);
    unix.check(libc::SYS_socket, &[1, 1, 0], Allow);
    let thread = 0x3d_0f00;
    bare.check(libc::SYS_clone, &[thread], ENOSYS);
    web.check(libc::SYS_clone, &[thread], Allow);
    web.check(libc::SYS_clone, &[libc::SIGCHLD as u64], ENOSYS);
    for namespace in [
        0x2_0000,
        0x200_0000,
        0x400_0000,
        0x800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
    ] {
        web.check(libc::SYS_clone, &[thread | namespace], ENOSYS);
    }
}

#[test]
fn the_gateway_keeps_what_it_needs_and_no_more() {
    let gateway = Stack::of(&["gateway"]);
    let others = [
        libc::SYS_mkdirat,
        libc::SYS_unlinkat,
        libc::SYS_renameat2,
        libc::SYS_ftruncate,
        libc::SYS_flock,
        libc::SYS_capset,
    ];
    for call in CLOSED_TO_OURS.into_iter().chain(others) {
        gateway.check(call, &[], ENOSYS);
    }
    for (flags, want) in [
        (libc::O_RDONLY | libc::O_CLOEXEC, Allow),
        (libc::O_WRONLY, ENOSYS),
        (libc::O_RDWR, ENOSYS),
        (libc::O_RDONLY | libc::O_CREAT, ENOSYS),
    ] {
        gateway.check(libc::SYS_openat, &[0, 0, flags as u64], want);
    }
    for code in [4, 5, 7] {
        gateway.check(libc::SYS_mmap, &[0, 4096, code], ENOSYS);
        gateway.check(libc::SYS_mprotect, &[0, 4096, code], ENOSYS);
    }
    for request in [0x5401, 0x5412, 0x5413, 0x541c] {
        gateway.check(libc::SYS_ioctl, &[0, request], ENOSYS);
    }
    gateway.check(libc::SYS_fcntl, &[0, libc::F_SETOWN as u64], ENOSYS);
    gateway.check(libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64], ENOSYS);
    gateway.check(libc::SYS_prlimit64, &[0, 7, 1], ENOSYS);
    for call in [
        libc::SYS_connect,
        libc::SYS_accept4,
        libc::SYS_splice,
        libc::SYS_getdents64,
    ] {
        gateway.check(call, &[], Allow);
    }
    for (family, kind, protocol, want) in [
        (2, 1, 6, Allow),
        (10, 2, 17, Allow),
        (1, 1, 0, ENOSYS),
        (2, 3, 1, ENOSYS),
        (2, 1, 262, ENOSYS),
        (16, 3, 0, ENOSYS),
    ] {
        gateway.check(libc::SYS_socket, &[family, kind, protocol], want);
    }
    gateway.check(libc::SYS_clone, &[0x3d_0f00], Allow);
    gateway.check(libc::SYS_clone, &[libc::SIGCHLD as u64], ENOSYS);
}
