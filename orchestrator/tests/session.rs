//! The session's promises, with a broker that misbehaves on purpose.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use broker_protocol::{
    CallId, Challenge, Channel, Coverage, Digest, Ended, ErrorKind, Failed, FileReply, FromBroker,
    Nonce, Outcome, Read, Refused, Request, Risk, SessionGrant, Stdin, ToBroker, limit,
};
use lazaret_fakes::{Broker, Peer, shell};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long a peer listens for what must not come: that nothing comes is no event.
const QUIET: Duration = Duration::from_millis(300);

fn bash(id: impl Into<Value>, command: &str) -> Value {
    json!({"id": id.into(), "tool": "bash", "input": {"command": command}})
}

#[test]
fn the_first_line_says_what_was_opened() {
    let broker = Broker::start(|peer| {
        let open = peer.open();
        assert!((1..=4).contains(&open.spare));
        assert_eq!(peer.receive(), None);
    });
    let mut client = lazaret_fakes::Client::start(
        broker
            .lazaret("session")
            .current_dir("/")
            .args(["--trust", "guided"]),
    );
    let policy = "07".repeat(32);
    let session = json!({"id": "5e".repeat(16), "project": "/p", "cwd": ".", "central": "/c", "profile": "default", "policy": policy,
        "tier": "namespaced", "layers": ["seccomp"], "trust": "guided", "channel": "relay", "maxViolations": 3});
    assert_eq!(
        client.receive(),
        json!({"event": "ready", "protocol": 1, "version": env!("CARGO_PKG_VERSION"), "session": session})
    );
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn many_calls_run_at_once_and_each_has_one_result() {
    let broker = Broker::start(|peer| {
        peer.open();
        let calls: Vec<_> = (0..10).map(|_| peer.call()).collect();
        for (call, request) in calls.iter().rev() {
            peer.output(*call, false, shell(request).as_bytes());
        }
        for (call, request) in calls.iter().rev() {
            peer.ended(*call, Ended::Exited(0), shell(request).as_bytes());
        }
    });
    let mut client = broker.session();
    for id in 0..10 {
        client.send(bash(id, &format!("echo {id}")));
    }
    let events: Vec<Value> = (0..20).map(|_| client.receive()).collect();
    for id in 0..10 {
        let of_id: Vec<_> = events.iter().filter(|event| event["id"] == id).collect();
        let text = format!("echo {id}");
        let output = json!({"id": id, "event": "output", "stream": "stdout", "chunk": text});
        assert_eq!(*of_id[0], output);
        let result = of_id[1];
        assert_eq!(
            (&result["status"], &result["result"]),
            (&json!("success"), &json!(text))
        );
        assert_eq!(result["metadata"]["exitCode"], 0);
        assert_eq!(result["metadata"]["usage"]["wallUs"], 7);
        assert_eq!(result["metadata"]["layers"], json!(["seccomp"]));
        assert_eq!(result["metadata"]["tool"], "bash");
        assert_eq!(of_id.len(), 2);
    }
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn characters_split_over_chunks_are_joined_and_other_bytes_come_as_base64() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.output(call, false, b"a\xe2\x82");
        peer.output(call, true, b"\xf0\x9f");
        peer.output(call, false, b"\xacb");
        peer.output(call, true, b"\x98\x80");
        peer.output(call, false, b"x\xffy");
        peer.output(call, false, b"\xe2\x82");
        peer.ended(call, Ended::Exited(0), b"\xff");
    });
    let mut client = broker.session();
    client.send(bash("u", "x"));
    let (events, code) = client.end();
    let pieces: Vec<_> = events
        .iter()
        .map(|e| (&e["stream"], &e["chunk"], &e["chunkBase64"]))
        .collect();
    let (out, err, none) = (json!("stdout"), json!("stderr"), Value::Null);
    assert_eq!(pieces[0], (&out, &json!("a"), &none));
    assert_eq!(pieces[1], (&out, &json!("€b"), &none));
    assert_eq!(pieces[2], (&err, &json!("😀"), &none));
    assert_eq!(pieces[3], (&out, &none, &json!("eP95")));
    assert_eq!(pieces[4], (&out, &none, &json!("4oI=")));
    assert_eq!(
        (&events[5]["result"], &events[5]["resultBase64"]),
        (&json!("\u{fffd}"), &json!("/w=="))
    );
    assert_eq!((events.len(), code), (6, 0));
    broker.join();
}

#[test]
fn cancel_reaches_the_broker_and_the_result_says_so() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.output(call, true, b"begun");
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.ended(call, Ended::Cancelled, b"some");
        assert_eq!(peer.receive(), None);
    });
    let mut client = broker.session();
    client.send(bash("c", "sleep 9"));
    assert_eq!(client.receive()["chunk"], "begun");
    client.send(json!({"id": "never", "cancel": true}));
    client.send(json!({"id": "c", "cancel": true}));
    let result = client.receive();
    assert_eq!(
        result["error"],
        json!({"code": "cancelled", "layer": "execution", "message": "the call was cancelled"})
    );
    assert_eq!(
        (&result["id"], &result["result"]),
        (
            &json!("c"),
            &json!("<error>the call was cancelled</error>\n<result>some</result>")
        )
    );
    // Its result is out: another cancel is late, not wrong.
    client.send(json!({"id": "c", "cancel": true}));
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn a_lost_executor_ends_each_call_once_and_the_next_call_gets_a_new_session() {
    let lost = |peer: &mut Peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.call();
        peer.output(call, false, b"half");
    };
    let broker = Broker::serving(vec![Box::new(lost), Box::new(Peer::echo)]);
    let mut client = broker.session();
    client.send(bash(1, "one"));
    client.send(bash(2, "two"));
    assert_eq!(client.receive()["chunk"], "half");
    let mut ids = vec![];
    for _ in 0..2 {
        let result = client.receive();
        assert_eq!(result["error"]["code"], "executor_lost");
        ids.push(result["id"].as_u64().unwrap());
    }
    ids.sort();
    assert_eq!(ids, [1, 2]);
    client.send(bash(3, "three"));
    assert_eq!(client.receive()["event"], "ready");
    assert_eq!(client.receive()["result"], "three");
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn a_fault_gives_its_own_kind_to_every_call() {
    let broker = Broker::start(|peer| {
        peer.open();
        peer.call();
        peer.send(&FromBroker::Fault(Failed {
            kind: ErrorKind::ResourceLimit,
            message: "no more cells".into(),
        }));
    });
    let mut client = broker.session();
    client.send(bash(1, "x"));
    let result = client.receive();
    assert_eq!(
        result["error"],
        json!({"code": "resource_limit", "layer": "execution", "message": "no more cells", "advice": "use less of it, or raise the limit in the policy"})
    );
    drop(client);
    broker.join();
}

#[test]
fn an_executor_that_breaks_the_protocol_is_not_believed() {
    type Breach = fn(&mut Peer, CallId);
    let breaches: [Breach; 5] = [
        |peer, call| {
            peer.send(&FromBroker::Output {
                call,
                stderr: false,
                sequence: 5,
                bytes: vec![1],
            })
        },
        |peer, call| {
            // Nobody reads before the connection has ended, so at most one chunk finds its reader and is paid for.
            let chunks = limit::OUTPUT_WINDOW as usize / limit::CHUNK + 3;
            (0..chunks).for_each(|_| peer.output(call, false, &[b'x'; limit::CHUNK]))
        },
        |peer, call| peer.done(call + 1, Outcome::Answered),
        |peer, _| peer.send(&FromBroker::Opened(lazaret_fakes::opened(0))),
        |peer, call| {
            (0..5).for_each(|_| {
                peer.send(&FromBroker::Part {
                    call,
                    bytes: vec![0; 1_000_000],
                })
            })
        },
    ];
    for (index, breach) in breaches.into_iter().enumerate() {
        let (ended, end) = channel();
        let broker = Broker::start(move |peer| {
            peer.open();
            let (call, _) = peer.call();
            breach(peer, call);
            // The connection ends, with or without a reset.
            while peer.receive().is_some() {}
            ended.send(()).unwrap();
        });
        let mut client = broker.session();
        client.send(bash(1, "x"));
        end.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
        let result = std::iter::repeat_with(|| client.receive())
            .find(|event| event["event"] == "result")
            .unwrap();
        assert_eq!(
            result["error"]["code"], "protocol",
            "breach {index}: {result}"
        );
        drop(client);
        broker.join();
    }
}

#[test]
fn invalid_file_answer_fails_only_its_call() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.send(&FromBroker::Part {
            call,
            bytes: vec![0xff; 9],
        });
        peer.done(call, Outcome::Answered);
        let (call, request) = peer.call();
        assert!(matches!(request, Request::FileRead(read) if read.path.relative() == "a"));
        let (content, size) = (b"hello".to_vec(), 5);
        let read = Read {
            content,
            first_line: 1,
            lines: 1,
            size,
            truncated: None,
            sha256: None,
            total_lines: None,
        };
        peer.answer(call, &Ok(FileReply::Read(read)), 3);
        let (call, _) = peer.call();
        peer.answer(
            call,
            &Err(Failed {
                kind: ErrorKind::NotFound,
                message: "file not found".into(),
            }),
            64,
        );
        let (call, _) = peer.call();
        peer.done(
            call,
            Outcome::Refused(Refused {
                rule: "r".into(),
                why: "because".into(),
                violation: true,
            }),
        );
    });
    let mut client = broker.session();
    let mut read = |path: &str| {
        client.send(json!({"id": 1, "tool": "read_file", "input": {"file_path": path}}));
        match client.receive() {
            told if told["event"] == "security_event" => client.receive(),
            result => result,
        }
    };
    assert_eq!(read("a")["error"]["code"], "protocol");
    let result = read("/p/a");
    assert_eq!(result["result"], "hello");
    assert_eq!(
        (&result["metadata"]["tool"], &result["metadata"]["path"]),
        (&json!("file_read"), &json!("/p/a"))
    );
    assert_eq!(
        read("b")["error"],
        json!({"code": "not_found", "layer": "result", "message": "file not found", "advice": "check the name that the message has"})
    );
    let refused = read(".git/config");
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["layer"]),
        (&json!("violation"), &json!("policy"))
    );
    assert_eq!(refused["result"], "refused by policy rule `r`: because");
    broker.join();
}

#[test]
fn wrong_lines_are_answered_and_the_session_goes_on() {
    let broker = Broker::start(Peer::echo);
    let mut client = broker.session();
    let cases = [
        ("nonsense".into(), Value::Null, "invalid_input"),
        ("[1,2]".into(), Value::Null, "invalid_input"),
        (r#"{"tool":"bash"}"#.into(), Value::Null, "invalid_input"),
        (r#"{"id":"a"}"#.into(), json!("a"), "invalid_input"),
        (
            r#"{"id":15,"tool":"nope"}"#.into(),
            json!(15),
            "unknown_tool",
        ),
        (
            r#"{"id":1.5,"tool":"nope"}"#.into(),
            Value::Null,
            "invalid_input",
        ),
        (
            r#"{"id":"a","tool":"bash","input":{}}"#.into(),
            json!("a"),
            "invalid_input",
        ),
        (
            r#"{"id":"a","tool":"bash","input":"x"}"#.into(),
            json!("a"),
            "invalid_input",
        ),
        (
            r#"{"id":"a","tool":"bash","input":{"command":"x","timeout":0}}"#.into(),
            json!("a"),
            "invalid_input",
        ),
        (
            r#"{"id":"a","tool":"file_read","input":{"path":"../etc/passwd"}}"#.into(),
            json!("a"),
            "violation",
        ),
        (
            r#"{"id":"a","tool":"bash","input":{"command":"\ud800"}}"#.into(),
            Value::Null,
            "invalid_input",
        ),
        ("[".repeat(100_000), Value::Null, "invalid_input"),
        ("x".repeat((32 << 20) + 1), Value::Null, "invalid_input"),
    ];
    for (line, id, kind) in cases {
        client.send(&line);
        if kind == "violation" {
            assert_eq!(client.receive()["event"], "security_event");
        }
        let result = client.receive();
        let shown = &line[..line.len().min(80)];
        assert_eq!(
            (&result["event"], &result["status"]),
            (&json!("result"), &json!("error")),
            "{shown}"
        );
        assert_eq!(
            (&result["id"], &result["error"]["code"]),
            (&id, &json!(kind)),
            "{shown}"
        );
        assert_eq!(
            result["error"]["layer"],
            if kind == "violation" {
                "policy"
            } else {
                "validation"
            },
            "{shown}"
        );
    }
    client.send("\n  \r");
    client.send(bash("still", "here"));
    assert_eq!(client.receive()["result"], "here");
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn an_id_means_one_call_at_a_time_and_text_and_number_differ() {
    let (go, wait) = channel::<()>();
    let broker = Broker::start(move |peer| {
        peer.open();
        let calls = [peer.call(), peer.call()];
        wait.recv().unwrap();
        calls.iter().for_each(|(call, request)| {
            peer.ended(*call, Ended::Exited(0), shell(request).as_bytes())
        });
        let (call, _) = peer.call();
        peer.ended(call, Ended::Exited(0), b"again");
    });
    let mut client = broker.session();
    client.send(bash("1", "text"));
    client.send(bash("1", "twice"));
    // A call under way keeps its one result: what is wrong about it besides is only a notice.
    let notice = |client: &mut lazaret_fakes::Client, id: Value| {
        let notice = client.receive();
        assert_eq!((&notice["event"], &notice["id"]), (&json!("notice"), &id));
        assert_eq!(notice["error"]["code"], "invalid_input");
    };
    notice(&mut client, json!("1"));
    client.send(bash(1, "number"));
    client.send(json!({"id": 1, "stdin": "no"}));
    notice(&mut client, json!(1));
    go.send(()).unwrap();
    let mut results = [client.receive(), client.receive()]
        .map(|result| (result["id"].clone(), result["result"].clone()));
    results.sort_by_key(|(id, _)| id.is_string());
    assert_eq!(
        results,
        [(json!(1), json!("number")), (json!("1"), json!("text"))]
    );
    client.send(bash("1", "x"));
    assert_eq!(client.receive()["result"], "again");
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn input_is_fed_in_order_within_its_window() {
    let (arrived, arrival) = channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let (call, request) = peer.call();
        assert!(matches!(request, Request::Bash(bash) if bash.stdin == Stdin::Stream && bash.live));
        let (mut got, mut credited) = (Vec::new(), false);
        loop {
            match peer.receive() {
                Some(ToBroker::Input { bytes, .. }) => {
                    assert!(bytes.len() <= limit::CHUNK);
                    got.extend(bytes);
                }
                Some(ToBroker::InputEnd { .. }) => break,
                other => panic!("{other:?}"),
            }
            assert!(credited || got.len() <= limit::INPUT_WINDOW as usize);
            if !credited && got.len() == limit::INPUT_WINDOW as usize {
                assert!(peer.is_quiet(QUIET), "more comes before there is credit");
                peer.send(&FromBroker::InputCredit {
                    call,
                    bytes: 1_000_000,
                });
                credited = true;
            }
        }
        arrived.send(got).unwrap();
        peer.ended(call, Ended::Exited(0), b"");
    });
    let mut client = broker.session();
    client.send(json!({"id": 1, "tool": "bash", "input": {"command": "cat", "stdin": true}}));
    client.send(json!({"id": 1, "stdin": "é".repeat(200_000)}));
    client.send(json!({"id": 1, "stdinBase64": "AP8="}));
    client.send(json!({"id": 1, "stdinEnd": true}));
    let mut want = "é".repeat(200_000).into_bytes();
    want.extend(b"\x00\xff");
    assert!(arrival.recv().unwrap() == want);
    assert_eq!(client.end().0.len(), 1);
    broker.join();
}

#[test]
fn the_end_of_our_input_is_the_end_of_theirs_and_calls_are_waited_for() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        assert_eq!(peer.receive(), Some(ToBroker::InputEnd { call }));
        assert!(peer.is_quiet(QUIET), "the call is not waited for");
        peer.ended(call, Ended::Exited(3), b"");
    });
    let mut client = broker.session();
    client.send(json!({"id": 1, "tool": "bash", "input": {"command": "cat", "stdin": true}}));
    let (events, code) = client.end();
    assert_eq!(events[0]["metadata"]["exitCode"], 3);
    assert_eq!(events[0]["error"]["code"], "exit_nonzero");
    assert_eq!(events[0]["result"], "the command exited with code 3");
    assert_eq!((events.len(), code), (1, 0));
    broker.join();
}

fn question(channel: Channel) -> Challenge {
    Challenge {
        digest: Digest([0; 32]),
        nonce: Nonce([0; 16]),
        rule: "trust:guided".into(),
        why: "w".into(),
        risk: Risk::High,
        expires_s: 30,
        channel,
        covers: Coverage::Rule,
        programs: Vec::new(),
        wants: broker_protocol::Wants::default(),
    }
}

#[test]
fn the_end_of_our_input_is_a_no_unless_answers_come_from_elsewhere() {
    let broker = Broker::start(move |peer| {
        peer.open();
        let [waits, asked_late, elsewhere] = [0; 3].map(|_| peer.call().0);
        peer.send(&FromBroker::Asked {
            call: waits,
            challenge: question(Channel::Relay),
        });
        peer.send(&FromBroker::Asked {
            call: elsewhere,
            challenge: question(Channel::Separate),
        });
        assert_eq!(peer.receive(), Some(ToBroker::Refuse { call: waits }));
        peer.send(&FromBroker::Asked {
            call: asked_late,
            challenge: question(Channel::Relay),
        });
        assert_eq!(peer.receive(), Some(ToBroker::Refuse { call: asked_late }));
        [waits, asked_late, elsewhere]
            .into_iter()
            .for_each(|call| peer.ended(call, Ended::Exited(0), b""));
        assert_eq!(peer.receive(), None);
    });
    let mut client = broker.session();
    (1..=3).for_each(|id| client.send(bash(id, "x")));
    let asked = [client.receive(), client.receive()];
    assert!(
        asked.iter().all(|event| event["event"] == "approval"),
        "{asked:?}"
    );
    let (events, code) = client.end();
    assert_eq!(
        (
            events
                .iter()
                .filter(|event| event["event"] == "result")
                .count(),
            code
        ),
        (3, 0)
    );
    broker.join();
}

/// Receives until the end: nothing but repeated cancels of this call, by which the end of a session kills at once.
fn only_cancels(peer: &mut Peer, call: CallId) {
    while let Some(message) = peer.receive() {
        assert_eq!(message, ToBroker::Cancel { call });
    }
}

#[test]
fn a_signal_cancels_what_is_under_way_and_ends_the_session() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        let broker = Broker::start(|peer| {
            peer.open();
            let (call, _) = peer.call();
            peer.output(call, false, b"begun");
            assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
            peer.ended(call, Ended::Cancelled, b"begun");
            only_cancels(peer, call);
        });
        let mut client = broker.session();
        client.send(bash(1, "x"));
        client.receive();
        kill(Pid::from_raw(client.child.id() as i32), signal).unwrap();
        let result = client.receive();
        assert_eq!(
            (&result["id"], &result["error"]["code"]),
            (&json!(1), &json!("cancelled"))
        );
        assert_eq!(client.child.wait().unwrap().code(), Some(code));
        let runs = std::fs::read_dir(broker.folder.join("state/lazaret/runs")).unwrap();
        let log = runs
            .map(|run| std::fs::read_to_string(run.unwrap().path().join("runlog.jsonl")).unwrap());
        let log = log.collect::<String>();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["kind"], &last["payload"]["reason"]),
            (&json!("session_end"), &json!("a signal ended it"))
        );
        broker.join();
    }
}

#[test]
fn an_executor_that_does_nothing_does_not_outlast_a_signal() {
    let (called, call) = channel();
    let (done, wait) = channel::<()>();
    let broker = Broker::start(move |peer| {
        peer.open();
        peer.call();
        called.send(()).unwrap();
        wait.recv().unwrap();
    });
    let mut client = broker.session();
    client.send(bash(1, "x"));
    call.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
    let begun = Instant::now();
    kill(Pid::from_raw(client.child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(client.child.wait().unwrap().code(), Some(143));
    assert!((5..15).contains(&begun.elapsed().as_secs()));
    done.send(()).unwrap();
    broker.join();
}

#[test]
fn an_output_that_cannot_be_written_is_no_reader_that_is_gone() {
    let broker = Broker::start(|peer| {
        peer.open();
    });
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let help = |out: Stdio| {
        let mut lazaret = std::process::Command::new(env!("CARGO_BIN_EXE_lazaret"));
        let done = lazaret
            .arg("--help")
            .stdout(out)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        (
            done.status.code(),
            String::from_utf8(done.stderr).unwrap().lines().count(),
        )
    };
    assert_eq!(help(full().into()), (Some(125), 1));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(
        help(writer.into()),
        (Some(0), 0),
        "who stops reading has read enough"
    );
    let done = broker
        .lazaret("session")
        .stdout(full())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(
        (
            done.status.code(),
            said.contains("cannot write the output: No space left")
        ),
        (Some(125), true),
        "{said}"
    );
    broker.join();
}

#[test]
fn unknown_grant_is_not_revoked() {
    let broker = Broker::start(|peer| {
        peer.open();
        let one = SessionGrant {
            grant: 1,
            rule: "r".into(),
            tool: "bash".into(),
            calls: 1,
            programs: Vec::new(),
            only: None,
            opens: None,
            ends_s: None,
        };
        for _ in 0..2 {
            assert_eq!(peer.receive(), Some(ToBroker::Grants));
            peer.send(&FromBroker::Grants(vec![one.clone()]));
        }
        assert_eq!(peer.receive(), Some(ToBroker::Revoke { grant: 1 }));
        peer.send(&FromBroker::Grants(vec![]));
        assert_eq!(peer.receive(), None);
    });
    let mut client = broker.session();
    client.send(json!({"id": 1, "revoke": 99}));
    let notice = client.receive();
    assert_eq!(
        (&notice["event"], &notice["error"]["code"]),
        (&json!("notice"), &json!("not_found"))
    );
    client.send(json!({"id": 2, "revoke": 1}));
    assert_eq!(
        client.receive(),
        json!({"id": 2, "event": "grants", "grants": []})
    );
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn a_last_line_needs_no_end() {
    let broker = Broker::start(Peer::echo);
    let mut client = broker.session();
    write!(
        client.stdin.as_mut().unwrap(),
        "{}\n{}",
        bash(1, "first"),
        bash(2, "last")
    )
    .unwrap();
    let (mut results, code) = client.end();
    results.sort_by_key(|result| result["id"].as_u64());
    let said: Vec<_> = results
        .iter()
        .map(|result| (&result["event"], &result["result"]))
        .collect();
    assert_eq!(
        said,
        [
            (&json!("result"), &json!("first")),
            (&json!("result"), &json!("last"))
        ]
    );
    assert_eq!(code, 0);
    broker.join();
}

#[test]
fn no_more_calls_than_the_border_allows_are_under_way() {
    const CALLS: usize = limit::CALLS * 3 + 5;
    let broker = Broker::start(|peer| {
        peer.open();
        let mut under_way = Vec::new();
        for _ in 0..limit::CALLS {
            under_way.push(peer.call().0);
        }
        for _ in limit::CALLS..CALLS {
            peer.ended(under_way.pop().unwrap(), Ended::Exited(0), b"");
            under_way.push(peer.call().0);
        }
        under_way
            .into_iter()
            .for_each(|call| peer.ended(call, Ended::Exited(0), b""));
        assert_eq!(peer.receive(), None);
    });
    let mut client = broker.session();
    for id in 0..CALLS {
        client.send(bash(id, "x"));
    }
    let (events, code) = client.end();
    assert_eq!((events.len(), code), (CALLS, 0));
    broker.join();
}

#[test]
fn a_call_that_waits_for_its_turn_can_be_cancelled() {
    let (cancelled, cancel) = channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let calls: Vec<_> = (0..limit::CALLS).map(|_| peer.call().0).collect();
        cancel.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
        calls
            .into_iter()
            .for_each(|call| peer.ended(call, Ended::Exited(0), b""));
        assert_eq!(peer.receive(), None);
    });
    let mut client = broker.session();
    for id in 0..limit::CALLS {
        client.send(bash(id, "x"));
    }
    client.send(bash("late", "x"));
    client.send(json!({"id": "late", "cancel": true}));
    let result = client.receive();
    assert_eq!(
        (&result["id"], &result["error"]["code"]),
        (&json!("late"), &json!("cancelled"))
    );
    cancelled.send(()).unwrap();
    assert_eq!(client.end().0.len(), limit::CALLS);
    broker.join();
}

#[test]
fn a_slow_reader_stops_the_flow_and_loses_nothing() {
    const TOTAL: usize = 4 << 20;
    let (stalled, stall) = channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let (call, _) = peer.call();
        let (mut sent, mut paid) = (0, limit::OUTPUT_WINDOW as usize);
        while sent < TOTAL {
            if paid - sent >= 32 * 1024 {
                peer.output(call, false, &[b'x'; 32 * 1024]);
                sent += 32 * 1024;
                continue;
            }
            let _ = stalled.send(sent);
            match peer.receive() {
                Some(ToBroker::Credit { bytes, .. }) => {
                    assert!(bytes >= 64 * 1024);
                    paid += bytes as usize;
                }
                other => panic!("{other:?}"),
            }
        }
        peer.ended(call, Ended::Exited(0), b"");
    });
    let mut client = broker.session();
    client.send(bash(1, "yes"));
    // Nobody reads: the pipe fills, then the window is used up, and there it stays.
    let mut sent = 0;
    while let Ok(more) = stall.recv_timeout(Duration::from_millis(300)) {
        sent = more;
    }
    assert!(sent <= limit::OUTPUT_WINDOW as usize + 256 * 1024, "{sent}");
    let mut got = 0;
    loop {
        let event = client.receive();
        match event["chunk"].as_str() {
            Some(chunk) => got += chunk.len(),
            None => break assert_eq!(event["status"], "success"),
        }
    }
    assert_eq!(got, TOTAL);
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn a_client_that_does_not_read_gets_no_more_results_than_the_border_allows() {
    const CALLS: usize = limit::CALLS * 3;
    let (filled, fill) = channel();
    let (stalled, stall) = channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let mut begun = Vec::new();
        let mut next = |peer: &mut lazaret_fakes::Peer| loop {
            match peer.receive()? {
                ToBroker::Call { call, request } => {
                    begun.push(lazaret_fakes::shell(&request).to_owned());
                    return Some(call);
                }
                ToBroker::Credit { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        let first = next(peer).unwrap();
        // Fills the pipe, so that no result is written.
        (0..6).for_each(|_| peer.output(first, false, &[b'x'; 32 * 1024]));
        fill.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
        for _ in 1..limit::CALLS {
            let call = next(peer).unwrap();
            peer.ended(call, Ended::Exited(0), b"");
        }
        assert!(peer.is_quiet(QUIET), "a call begins though nobody reads");
        stalled.send(()).unwrap();
        peer.ended(first, Ended::Exited(0), b"");
        while let Some(call) = next(peer) {
            peer.ended(call, Ended::Exited(0), b"");
        }
        assert_eq!(begun.len(), CALLS - 1);
        assert!(
            !begun.contains(&"100".to_owned()),
            "it was cancelled while it waited"
        );
    });
    let mut client = broker.session();
    for id in 0..CALLS {
        client.send(bash(id, &id.to_string()));
    }
    client.send(json!({"id": 100, "cancel": true}));
    client.await_full_output();
    filled.send(()).unwrap();
    stall.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
    let (events, code) = client.end();
    let results = events
        .iter()
        .filter(|event| event["event"] == "result")
        .count();
    assert_eq!((results, code), (CALLS, 0));
    broker.join();
}

#[test]
fn a_reader_that_is_gone_ends_the_session() {
    let (gone, leave) = channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let (call, _) = peer.call();
        leave.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
        peer.output(call, false, b"x");
        while peer.receive().is_some() {}
    });
    let mut client = broker.session();
    client.send(bash(1, "x"));
    let stdout = std::mem::replace(&mut client.stdout, std::io::BufReader::new(empty()));
    drop(stdout);
    gone.send(()).unwrap();
    assert_eq!(client.child.wait().unwrap().code(), Some(141));
    broker.join();
}

/// The output of a program that has none.
fn empty() -> std::process::ChildStdout {
    let mut child = std::process::Command::new("true")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

#[test]
fn without_a_session_there_is_a_fault_and_code_125() {
    let broker = Broker::start(|peer| {
        peer.receive();
        peer.receive();
        peer.send(&FromBroker::Hello(broker_protocol::Hello::ours(None)));
        let message = "layer seccomp is required and missing".to_owned();
        peer.send(&FromBroker::Fault(Failed {
            kind: ErrorKind::Internal,
            message,
        }));
    });
    let output = broker.lazaret("session").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&line["event"], &line["error"]["code"]),
        (&json!("fault"), &json!("internal"))
    );
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("layer seccomp is required")
    );
    broker.join();
}

#[test]
fn output_has_no_invisible_characters_wherever_it_is_cut() {
    let script = |peer: &mut Peer| {
        peer.open();
        let (call, _) = peer.call();
        for piece in [
            &b"a\x1b"[..],
            b"[3",
            b"1mred\x1b]52;c;",
            b"aGk=",
            b"\x07b\xe2\x80",
            b"\xaec\r",
            b"\nd\x1b[0m",
        ] {
            peer.output(call, false, piece);
        }
        peer.ended(call, Ended::Exited(0), b"a\x1b[31mred");
        assert_eq!(peer.receive(), None);
    };
    let chunks = |arguments: &[&str]| {
        let broker = Broker::start(script);
        let mut client = lazaret_fakes::Client::start(broker.lazaret("session").args(arguments));
        assert_eq!(client.receive()["event"], "ready");
        client.send(bash(1, "x"));
        let (events, _) = client.end();
        broker.join();
        let (result, output) = events.split_last().unwrap();
        let text: String = output
            .iter()
            .map(|event| event["chunk"].as_str().unwrap())
            .collect();
        (text, result["result"].as_str().unwrap().to_owned())
    };
    assert_eq!(chunks(&[]), ("aredbc\nd".into(), "ared".into()));
    let (text, result) = chunks(&["--raw-output"]);
    assert_eq!(
        text,
        "a\u{1b}[31mred\u{1b}]52;c;aGk=\u{7}b\u{202e}c\r\nd\u{1b}[0m"
    );
    assert_eq!(result, "a\u{1b}[31mred");
}

#[test]
fn violations_are_reported_counted_and_end_the_session() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (first, _) = peer.call();
        let refused = Refused {
            rule: "r".into(),
            why: "because".into(),
            violation: true,
        };
        let (second, _) = peer.call();
        peer.done(second, Outcome::Refused(refused));
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call: first }));
        peer.ended(first, Ended::Cancelled, b"");
        only_cancels(peer, first);
    });
    let mut client =
        lazaret_fakes::Client::start(broker.lazaret("session").args(["--trust", "guided"]));
    client.receive();
    client.send(bash("runs", "sleep 9"));
    let outside = |id: &str| json!({"id": id, "tool": "read", "input": {"path": "../etc/passwd"}});
    for (id, count) in [("a", 1), ("b", 2)] {
        client.send(outside(id));
        let event = client.receive();
        assert_eq!(
            (&event["id"], &event["event"]),
            (&json!(id), &json!("security_event"))
        );
        let event = &event["securityEvent"];
        assert_eq!(
            (&event["type"], &event["tool"]),
            (&json!("sandbox_violation"), &json!("file_read"))
        );
        assert_eq!(
            (&event["violations"], &event["maxViolations"]),
            (&json!(count), &json!(3))
        );
        let result = client.receive();
        assert_eq!(
            (&result["id"], &result["error"]["code"]),
            (&json!(id), &json!("violation"))
        );
    }
    client.send(json!({"id": "c", "tool": "ls"}));
    assert_eq!(client.receive()["event"], "security_event");
    assert_eq!(client.receive()["id"], "c");
    let cancelled = client.receive();
    assert_eq!(
        (&cancelled["id"], &cancelled["error"]["code"]),
        (&json!("runs"), &json!("cancelled"))
    );
    for tool in ["bash", "thinking", "nope"] {
        client.send(json!({"id": "late", "tool": tool, "input": {}}));
        let late = client.receive();
        assert_eq!(
            (&late["error"]["code"], &late["error"]["layer"]),
            (&json!("denied_policy"), &json!("policy"))
        );
    }
    assert_eq!(client.end(), (vec![], 3));
    broker.join();
}

#[test]
fn violation_limit_of_a_session_can_be_set() {
    for (most, over_after) in [("1", Some(1)), ("5", Some(5)), ("0", None)] {
        let broker = Broker::start(|peer| {
            peer.open();
            assert_eq!(peer.receive(), None);
        });
        let mut client = lazaret_fakes::Client::start(
            broker.lazaret("session").args(["--max-violations", most]),
        );
        client.receive();
        for count in 1..=7 {
            client.send(json!({"id": count, "tool": "read", "input": {"path": "../etc/passwd"}}));
            if over_after.is_none_or(|over| count <= over) {
                assert_eq!(client.receive()["securityEvent"]["violations"], count);
                assert_eq!(client.receive()["error"]["code"], "violation");
            } else {
                assert_eq!(client.receive()["error"]["code"], "denied_policy");
            }
        }
        assert_eq!(
            client.end(),
            (vec![], if over_after.is_some() { 3 } else { 0 })
        );
        broker.join();
    }
}

#[test]
fn a_batch_goes_out_at_once_and_a_cancel_reaches_all_of_it() {
    let (sent, calls_sent) = channel();
    let broker = Broker::start(move |peer| {
        peer.open();
        let calls: Vec<_> = (0..3).map(|_| peer.call().0).collect();
        sent.send(()).unwrap();
        for call in &calls {
            assert_eq!(peer.receive(), Some(ToBroker::Cancel { call: *call }));
        }
        calls
            .iter()
            .for_each(|call| peer.ended(*call, Ended::Cancelled, b""));
        assert_eq!(peer.receive(), None);
    });
    let mut client = broker.session();
    let call = json!({"tool_name": "bash", "parameters": {"command": "x"}});
    client.send(json!({"id": 1, "tool": "batch", "input": {"invocations": [call, call, call]}}));
    calls_sent.recv_timeout(lazaret_fakes::PATIENCE).unwrap();
    client.send(json!({"id": 1, "cancel": true}));
    let result = client.receive();
    assert_eq!(
        (&result["metadata"]["failed"], &result["error"]["code"]),
        (&json!(3), &json!("cancelled"))
    );
    client.end();
    broker.join();
}

#[test]
fn the_small_profile_asks_the_executor_to_keep_less() {
    for (profile, capture) in [("standard", 102_400), ("compact", 10_240)] {
        let broker = Broker::start(move |peer| {
            assert_eq!(peer.open().capture, Some(capture));
            let (call, _) = peer.call();
            peer.ended(call, Ended::Exited(0), &vec![b'x'; 10_241]);
        });
        let mut client = lazaret_fakes::Client::start(
            broker.lazaret("session").args(["--model-profile", profile]),
        );
        client.receive();
        client.send(bash(1, "x"));
        let result = client.receive();
        let cut = result["result"]
            .as_str()
            .unwrap()
            .starts_with("[truncated: total=10241 shown=5120 strategy=tail");
        assert_eq!(cut, profile == "compact", "{profile}");
        client.end();
        broker.join();
    }
}

/// Starts `lazaret session` by a shell that stays its parent; the test holds both ends of its streams.
fn by_a_launcher(broker: &Broker, options: &[&str]) -> lazaret_fakes::Client {
    let session = broker.lazaret("session");
    let mut launcher = std::process::Command::new("sh");
    launcher.args(["-c", "exec 3<&0; \"$@\" <&3 3<&- & wait", "launcher"]);
    launcher
        .arg(session.get_program())
        .args(session.get_args())
        .args(options);
    launcher.envs(
        session
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    lazaret_fakes::Client::start(&mut launcher)
}

#[test]
fn a_session_ends_with_the_process_that_started_it_though_its_input_stays_open() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.output(call, false, b"begun");
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.ended(call, Ended::Cancelled, b"");
        only_cancels(peer, call);
    });
    let mut client = by_a_launcher(&broker, &[]);
    assert_eq!(client.receive()["event"], "ready");
    client.send(bash(1, "sleep 9"));
    assert_eq!(client.receive()["chunk"], "begun");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let result = client.receive();
    assert_eq!(
        (&result["id"], &result["error"]["code"]),
        (&json!(1), &json!("cancelled"))
    );
    assert_eq!(client.receive(), Value::Null);
    broker.join();
}

/// The control of the test above: a launcher may end on purpose, and hand the streams on.
#[test]
fn a_session_may_outlive_the_process_that_started_it() {
    let broker = Broker::start(Peer::echo);
    let mut client = by_a_launcher(&broker, &["--outlive-parent"]);
    assert_eq!(client.receive()["event"], "ready");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    client.send(bash(1, "still here"));
    while client.receive()["event"] != "result" {}
    drop(client.stdin.take());
    assert_eq!(client.receive(), Value::Null);
    broker.join();
}

#[test]
fn a_line_may_say_its_op_and_a_wrong_one_is_told_those_there_are() {
    let broker = Broker::start(Peer::echo);
    let mut client = broker.session();
    client.send(json!({"op": "call", "id": 1, "tool": "bash", "input": {"command": "x"}}));
    assert_eq!(client.receive()["result"], "x");
    client.send(json!({"op": "tools", "id": 2}));
    assert_eq!(client.receive()["event"], "tools");
    for (line, message) in [
        (
            json!({"op": "cal", "id": 3}),
            "unknown variant `cal`, expected one of `call`, `stdin`",
        ),
        (
            json!({"op": "call", "id": 3, "tol": "bash"}),
            "unknown field `tol`, expected one of `tool`, `input`, `wants`; did you mean `tool`?",
        ),
        (json!({"op": "call", "id": 3}), "missing field `tool`"),
        (
            json!({"id": 3, "tool": "bash", "input": {"comand": "x"}}),
            "did you mean `command`?",
        ),
    ] {
        client.send(line);
        let result = client.receive();
        assert_eq!(
            (&result["id"], &result["error"]["code"]),
            (&json!(3), &json!("invalid_input"))
        );
        assert!(
            result["result"].as_str().unwrap().contains(message),
            "{result}"
        );
    }
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn the_client_in_the_readme_works() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, request) = peer.call();
        assert_eq!(shell(&request), "echo hello");
        let challenge = question(Channel::Relay);
        peer.send(&FromBroker::Asked { call, challenge });
        assert!(matches!(peer.receive(), Some(ToBroker::Grant(grant)) if grant.call == call));
        peer.output(call, false, b"hello\n");
        peer.ended(call, Ended::Exited(0), b"hello\n");
        assert_eq!(peer.receive(), None);
    });
    let readme = include_str!("../lines/README.md");
    let client = readme
        .split("```python\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert!(client.lines().count() <= 20);
    let session = broker.lazaret("session");
    let mut python = std::process::Command::new("python3");
    python
        .args(["-c", client])
        .arg(session.get_program())
        .args(session.get_args());
    python.envs(
        session
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = python.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), printed.as_str()),
        (Some(0), "hello\nsuccess ['seccomp']\n")
    );
    broker.join();
}
