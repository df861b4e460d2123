//! Compiles the lists of `seccomp/` to BPF when a program that uses them is built, so that what runs parses no JSON and
//! builds no filter. A build script takes this file in with `#[path]`; it needs `seccompiler` and `serde_json`.

use seccompiler::{BpfProgram, sock_filter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Lists that make one program, each with the files it is made of. What one list lets pass, the next is asked about: the
/// kernel would ask each of several programs, for every call and whenever one is installed.
pub(crate) type Lists<'a> = &'a [&'a [&'a str]];

/// Writes `filters.rs` into the build's folder: for each program a static of `instruction`s.
pub(crate) fn write(programs: &[(&str, Lists)], instruction: &str) {
    let manifest = variable("CARGO_MANIFEST_DIR");
    // Crates of ours lie beside `policies` or deeper.
    let mut above = Path::new(&manifest)
        .ancestors()
        .map(|folder| folder.join("policies/seccomp"));
    let folder = above
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| panic!("no policies/seccomp above {manifest}"));
    println!("cargo::rerun-if-changed={}", folder.display());
    println!(
        "cargo::rerun-if-changed={}",
        folder.with_file_name("build").display()
    );
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let mut code = String::new();
    for (name, lists) in programs {
        let program = program(&folder, lists, &arch);
        let (name, from) = (name.to_uppercase(), lists.concat().join(".json`, `"));
        let step = |i: &sock_filter| {
            format!(
                "    {instruction} {{ code: {}, jt: {}, jf: {}, k: {} }},\n",
                i.code, i.jt, i.jf, i.k
            )
        };
        let steps: String = program.iter().map(step).collect();
        let length = program.len();
        code += &format!("/// Compiled from `{from}.json` of `policies/seccomp`.\n");
        code += &format!("pub(crate) static {name}: [{instruction}; {length}] = [\n{steps}];\n");
    }
    let out = PathBuf::from(variable("OUT_DIR")).join("filters.rs");
    fs::write(&out, code).unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}

fn bpf(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The program of `lists` in `folder`.
pub(crate) fn program(folder: &Path, lists: Lists, arch: &str) -> BpfProgram {
    chain(arch, lists.iter().map(|files| compile(folder, files, arch)))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// The files of a list and, where there are such, the parts of them that only `arch` has.
fn compile(folder: &Path, files: &[&str], arch: &str) -> BpfProgram {
    let list = files[0];
    let mut filter = read(&folder.join(format!("{list}.json")));
    let others = files[1..].iter().map(|file| format!("{file}.json"));
    for file in others.chain(files.iter().map(|file| format!("{file}.{arch}.json"))) {
        let own = folder.join(&file);
        if own.exists() {
            let mut more = read(&own);
            rules(&mut filter, list).append(&mut std::mem::take(rules(&mut more, list)));
        }
    }
    let compile = |rules: &[Value]| {
        let mut part = filter.clone();
        part["main"]["filter"] = rules.into();
        compile_rules(&part, list, arch)
    };
    let mut calls = calls(
        filter
            .pointer("/main/filter")
            .and_then(Value::as_array)
            .expect("`rules` has seen it"),
    );
    calls.sort_by_cached_key(|rules| number(&compile(rules)));
    let numbered: Vec<(u32, bool)> = calls
        .iter()
        .map(|rules| {
            (
                number(&compile(rules)),
                rules.iter().all(|rule| rule.get("args").is_none()),
            )
        })
        .collect();
    let (matched, otherwise) = (
        action(&filter, "match_action"),
        action(&filter, "mismatch_action"),
    );
    // seccompiler puts the calls in one line, and the kernel walks it for each of its calls when the filter is installed.
    // Ranges and short lines behind a search by number take a fraction of the time.
    let lines: Vec<(u32, BpfProgram)> = groups(&numbered)
        .into_iter()
        .map(|group| match numbered[group.start] {
            (first, true) => (
                first,
                range(first, numbered[group.end - 1].0, matched, otherwise),
            ),
            (first, false) => (first, bare(&compile(&calls[group].concat()))),
        })
        .collect();
    let mut program = search(&lines);
    for step in program
        .iter_mut()
        .filter(|step| (step.code, step.k) == (RETURN, TRACE))
    {
        step.k = USER_NOTIF;
    }
    program
}

/// Neighbours that make one line: calls without conditions whose numbers follow each other, or a few with conditions.
fn groups(calls: &[(u32, bool)]) -> Vec<Range<usize>> {
    const LINE: usize = 4;
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, (number, bare)) in calls.iter().enumerate() {
        match groups.last_mut() {
            Some(group)
                if calls[group.start].1 == *bare
                    && if *bare {
                        calls[at - 1].0 + 1 == *number
                    } else {
                        group.len() < LINE
                    } =>
            {
                group.end = at + 1;
            }
            _ => groups.push(at..at + 1),
        }
    }
    groups
}

/// The number of the call is loaded; those from `first` to `last` are matched.
fn range(first: u32, last: u32, matched: u32, otherwise: u32) -> BpfProgram {
    vec![
        bpf(GREATER_OR_EQUAL, 0, 2, first),
        bpf(GREATER, 1, 0, last),
        bpf(RETURN, 0, 0, matched),
        bpf(RETURN, 0, 0, otherwise),
    ]
}

/// A program of seccompiler's without its beginning: the architecture was looked at, and the number of the call is loaded.
fn bare(program: &BpfProgram) -> BpfProgram {
    let codes: Vec<(u16, u32)> = program
        .iter()
        .take(4)
        .map(|step| (step.code, step.k))
        .collect();
    assert!(
        matches!(
            codes[..],
            [
                (LOAD, ARCHITECTURE),
                (EQUAL, _),
                (RETURN, KILL_PROCESS),
                (LOAD, NUMBER)
            ]
        ),
        "seccompiler begins a program in another way: {codes:x?}"
    );
    program[4..].to_vec()
}

/// The kernel's value for an action of a list (`linux/seccomp.h`).
fn action(filter: &Value, name: &str) -> u32 {
    let action = &filter["main"][name];
    let number = |kind: &str| {
        action[kind]
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
    };
    match (action.as_str(), number("errno"), number("trace")) {
        (Some("allow"), ..) => ALLOW,
        (_, Some(errno), _) => ERRNO | errno,
        (_, _, Some(0)) => TRACE,
        _ => panic!("an action that no list has: {action}"),
    }
}

/// One program that asks each of `lists`, in this order, about what those before it let pass.
fn chain(arch: &str, lists: impl DoubleEndedIterator<Item = BpfProgram>) -> BpfProgram {
    let mut chain = Vec::new();
    for mut list in lists.rev() {
        let length = list.len();
        for (at, step) in list.iter_mut().enumerate() {
            if !chain.is_empty() && (step.code, step.k) == (RETURN, ALLOW) {
                *step = bpf(JUMP, 0, 0, (length - at - 1) as u32);
            }
        }
        list.append(&mut chain);
        chain = list;
    }
    let mut program = foreign(arch);
    program.append(&mut chain);
    without_needless_jumps(&program)
}

/// Removes jumps to jumps, repeated returns and unreachable instructions: the kernel translates each
/// instruction anew whenever the program is put on.
fn without_needless_jumps(program: &[sock_filter]) -> BpfProgram {
    // Farthest instruction after its own that a conditional jump leads to.
    const REACH: usize = 255;
    let through = |mut at: usize| {
        while program[at].code == JUMP {
            at += 1 + program[at].k as usize;
        }
        at
    };
    let same = |at: usize, other: &sock_filter| (other.code, other.k) == (RETURN, program[at].k);
    // Where a jump from `from` to `to` may as well lead.
    let better = |from: usize, to: usize| {
        let end = through(to);
        let within = &program[..program.len().min(from + 2 + REACH)];
        let shared = within
            .iter()
            .rposition(|other| same(end, other))
            .filter(|_| program[end].code == RETURN);
        shared
            .into_iter()
            .chain([end, to])
            .find(|at| (from + 1..=from + 1 + REACH).contains(at))
            .unwrap_or(to)
    };
    let next = |at: usize| -> Vec<usize> {
        let step = &program[at];
        match step.code {
            RETURN => vec![],
            JUMP => vec![through(at)],
            EQUAL | GREATER | GREATER_OR_EQUAL => [step.jt, step.jf]
                .map(|jump| better(at, at + 1 + usize::from(jump)))
                .into(),
            _ => vec![at + 1],
        }
    };
    let mut kept = vec![false; program.len()];
    let mut reached = vec![0];
    while let Some(at) = reached.pop() {
        if !std::mem::replace(&mut kept[at], true) {
            reached.extend(next(at));
        }
    }
    // How many steps lie between `from` and `to`, in the end.
    let between = |from: usize, to: usize| kept[from + 1..to].iter().filter(|kept| **kept).count();
    let moved = |at: usize| {
        let step = program[at].clone();
        match next(at)[..] {
            [to] if step.code == JUMP => sock_filter {
                k: between(at, to) as u32,
                ..step
            },
            [yes, no] => sock_filter {
                jt: between(at, yes) as u8,
                jf: between(at, no) as u8,
                ..step
            },
            _ => step,
        }
    };
    (0..program.len())
        .filter(|at| kept[*at])
        .map(moved)
        .collect()
}

/// The last call of seccompiler's tables (`mseal`, Linux 6.10).
const LAST: u32 = 462;

/// Kills the process on a call of another architecture, or of x32, which has the architecture of x86_64. A call that nobody here knows is
/// absent, as on an older kernel: libraries then do without.
fn foreign(arch: &str) -> BpfProgram {
    let (own, has_x32) = match arch {
        "x86_64" => (0xc000_003e, true),
        "aarch64" => (0xc000_00b7, false),
        other => panic!("no list is for the architecture {other}"),
    };
    let mut program = vec![
        bpf(LOAD, 0, 0, ARCHITECTURE),
        bpf(EQUAL, 1, 0, own),
        bpf(RETURN, 0, 0, KILL_PROCESS),
    ];
    if has_x32 {
        program.extend([
            bpf(LOAD, 0, 0, NUMBER),
            bpf(GREATER_OR_EQUAL, 0, 1, X32_BIT),
            bpf(RETURN, 0, 0, KILL_PROCESS),
        ]);
    } else {
        program.push(bpf(LOAD, 0, 0, NUMBER));
    }
    program.extend([bpf(GREATER, 0, 1, LAST), bpf(RETURN, 0, 0, ERRNO | ENOSYS)]);
    program
}

/// The rules of each call, which may be several.
fn calls(rules: &[Value]) -> Vec<Vec<Value>> {
    let mut calls: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for rule in rules {
        calls
            .entry(rule["syscall"].as_str().unwrap_or_default())
            .or_default()
            .push(rule.clone());
    }
    calls.into_values().collect()
}

fn compile_rules(filter: &Value, list: &str, arch: &str) -> BpfProgram {
    let arch = arch
        .try_into()
        .unwrap_or_else(|_| panic!("seccompiler does not know the architecture {arch}"));
    let mut filters = seccompiler::compile_from_json(filter.to_string().as_bytes(), arch)
        .unwrap_or_else(|error| panic!("policies/seccomp/{list}.json does not compile: {error}"));
    filters
        .remove("main")
        .unwrap_or_else(|| panic!("policies/seccomp/{list}.json has no filter `main`"))
}

/// The number of the first call of a program: what is compared after it has been loaded.
fn number(program: &BpfProgram) -> u32 {
    let load = program
        .iter()
        .position(|i| i.code == LOAD && i.k == NUMBER)
        .expect("a program looks at the number");
    let compare = program[load..]
        .iter()
        .find(|i| i.code == EQUAL)
        .expect("a program compares the number");
    compare.k
}

/// `BPF_LD | BPF_W | BPF_ABS` (`linux/bpf_common.h`), and likewise below.
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const GREATER_OR_EQUAL: u16 = 0x35;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;
/// `SECCOMP_RET_ALLOW` and `SECCOMP_RET_KILL_PROCESS` (`linux/seccomp.h`).
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
/// x32 calls have the number of an x86_64 call with this bit set (`arch/x86/include/uapi/asm/unistd.h`).
const X32_BIT: u32 = 0x4000_0000;
/// `SECCOMP_RET_ERRNO`, to which the error is added.
const ERRNO: u32 = 0x0005_0000;
const ENOSYS: u32 = 38;
/// `SECCOMP_RET_TRACE` with no data: no tracer is meant, and seccompiler has no word for the next.
const TRACE: u32 = 0x7ff0_0000;
/// `SECCOMP_RET_USER_NOTIF`.
const USER_NOTIF: u32 = 0x7fc0_0000;
/// `offsetof(struct seccomp_data, nr)`.
const NUMBER: u32 = 0;
/// `offsetof(struct seccomp_data, arch)`, which is one of `AUDIT_ARCH_*` (`linux/audit.h`).
const ARCHITECTURE: u32 = 4;

/// A search by the number of the call, then the line it may stand in. Each line is a whole program, so what is in none
/// gets the mismatch action of whichever line its number leads to.
fn search(lines: &[(u32, BpfProgram)]) -> BpfProgram {
    let mut program = vec![bpf(LOAD, 0, 0, NUMBER)];
    branch(lines, &mut program);
    program
}

fn branch(lines: &[(u32, BpfProgram)], program: &mut BpfProgram) {
    let (left, right) = lines.split_at(lines.len() / 2);
    let Some((first, line)) = right.first() else {
        panic!("a list is empty")
    };
    if left.is_empty() {
        program.extend_from_slice(line);
        return;
    }
    // Conditional jumps reach 255 instructions, unconditional ones any number.
    program.push(bpf(GREATER_OR_EQUAL, 0, 1, *first));
    let jump = program.len();
    program.push(bpf(JUMP, 0, 0, 0));
    branch(left, program);
    program[jump].k = (program.len() - jump - 1) as u32;
    branch(right, program);
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{} is not JSON: {error}", path.display()))
}

fn rules<'a>(filter: &'a mut Value, list: &str) -> &'a mut Vec<Value> {
    filter
        .pointer_mut("/main/filter")
        .and_then(Value::as_array_mut)
        .unwrap_or_else(|| panic!("policies/seccomp/{list}*.json has no list /main/filter"))
}
