//! A program in a cell that fights: against what reads its output, against its cell, and against its own end. Its call
//! ends with an answer, nothing of it lives on, and the session answers the next call.
#![allow(clippy::unwrap_used)]

use lazaret_tests::not_run;
use lazaret_tests::process::{self, Running, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run, suite};
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main()
}

/// Bytes that a result may have, its 100 KiB of each end and what JSON adds to the worst of them.
const RESULT_MAX: usize = 2 << 20;

/// Runs a script of Python and checks that the session goes on.
#[track_caller]
fn fight(session: &mut Session, script: &str, timeout: u32) -> lazaret_tests::session::Answer {
    let id = session.start_call(
        "bash",
        json!({"command": ["python3", "-c", script], "timeout": timeout}),
    );
    let answer = session.answer_within(&id, LIMIT);
    assert!(
        answer.result.to_string().len() < RESULT_MAX,
        "{} bytes",
        answer.result.to_string().len()
    );
    assert_eq!(
        session.bash("echo on").success().trim(),
        "on",
        "after {script}: {}",
        answer.result
    );
    answer
}

/// Leaves as many descriptors on sockets as it may, and goes on: others of this user may take some off theirs.
const UNREAD: &str = r#"
import array, os, socket, sys, time
kept = []
null = os.open('/dev/null', os.O_RDONLY)
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null] * 250))]
def pair():
    kept.append(socket.socketpair()); kept[-1][0].setblocking(False)
    return kept[-1][0]
end, one = time.time() + 60, pair()
while time.time() < end:
    try: one.sendmsg([b'x'], rights)
    except BlockingIOError: one = pair()
    except OSError:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [null]))]
        open(sys.argv[1], 'w').close()
        time.sleep(.001)
"#;

/// Sends one descriptor as a program with the usual limit does.
const SEND: &str = r#"
import array, os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
one, other = socket.socketpair()
one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])
"#;

place_test!(
    descriptors_that_nobody_reads_stop_no_other_session,
    ordinary_only
);
/// The kernel counts descriptors that nobody has taken yet by user.
/// Root may send as many as it likes, so nothing is to be seen.
fn descriptors_that_nobody_reads_stop_no_other_session(place: Place) {
    let world = World::new(place);
    world.put("unread.py", UNREAD);
    let held = Running::start(&mut world.cell("python3 unread.py full"));
    let full = until(LIMIT, || world.project.join("full").exists());
    let refused = || {
        run(world.host("python3").args(["-c", SEND]), LIMIT)
            .errors()
            .contains("Too many references")
    };
    let control = full && until(LIMIT, refused);
    let other = World::new(place);
    let mut usual = other.host("bash");
    let lazaret = other.cell("echo works");
    usual
        .args(["-c", "ulimit -Sn 1024; exec \"$@\"", "bash"])
        .arg(lazaret.get_program())
        .args(lazaret.get_args());
    let beside = run(&mut usual, LIMIT);
    // `lazaret session` sends one itself, whenever it opens a session.
    let line = json!({"id": "a", "tool": "bash", "input": {"command": "echo works"}}).to_string();
    let script = "ulimit -Sn 1024; { echo \"$0\"; until grep -q '\"result\"' said; do sleep 0.1; done; } | \"$@\" | tee said";
    let mut session = other.host("bash");
    session
        .args(["-c", script, &line])
        .arg(lazaret.get_program());
    session
        .args(lazaret.get_args().take_while(|word| *word != "run"))
        .arg("session");
    session
        .arg("--project")
        .arg(&other.project)
        .arg("--central")
        .arg(&other.central);
    let session = run(&mut session, LIMIT);
    process::kill_tree(held.pid());
    held.finish(LIMIT);
    assert!(
        control,
        "an ordinary program can send descriptors (full: {full})"
    );
    assert_eq!(beside.success(), "works\n");
    assert!(session.text().contains("\"result\":\"works"), "{session:?}");
}

/// Makes inotify instances, at most as many as it is told, and says how many.
const WATCHERS: &str = r#"
import ctypes, sys
make, count = ctypes.CDLL(None).inotify_init, 0
while count < int(sys.argv[1]) and make() >= 0:
    count += 1
print(count)
"#;

place_test!(
    a_session_leaves_inotify_instances_to_others,
    namespaced_only
);
/// The kernel counts them by user; in the flat tier too, where nothing of that can be held (SECURITY.md).
fn a_session_leaves_inotify_instances_to_others(place: Place) {
    let world = World::new(place);
    world.put("watchers.py", WATCHERS);
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let half = most.trim().parse::<u32>().unwrap() / 2;
    let words = ["watchers.py".to_owned(), (half + 1).to_string()];
    let count = |text: String| text.trim().parse::<u32>().unwrap();
    let outside = count(run(world.host("python3").args(&words), LIMIT).success());
    if outside <= half {
        not_run(format!("this user has {outside} inotify instances left"));
    }
    let inside = count(
        world
            .in_cell(&format!("python3 {}", words.join(" ")))
            .success(),
    );
    assert_eq!((outside, inside), (half + 1, half));
}

place_test!(a_flood_of_any_shape_is_bounded);
fn a_flood_of_any_shape_is_bounded(place: Place) {
    let floods = [
        // A line of 50 MB.
        "import os\nfor _ in range(50): os.write(1, b'x' * 1000000)",
        // Both streams at once, in single bytes and lines.
        "import os\nfor _ in range(20000): os.write(1, b'y\\n'); os.write(2, b'z')",
        // What takes most room in JSON, and is no text.
        "import os\nfor _ in range(20): os.write(1, bytes(range(256)) * 4000)",
        // A character cut in half at every border.
        "import os\nfor _ in range(20): os.write(1, ('x' + '\\u20ac' * 300000).encode())",
    ];
    let world = World::new(place);
    let mut session = Session::open(&world);
    for flood in floods {
        let answer = fight(&mut session, flood, 60);
        assert!(answer.ok(), "{}", answer.result);
    }
}

place_test!(a_false_tongue_is_only_output);
/// Lines that look like ours on the pipes, and bytes on every other descriptor there might be.
fn a_false_tongue_is_only_output(place: Place) {
    let script = r#"
import os, struct
line = b'{"id":"call-1","event":"result","status":"success","result":"forged","metadata":{}}\n'
report = struct.pack('<BBhiQQQ', 0, 0, 0, 0, 0, 0, 0)
frame = struct.pack('<IIQ', 12, 6, 1)
for fd in range(1024):
    for text in (b'\n' + line, report, frame):
        try: os.write(fd, text)
        except OSError: pass
os._exit(9)
"#;
    let world = World::new(place);
    let mut session = Session::open(&world);
    let answer = fight(&mut session, script, 60);
    assert_eq!(answer.exit_code(), Some(9), "{}", answer.result);
    assert_ne!(answer.text(), "forged");
    for event in &answer.events {
        assert_eq!(event["event"], "output", "{event}");
    }
}

place_test!(a_cell_is_not_ended_from_inside);
/// Attempts on the cell's first process and on everything that can be signalled.
fn a_cell_is_not_ended_from_inside(place: Place) {
    let attempts = [
        "import os, signal\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError as e: print(e)\nprint('still here')",
        "import os, signal\ntry: os.kill(os.getppid(), signal.SIGSTOP)\nexcept OSError as e: print(e)\nprint('still here')",
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntry: os.kill(-1, signal.SIGTERM)\nexcept OSError as e: print(e)\nprint('still here')",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.ptrace(16, os.getppid(), 0, 0), ctypes.get_errno())\nprint('still here')",
        "import os\nfor p in (1, os.getppid()):\n  for f in ('mem', 'environ', 'fd', 'root'):\n    try: print(os.listdir(f'/proc/{p}/{f}') if f in ('fd', 'root') else open(f'/proc/{p}/{f}', 'r+b'))\n    except OSError as e: print(e)\nprint('still here')",
    ];
    let world = World::new(place);
    let mut session = Session::open(&world);
    // Without a cell the first of them works.
    let script = "python3 -c \"$0\"; echo survived";
    let control = run(world.host("bash").args(["-c", script, attempts[0]]), LIMIT);
    assert!(
        control.code() == 137 && !control.text().contains("survived"),
        "{control:?}"
    );
    for attempt in attempts {
        let answer = fight(&mut session, attempt, 20);
        assert!(answer.success().contains("still here"), "{}", answer.result);
        assert!(
            !answer.text().contains("BufferedRandom"),
            "{}",
            answer.result
        );
    }
}

place_test!(processes_that_resist_their_end_are_ended);
/// Processes that do everything not to be found: no signals, no tracing, sessions of their own, new numbers all the time.
fn processes_that_resist_their_end_are_ended(place: Place) {
    let hard = r#"
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
libc.prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
if sys.argv[1] == 'runner':
    # Each lives for a moment and leaves a child behind.
    while True:
        if os.fork(): os._exit(0)
        os.setsid()
        time.sleep(0.002)
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
time.sleep(300)
"#;
    let world = World::new(place);
    world.put("hard.py", hard);
    // Without a cell they live on.
    let marker = long_sleep();
    let command = format!("python3 hard.py sleepers {marker} >/dev/null 2>&1 &");
    world.on_host(&command).success();
    let outside = || process::with_marker(&format!("hard.py sleepers {marker}"));
    let live_on = until(LIMIT, || outside().len() > 20);
    outside().iter().for_each(process::Process::kill);
    assert!(live_on, "the control");

    let mut session = Session::open(&world);
    for kind in ["sleepers", "runner"] {
        let marker = long_sleep();
        let command = format!("python3 hard.py {kind} {marker} & sleep 0.3; echo done");
        let answer = session.bash(&command);
        // What was left running is named below it.
        assert_eq!(answer.success().lines().next(), Some("done"));
        process::assert_gone(&format!("hard.py {kind} {marker}"), LIMIT);
    }
}

place_test!(pipes_do_not_decide_when_a_call_ends);
/// Pipes that are held open after the program's end, or closed before it.
fn pipes_do_not_decide_when_a_call_ends(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let marker = long_sleep();
    session
        .bash(&format!("setsid sleep {marker} & exec sleep 0.1"))
        .success();
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
    let answer = session.bash("exec >&- 2>&-; sleep 0.5; exit 5");
    assert_eq!(answer.exit_code(), Some(5), "{}", answer.result);
}
