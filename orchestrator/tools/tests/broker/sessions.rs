//! What a session is as a whole: several front ends, a lost executor, grants, tools of clients.

use crate::harness::{
    answering, call, config, finish, kind, plain, start, text, with, with_scripts, word,
};
use broker_protocol::{Ended, FromBroker, Request, SessionGrant, ToBroker};
use lazaret_fakes::{Peer, shell};
use orchestrator_engine::executor::{Dial, ExecutorError, Greeting};
use orchestrator_engine::{CallContext, Invocation};
use orchestrator_engine::{NewTool, ToolOrigin};
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::thread;
use tokio::sync::oneshot;

#[test]
fn two_front_ends_use_one_session_at_once_from_two_threads() {
    const CALLS: usize = 20;
    let script = |peer: &mut Peer| {
        peer.open();
        // No call ends before there is one of each.
        let mut calls: Vec<_> = (0..2).map(|_| peer.call()).collect();
        for count in 2.. {
            let (call, request) = calls.remove(0);
            peer.output(call, false, shell(&request).as_bytes());
            peer.ended(call, Ended::Exited(0), shell(&request).as_bytes());
            if count < 2 * CALLS {
                calls.push(peer.call());
            } else if calls.is_empty() {
                break;
            }
        }
    };
    with(script, config(), async |session, records| {
        let other = session.clone();
        let front_end = |name: &'static str| {
            move |session: orchestrator_engine::Session| async move {
                for number in 0..CALLS {
                    let context = CallContext {
                        client_id: Some(json!(number)),
                        ..CallContext::new(name.into())
                    };
                    let command = format!("{name} {number}");
                    let invocation = Invocation::Tool {
                        name: "bash".into(),
                        input: json!({"command": command}),
                    };
                    let (events, result) = finish(session.call(context, invocation)).await;
                    assert_eq!(text(&result), command);
                    // A front end is sent the events of its own calls alone.
                    assert!(
                        events
                            .iter()
                            .all(|event| !word(event).contains("requested batch"))
                    );
                    let calls: Vec<u64> = events
                        .iter()
                        .map(|event| event.call)
                        .filter(|call| *call > 0)
                        .collect();
                    assert!(calls.windows(2).all(|pair| pair[0] == pair[1]), "{calls:?}");
                }
            }
        };
        // The second one has a thread and a runtime of its own. Its end is awaited here: to join it would stop the runtime that it needs.
        let (runs, ended) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let _runs = runs;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(front_end("second")(other));
        });
        front_end("first")(session).await;
        assert!(ended.await.is_err(), "nothing is sent");
        thread.join().unwrap();
        let results = records
            .words()
            .iter()
            .filter(|word| word.ends_with("result success"))
            .count();
        assert_eq!(results, 2 * CALLS);
    });
}

#[test]
fn a_lost_executor_ends_the_calls_under_way_and_the_next_one_opens_a_new_session() {
    let lost = |peer: &mut Peer| {
        peer.open();
        peer.call();
        peer.call();
    };
    let (script, _) = answering(plain, true);
    with_scripts(
        vec![Box::new(lost), Box::new(script)],
        config(),
        async |session, records| {
            let calls = [1, 2].map(|_| start(&session, "bash", json!({"command": "x"})));
            for call in calls {
                assert_eq!(kind(&finish(call).await.1), "executor_lost");
            }
            let first = session.tools().await.len();
            assert_eq!(
                text(&call(&session, "bash", json!({"command": "again"})).await),
                "again"
            );
            assert_eq!(
                (
                    session.tools().await.len(),
                    records
                        .words()
                        .iter()
                        .filter(|word| *word == "0 opened")
                        .count()
                ),
                (first, 2)
            );
            // A third one is not to be had.
            assert_eq!(
                kind(&call(&session, "bash", json!({"command": "x"})).await),
                ""
            );
        },
    );
    with_scripts(vec![], config(), async |session, _| {
        assert_eq!(
            kind(&call(&session, "bash", json!({"command": "x"})).await),
            "executor_lost"
        );
        assert!(session.open().await.is_err());
    });
}

#[test]
fn a_tool_that_is_unregistered_takes_its_grants_with_it() {
    let script = |peer: &mut Peer| {
        peer.open();
        let grant = |grant: u64, tool: &str| SessionGrant {
            grant,
            rule: "r".into(),
            tool: tool.into(),
            calls: 1,
            programs: Vec::new(),
            only: None,
            opens: None,
            ends_s: None,
        };
        assert_eq!(peer.receive(), Some(ToBroker::Grants));
        peer.send(&FromBroker::Grants(vec![
            grant(1, "bash"),
            grant(2, "deploy"),
        ]));
        assert_eq!(peer.receive(), Some(ToBroker::Revoke { grant: 2 }));
        peer.send(&FromBroker::Grants(vec![grant(1, "bash")]));
        peer.receive();
    };
    with(script, config(), async |session, records| {
        session.open().await.unwrap();
        let executions = tokio::sync::mpsc::unbounded_channel().0;
        let deploy = || NewTool {
            origin: ToolOrigin::Client {
                tool: "deploy".into(),
            },
            description: "d".into(),
            schema: json!({"type": "object"}),
            risk: broker_protocol::Risk::High,
            timeout_s: 60,
            executions: executions.clone(),
        };
        assert_eq!(
            session.register(json!(1), deploy()).await.unwrap().name,
            "deploy"
        );
        assert!(session.register(json!(2), deploy()).await.is_err());
        assert!(
            session
                .tools()
                .await
                .iter()
                .any(|tool| tool["name"] == "deploy")
        );
        session.unregister(json!(3), "deploy".into()).await.unwrap();
        assert!(session.unregister(json!(4), "deploy".into()).await.is_err());
        assert_eq!(
            records.words(),
            ["0 opened", "0 registered deploy", "0 unregistered deploy"]
        );
    });
}

/// One connection, reached by hand.
struct One(std::cell::RefCell<Option<UnixStream>>);

impl Dial for One {
    fn dial(&self) -> Result<UnixStream, ExecutorError> {
        self.0.take().ok_or(ExecutorError::Lost)
    }
}

#[test]
fn an_empty_text_is_saved_nowhere_and_waited_for_by_nobody() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = thread::spawn(move || {
        let mut peer = Peer::new(theirs, 0);
        peer.open();
        assert_eq!(peer.receive(), None);
    });
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let dial = One(std::cell::RefCell::new(Some(ours)));
        let connection = Greeting::open(&dial, config().open)
            .unwrap()
            .opened()
            .await
            .unwrap();
        assert_eq!(connection.save_output(1, b"").await, None);
        drop(connection);
    });
    drop(runtime);
    peer.join().unwrap();
}

#[test]
fn as_many_calls_as_the_protocol_permits_are_under_way() {
    const MORE: usize = broker_protocol::limit::CALLS + 5;
    let script = |peer: &mut Peer| {
        peer.open();
        let mut calls: Vec<_> = (0..broker_protocol::limit::CALLS)
            .map(|_| peer.call())
            .collect();
        assert!(peer.is_quiet(std::time::Duration::from_millis(50)));
        for _ in calls.len()..MORE {
            let (call, _): (u64, Request) = calls.remove(0);
            peer.ended(call, Ended::Exited(0), b"");
            calls.push(peer.call());
        }
        calls
            .iter()
            .for_each(|(call, _)| peer.ended(*call, Ended::Exited(0), b""));
    };
    with(script, config(), async |session, _| {
        let calls: Vec<_> = (0..MORE)
            .map(|_| start(&session, "bash", json!({"command": "x"})))
            .collect();
        for call in calls {
            assert_eq!(kind(&finish(call).await.1), "");
        }
    });
}
