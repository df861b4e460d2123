//! Debuggers in a cell trace what they start, and reach nothing else by it: neither a process outside nor, through what they
//! trace, a call that the cell refuses. Whoever says that our own processes trace it is let go.

use broker_protocol::Tier;
use lazaret_tests::process::{self, until};
use lazaret_tests::programs::need;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::time::Duration;

/// `ptrace` for Python, and a child that has asked to be traced and stopped.
const TRACER: &str = r#"
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
TRACEME, CONT, GETREGS, SETREGS, ATTACH, DETACH, SYSCALL = 0, 7, 12, 13, 16, 17, 24
SETOPTIONS, SEIZE, GET_FILTER = 0x4200, 0x4206, 0x420c
def ptrace(request, pid, address=0, data=0):
    result = libc.ptrace(request, pid, address, data)
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def child(work):
    pid = os.fork()
    if pid == 0:
        ptrace(TRACEME, 0); os.kill(os.getpid(), signal.SIGSTOP)
        work(); sys.stdout.flush(); os._exit(0)
    os.waitpid(pid, 0)
    return pid
"#;

/// Makes its child's `getpid` another call, at the stop that its arguments name, and prints what the child then has.
const REWRITE: &str = r#"
from tracer import *
import socket
where, call, *arguments = sys.argv[1:]
path = ctypes.create_string_buffer(arguments[0].encode()) if arguments else None
BPF = b''.join(code.to_bytes(2, 'little') + bytes(jumps) + k.to_bytes(4, 'little') for code, jumps, k in
    [(0x20, (0, 0), 0), (0x15, (0, 1), 39), (0x06, (0, 0), 0x7ff00000), (0x06, (0, 0), 0x7fff0000)])
class Program(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_char_p)]
def work():
    if where == 'seccomp':
        libc.prctl(38, 1, 0, 0, 0)
        assert libc.prctl(22, 2, ctypes.byref(Program(4, BPF)), 0, 0) == 0
    fd = libc.syscall(39)
    if fd < 0 or fd == os.getpid(): print('no', os.strerror(ctypes.get_errno())); return
    print('GOT', os.read(fd, 99).decode() if path else socket.socket(fileno=fd).getsockopt(1, 39))
pid = child(work)
EVENT = signal.SIGTRAP | (7 << 8 if where == 'seccomp' else 0x80)
ptrace(SETOPTIONS, pid, 0, 0x1 | 0x80)
regs = (ctypes.c_ulonglong * 27)()
go, done = (CONT if where == 'seccomp' else SYSCALL), False
while True:
    ptrace(go, pid)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status): break
    if status >> 8 != EVENT or done: continue
    ptrace(GETREGS, pid, 0, ctypes.addressof(regs))
    if regs[15] != 39: continue
    done, go = True, CONT
    if call == 'open': regs[15], regs[14], regs[13], regs[12] = 257, 2**64 - 100, ctypes.addressof(path), 0
    else: regs[15], regs[14], regs[13], regs[12] = 41, 2, 2, 0  # a datagram socket
    ptrace(SETREGS, pid, 0, ctypes.addressof(regs))
"#;

fn world(place: lazaret_tests::Place) -> World {
    let world = World::new(place);
    world.put("tracer.py", TRACER);
    world.put("rewrite.py", REWRITE);
    world.put(".env", &world.canary);
    world
}

const PROGRAM: &str = "int twice(int n) { return 2 * n; }\nint main(void) { return twice(21); }\n";

place_test!(strace_traces_what_it_starts);
fn strace_traces_what_it_starts(place: Place) {
    let world = world(place);
    world.put("p.c", PROGRAM);
    let traced =
        "cc -g p.c -o p && strace -f -o log sh -c ./p; echo $?; grep -c 'execve(\"./p\"' log";
    let printed = world.in_cell(traced);
    assert_eq!(printed.success(), "42\n1\n", "{}", printed.errors());
}

place_test!(a_debugger_stops_what_it_starts);
fn a_debugger_stops_what_it_starts(place: Place) {
    need("gdb", "gdb");
    let world = world(place);
    world.put("p.c", PROGRAM);
    let gdb = "gdb -nx -batch -ex 'break twice' -ex run -ex bt -ex 'print n' -ex 'set var n = 4' -ex cont p 2>/dev/null";
    let printed = world
        .in_cell(&format!("cc -g p.c -o p; DEBUGINFOD_URLS= {gdb}"))
        .text();
    for part in ["#1 ", "$1 = 21", "exited with code 010"] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
}

place_test!(a_traced_call_is_judged_as_it_is_made);
fn a_traced_call_is_judged_as_it_is_made(place: Place) {
    let outside = world(place).outside.join("secret.txt");
    for stop in ["call", "seccomp"] {
        for call in [
            "open .env".into(),
            format!("open {}", outside.display()),
            "socket".into(),
        ] {
            let world = world(place);
            world.write(&outside, &world.canary);
            // In a network namespace of its own a datagram socket leads nowhere, and is let.
            if place.tier == Tier::Namespaced && call == "socket" {
                continue;
            }
            let script = format!("python3 rewrite.py {stop} {call}");
            let control = world.on_host(&script);
            let got = if call == "socket" { "GOT 2\n" } else { "GOT " };
            assert!(control.text().starts_with(got), "{script}\n{control:?}");
            let inside = world.in_cell(&script);
            // In place of a datagram socket a flat cell has one of the family 1, a Unix socket.
            let refused = if call == "socket" { "GOT 1\n" } else { "no " };
            assert!(inside.text().starts_with(refused), "{script}\n{inside:?}");
        }
    }
}

place_test!(tracing_does_not_suspend_the_filter);
/// Requests that would take the filter from a traced process, or show it, are refused to a tracer under one.
fn tracing_does_not_suspend_the_filter(place: Place) {
    let script = "
from tracer import *
pid = child(lambda: None)
for request, address, data in [(SETOPTIONS, 0, 1 << 21), (GET_FILTER, 0, 0)]:
    try: ptrace(request, pid, address, data); print('GOT')
    except OSError as error: print(error.errno)
os.kill(pid, 9)
";
    let world = world(place);
    world.put("suspend.py", script);
    assert_eq!(world.in_cell("python3 suspend.py").success(), "1\n13\n");
    if nix::unistd::geteuid().is_root() && place.to_string().ends_with("root") {
        let control = run(world.host("python3").arg("suspend.py"), LIMIT);
        assert!(control.text().starts_with("GOT"), "{control:?}");
    }
}

const REACH: &str = "
from tracer import *
for pid in map(int, sys.argv[1:]):
    for request in (SEIZE, ATTACH):
        try: ptrace(request, pid or os.getppid()); print('GOT', pid, request); break
        except OSError as error: print('no', error)
";

place_test!(nothing_outside_is_traced);
/// The cell's first process, the warden, the broker, a cell of the same session, and what runs outside.
fn nothing_outside_is_traced(place: Place) {
    let world = world(place);
    world.put("reach.py", REACH);
    let mut session = Session::open(&world);
    let marker = long_sleep();
    let id = session.start_call("bash", json!({"command": format!("sleep {marker}; true")}));
    assert!(until(LIMIT, || process::with_marker(&format!(
        "sleep {marker}"
    ))
    .len()
        > 1));
    let own = process::tree(session.pid())
        .into_iter()
        .map(|process| process.pid.to_string());
    let pids = own.collect::<Vec<_>>().join(" ");
    let inside = session.bash(&format!("python3 reach.py 0 {pids}"));
    assert!(
        !inside.success().contains("GOT") && inside.text().lines().count() > 8,
        "{}",
        inside.text()
    );
    let sleeper = process::with_marker(&format!("sleep {marker}"));
    assert!(sleeper.iter().all(process::Process::is_alive));
    let mut bystander = world.host("sleep").arg(long_sleep()).spawn().unwrap();
    let reach = format!("python3 reach.py {}", bystander.id());
    assert!(!session.bash(&reach).success().contains("GOT"));
    let control = world.on_host(&reach);
    assert!(control.text().contains("GOT"), "{control:?}");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    session.cancel(&id);
    session.answer_within(&id, LIMIT);
}

place_test!(whoever_asks_us_to_trace_is_let_go);
/// The parent of a cell's program, and of what it leaves behind, is a process of ours: to ask it to trace means to stop at
/// the next signal, and nobody to go on for.
fn whoever_asks_us_to_trace_is_let_go(place: Place) {
    let scripts = [
        ("ptrace(TRACEME, 0); os.kill(os.getpid(), signal.SIGWINCH); print('on', flush=True); os._exit(7)", "on\n", 7),
        ("ptrace(TRACEME, 0); os.execv('/bin/sh', ['sh', '-c', 'echo on; exit 7'])", "on\n", 7),
        ("ptrace(TRACEME, 0); signal.signal(40, lambda *_: print('on', flush=True)); os.kill(os.getpid(), 40); os._exit(7)", "on\n", 7),
        ("ptrace(TRACEME, 0); os.kill(os.getpid(), 15)", "", 128 + 15),
        ("ptrace(TRACEME, 0); os.kill(os.getpid(), 40)", "", 128 + 40),
        ("os.kill(os.getpid(), 40)", "", 128 + 40),
        // By a thread, and by a child whose parent is not who made it.
        ("import threading
t = threading.Thread(target=lambda: (ptrace(TRACEME, 0), signal.pthread_kill(threading.get_ident(), signal.SIGWINCH), print('on', flush=True)))
t.start(); t.join(); os._exit(7)", "on\n", 7),
        ("r, w = os.pipe()
if libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
    ptrace(TRACEME, 0); os.kill(os.getpid(), signal.SIGWINCH); os.write(w, b'x'); os._exit(0)
os.read(r, 1); print('on', flush=True); os._exit(7)", "on\n", 7),
        // An orphan.
        ("r, w = os.pipe()
if os.fork() == 0:
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle: pass
        ptrace(TRACEME, 0); os.kill(os.getpid(), signal.SIGWINCH); os.write(w, b'x')
    os._exit(0)
os.read(r, 1); print('on', flush=True); os._exit(7)", "on\n", 7),
    ];
    let world = world(place);
    for (script, text, code) in &scripts {
        world.put("asks.py", format!("from tracer import *\n{script}"));
        let mut command = world.lazaret("run");
        let ended = run(
            command.args(["--timeout", "100", "--", "python3", "asks.py"]),
            LIMIT,
        );
        assert_eq!(ended.expect(*code), *text, "{script}\n{}", ended.errors());
    }
}

place_test!(endless_tracing_requests_end);
/// Requests as fast as possible, from several processes, while the call is to end by its time limit; and those that a killed
/// cell leaves behind.
fn endless_tracing_requests_end(place: Place) {
    let storm = "
from tracer import *
for _ in range(3): os.fork()
while True: ptrace(TRACEME, 0); os.kill(os.getpid(), signal.SIGWINCH)
";
    let world = world(place);
    world.put("storm.py", storm);
    let mut session = Session::open(&world);
    // A busy machine may need longer until it storms.
    let mut storms = |kill_the_cell: bool, seconds: u64| {
        let marker = long_sleep();
        let command = format!("(python3 storm.py {marker} &) ; exec python3 storm.py {marker}");
        let id = session.start_call("bash", json!({"command": command, "timeout": seconds}));
        let storm = format!("storm.py {marker}");
        let limit = Duration::from_secs(seconds);
        let storms = until(limit, || process::with_marker(&storm).len() > 10);
        if kill_the_cell {
            let tree = process::tree(session.pid());
            let cells = tree.iter().filter(|process| process.name == "lazaret-cell");
            let ours = |cell: &&process::Process| {
                process::below(cell.pid)
                    .iter()
                    .any(|process| process.name == "python3")
            };
            cells.filter(ours).for_each(process::Process::kill);
        }
        session.answer_within(&id, LIMIT);
        process::assert_gone(&storm, LIMIT);
        assert_eq!(session.bash("echo on").success(), "on\n");
        storms
    };
    for kill_the_cell in [false, true] {
        let mut limits = [3, 15, 60].into_iter();
        assert!(limits.any(|seconds| storms(kill_the_cell, seconds)));
    }
}
