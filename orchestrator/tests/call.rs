//! `lazaret call`, `tools` and `doctor`: what they print and their exit codes.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use broker_protocol::{
    Broken, Digest, Edited, Ended, ErrorKind, Failed, FileAnswer, FileReply, FromBroker, Hello,
    Hunk, Listed, ListedEntry, ListedKind, Machine, Outcome, Read, Refused, Tier, ToBroker, limit,
};
use lazaret_fakes::{Broker, Peer};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

fn call(
    arguments: &[&str],
    script: impl FnOnce(&mut Peer, u64) + Send + 'static,
) -> (i32, String, String) {
    let broker = Broker::start(move |peer| {
        peer.open();
        let (call, _) = peer.call();
        script(peer, call);
    });
    let output = broker.lazaret("call").args(arguments).output().unwrap();
    broker.join();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn file(answer: FileAnswer) -> impl FnOnce(&mut Peer, u64) + Send + 'static {
    move |peer, call| peer.answer(call, &answer, 1000)
}

fn outcome(outcome: Outcome) -> impl FnOnce(&mut Peer, u64) + Send + 'static {
    move |peer, call| peer.done(call, outcome)
}

#[test]
fn a_result_is_printed_as_it_is() {
    let read = Read {
        content: b"hello".to_vec(),
        first_line: 1,
        lines: 1,
        size: 5,
        truncated: None,
        sha256: None,
        total_lines: None,
    };
    let got = call(
        &["file_read", r#"{"path":"a"}"#],
        file(Ok(FileReply::Read(read))),
    );
    assert_eq!(got, (0, "hello".into(), "".into()));
    let entries = vec![ListedEntry {
        path: "x\ny".into(),
        kind: ListedKind::File,
        size: 1,
        mode: 0o644,
        modified_ms: 0,
    }];
    let got = call(
        &["ls", "{}"],
        file(Ok(FileReply::Listed(Listed {
            entries,
            truncated: None,
        }))),
    );
    assert_eq!(got, (0, "\"x\\ny\"\n".into(), "".into()));
    let got = call(&["bash", r#"{"command":"x"}"#], |peer, call| {
        peer.ended(call, Ended::Exited(42), b"out\n")
    });
    assert_eq!(
        got,
        (
            1,
            "out\n".into(),
            "lazaret: exit_nonzero: the command exited with code 42\n".into()
        )
    );
}

#[test]
fn oversized_answer_is_refused() {
    let edited = |bytes: usize| {
        let hunk = Hunk {
            old_start: 1,
            new_start: 1,
            old: vec![b'a'; bytes],
            new: vec![],
        };
        let (sha256, hunks) = (Digest([0; 32]), Some(vec![hunk]));
        let edited = Edited {
            replaced: vec![1],
            bytes: 0,
            sha256,
            change: Some(1),
            hunks,
        };
        let input = r#"{"path":"a","old":"x","new":"","expected_sha256":"HASH"}"#
            .replace("HASH", &"0".repeat(64));
        call(&["file_edit", &input], file(Ok(FileReply::Edited(edited))))
    };
    assert_eq!(
        edited(limit::HUNKS),
        (0, "replaced 1 place in a\n".into(), "".into())
    );
    let (code, out, said) = edited(limit::HUNKS + 1);
    assert_eq!((code, out.as_str()), (125, ""));
    assert!(
        said.starts_with("lazaret: protocol: ") && said.contains("an answer passes a limit"),
        "{said}"
    );
}

#[test]
fn each_kind_of_error_has_its_code() {
    let read = ["file_read", r#"{"path":"a"}"#];
    let failed = |kind| Failed {
        kind,
        message: "why".into(),
    };
    let code = |(code, out, said): (i32, String, String)| {
        assert_eq!(out, "");
        assert!(said.starts_with("lazaret: "), "{said}");
        code
    };
    assert_eq!(code(call(&read, file(Err(failed(ErrorKind::NotFound))))), 1);
    assert_eq!(code(call(&read, file(Err(failed(ErrorKind::Io))))), 1);
    let refused = |violation| {
        Outcome::Refused(Refused {
            rule: "r".into(),
            why: "w".into(),
            violation,
        })
    };
    assert_eq!(code(call(&read, outcome(refused(true)))), 3);
    assert_eq!(code(call(&read, outcome(refused(false)))), 126);
    assert_eq!(
        code(call(
            &read,
            outcome(Outcome::Broken(Broken {
                message: "m".into()
            }))
        )),
        125
    );
    assert_eq!(code(call(&read, |_, _| {})), 125);
    let bash = ["bash", r#"{"command":"x"}"#];
    assert_eq!(
        code(call(&bash, |peer, call| peer.ended(
            call,
            Ended::TimedOut,
            b""
        ))),
        124
    );
}

#[test]
fn malformed_call_never_reaches_the_executor() {
    let refused = |arguments: &[&str]| {
        let broker = Broker::start(|peer| {
            peer.open();
            assert_eq!(peer.receive(), None);
        });
        let output = broker.lazaret("call").args(arguments).output().unwrap();
        broker.join();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = refused(&["file_read", r#"{"path":"../../etc/passwd"}"#]);
    assert_eq!(code, 3);
    assert!(said.contains("violation: outside sandbox"), "{said}");
    assert_eq!(refused(&["nope", "{}"]).0, 2);
    let (code, said) = refused(&["bash", r#"{"command":"x","timeout":0}"#]);
    assert_eq!(
        (code, said.as_str()),
        (
            2,
            "lazaret: invalid_input: field `timeout`: expected an integer of at least 1, this is 0\n"
        )
    );
}

#[test]
fn the_input_may_come_from_standard_input_and_the_result_go_out_as_json() {
    let broker = Broker::start(Peer::echo);
    let mut lazaret = broker.lazaret("call");
    let lazaret = lazaret
        .args(["bash", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = lazaret.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(br#"{"command":"said"}"#)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&result["event"], &result["result"]),
        (&json!("result"), &json!("said"))
    );
    broker.join();
    let output = Command::new(env!("CARGO_BIN_EXE_lazaret"))
        .args(["call", "bash", "{", "--json"])
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &result["error"]["code"]),
        (Some(2), &json!("invalid_input"))
    );
}

#[test]
fn tools_need_no_executor() {
    let tools = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lazaret"))
            .arg("tools")
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&tools(&["--json"])).unwrap();
    let names: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let all = [
        "bash",
        "file_read",
        "file_write",
        "file_edit",
        "file_list",
        "glob",
        "grep",
        "web_search",
        "web_fetch",
        "background_list",
        "batch",
        "todo_read",
        "todo_write",
        "memory",
        "goal_create",
        "goal_switch",
        "goal_complete",
        "goal_list",
        "checkpoint",
        "thinking",
        "finish_task",
        "view_image",
        "run_tests",
    ];
    assert!(all.iter().all(|name| names.contains(name)), "{names:?}");
    assert!(names.is_sorted(), "{names:?}");
    assert!(
        json.as_array()
            .unwrap()
            .iter()
            .all(|tool| tool["inputSchema"]["type"] == "object")
    );
    assert!(names.iter().all(|name| tools(&[]).contains(name)));
}

/// Exit code and output of the program with these arguments.
fn lazaret(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lazaret"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text)
}

#[test]
fn a_tool_can_be_switched_off() {
    let (code, json) = lazaret(&["tools", "--json", "--disable", "shell"]);
    assert!(
        code == Some(0)
            && json.contains("\"name\":\"grep\"")
            && !json.contains("\"name\":\"bash\"")
    );
    assert_eq!(lazaret(&["tools", "--disable", "nope"]).0, Some(2));
}

#[test]
fn completions_are_there_for_each_shell() {
    for (shell, part) in [
        ("bash", "_lazaret()"),
        ("zsh", "#compdef lazaret"),
        ("fish", "complete -c lazaret"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_lazaret"))
            .args(["completions", shell])
            .output()
            .unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && script.contains(part) && script.contains("model-profile"),
            "{shell}"
        );
    }
    let other = Command::new(env!("CARGO_BIN_EXE_lazaret"))
        .args(["completions", "tcsh"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn each_command_has_a_manual_page() {
    let (code, page) = lazaret(&["man", "mcp", "add"]);
    assert_eq!(code, Some(0));
    assert!(page.contains(".TH lazaret-mcp-add 1"), "{page}");
    assert!(lazaret(&["man"]).1.contains("lazaret\\-run(1)"));
    assert_eq!(lazaret(&["man", "mcp", "nope"]).0, Some(2));
}

#[test]
fn json_holds_nothing_that_is_not_seen_and_a_pipe_gets_every_byte() {
    let bytes = b"a\x1b[31mb\x1b]52;c;aGk=\x07c\xe2\x80\xaed\r\n";
    let end = |peer: &mut Peer, call| peer.ended(call, Ended::Exited(0), bytes);
    let bash = ["bash", r#"{"command":"x"}"#];
    let json =
        |arguments: &[&str]| -> Value { serde_json::from_str(&call(arguments, end).1).unwrap() };
    let shown = json(&[&bash[..], &["--json"]].concat());
    assert_eq!(
        (&shown["result"], &shown["metadata"]["stripped"]),
        (&json!("abcd\n"), &json!(3))
    );
    let printed = call(&[&bash[..], &["--json", "--raw-output"]].concat(), end).1;
    assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{printed:?}");
    let raw: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(raw["result"], String::from_utf8(bytes.to_vec()).unwrap());
    assert_eq!(call(&bash, end).1.as_bytes(), bytes);
}

#[test]
fn doctor_says_whether_a_session_opens() {
    let doctor = |fault: Option<Failed>| {
        let broker = Broker::start(move |peer| {
            assert!(matches!(peer.receive(), Some(ToBroker::Hello(_))));
            peer.send(&FromBroker::Hello(Hello::ours(None)));
            assert_eq!(peer.receive(), Some(ToBroker::Probe));
            let layers = lazaret_fakes::opened(0).layers;
            peer.send(&FromBroker::Probed(Machine {
                kernel: "6.18".into(),
                landlock_abi: 7,
                tier: Tier::Flat,
                layers,
            }));
            assert!(matches!(peer.receive(), Some(ToBroker::Open(_))));
            peer.send(&fault.map_or(
                FromBroker::Opened(lazaret_fakes::opened(0)),
                FromBroker::Fault,
            ));
        });
        let output = broker.lazaret("doctor").arg("--json").output().unwrap();
        broker.join();
        (
            output.status.code(),
            serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        )
    };
    let (code, report) = doctor(None);
    // A session opens, and its broker ends before a command has run there: that is none that works.
    assert_eq!(
        (code, &report["session"]["ok"], &report["landlockAbi"]),
        (Some(1), &json!(false), &json!(7))
    );
    assert_eq!(
        report["layers"][1],
        json!({"name": "cgroup", "inForce": false, "why": "w", "lost": "l"})
    );
    let (code, report) = doctor(Some(Failed {
        kind: ErrorKind::Internal,
        message: "cgroup is required".into(),
    }));
    assert_eq!(
        (code, &report["session"]["error"]["message"]),
        (Some(1), &json!("cgroup is required"))
    );
}

#[test]
fn other_protocol_version_is_reported() {
    let broker = Broker::start(|peer| {
        peer.receive();
        peer.send(&FromBroker::Hello(Hello {
            version: 999,
            ..Hello::ours(None)
        }));
    });
    let output = broker.lazaret("call").args(["ls", "{}"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("install both programs from one release")
    );
    broker.join();
}
