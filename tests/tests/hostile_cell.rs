//! A program in a cell that fights: against what reads its output, against its cell, and against its own end. Its call
//! ends with an answer, nothing of it lives on, and the session answers the next call.
#![allow(clippy::unwrap_used)]

use lazaret_tests::process;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Session, World, matrix, run};
use serde_json::json;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// Bytes that a result may have, its 100 KiB of each end and what JSON adds to the worst of them.
const RESULT_MAX: usize = 2 << 20;

/// Runs a script of Python and checks that the session goes on.
#[track_caller]
fn fight(session: &mut Session, script: &str, timeout: u32) -> lazaret_tests::session::Answer {
    let id = session.start_call("bash", json!({"command": ["python3", "-c", script], "timeout": timeout}));
    let answer = session.answer_within(&id, SOON);
    assert!(answer.result.to_string().len() < RESULT_MAX, "{} bytes", answer.result.to_string().len());
    assert_eq!(session.bash("echo on").success().trim(), "on", "after {script}: {}", answer.result);
    answer
}

#[test]
fn a_flood_of_any_shape_is_bounded() {
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
    matrix(|place| {
        let world = World::new(place);
        let mut session = Session::open(&world);
        for flood in floods {
            let answer = fight(&mut session, flood, 60);
            assert!(answer.ok(), "{}", answer.result);
        }
    });
}

/// Lines that look like ours on the pipes, and bytes on every other descriptor there might be.
#[test]
fn a_false_tongue_is_only_output() {
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
    matrix(|place| {
        let world = World::new(place);
        let mut session = Session::open(&world);
        let answer = fight(&mut session, script, 60);
        assert_eq!(answer.exit_code(), Some(9), "{}", answer.result);
        assert_ne!(answer.text(), "forged");
        for event in &answer.events {
            assert_eq!(event["event"], "output", "{event}");
        }
    });
}

/// Attempts on the cell's first process and on everything that can be signalled.
#[test]
fn a_cell_is_not_ended_from_inside() {
    let attempts = [
        "import os, signal\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError as e: print(e)\nprint('still here')",
        "import os, signal\ntry: os.kill(os.getppid(), signal.SIGSTOP)\nexcept OSError as e: print(e)\nprint('still here')",
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntry: os.kill(-1, signal.SIGTERM)\nexcept OSError as e: print(e)\nprint('still here')",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.ptrace(16, os.getppid(), 0, 0), ctypes.get_errno())\nprint('still here')",
        "import os\nfor p in (1, os.getppid()):\n  for f in ('mem', 'environ', 'fd', 'root'):\n    try: print(os.listdir(f'/proc/{p}/{f}') if f in ('fd', 'root') else open(f'/proc/{p}/{f}', 'r+b'))\n    except OSError as e: print(e)\nprint('still here')",
    ];
    matrix(|place| {
        let world = World::new(place);
        let mut session = Session::open(&world);
        // Without a cell the first of them works.
        let script = "python3 -c \"$0\"; echo survived";
        let control = run(world.host("bash").args(["-c", script, attempts[0]]), SOON);
        assert!(control.code() == 137 && !control.text().contains("survived"), "{control:?}");
        for attempt in attempts {
            let answer = fight(&mut session, attempt, 20);
            assert!(answer.success().contains("still here"), "{}", answer.result);
            assert!(!answer.text().contains("BufferedRandom"), "{}", answer.result);
        }
    });
}

/// Processes that do everything not to be found: no signals, no tracing, sessions of their own, new numbers all the time.
#[test]
fn what_does_not_want_to_end_ends() {
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
    matrix(|place| {
        let world = World::new(place);
        world.put("hard.py", hard);
        // Without a cell they live on.
        let marker = long_sleep();
        let command = format!("python3 hard.py sleepers {marker} >/dev/null 2>&1 & sleep 0.5");
        run(world.host("bash").args(["-c", &command]), SOON).success();
        let outside = process::with_marker(&format!("hard.py sleepers {marker}"));
        outside.iter().for_each(process::Process::kill);
        assert!(outside.len() > 20, "{outside:#?}");

        let mut session = Session::open(&world);
        for kind in ["sleepers", "runner"] {
            let marker = long_sleep();
            let command = format!("python3 hard.py {kind} {marker} & sleep 0.3; echo done");
            let started = Instant::now();
            let answer = session.bash(&command);
            assert_eq!(answer.success().trim(), "done");
            assert!(started.elapsed() < Duration::from_secs(20), "{kind}: {:?}", started.elapsed());
            process::assert_gone(&format!("hard.py {kind} {marker}"), SECOND);
        }
    });
}

/// Pipes that are held open after the program's end, or closed before it.
#[test]
fn pipes_do_not_decide_when_a_call_ends() {
    matrix(|place| {
        let world = World::new(place);
        let mut session = Session::open(&world);
        let marker = long_sleep();
        let started = Instant::now();
        let answer = session.bash(&format!("setsid sleep {marker} & exec sleep 0.1"));
        assert!(answer.ok() && started.elapsed() < Duration::from_secs(10), "{}", answer.result);
        process::assert_gone(&format!("sleep {marker}"), SECOND);
        let answer = session.bash("exec >&- 2>&-; sleep 0.5; exit 5");
        assert_eq!(answer.exit_code(), Some(5), "{}", answer.result);
    });
}
