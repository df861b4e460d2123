//! Commands by the legacy protocol, and the process service.

use super::client::{Called, Fields, JSON, Rpc, Sandbox, Stream, ask, config, fields, wanted};
use lazaret_tests::process::{assert_gone, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, World, place_test};
use serde_json::json;

const OK: u32 = 0;
const INVALID_ARGUMENT: u32 = 3;
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
const UNIMPLEMENTED: u32 = 12;

place_test!(legacy_commands_are_shell_commands_in_a_cell);
fn legacy_commands_are_shell_commands_in_a_cell(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let run = |body| sandbox.execute(&body).json();
    let got = run(json!({ "command": "echo out; echo err >&2; pwd; exit 3" }));
    let out = format!("out\n{}\n", world.project.display());
    let want = json!({ "stdout": out, "stderr": "err\n", "exit_code": 3, "timed_out": false });
    assert_eq!(got, want);
    let got = run(json!({ "command": "echo begun; sleep 100", "timeout_seconds": 0.5 }));
    assert_eq!(
        (&got["exit_code"], &got["timed_out"]),
        (&json!(124), &json!(true))
    );
    assert_eq!(got["stdout"], "begun\n");
    assert_eq!(run(json!({ "command": "kill -9 $$" }))["exit_code"], -9);
    // It is a cell.
    let secret = world.outside.join("secret.txt");
    let got = run(json!({ "command": format!("cat {}", secret.display()) }));
    assert!(
        got["exit_code"] != 0 && !got.to_string().contains(&world.canary),
        "{got}"
    );
    let got = run(json!({ "command": "mkdir -p .vscode; echo x > .vscode/tasks.json" }));
    let stderr = got["stderr"].as_str().unwrap();
    assert!(
        got["exit_code"] != 0 && stderr.contains("\nlazaret: "),
        "{got}"
    );
    let head = [JSON];
    for (body, status) in [
        (&b"{"[..], 422),
        (b"{}", 422),
        (b"{\"command\":1}", 422),
        (b"{\"command\":\"true\",\"timeout_seconds\":0}", 422),
        (b"{\"command\":\"true\",\"timeout_seconds\":1e9}", 422),
        (b"{\"command\":\"a\\u0000b\"}", 422),
        (b"{\"command\":\"true\",\"more\":1}", 200),
    ] {
        let got = ask(sandbox.legacy, "POST /execute", &head, body);
        assert_eq!(got.status, status, "{got:?}");
    }
    let most = "x".repeat(1_000_000 - 2);
    assert_eq!(
        sandbox
            .execute(&json!({ "command": format!("#{most}") }))
            .status,
        200
    );
    assert_eq!(
        sandbox
            .execute(&json!({ "command": format!("#{most}xx") }))
            .status,
        422
    );
    assert_eq!(
        sandbox
            .execute(&json!({ "command": "x".repeat(2_000_001) }))
            .status,
        413
    );
    let got = run(json!({ "command": "head -c 1048577 /dev/zero | tr '\\0' x; echo e >&2" }));
    assert_eq!(got["stdout"].as_str().unwrap().len(), 1 << 20);
    let stderr = got["stderr"].as_str().unwrap();
    assert!(
        stderr.starts_with("e\nlazaret: 1 more bytes of standard output"),
        "{stderr}"
    );
}

fn execute(rpc: &mut Rpc, words: &[&str], variables: &[(&str, &str)], cwd: Option<&str>) -> Called {
    rpc.call("Execute", &wanted(&config(words, variables, cwd)))
}

/// Code, standard output and standard error of an `ExecuteResponse`.
fn executed(called: &Called) -> (i32, Vec<u8>, Vec<u8>) {
    assert_eq!(
        (called.status, called.messages.len()),
        (OK, 1),
        "{called:?}"
    );
    let mut got = (0, Vec::new(), Vec::new());
    for (tag, number, bytes) in fields(&called.messages[0]) {
        match tag {
            1 => got.0 = number as i32,
            2 => got.1 = bytes,
            3 => got.2 = bytes,
            other => panic!("a field {other}"),
        }
    }
    got
}

place_test!(programs_run_to_their_end);
fn programs_run_to_their_end(place: Place) {
    let world = World::new(place);
    world.put("sub/dir/f", "");
    let sandbox = Sandbox::start(&world);
    let mut rpc = sandbox.rpc();
    let sh = |script| ["/bin/sh", "-c", script];
    let sub = format!("{}/sub", world.project.display());
    for (words, variables, cwd, want) in [
        (
            &["echo", "a b", "$HOME"][..],
            &[][..],
            None,
            (0, "a b $HOME\n", ""),
        ),
        (
            &sh("echo out; echo err >&2; exit 7"),
            &[],
            None,
            (7, "out\n", "err\n"),
        ),
        (
            &sh("echo $A $B; pwd | sed 's,.*/,,'"),
            &[("A", "1 ="), ("B", "é")],
            Some("sub/dir"),
            (0, "1 = é\ndir\n", ""),
        ),
        (
            &sh("pwd | sed 's,.*/,,'"),
            &[],
            Some(&sub),
            (0, "sub\n", ""),
        ),
        (
            &sh("pwd | sed 's,.*/,,'"),
            &[],
            Some(""),
            (0, "project\n", ""),
        ),
        (&sh("kill -9 $$"), &[], None, (-1, "", "")),
        (&sh("printf '\\377\\000'"), &[], None, (0, "\u{fffd}\0", "")),
        (&sh("read x; echo \"[$x]\""), &[], None, (0, "[]\n", "")),
    ] {
        let (code, out, err) = executed(&execute(&mut rpc, words, variables, cwd));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            (code, text(&out), text(&err)),
            (want.0, want.1.into(), want.2.into()),
            "{words:?}"
        );
    }
    for (words, variables, cwd, status) in [
        (&[][..], &[][..], None, INVALID_ARGUMENT),
        (&[""], &[], None, INVALID_ARGUMENT),
        (&["true"], &[("A=", "x")], None, INVALID_ARGUMENT),
        (&["true"], &[("-S", "x")], None, INVALID_ARGUMENT),
        (&["a\0b"], &[], None, INVALID_ARGUMENT),
        (&["/no/such/program"], &[], None, NOT_FOUND),
        (&["no-such-program"], &[], None, NOT_FOUND),
        (&["true"], &[], Some("no/such/directory"), NOT_FOUND),
        (&["sub/dir/f"], &[], None, PERMISSION_DENIED),
        (&["true"], &[], Some("../.."), PERMISSION_DENIED),
        (&["true"], &[], Some("/../etc"), PERMISSION_DENIED),
    ] {
        let got = execute(&mut rpc, words, variables, cwd);
        assert_eq!(
            (got.status, got.messages.len()),
            (status, 0),
            "{words:?} {cwd:?}: {got:?}"
        );
        assert!(!got.text.is_empty());
    }
    assert_eq!(rpc.call("Execute", b"").status, INVALID_ARGUMENT);
    let late = wanted(&config(&["sleep", "100"], &[], None));
    let got = rpc.call_with("Execute", &late, &[("grpc-timeout", "300m")]);
    assert_eq!(got.status, DEADLINE_EXCEEDED, "{got:?}");
    // What the protocol does not allow.
    assert_eq!(
        rpc.call_with("Execute", &late, &[("grpc-timeout", "1s")])
            .status,
        INVALID_ARGUMENT
    );
    assert_eq!(
        rpc.call_with("Execute", &late, &[("grpc-encoding", "gzip")])
            .status,
        UNIMPLEMENTED
    );
    assert_eq!(rpc.call("Watch", b"").status, UNIMPLEMENTED);
    assert_eq!(rpc.call("Execute", &[0xff; 9]).status, INVALID_ARGUMENT);
    let large = Fields::default().bytes(1, &vec![b'x'; 4 << 20]);
    assert_eq!(rpc.call("Execute", &large.0).status, RESOURCE_EXHAUSTED);
}

place_test!(reflection_describes_the_process_service, ordinary_only);
fn reflection_describes_the_process_service(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let mut rpc = sandbox.rpc();
    for version in ["v1", "v1alpha"] {
        let method = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        // The kind of the answer, and its message.
        let mut ask = |tag: u8, name: &str| {
            let got = rpc.call(&method, &Fields::default().bytes(tag, name.as_bytes()).0);
            assert_eq!((got.status, got.messages.len()), (OK, 1), "{got:?}");
            let answer = fields(&got.messages[0]).pop().expect("an answer");
            (answer.0, String::from_utf8_lossy(&answer.2).into_owned())
        };
        assert_eq!(
            ask(7, ""),
            (6, "\n\u{1b}\n\u{19}process.v1.ProcessService".into())
        );
        for (tag, name, declares) in [
            (4, "process.v1.ProcessService", "ResizeTTY"),
            (4, "process.v1.ProcessService.Execute", "ResizeTTY"),
            (3, "google/protobuf/empty.proto", "Empty"),
        ] {
            let (kind, text) = ask(tag, name);
            assert!(
                kind == 4 && text.contains(declares),
                "{name}: {kind} {text:?}"
            );
        }
        for (tag, name) in [
            (3, "/etc/passwd"),
            (4, "process.v1.No"),
            (6, "process.v1.PTY"),
        ] {
            let (kind, text) = ask(tag, name);
            assert!(
                kind == 7 && text.starts_with("\u{8}\u{5}"),
                "{name}: {kind} {text:?}"
            );
        }
        let long = Fields::default().bytes(4, &[b'x'; 5000]);
        assert_eq!(rpc.call(&method, &long.0).status, RESOURCE_EXHAUSTED);
    }
    let other = "/grpc.reflection.v2.ServerReflection/ServerReflectionInfo";
    assert_eq!(rpc.call(other, b"").status, UNIMPLEMENTED);
}

/// An event of a process.
#[derive(Debug, PartialEq)]
enum Event {
    Init(i32),
    Out(Vec<u8>),
    Err(Vec<u8>),
    Exit(i32),
}

struct Process {
    stream: Stream,
    number: i32,
}

impl Process {
    /// Starts a program; `size` is that of its terminal.
    fn start(rpc: &mut Rpc, words: &[&str], size: Option<(u64, u64)>) -> Self {
        let mut request = Fields(wanted(&config(words, &[], None)));
        if let Some((columns, rows)) = size {
            let pty = Fields::default().number(1, columns).number(2, rows);
            request = request.bytes(2, &pty.0);
        }
        let mut stream = rpc.begin("Start", &request.0, &[]);
        let first = rpc.next(&mut stream).expect("an event");
        let Event::Init(number) = event(&first) else {
            panic!("{first:?}");
        };
        assert!(number > 0);
        Self { stream, number }
    }

    fn next(&mut self, rpc: &mut Rpc) -> Option<Event> {
        rpc.next(&mut self.stream).map(|message| event(&message))
    }

    /// What it prints until the text has come.
    fn follow_until(&mut self, rpc: &mut Rpc, text: &str) -> String {
        let mut printed = String::new();
        while !printed.contains(text) {
            match self.next(rpc) {
                Some(Event::Out(bytes)) => printed.push_str(&String::from_utf8_lossy(&bytes)),
                other => panic!("{other:?} after {printed:?}"),
            }
        }
        printed
    }

    /// Both streams, the exit code if there is one, and the status.
    fn rest(mut self, rpc: &mut Rpc) -> (String, String, Option<i32>, u32) {
        let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), None);
        while let Some(event) = self.next(rpc) {
            assert_eq!(code, None, "the exit is the last event");
            match event {
                Event::Out(bytes) => out.extend(bytes),
                Event::Err(bytes) => err.extend(bytes),
                Event::Exit(number) => code = Some(number),
                Event::Init(_) => panic!("a second beginning"),
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (text(out), text(err), code, rpc.end(self.stream).0)
    }
}

fn event(message: &[u8]) -> Event {
    let all = fields(message);
    let [(tag, _, bytes)] = &all[..] else {
        panic!("{all:?}");
    };
    let number = || {
        fields(bytes)
            .first()
            .map_or(0, |(_, number, _)| *number as i32)
    };
    match tag {
        1 => Event::Init(number()),
        2 => Event::Out(bytes.clone()),
        3 => Event::Err(bytes.clone()),
        4 => Event::Exit(number()),
        other => panic!("an event {other}"),
    }
}

fn input(number: i32, bytes: &[u8]) -> Vec<u8> {
    Fields::default().number(1, number as u64).bytes(2, bytes).0
}

fn end_of_input(number: i32) -> Vec<u8> {
    Fields::default().number(1, number as u64).bytes(3, b"").0
}

fn signal(number: i32, signal: u64) -> Vec<u8> {
    Fields::default()
        .number(1, number as u64)
        .number(2, signal)
        .0
}

place_test!(processes_are_followed_and_steered);
fn processes_are_followed_and_steered(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let (mut rpc, mut other) = (sandbox.rpc(), sandbox.rpc());
    let apart = Process::start(
        &mut rpc,
        &["/bin/sh", "-c", "echo out; echo err >&2; exit 5"],
        None,
    );
    assert_eq!(
        apart.rest(&mut rpc),
        ("out\n".into(), "err\n".into(), Some(5), OK)
    );
    // Input, while it runs, from another connection; and its end.
    let mut cat = Process::start(&mut rpc, &["cat"], None);
    assert_eq!(
        other
            .call("WriteStdin", &input(cat.number, b"hello\n"))
            .status,
        OK
    );
    assert_eq!(cat.follow_until(&mut rpc, "\n"), "hello\n");
    let all: Vec<u8> = (0..3_000_000).map(|at| b'a' + (at % 23) as u8).collect();
    let wc = Process::start(&mut rpc, &["wc", "-c"], None);
    assert_eq!(other.call("WriteStdin", &input(wc.number, &all)).status, OK);
    for number in [cat.number, wc.number] {
        assert_eq!(other.call("WriteStdin", &end_of_input(number)).status, OK);
    }
    assert_eq!(wc.rest(&mut rpc).0.trim(), "3000000");
    assert_eq!(
        cat.rest(&mut rpc),
        (String::new(), String::new(), Some(0), OK)
    );
    // Signals.
    let trap = "trap 'echo got; exit 9' INT TERM; echo ready; while :; do sleep 0.05; done";
    for (which, want) in [(2, 9), (15, 9), (9, -1)] {
        let mut process = Process::start(&mut rpc, &["bash", "-c", trap], None);
        process.follow_until(&mut rpc, "ready\n");
        assert_eq!(
            other
                .call("SendSignal", &signal(process.number, which))
                .status,
            OK
        );
        // What bash says of its children is on standard error.
        let (out, _, code, status) = process.rest(&mut rpc);
        assert_eq!((code, status), (Some(want), OK), "{which}");
        // Before SIGKILL there is SIGTERM, for which a process has a moment.
        assert!(
            out == "got\n" || which == 9 && out.is_empty(),
            "{which}: {out:?}"
        );
    }
    // What names nothing.
    let gone = 1;
    let size = |number: i32, columns, rows| {
        Fields::default()
            .number(1, number as u64)
            .number(2, columns)
            .number(3, rows)
            .0
    };
    for (method, message) in [
        ("WriteStdin", input(gone, b"x")),
        ("SendSignal", signal(gone, 15)),
        ("ResizeTTY", size(gone, 80, 24)),
        ("WriteStdin", input(i32::MAX, b"x")),
        ("SendSignal", Vec::new()),
    ] {
        assert_eq!(other.call(method, &message).status, NOT_FOUND, "{method}");
    }
    // It has begun: before that, a signal that can be caught may be lost.
    let script = "echo begun; exec sleep 100";
    let mut sleeping = Process::start(&mut rpc, &["bash", "-c", script], None);
    sleeping.follow_until(&mut rpc, "begun\n");
    let number = sleeping.number;
    for wrong in [0, 1, 19, 64] {
        assert_eq!(
            other.call("SendSignal", &signal(number, wrong)).status,
            INVALID_ARGUMENT
        );
    }
    assert_eq!(
        other.call("ResizeTTY", &size(number, 80, 24)).status,
        FAILED_PRECONDITION
    );
    assert_eq!(other.call("WriteStdin", &end_of_input(number)).status, OK);
    assert_eq!(
        other.call("WriteStdin", &input(number, b"x")).status,
        FAILED_PRECONDITION
    );
    assert_eq!(other.call("SendSignal", &signal(number, 15)).status, OK);
    assert_eq!(sleeping.rest(&mut rpc).2, Some(-1));
    let missing = Process::start(&mut rpc, &["no-such-program"], None);
    assert_eq!(missing.rest(&mut rpc).3, NOT_FOUND);
    assert_eq!(
        rpc.call("Start", &wanted(&config(&[], &[], None))).status,
        INVALID_ARGUMENT
    );
}

place_test!(processes_have_terminals);
fn processes_have_terminals(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let (mut rpc, mut other) = (sandbox.rpc(), sandbox.rpc());
    let words = [
        "bash",
        "--norc",
        "-c",
        "tty; stty size; read x; stty size; echo \"[$x]\" $TERM",
    ];
    let mut shell = Process::start(&mut rpc, &words, Some((101, 37)));
    let printed = shell.follow_until(&mut rpc, "37 101\r\n");
    assert!(printed.starts_with("/dev/pts/"), "{printed:?}");
    let size = |columns, rows| {
        Fields::default()
            .number(1, shell.number as u64)
            .number(2, columns)
            .number(3, rows)
            .0
    };
    assert_eq!(
        other.call("ResizeTTY", &size(0, 24)).status,
        INVALID_ARGUMENT
    );
    assert_eq!(other.call("ResizeTTY", &size(90, 41)).status, OK);
    assert_eq!(
        other
            .call("WriteStdin", &input(shell.number, b"typed\n"))
            .status,
        OK
    );
    let (out, err, code, status) = shell.rest(&mut rpc);
    assert!(
        out.contains("41 90\r\n") && out.contains("[typed] xterm-256color"),
        "{out:?}"
    );
    assert_eq!((err.as_str(), code, status), ("", Some(0), OK));
}

place_test!(a_process_ends_with_its_client);
fn a_process_ends_with_its_client(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let marker = long_sleep();
    let script = format!("sleep {marker} & echo ready; wait");
    let mut rpc = sandbox.rpc();
    let mut process = Process::start(&mut rpc, &["bash", "-c", &script], None);
    process.follow_until(&mut rpc, "ready\n");
    drop((process, rpc));
    assert_gone(&marker, LIMIT);
    // And one whose client sends on, and takes nothing of what it prints.
    let mut rpc = sandbox.rpc();
    let flood = Process::start(&mut rpc, &["yes"], None);
    let mut other = sandbox.rpc();
    let quiet = || executed(&execute(&mut sandbox.rpc(), &["echo", "x"], &[], None)).1;
    assert_eq!(quiet(), b"x\n");
    let number = flood.number;
    assert_eq!(other.call("SendSignal", &signal(number, 9)).status, OK);
    drop((flood, rpc));
    assert!(until(LIMIT, || other
        .call("SendSignal", &signal(number, 9))
        .status
        == NOT_FOUND));
}

place_test!(processes_have_a_limit, ordinary_only);
fn processes_have_a_limit(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let mut rpc = sandbox.rpc();
    let start = |rpc: &mut Rpc| Process::start(rpc, &["sleep", "100"], None);
    let mut processes: Vec<Process> = (0..32).map(|_| start(&mut rpc)).collect();
    let one_more = wanted(&config(&["sleep", "100"], &[], None));
    let got = rpc.call("Start", &one_more);
    assert_eq!(got.status, RESOURCE_EXHAUSTED, "{got:?}");
    assert!(got.text.contains("32"), "{got:?}");
    // Others have their places all the same.
    assert_eq!(
        sandbox.execute(&json!({ "command": "true" })).json()["exit_code"],
        0
    );
    // One that reads nothing takes 1 MiB and one request more.
    let number = processes[0].number;
    let megabyte = vec![b'x'; 1 << 20];
    // The pipe, and the executor's window, take some of it.
    let mut waiting = sandbox.rpc();
    let full = Fields::default()
        .number(1, number as u64)
        .bytes(2, &[&megabyte[..], &megabyte, &megabyte].concat());
    let waiting = std::thread::spawn(move || waiting.call("WriteStdin", &full.0).status);
    let mut other = sandbox.rpc();
    assert!(until(LIMIT, || {
        other.call("WriteStdin", &input(number, b"x")).status == RESOURCE_EXHAUSTED
    }));
    let first = processes.remove(0);
    assert_eq!(other.call("SendSignal", &signal(number, 9)).status, OK);
    assert_eq!(first.rest(&mut rpc).2, Some(-1));
    // It was waiting to the end; what the process would have read then is nobody's.
    assert!([OK, NOT_FOUND].contains(&waiting.join().unwrap()));
    processes.push(start(&mut rpc));
}
