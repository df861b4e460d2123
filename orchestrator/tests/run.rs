//! `lazaret run`: the command's streams, signals and codes are its own.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use broker_protocol::{
    AttemptKind, Barrier, Bash, Captured, Command, Denial, Denials, Ended, ErrorKind, Failed,
    FromBroker, Layer, LeftRunning, Outcome, Ran, Refused, Remedy, Request, Signal, Stdin,
    ToBroker,
};
use lazaret_fakes::{Broker, PATIENCE, Peer};
use nix::sys::signal::{self, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// What `lazaret run ARGUMENTS` does with a broker that does `script` with the call.
fn run(
    arguments: &[&str],
    script: impl FnOnce(&mut Peer, u64, Bash) + Send + 'static,
) -> (Option<i32>, String, String) {
    let broker = Broker::start(move |peer| {
        assert_eq!(peer.open().spare, 0);
        let (call, Request::Bash(bash)) = peer.call() else {
            panic!("no command")
        };
        script(peer, call, bash);
    });
    let Output {
        status,
        stdout,
        stderr,
    } = broker.lazaret("run").args(arguments).output().unwrap();
    broker.join();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

fn words(bash: &Bash) -> Vec<&[u8]> {
    match &bash.command {
        Command::Arguments(words) => words.iter().map(|word| word.as_slice()).collect(),
        Command::Shell(_) => panic!("through a shell"),
    }
}

#[test]
fn arguments_pass_unchanged_and_streams_stay_separate() {
    let got = run(
        &["--", "printf", "%s", "a b", "--", ""],
        |peer, call, bash| {
            assert_eq!(words(&bash), [&b"printf"[..], b"%s", b"a b", b"--", b""]);
            assert_eq!((&bash.stdin, bash.live), (&Stdin::Null, true));
            assert_eq!((bash.timeout_s, bash.idle_timeout_s), (None, None));
            assert!(bash.attended);
            peer.output(call, false, b"out");
            peer.output(call, true, b"err");
            peer.ended(call, Ended::Exited(42), b"outerr");
        },
    );
    assert_eq!(got, (Some(42), "out".into(), "err".into()));
}

#[test]
fn each_end_has_its_code_and_says_what_the_command_cannot() {
    let ended = |end| move |peer: &mut Peer, call, _| peer.ended(call, end, b"");
    assert_eq!(
        run(&["x"], ended(Ended::Signalled(9))),
        (Some(137), "".into(), "".into())
    );
    let (code, _, said) = run(&["x"], ended(Ended::TimedOut));
    assert_eq!(code, Some(124));
    let limit = "lazaret: the command ran into its time limit of 10 s and was killed\n";
    let remedy = said.strip_prefix(limit).unwrap();
    assert!(
        ["--timeout", "`attended_timeout_s`"]
            .iter()
            .all(|key| remedy.contains(key)),
        "{said}"
    );
    let (code, _, said) = run(&["--idle-timeout", "3", "x"], ended(Ended::Idle));
    assert_eq!(code, Some(124));
    assert!(
        said.contains("printed nothing for its idle time of 3 s"),
        "{said}"
    );
    let (code, _, said) = run(&["nope"], ended(Ended::NotStarted(nix::libc::ENOENT)));
    assert_eq!(
        (code, said.as_str()),
        (
            Some(127),
            "lazaret: \"nope\" cannot be started: No such file or directory (os error 2)\n"
        )
    );
    let (code, _, said) = run(&["ls | wc -l"], ended(Ended::NotStarted(nix::libc::ENOENT)));
    assert!(
        code == Some(127) && said.contains("lazaret run -- bash -c '"),
        "{said}"
    );
    let (code, ..) = run(&["x"], ended(Ended::NotStarted(nix::libc::EACCES)));
    assert_eq!(code, Some(126));
    let refused = Refused {
        rule: "no-x".into(),
        why: "because".into(),
        violation: false,
    };
    let (code, _, said) = run(&["x"], move |peer, call, _| {
        peer.done(call, Outcome::Refused(refused))
    });
    assert_eq!(
        (code, said.as_str()),
        (
            Some(126),
            "lazaret: refused by policy rule `no-x`: because\n"
        )
    );
    let (code, _, said) = run(&["x"], |_, _, _| {});
    assert_eq!(
        (code, said.as_str()),
        (
            Some(125),
            "lazaret: the executor has ended unexpectedly; its reason, if it gave one, is on standard error\n"
        )
    );
    let fault = Failed {
        kind: ErrorKind::Protocol,
        message: "bad \x1b frame".into(),
    };
    let (code, _, said) = run(&["x"], move |peer, _, _| {
        peer.send(&FromBroker::Fault(fault))
    });
    assert_eq!(
        (code, said.as_str()),
        (Some(125), "lazaret: bad \\u{1b} frame\n")
    );
}

#[test]
fn a_time_limit_is_what_a_person_asks_for() {
    let (code, _, said) = run(&["--timeout", "5000", "x"], |peer, call, bash| {
        assert_eq!((bash.timeout_s, bash.attended), (Some(5000), true));
        peer.ended(call, Ended::Exited(0), b"");
    });
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

#[test]
fn processes_left_running_are_named() {
    let left = |peer: &mut Peer, call, _| {
        let leftover = LeftRunning {
            count: 2,
            names: vec!["node".into(), "x\x1b[2J".into()],
        };
        peer.done(
            call,
            Outcome::Ran(Ran {
                ended: Ended::Exited(0),
                output: Captured::default(),
                spill: None,
                stderr: None,
                timeout_s: None,
                profile: None,
                leftover,
            }),
        );
    };
    let line = "lazaret: 2 processes were still running at the end of the command and killed: node, x\\u{1b}[2J\n";
    let (code, _, said) = run(&["x"], left);
    assert_eq!((code, said.as_str()), (Some(0), line));
    let (_, json, said) = run(&["--json", "x"], left);
    let result: Value = serde_json::from_str(&json).unwrap();
    let names = &result["metadata"]["leftRunning"]["names"];
    assert_eq!((said.as_str(), names[0].as_str()), ("", Some("node")));
}

/// A denial with an escape sequence in its target.
fn denied() -> Denials {
    let by = Barrier::Layer(Layer::ProtectedNames, None);
    let mut denied = Denials::default();
    denied.push(Denial::new(
        AttemptKind::Write,
        ".husky/\x1b[2Jx",
        by,
        "Why.",
        Remedy::Nothing,
    ));
    denied
}

#[test]
fn denials_are_printed_escaped_on_request() {
    let ended = |code| {
        move |peer: &mut Peer, call, _| peer.ended_denied(call, Ended::Exited(code), denied())
    };
    let line =
        "denied: write .husky/\\u{1b}[2Jx: Why. [layer protected-names; no option allows this]\n";
    let note = "lazaret: something was denied; `lazaret run -v` or `lazaret why` prints what\n";
    for (code, short) in [(0, ""), (1, note)] {
        assert_eq!(
            run(&["x"], ended(code)).2,
            short,
            "no terminal, and not asked"
        );
        let (_, _, said) = run(&["-v", "x"], ended(code));
        assert!(said.ends_with(line), "{said}");
    }
    let (_, _, said) = run(&["x"], |peer, call, _| {
        peer.ended_denied(call, Ended::TimedOut, denied())
    });
    assert!(
        said.contains("time limit of 10 s and was killed [denied: write .husky/"),
        "{said}"
    );
    let (_, json, said) = run(&["--json", "x"], ended(1));
    assert_eq!(said, "");
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    let denied = &result["metadata"]["denied"];
    assert_eq!(
        (
            denied[0]["what"]["kind"].as_str(),
            denied[0]["remedy"].is_null()
        ),
        (Some("write"), true)
    );
    assert!(
        result["error"]["message"]
            .as_str()
            .unwrap()
            .contains("[denied: write .husky/"),
        "{result}"
    );
    assert!(!json.contains("\\u001b"), "{json}");
}

#[test]
fn input_reaches_the_command_and_its_end_too() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, Request::Bash(bash)) = peer.call() else {
            panic!()
        };
        assert_eq!(bash.stdin, Stdin::Stream);
        let mut got = Vec::new();
        while let Some(ToBroker::Input { bytes, .. }) = peer.receive() {
            peer.send(&FromBroker::InputCredit {
                call,
                bytes: bytes.len() as u32,
            });
            got.extend(bytes);
        }
        peer.output(call, false, got.len().to_string().as_bytes());
        peer.ended(call, Ended::Exited(0), b"");
    });
    let mut lazaret = broker.lazaret("run");
    lazaret
        .args(["--timeout", "5", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = lazaret.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&vec![b'x'; 1_000_000])
        .unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"1000000");
    broker.join();
}

#[test]
fn without_input_ours_is_left_to_others() {
    for option in ["-n", "--no-stdin"] {
        let broker = Broker::start(|peer| {
            peer.open();
            let (call, Request::Bash(bash)) = peer.call() else {
                panic!()
            };
            assert_eq!(bash.stdin, Stdin::Null);
            peer.ended(call, Ended::Exited(0), b"");
        });
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"second\n").unwrap();
        drop(writer);
        let input = reader.try_clone().unwrap();
        let status = broker
            .lazaret("run")
            .args([option, "cat"])
            .stdin(input)
            .status()
            .unwrap();
        let mut left = String::new();
        reader.read_to_string(&mut left).unwrap();
        assert_eq!((status.code(), left.as_str()), (Some(0), "second\n"));
        broker.join();
    }
}

#[test]
fn sockets_and_files_serve_as_streams_too() {
    let script = |peer: &mut Peer| {
        peer.open();
        let (call, _) = peer.call();
        let mut got = Vec::new();
        while let Some(ToBroker::Input { bytes, .. }) = peer.receive() {
            got.extend(bytes);
        }
        peer.output(call, false, &got);
        peer.ended(call, Ended::Exited(0), b"");
    };
    let broker = Broker::serving(vec![Box::new(script), Box::new(script)]);
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut child = broker.lazaret("run");
    child
        .arg("cat")
        .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().unwrap())))
        .stdout(Stdio::from(OwnedFd::from(theirs)));
    let mut started = child.spawn().unwrap();
    drop(child);
    ours.write_all(&[b'y'; 50_000]).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    ours.read_to_end(&mut back).unwrap();
    assert!(back == [b'y'; 50_000] && started.wait().unwrap().success());
    // A regular file keeps its place and its end: what was there before stays.
    let path = std::env::temp_dir().join(format!("lazaret-run-{}", std::process::id()));
    std::fs::write(&path, "first\n").unwrap();
    let out = File::options().append(true).open(&path).unwrap();
    let code = broker
        .lazaret("run")
        .arg("cat")
        .stdin(File::open(&path).unwrap())
        .stdout(out)
        .status()
        .unwrap();
    assert_eq!(
        (code.code(), std::fs::read_to_string(&path).unwrap()),
        (Some(0), "first\nfirst\n".into())
    );
    std::fs::remove_file(path).unwrap();
    broker.join();
}

#[test]
fn a_reader_that_is_gone_cancels_the_command() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.output(call, false, b"x");
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.ended(call, Ended::Cancelled, b"");
    });
    let mut child = broker
        .lazaret("run")
        .args(["yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    broker.join();
}

/// Whether the command has ended by itself or is cancelled must make no difference.
#[test]
fn output_that_cannot_be_written_is_reported_once() {
    let ended_first = |peer: &mut Peer, call| {
        peer.output(call, false, b"x");
        peer.output(call, false, b"y");
        peer.ended(call, Ended::Exited(0), b"");
    };
    let cancelled = |peer: &mut Peer, call| {
        peer.output(call, false, b"x");
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.output(call, false, b"y");
        peer.ended(call, Ended::Cancelled, b"");
    };
    for script in [ended_first as fn(&mut Peer, u64), cancelled] {
        let broker = Broker::start(move |peer| {
            peer.open();
            let (call, _) = peer.call();
            script(peer, call);
        });
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = broker
            .lazaret("run")
            .arg("x")
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = output.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let want =
            "lazaret: cannot write the standard output: No space left on device (os error 28)\n";
        assert_eq!((output.status.code(), said.as_str()), (Some(125), want));
        broker.join();
    }
}

#[test]
fn the_first_interrupt_is_for_the_command_the_second_ends_it_and_the_third_at_once() {
    let (started, start) = std::sync::mpsc::channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let (call, _) = peer.call();
        started.send(()).unwrap();
        assert_eq!(
            peer.receive(),
            Some(ToBroker::Signal {
                call,
                signal: Signal::Interrupt
            })
        );
        started.send(()).unwrap();
        assert_eq!(
            peer.receive(),
            Some(ToBroker::Signal {
                call,
                signal: Signal::Terminate
            })
        );
        started.send(()).unwrap();
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        started.send(()).unwrap();
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.ended(call, Ended::Cancelled, b"");
    });
    let mut child = broker.lazaret("run").args(["sleep", "9"]).spawn().unwrap();
    let interrupt = signal::SIGINT;
    for signal in [interrupt, signal::SIGTERM, interrupt, interrupt] {
        start.recv_timeout(PATIENCE).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    broker.join();
}

/// Whether a process has a handler for a signal.
fn catches(process: u32, signal: signal::Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let handlers = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap();
    u64::from_str_radix(handlers.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 == 1
}

#[test]
fn an_interrupt_before_there_is_a_session_is_for_us() {
    let (reached, reach) = std::sync::mpsc::channel();
    let broker = Broker::start(move |peer| {
        while peer.receive().is_some() {
            reached.send(()).unwrap();
        }
    });
    let mut child = broker.lazaret("run").args(["sleep", "9"]).spawn().unwrap();
    (0..2).for_each(|_| reach.recv_timeout(PATIENCE).unwrap());
    // It is there, but its handlers need a moment. Without them the signal itself ends it, or nobody hears it, if we do not.
    let end = Instant::now() + PATIENCE;
    while !catches(child.id(), signal::SIGINT) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(child.id() as i32), signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    broker.join();
}

#[test]
fn json_is_one_object_with_everything() {
    let (code, out, said) = run(&["--json", "--", "x"], |peer, call, bash| {
        assert!(!bash.live);
        let output = Captured {
            head: b"a\xff".to_vec(),
            tail: b"z".to_vec(),
            omitted: 5,
        };
        peer.done(
            call,
            Outcome::Ran(Ran {
                ended: Ended::Exited(1),
                output,
                spill: None,
                stderr: None,
                timeout_s: Some(600),
                profile: None,
                leftover: broker_protocol::LeftRunning::default(),
            }),
        );
    });
    assert_eq!((code, said.as_str(), out.lines().count()), (Some(1), "", 1));
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        result["result"],
        "a\u{fffd}\n[truncated: total=8 shown=3 strategy=both]\nz"
    );
    assert!(result["resultBase64"].is_string());
    assert_eq!(result["error"]["code"], "exit_nonzero");
    assert_eq!(result["metadata"]["timeout"], 600);
    assert_eq!(result.get("id"), None);
}

#[test]
fn json_has_no_unsafe_characters_and_a_pipe_gets_every_byte() {
    let bytes = b"a\x1b[31mb\x1b]52;c;aGk=\x07c\xe2\x80\xaed\r\n";
    let end = |peer: &mut Peer, call, bash: Bash| {
        if bash.live {
            peer.output(call, false, bytes);
        }
        peer.ended(call, Ended::Exited(0), bytes);
    };
    let (_, out, _) = run(&["--json", "--", "x"], end);
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&result["result"], &result["metadata"]["stripped"]),
        (&json!("abcd\n"), &json!(3))
    );
    assert!(!out.contains(['\u{1b}', '\u{202e}']), "{out:?}");
    let (_, out, _) = run(&["--", "x"], end);
    assert_eq!(out.as_bytes(), bytes);
}

#[test]
fn on_a_terminal_keys_pass_untouched_and_its_mode_comes_back() {
    let size = nix::pty::Winsize {
        ws_row: 33,
        ws_col: 99,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(&size, None).unwrap();
    let (raw, is_raw) = std::sync::mpsc::channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let (call, Request::Bash(bash)) = peer.call() else {
            panic!()
        };
        let Stdin::Terminal(terminal) = &bash.stdin else {
            panic!("{:?}", bash.stdin)
        };
        assert_eq!(
            (terminal.rows, terminal.columns, terminal.term.as_str()),
            (33, 99, "vt-test")
        );
        assert_eq!(bash.timeout_s, None);
        raw.send(()).unwrap();
        assert_eq!(
            peer.receive(),
            Some(ToBroker::Input {
                call,
                bytes: vec![3]
            })
        );
        raw.send(()).unwrap();
        assert_eq!(
            peer.receive(),
            Some(ToBroker::Resize {
                call,
                rows: 33,
                columns: 99
            })
        );
        peer.output(call, false, b"bye");
        peer.ended(call, Ended::Exited(5), b"");
    });
    let before = tcgetattr(&pty.slave).unwrap();
    let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
    let mut command = broker.lazaret("run");
    command
        .arg("bash")
        .env("TERM", "vt-test")
        .stdin(end(&pty.slave))
        .stdout(end(&pty.slave));
    let mut child = command.spawn().unwrap();
    is_raw.recv_timeout(PATIENCE).unwrap();
    let local = tcgetattr(&pty.slave).unwrap().local_flags;
    assert!(!local.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG));
    let mut keys = File::from(pty.master);
    keys.write_all(&[3]).unwrap();
    is_raw.recv_timeout(PATIENCE).unwrap();
    kill(Pid::from_raw(child.id() as i32), signal::SIGWINCH).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
    let mut shown = [0; 3];
    keys.read_exact(&mut shown).unwrap();
    assert_eq!(&shown, b"bye");
    broker.join();
}

#[test]
fn a_window_that_changes_while_the_session_opens_is_the_commands() {
    let size = nix::pty::Winsize {
        ws_row: 33,
        ws_col: 99,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(&size, None).unwrap();
    let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
    let window = end(&pty.slave);
    let broker = Broker::start(move |peer| {
        let mut stty = std::process::Command::new("stty");
        assert!(
            stty.args(["rows", "40", "columns", "100"])
                .stdin(window)
                .status()
                .unwrap()
                .success()
        );
        peer.open();
        let (call, Request::Bash(bash)) = peer.call() else {
            panic!()
        };
        let Stdin::Terminal(terminal) = &bash.stdin else {
            panic!("{:?}", bash.stdin)
        };
        assert_eq!((terminal.rows, terminal.columns), (40, 100));
        peer.ended(call, Ended::Exited(0), b"");
    });
    let mut command = broker.lazaret("run");
    command
        .arg("bash")
        .stdin(end(&pty.slave))
        .stdout(end(&pty.slave));
    assert_eq!(command.status().unwrap().code(), Some(0));
    broker.join();
}

/// Started as `EXECUTOR broker`, this test program plays the executor: the harness takes the argument for a filter.
#[test]
fn plays_broker_when_started_as_the_executor() {
    if std::env::var_os("LAZARET_TEST_EXECUTOR").is_some() {
        play_broker();
    }
}

fn play_broker() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let socket = nix::unistd::dup(std::io::stdin()).unwrap();
    let mut peer = Peer::new(socket.into(), 0);
    peer.open();
    let (call, _) = peer.call();
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    let targets = open
        .iter()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets = targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count();
    let group = nix::unistd::getpgrp() == nix::unistd::getpid();
    let report = json!({"arguments": arguments, "sockets": sockets, "ownGroup": group});
    peer.output(call, false, report.to_string().as_bytes());
    peer.ended(call, Ended::Exited(0), b"");
    // We end when lazaret does.
    assert_eq!(peer.receive(), None);
}

#[test]
fn the_executor_is_started_with_its_socket_and_nothing_else() {
    let begin = Instant::now();
    let mut lazaret = std::process::Command::new(env!("CARGO_BIN_EXE_lazaret"));
    lazaret
        .args(["run", "--no-log", "--central", "/c", "--executor"])
        .arg(std::env::current_exe().unwrap())
        .args(["--", "x"]);
    let output = lazaret
        .env("LAZARET_TEST_EXECUTOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Its standard input, and the copy that the test made of it. It leads no group, so that it can leave the session.
    assert_eq!(
        report,
        json!({"arguments": ["broker"], "sockets": 2, "ownGroup": false})
    );
    assert!(begin.elapsed() < PATIENCE);
}
