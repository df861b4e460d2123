//! One call at a time: what it asks the executor for, and what comes of it.

use crate::harness::{
    answered, answering, call, config, failed, finish, kind, metadata, plain, question, ran, read,
    start, text, with, word, written,
};
use broker_protocol::{
    Bytes, Channel, Ended, ErrorKind, Failed, FileReply, Finding, FindingKind, Findings,
    FromBroker, Outcome, Permission, Refused, Request, Scope, ToBroker,
};
use orchestrator_engine::{ApprovalAnswer, Body, CallContext, FoundIn, Invocation, LiveOutput};
use orchestrator_results::profile::COMPACT;
use orchestrator_tools::ToolConfig;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The kinds of results that `calls` have with a broker that answers by `plain`.
fn kinds(
    config: ToolConfig,
    calls: &[(&str, Value)],
) -> (Vec<(String, &'static str)>, Vec<Request>) {
    let (script, seen) = answering(plain, true);
    let kinds = with(script, config, async |session, _| {
        let mut kinds = Vec::new();
        for (tool, input) in calls {
            let result = call(&session, tool, input.clone()).await;
            kinds.push((result.tool().to_owned(), kind(&result)));
        }
        kinds
    });
    (kinds, seen.requests())
}

#[test]
fn output_is_sent_and_credited_and_the_outcome_is_the_result() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (call, request) = peer.call();
        assert!(matches!(request, Request::Bash(bash) if bash.live));
        (0..3).for_each(|_| peer.output(call, false, &[b'x'; 30_000]));
        assert!(matches!(
            peer.receive(),
            Some(ToBroker::Credit {
                bytes: 64_000..,
                ..
            })
        ));
        peer.ended(call, Ended::Exited(0), b"x");
    };
    with(script, config(), async |session, _| {
        let context = CallContext {
            live: LiveOutput::Sanitized,
            ..CallContext::new("test".into())
        };
        let invocation = Invocation::Tool {
            name: "bash".into(),
            input: json!({"command": "x"}),
        };
        let (events, result) = finish(session.call(context, invocation)).await;
        let output = events.iter().filter_map(|event| match &*event.body {
            Body::Output {
                bytes,
                stderr: false,
            } => Some(bytes.len()),
            _ => None,
        });
        assert_eq!((output.sum::<usize>(), kind(&result)), (90_000, ""));
    });
}

#[test]
fn a_call_that_is_dropped_is_cancelled_and_its_result_recorded() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (call, _) = peer.call();
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.ended(call, Ended::Cancelled, b"");
        peer.receive();
    };
    with(script, config(), async |session, records| {
        let mut call = start(&session, "bash", json!({"command": "x"}));
        while !matches!(&*call.next().await.unwrap().body, Body::RequestSent { .. }) {}
        drop(call);
        records
            .until_last(|word| word == "1 result cancelled")
            .await;
    });
}

#[test]
fn invalid_call_never_starts_and_has_its_kind_and_canonical_name() {
    let calls = [
        ("shell", json!({})),
        ("nope", json!({})),
        ("mcp__bogus__x", json!({})),
        ("subagent", json!({})),
        ("read_file", json!({"path": "../x"})),
    ];
    let want = [
        ("bash", "invalid_input"),
        ("", "unknown_tool"),
        ("", "unknown_tool"),
        ("subagent", "unknown_tool"),
        ("file_read", "violation"),
    ];
    let (kinds, requests) = kinds(config(), &calls);
    assert_eq!(kinds, want.map(|(tool, kind)| (tool.to_owned(), kind)));
    assert!(requests.is_empty());
}

#[test]
fn a_call_that_was_cancelled_before_it_began_never_starts() {
    let (script, seen) = answering(plain, true);
    with(script, config(), async |session, _| {
        session.open().await.unwrap();
        for (tool, input) in [("bash", json!({"command": "x"})), ("todo_read", json!({}))] {
            let context = CallContext::new("test".into());
            context.cancel.cancel();
            let invocation = Invocation::Tool {
                name: tool.into(),
                input,
            };
            assert_eq!(
                kind(&finish(session.call(context, invocation)).await.1),
                "cancelled"
            );
        }
    });
    assert!(seen.requests().is_empty());
}

#[test]
fn a_call_ends_at_its_deadline() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (call, _) = peer.call();
        assert_eq!(peer.receive(), Some(ToBroker::Cancel { call }));
        peer.ended(call, Ended::Cancelled, b"some");
    };
    with(script, config(), async |session, _| {
        let deadline = Some(Instant::now() + Duration::from_secs(1));
        let context = CallContext {
            deadline,
            ..CallContext::new("test".into())
        };
        let invocation = Invocation::Tool {
            name: "bash".into(),
            input: json!({"command": "x"}),
        };
        let result = finish(session.call(context, invocation)).await.1;
        assert_eq!((kind(&result), text(&result).as_str()), ("timeout", "some"));
    });
}

#[test]
fn after_the_last_violation_no_call_is_made() {
    let refused = |_: &Request| {
        let refused = Refused {
            rule: "r".into(),
            why: "w".into(),
            violation: true,
        };
        (Outcome::Refused(refused), None)
    };
    let (script, seen) = answering(refused, true);
    with(script, config(), async |session, _| {
        // Those that are seen here and those that the executor sees count alike.
        let first = call(&session, "ls", json!({"path": "../etc"})).await;
        assert_eq!(
            (
                first.security[0].violations,
                first.security[0].max_violations
            ),
            (1, Some(3))
        );
        call(&session, "ls", json!({})).await;
        assert!(!session.is_over());
        let third = call(&session, "ls", json!({})).await;
        assert_eq!((third.security[0].violations, session.is_over()), (3, true));
        for (tool, input) in [
            ("ls", json!({})),
            ("thinking", json!({"thought": "x"})),
            ("nope", json!({})),
        ] {
            let result = call(&session, tool, input).await;
            assert_eq!((kind(&result), result.security.len()), ("denied_policy", 0));
        }
    });
    assert_eq!(seen.requests().len(), 2);
}

#[test]
fn without_a_limit_violations_end_nothing() {
    let (script, _) = answering(plain, true);
    with(
        script,
        ToolConfig {
            max_violations: None,
            ..config()
        },
        async |session, _| {
            for count in 1..10 {
                let result = call(&session, "ls", json!({"path": "../etc"})).await;
                assert_eq!(
                    (result.security[0].violations, session.is_over()),
                    (count, false)
                );
            }
        },
    );
}

/// A session in the scope of these tools.
fn scoped(tools: &[(&str, Option<u32>)]) -> ToolConfig {
    let permission = |(tool, timeout_s): &(&str, Option<u32>)| Permission {
        tool: (*tool).into(),
        allowed: true,
        paths: vec![],
        timeout_s: *timeout_s,
        network: true,
    };
    let mut config = config();
    config.open.scope = Some(Scope {
        permissions: tools.iter().map(permission).collect(),
    });
    config
}

#[test]
fn a_scope_holds_for_every_tool_by_its_canonical_name() {
    let calls = [
        ("read_file", json!({"path": "a"})),
        ("thinking", json!({"thought": "x"})),
        ("shell", json!({"cmd": "x"})),
        ("todo_read", json!({})),
        (
            "batch",
            json!({"invocations": [{"tool": "bash", "input": {"command": "x"}}]}),
        ),
    ];
    let (kinds, requests) = kinds(scoped(&[("file_read", None), ("batch", None)]), &calls);
    let kinds: Vec<_> = kinds.into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(
        kinds,
        [
            "",
            "denied_policy",
            "denied_policy",
            "denied_policy",
            "denied_policy"
        ]
    );
    assert_eq!(requests.len(), 1);
}

#[test]
fn unsafe_characters_go_from_text_and_message_and_stay_where_they_are_asked_for() {
    let output = b"a\x1b[31mb\x1b]52;c;x\x07c\r\n\xe2\x80\xaed";
    let answer = move |request: &Request| match request {
        Request::Bash(_) => ran(Ended::Exited(1), output),
        Request::FileRead(_) => answered(read(b"one\r\ntwo\x1b[1m\r\n")),
        _ => answered(Err(Failed {
            kind: ErrorKind::Io,
            message: "x\u{1b}[2Jy\u{202e}".into(),
        })),
    };
    let (script, _) = answering(answer, true);
    with(script, config(), async |session, records| {
        let result = call(&session, "bash", json!({"command": "x"})).await;
        assert_eq!(
            (text(&result).as_str(), &metadata(&result)["stripped"]),
            ("abc\nd", &json!(3))
        );
        let context = CallContext {
            raw: true,
            ..CallContext::new("test".into())
        };
        let invocation = Invocation::Tool {
            name: "bash".into(),
            input: json!({"command": "x"}),
        };
        let raw = finish(session.call(context, invocation)).await.1;
        assert_eq!(
            (raw.text.as_slice(), &metadata(&raw)["stripped"]),
            (&output[..], &Value::Null)
        );
        assert_eq!(
            call(&session, "ls", json!({}))
                .await
                .error
                .as_ref()
                .unwrap()
                .message,
            "xy"
        );
        assert_eq!(
            text(&call(&session, "read", json!({"path": "a"})).await),
            "one\r\ntwo\r\n"
        );
        // The records have them nowhere.
        let recorded = format!("{:?}", records.0.borrow());
        assert!(
            !recorded.contains("\\u{1b}") && !recorded.contains("27, 91"),
            "{recorded}"
        );
    });
}

#[test]
fn a_profile_counts_what_it_does_not_show() {
    let (script, seen) = answering(plain, true);
    with(
        script,
        ToolConfig {
            profile: &COMPACT,
            ..config()
        },
        async |session, _| {
            call(&session, "ls", json!({})).await;
            call(&session, "ls", json!({"limit": 999})).await;
        },
    );
    let limit = |request: Request| match request {
        Request::FileList(list) => list.limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        seen.requests().into_iter().map(limit).collect::<Vec<_>>(),
        [10_000, 999]
    );
}

#[test]
fn a_state_tool_reads_the_file_and_replaces_it_by_its_digest() {
    let stored = Arc::new(Mutex::new(None::<Vec<u8>>));
    let there = stored.clone();
    let (script, seen) = answering(
        move |request| {
            let Request::State(state) = request else {
                panic!("{request:?}")
            };
            let mut stored = there.lock().unwrap();
            match (&state.change, &*stored) {
                (None, None) => answered(Err(failed(ErrorKind::NotFound))),
                (None, Some(bytes)) => answered(read(bytes)),
                (Some(change), before) => {
                    assert_eq!(change.expected_sha256.is_some(), before.is_some());
                    *stored = Some(change.content.clone());
                    answered(written())
                }
            }
        },
        true,
    );
    with(script, config(), async |session, _| {
        assert_eq!(
            text(&call(&session, "todo_read", json!({})).await),
            "nothing to do"
        );
        let todos = json!({"todos": [{"content": "a\u{1b}[2Jb", "status": "pending"}]});
        let result = call(&session, "todo_write", todos).await;
        assert_eq!(text(&result), "1. [pending] (medium) ab");
        assert_eq!(metadata(&result)["usage"]["wallUs"], 7);
        let added = call(
            &session,
            "write_todos",
            json!({"action": "add", "task": "c"}),
        )
        .await;
        assert_eq!(text(&added).lines().count(), 2);
        stored.lock().unwrap().replace(b"\x1b]52;c;x\x07".to_vec());
        let spoilt = call(&session, "todo_read", json!({})).await;
        assert_eq!(kind(&spoilt), "io");
        assert!(
            spoilt
                .error
                .as_ref()
                .unwrap()
                .message
                .contains("central:state/todo.json")
        );
    });
    let tools: Vec<_> = seen
        .requests()
        .iter()
        .map(|request| request.tool().to_owned())
        .collect();
    assert_eq!(
        tools[..5],
        [
            "todo_read",
            "todo_write",
            "todo_write",
            "todo_write",
            "todo_write"
        ]
    );
}

#[test]
fn a_change_that_others_overtake_is_tried_again_and_given_up() {
    for (overtaken, want) in [(2, ("", 3)), (99, ("io", 5))] {
        let tries = Arc::new(Mutex::new(0));
        let counted = tries.clone();
        let (script, _) = answering(
            move |request| match request {
                Request::State(state) if state.change.is_some() => {
                    *counted.lock().unwrap() += 1;
                    match *counted.lock().unwrap() <= overtaken {
                        true => answered(Err(failed(ErrorKind::InvalidInput))),
                        false => answered(written()),
                    }
                }
                _ => answered(Err(failed(ErrorKind::NotFound))),
            },
            true,
        );
        let set = json!({"action": "set", "key": "k", "value": 1});
        let kind = with(script, config(), async |session, _| {
            kind(&call(&session, "memory", set).await)
        });
        assert_eq!((kind, *tries.lock().unwrap()), want);
    }
}

#[test]
fn an_image_comes_in_pieces_and_is_whole() {
    let size = 2_500_000u64;
    let image = move |request: &Request| {
        let Request::FileBytes(bytes) = request else {
            panic!("{request:?}")
        };
        let mut content = vec![b'x'; (size - bytes.offset).min(bytes.limit.into()) as usize];
        if bytes.offset == 0 {
            content[..8].copy_from_slice(b"\x89PNG\r\n\x1a\n");
        }
        answered(Ok(FileReply::Bytes(Bytes { content, size })))
    };
    let (script, seen) = answering(image, true);
    with(script, config(), async |session, _| {
        let result = call(&session, "view_image", json!({"path": "a.jpg"})).await;
        let image = result.image.as_ref().unwrap();
        assert_eq!(
            (image.media_type, image.data.len() as u64),
            ("image/png", size)
        );
        assert_eq!(text(&result), "image/png, 2500000 bytes: a.jpg");
        assert_eq!(metadata(&result)["path"], "/p/a.jpg");
    });
    assert_eq!(seen.requests().len(), 3);
}

#[test]
fn invalid_oversized_or_changing_image_is_not_shown() {
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
    for (bytes, size, later, want) in [
        (&b"text"[..], 4, 4, "invalid_input"),
        (PNG, 5_000_001, 0, "invalid_input"),
        (PNG, 100, 100, "io"),
        (PNG, 8, 8, ""),
    ] {
        let answer = move |request: &Request| {
            let Request::FileBytes(wanted) = request else {
                panic!("{request:?}")
            };
            let (content, size) = if wanted.offset == 0 {
                (bytes.to_vec(), size)
            } else {
                (vec![], later)
            };
            answered(Ok(FileReply::Bytes(Bytes { content, size })))
        };
        let (script, _) = answering(answer, true);
        let input = json!({"path": "a.png"});
        let kind = with(script, config(), async |session, _| {
            kind(&call(&session, "view_image", input).await)
        });
        assert_eq!(kind, want, "{bytes:?} {size}");
    }
    let (script, _) = answering(|_| answered(Err(failed(ErrorKind::Violation))), true);
    with(script, config(), async |session, _| {
        assert_eq!(
            call(&session, "view_image", json!({"path": "a.png"}))
                .await
                .security
                .len(),
            1
        );
    });
}

#[test]
fn findings_stay_until_a_result_has_reached_its_reader() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (first, _) = peer.call();
        let mut found = Findings::default();
        found.push(Finding::new(FindingKind::Lock, "/p/\x1b.lock", "Why."));
        peer.send(&FromBroker::Found(found));
        peer.ended(first, Ended::Exited(0), b"x");
        while let Some(message) = peer.receive() {
            if let ToBroker::Call { call, .. } = message {
                peer.ended(call, Ended::Exited(0), b"x");
            }
        }
    };
    with(script, config(), async |session, records| {
        let bash = || json!({"command": "x"});
        let unread = start(&session, "bash", bash());
        records
            .until_last(|word| word.starts_with("1 result"))
            .await;
        drop(unread);
        // A program reads this text.
        let context = CallContext {
            found: FoundIn::LaterResult,
            ..CallContext::new("test".into())
        };
        let invocation = Invocation::Tool {
            name: "bash".into(),
            input: bash(),
        };
        let (_, result) = finish(session.call(context, invocation)).await;
        assert_eq!(
            (text(&result).as_str(), result.findings().is_empty()),
            ("x", true)
        );
        let want = "[found: lock: /p/\\u{1b}.lock: Why.]\nx";
        let result = call(&session, "bash", bash()).await;
        assert_eq!(
            (
                text(&result).as_str(),
                &metadata(&result)["found"][0]["kind"]
            ),
            (want, &json!("lock"))
        );
        session.put_back(&result);
        assert_eq!(text(&call(&session, "bash", bash()).await), want);
        assert_eq!(text(&call(&session, "bash", bash()).await), "x", "once");
    });
}

#[test]
fn a_test_suite_is_a_command_whose_output_is_counted() {
    let suite = |request: &Request| {
        assert!(matches!(request, Request::Bash(_)));
        ran(
            Ended::Exited(101),
            b"\x1b[31mtest result: FAILED\x1b[0m. 2 passed; 1 failed; 0 ignored;\n",
        )
    };
    let (script, _) = answering(suite, true);
    with(script, config(), async |session, _| {
        let result = call(&session, "run_tests", json!({"framework": "cargo"})).await;
        assert_eq!(
            (kind(&result), result.tool()),
            ("exit_nonzero", "run_tests")
        );
        assert!(text(&result).starts_with("2 passed, 1 failed, 0 skipped\n"));
        let metadata = metadata(&result);
        assert_eq!(
            metadata["tests"],
            json!({"passed": 2, "failed": 1, "skipped": 0})
        );
        assert_eq!(
            (&metadata["framework"], &metadata["exitCode"]),
            (&json!("cargo"), &json!(101))
        );
        let silent = call(&session, "run_tests", json!({"framework": "npm"})).await;
        assert!(!text(&silent).is_empty());
    });
}

#[test]
fn a_task_ends_with_its_checked_result() {
    let (script, seen) = answering(plain, true);
    with(script, config(), async |session, _| {
        assert_eq!(
            kind(&call(&session, "finish_task", json!({"notes": "x"})).await),
            "invalid_input"
        );
        let result = call(
            &session,
            "finish_task",
            json!({"summary": "s", "tests_verified": true}),
        )
        .await;
        assert_eq!(
            metadata(&result)["finished"],
            json!({"summary": "s", "tests_verified": true})
        );
    });
    assert!(seen.requests().is_empty());
}

#[test]
fn the_only_call_of_a_session_reads_a_file_before_it_changes_it() {
    let (script, seen) = answering(plain, true);
    with(
        script,
        ToolConfig {
            single_call: true,
            ..config()
        },
        async |session, _| {
            let write = json!({"path": "a", "content": "x", "overwrite": true});
            assert_eq!(kind(&call(&session, "file_write", write).await), "");
            let background = json!({"command": "x", "background": true});
            assert_eq!(
                kind(&call(&session, "bash", background).await),
                "invalid_input"
            );
        },
    );
    let tools: Vec<_> = seen
        .requests()
        .iter()
        .map(|request| request.tool().to_owned())
        .collect();
    assert_eq!(tools, ["file_read", "file_write"]);
}

/// Asks before each request ends, and ends it when there is an answer, or at once where that comes from elsewhere.
fn asking(channel: Channel) -> impl FnOnce(&mut lazaret_fakes::Peer) + Send + 'static {
    move |peer| {
        peer.open();
        while let Some(message) = peer.receive() {
            let ToBroker::Call { call, request } = message else {
                continue;
            };
            peer.send(&FromBroker::Asked {
                call,
                challenge: question(channel),
            });
            if channel == Channel::Relay {
                assert!(
                    matches!(peer.receive(), Some(ToBroker::Grant(grant)) if grant.call == call)
                );
            }
            match request {
                Request::State(state) if state.change.is_none() => {
                    peer.answer(call, &Err(failed(ErrorKind::NotFound)), 64);
                }
                Request::State(_) => peer.answer(call, &written(), 64),
                _ => peer.ended(call, Ended::Exited(0), b""),
            }
        }
    }
}

#[test]
fn a_call_of_several_requests_is_asked_about_once() {
    with(asking(Channel::Relay), config(), async |session, _| {
        for _ in 0..2 {
            let (events, result) =
                finish(start(&session, "todo_write", json!({"todos": []}))).await;
            let questions = events
                .iter()
                .filter(|event| matches!(&*event.body, Body::ApprovalWanted(_)));
            // The next call is asked about again.
            assert_eq!((questions.count(), kind(&result)), (1, ""));
        }
    });
}

#[test]
fn a_question_and_its_answer_are_recorded_and_one_for_elsewhere_is_not_answered_here() {
    let words = |channel| {
        with(asking(channel), config(), async |session, records| {
            call(&session, "bash", json!({"command": "x"})).await;
            records.words()[3..].join(", ")
        })
    };
    assert_eq!(
        words(Channel::Relay),
        "1 wants an answer, 1 has an answer, 1 result success"
    );
    assert_eq!(
        words(Channel::Separate),
        "1 wants an answer, 1 result success"
    );
}

#[test]
fn an_answer_that_is_rejected_is_asked_for_again_and_a_late_one_is_for_nobody() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (call, _) = peer.call();
        peer.send(&FromBroker::Asked {
            call,
            challenge: question(Channel::Relay),
        });
        assert!(matches!(peer.receive(), Some(ToBroker::Grant(_))));
        let fault = broker_protocol::GrantFault::OtherQuestion;
        peer.send(&FromBroker::Ungranted(broker_protocol::Ungranted {
            call,
            fault,
            violations: 0,
        }));
        assert_eq!(peer.receive(), Some(ToBroker::Refuse { call }));
        peer.done(call, Outcome::Failed(failed(ErrorKind::DeniedUser)));
        peer.receive();
    };
    with(script, config(), async |session, _| {
        let mut call = start(&session, "bash", json!({"command": "x"}));
        let mut rejected = Vec::new();
        while let Some(event) = call.next().await {
            if let Body::ApprovalWanted(question) = &*event.body {
                let again = question.rejected.is_some();
                rejected.push(again);
                let yes = ApprovalAnswer::Yes(broker_protocol::Extent::Once);
                assert!(
                    !call.handle.approve(Some(7), yes).await,
                    "no call of a batch waits"
                );
                assert!(
                    call.handle
                        .approve(None, if again { ApprovalAnswer::No } else { yes })
                        .await
                );
            }
        }
        assert_eq!(rejected, [false, true]);
        assert!(!call.handle.approve(None, ApprovalAnswer::No).await);
    });
}

#[test]
fn a_command_is_steered_once_it_has_started() {
    let script = |peer: &mut lazaret_fakes::Peer| {
        peer.open();
        let (call, _) = peer.call();
        let steering: Vec<_> = (0..4).map(|_| peer.receive().unwrap()).collect();
        assert!(steering.contains(&ToBroker::Signal {
            call,
            signal: broker_protocol::Signal::Interrupt
        }));
        assert!(steering.contains(&ToBroker::Resize {
            call,
            rows: 3,
            columns: 4
        }));
        assert!(steering.contains(&ToBroker::Input {
            call,
            bytes: b"in".to_vec()
        }));
        assert!(steering.contains(&ToBroker::InputEnd { call }));
        peer.ended(call, Ended::Exited(0), b"");
    };
    with(script, config(), async |session, _| {
        // Before there is even a session.
        let call = start(&session, "bash", json!({"command": "x", "stdin": true}));
        call.handle.signal(broker_protocol::Signal::Interrupt);
        call.handle.resize(3, 4);
        call.handle.input(orchestrator_engine::StdinChunk {
            bytes: b"in".to_vec(),
            permit: None,
        });
        call.handle.end_input();
        assert_eq!(kind(&finish(call).await.1), "");
    });
}

#[test]
fn every_call_is_recorded_from_its_request_to_its_result() {
    let (script, _) = answering(plain, true);
    with(script, config(), async |session, records| {
        call(&session, "ls", json!({})).await;
        call(&session, "read", json!({"path": "../../x"})).await;
        call(&session, "\u{202e}nope", json!({})).await;
        let invocations =
            json!({"invocations": [{"tool_name": "thinking", "parameters": {"thought": "x"}}]});
        let (events, _) = finish(start(&session, "batch", invocations)).await;
        let want = [
            "1 requested file_list",
            "0 opened",
            "1 started",
            "1 result success",
            "2 requested file_read",
            "2 violation 1",
            "2 result violation",
            "3 requested nope",
            "3 result unknown_tool",
            "4 requested batch",
            "5 of 4.0 requested thinking",
            "5 of 4.0 result success",
            "4 result success",
        ];
        assert_eq!(records.words(), want);
        // The front end is sent what is recorded.
        let sent: Vec<String> = events.iter().map(word).collect();
        assert_eq!(sent, want[9..12]);
    });
}
