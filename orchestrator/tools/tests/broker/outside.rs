//! Calls that the executor permits and has no part in.

use crate::harness::{
    answered, answering, call, config, failed, finish, kind, metadata, plain, ran, start, text,
    with,
};
use broker_protocol::{
    Effect, Ended, ErrorKind, FileReply, Listed, Outcome, Permission, Refused, Request, Risk,
    Scope, limit,
};
use orchestrator_engine::execution::{Execution, Executions, OutsideReply};
use orchestrator_engine::{Body, CallContext, Invocation, Session};
use orchestrator_engine::{NewTool, ToolOrigin};
use orchestrator_results::profile::COMPACT;
use orchestrator_text::redact::Redactor;
use orchestrator_tools::registry::{Registry, TIMEOUT_S};
use orchestrator_tools::{ToolConfig, Toolbox};
use orchestrator_web::{SearchEngines, WebClient};
use policies::PolicyError;
use policies::secret::Secret;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

fn tool(origin: ToolOrigin, executions: Executions) -> NewTool {
    let properties = json!({"say": {"type": "string", "maxLength": 5}});
    let schema = json!({"type": "object", "properties": properties, "required": ["say"]});
    NewTool {
        origin,
        description: "d".into(),
        schema,
        risk: Risk::Low,
        timeout_s: TIMEOUT_S,
        executions,
    }
}

/// A session with a server's tool, and where its calls go.
fn with_tool() -> (ToolConfig, UnboundedReceiver<Execution>) {
    with_tool_and_web(None)
}

/// The same with access to the web.
fn with_tool_and_web(web: Option<WebClient>) -> (ToolConfig, UnboundedReceiver<Execution>) {
    let mut config = ToolConfig {
        tools: Toolbox::new(Registry::default(), web),
        ..config()
    };
    let (executions, received) = unbounded_channel();
    config.tools.registry().add_server("srv").unwrap();
    let origin = ToolOrigin::Server {
        server: "srv".into(),
        tool: "echo".into(),
    };
    config
        .tools
        .registry()
        .register(tool(origin, executions))
        .unwrap();
    (config, received)
}

/// Answers every call with what it says.
async fn echo(mut executions: UnboundedReceiver<Execution>) {
    while let Some(Execution {
        input,
        client_id,
        part,
        reply,
        ..
    }) = executions.recv().await
    {
        let text = format!("{}\u{1b}[2J", input["say"].as_str().unwrap_or("")).into_bytes();
        let structured = Some(json!({"n": 1, "id": client_id, "part": part}));
        reply
            .send(Ok(OutsideReply {
                text,
                structured,
                image: None,
            }))
            .unwrap();
    }
}

#[test]
fn a_tool_that_is_not_built_in_goes_the_same_way() {
    let (script, seen) = answering(plain, true);
    let (config, executions) = with_tool();
    with(script, config, async |session, _| {
        tokio::task::spawn_local(echo(executions));
        let result = call(&session, "mcp__srv__echo", json!({"say": "hi"})).await;
        assert_eq!(
            (text(&result).as_str(), result.tool()),
            ("hi", "mcp__srv__echo")
        );
        let known = metadata(&result);
        let structured = json!({"n": 1, "id": null, "part": null});
        assert_eq!(
            (&known["structured"], &known["call"]),
            (&structured, &json!(1))
        );
        // A server checks the fields itself.
        let wrong = call(&session, "mcp__srv__echo", json!(["too long"])).await;
        assert_eq!(kind(&wrong), "invalid_input");
        let long = json!({"say": "x", "more": "y".repeat(limit::CONTENT)});
        assert_eq!(
            kind(&call(&session, "mcp__srv__echo", long).await),
            "invalid_input"
        );
    });
    // The executor decided on the one call that came to something.
    let (tool, input) = ("mcp__srv__echo".into(), r#"{"say":"hi"}"#.into());
    assert_eq!(
        seen.requests(),
        [Request::Effect(Effect::Added {
            tool,
            risk: Risk::Low,
            input
        })]
    );
    let (mut config, _executions) = with_tool();
    config.open.scope = Some(Scope::default());
    let (script, _) = answering(plain, true);
    with(script, config, async |session, _| {
        let result = call(&session, "mcp__srv__echo", json!({"say": "hi"})).await;
        assert_eq!(kind(&result), "denied_policy");
    });
}

#[test]
fn a_question_to_a_subagent_is_permitted_first_and_only_a_front_end_with_models_has_the_tool() {
    let asking = |session: &Session, subagents| {
        let context = CallContext {
            agent_calls: subagents,
            ..CallContext::new("test".into())
        };
        let invocation = Invocation::Tool {
            name: "subagent".into(),
            input: json!({"question": "why?", "model_strength": "strong"}),
        };
        session.call(context, invocation)
    };
    let (script, seen) = answering(plain, true);
    let mut with_models = config();
    with_models.tools = with_models.tools.with_models();
    with(script, with_models, async |session, _| {
        let (executions, mut received) = unbounded_channel();
        let made = asking(&session, Some(executions));
        tokio::task::spawn_local(async move {
            let execution = received.recv().await.unwrap();
            let text = execution.input.to_string().into_bytes();
            let answer = OutsideReply {
                text,
                ..OutsideReply::default()
            };
            execution.reply.send(Ok(answer)).unwrap();
        });
        let (_, result) = finish(made).await;
        let heard: Value = serde_json::from_str(&text(&result)).unwrap();
        assert_eq!(
            heard,
            json!({"question": "why?", "model_strength": "strong"})
        );
        assert_eq!(result.tool(), "subagent");
        // Nobody is there to answer.
        assert_eq!(kind(&finish(asking(&session, None)).await.1), "internal");
    });
    let requests = seen.requests();
    let [Request::Effect(Effect::Added { tool, risk, input })] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!((tool.as_str(), *risk), ("subagent", Risk::Low));
    assert!(input.contains("why?"));
    // The controls: without models there is no such tool, and a scope closes it.
    let (script, seen) = answering(plain, true);
    with(script, config(), async |session, _| {
        assert_eq!(
            kind(&finish(asking(&session, None)).await.1),
            "unknown_tool"
        );
    });
    let mut scoped = config();
    scoped.tools = scoped.tools.with_models();
    scoped.open.scope = Some(Scope::default());
    with(answering(plain, true).0, scoped, async |session, _| {
        let (executions, _received) = unbounded_channel();
        let made = asking(&session, Some(executions));
        assert_eq!(kind(&finish(made).await.1), "denied_policy");
    });
    assert!(seen.requests().is_empty());
}

/// A third party writes names and values alike, and in a batch they are one level further inside.
#[test]
fn a_structure_has_nothing_unsafe_unless_a_client_wants_it() {
    let hostile = json!({"\u{1b}]0;t\u{7}a": ["\u{202e}b\r", 1, {"c\u{200b}": "\u{9b}2Jd\n"}], "png": "iVBORw0KGgo="});
    let clean = json!({"a": ["b", 1, {"c": "d\n"}], "png": "iVBORw0KGgo="});
    let (script, _) = answering(plain, true);
    let (config, mut executions) = with_tool();
    with(script, config, async |session, _| {
        let structured = hostile.clone();
        tokio::task::spawn_local(async move {
            while let Some(execution) = executions.recv().await {
                let structured = Some(structured.clone());
                execution
                    .reply
                    .send(Ok(OutsideReply {
                        structured,
                        ..OutsideReply::default()
                    }))
                    .unwrap();
            }
        });
        let (tool, input) = ("mcp__srv__echo", json!({"say": "hi"}));
        let alone = metadata(&call(&session, tool, input.clone()).await);
        assert_eq!(
            (&alone["structured"], &alone["stripped"]),
            (&clean, &json!(4))
        );
        let calls = json!([{"tool_name": tool, "parameters": input}, {"tool_name": tool, "parameters": input}]);
        let both = metadata(&call(&session, "batch", json!({"invocations": calls})).await);
        for part in 0..2 {
            assert_eq!(both["invocations"][part]["metadata"]["structured"], clean);
        }
        let context = CallContext {
            raw: true,
            ..CallContext::new("test".into())
        };
        let raw = finish(session.call(
            context,
            Invocation::Tool {
                name: tool.into(),
                input,
            },
        ))
        .await
        .1;
        assert_eq!(metadata(&raw)["structured"], hostile);
    });
}

const KEY: &str = "hush-hush";

/// A session with a small model that knows a secret.
fn with_secret() -> ToolConfig {
    let secret = Secret {
        name: "KEY".into(),
        value: KEY.as_bytes().to_vec(),
    };
    let redactor = Box::leak(Box::new(Redactor::new(vec![secret]).unwrap()));
    ToolConfig {
        redactor,
        profile: &COMPACT,
        ..config()
    }
}

/// Registers a tool of the client that answers with a secret and more than a small model is shown.
async fn register_long(session: &Session) {
    let (executions, mut received) = unbounded_channel::<Execution>();
    let long = tool(
        ToolOrigin::Client {
            tool: "long".into(),
        },
        executions,
    );
    session
        .register(
            json!(1),
            NewTool {
                schema: json!({"type": "object"}),
                ..long
            },
        )
        .await
        .unwrap();
    tokio::task::spawn_local(async move {
        while let Some(execution) = received.recv().await {
            let text = format!("{KEY}{}", "x".repeat(6000)).into_bytes();
            execution
                .reply
                .send(Ok(OutsideReply {
                    text,
                    ..OutsideReply::default()
                }))
                .unwrap();
        }
    });
}

#[test]
fn a_long_text_is_saved_whole_and_without_secrets() {
    let whole = format!("[redacted:KEY]{}", "x".repeat(6000));
    let (script, seen) = answering(plain, true);
    with(script, with_secret(), async |session, _| {
        register_long(&session).await;
        let result = call(&session, "long", json!({})).await;
        let note = "\n[truncated: total=6014 shown=5120 strategy=head full=/c/outputs/1.log]";
        assert_eq!(text(&result), format!("{}{note}", &whole[..5120]));
        let known = metadata(&result);
        assert_eq!(
            known["spill"],
            json!({"path": "/c/outputs/1.log", "bytes": 6014, "whole": true})
        );
        assert_eq!(known["truncated"]["full"], "/c/outputs/1.log");
        // In a batch a call is shown less, and its note is not cut again.
        let call_of = |tool: &str, input: Value| json!({"tool_name": tool, "parameters": input});
        let read = json!({"path": "a"});
        let calls = json!([
            call_of("long", json!({})),
            call_of("read", read),
            call_of("long", json!({}))
        ]);
        let result = call(&session, "batch", json!({"invocations": calls})).await;
        let note =
            "x\n[truncated: total=6014 shown=1706 strategy=head full=/c/outputs/1.log]</result>\n";
        assert_eq!(text(&result).matches(note).count(), 2);
        assert_eq!(
            metadata(&result)["invocations"][2]["metadata"]["truncated"]["shown"],
            1706
        );
    });
    assert_eq!(
        seen.saved(),
        [
            (1, whole.clone().into_bytes()),
            (2, whole.clone().into_bytes()),
            (4, whole.into_bytes())
        ]
    );
}

#[test]
fn unsaved_output_is_cut_without_a_path() {
    let (script, _) = answering(plain, false);
    with(script, with_secret(), async |session, _| {
        register_long(&session).await;
        let result = call(&session, "long", json!({})).await;
        assert!(text(&result).ends_with("x\n[truncated: total=6014 shown=5120 strategy=head]"));
        assert_eq!(
            (kind(&result), &metadata(&result)["spill"]),
            ("", &Value::Null)
        );
    });
}

#[test]
fn tool_outside_the_executor_waits_for_its_permission() {
    let refused = || Refused {
        rule: "r".into(),
        why: "w".into(),
        violation: false,
    };
    type Answer = fn(Refused) -> crate::harness::Done;
    let outcomes: [(Answer, &str); 4] = [
        (|refused| (Outcome::Refused(refused), None), "denied_policy"),
        (
            |_| (Outcome::Failed(failed(ErrorKind::DeniedUser)), None),
            "denied_user",
        ),
        // Whatever else it answers is no permission.
        (
            |_| {
                answered(Ok(FileReply::Listed(Listed {
                    entries: vec![],
                    truncated: None,
                })))
            },
            "protocol",
        ),
        (|_| ran(Ended::Exited(0), b"granted"), "protocol"),
    ];
    for (outcome, want) in outcomes {
        let (script, _) = answering(move |_| outcome(refused()), true);
        let (config, mut executions) = with_tool_and_web(Some(no_web()));
        with(script, config, async |session, _| {
            for (tool, input) in [
                ("mcp__srv__echo", json!({"say": "hi"})),
                ("web_search", json!({"query": "q"})),
                ("web_fetch", json!({"url": "https://example.org/"})),
                ("view_image", json!({"path": "https://example.org/a.png"})),
            ] {
                let result = call(&session, tool, input).await;
                assert_eq!((kind(&result), result.tool()), (want, tool));
            }
        });
        assert!(executions.try_recv().is_err());
    }
}

/// A web of which nothing is permitted.
fn no_web() -> WebClient {
    let broken = PolicyError::NoProfile {
        profile: "x".into(),
        known: String::new(),
    };
    WebClient::new(Err(broken), SearchEngines::from_environment())
}

#[test]
fn a_tool_that_never_answers_is_given_up_after_its_time_or_that_of_the_scope() {
    for (scope_s, want_s) in [(None, TIMEOUT_S), (Some(7), 7)] {
        let (script, _) = answering(plain, true);
        let (mut config, mut executions) = with_tool();
        let permission = Permission {
            tool: "mcp__srv__echo".into(),
            allowed: true,
            paths: vec![],
            timeout_s: scope_s,
            network: false,
        };
        config.open.scope = Some(Scope {
            permissions: vec![permission],
        });
        with(script, config, async |session, _| {
            let call = start(&session, "mcp__srv__echo", json!({"say": "x"}));
            let execution = executions.recv().await.unwrap();
            // From here on the clock runs as soon as all wait for it.
            tokio::time::pause();
            let (begun, result) = (tokio::time::Instant::now(), finish(call).await.1);
            let waited = begun.elapsed();
            assert!(
                waited.abs_diff(Duration::from_secs(want_s.into())) < Duration::from_secs(1),
                "{waited:?}"
            );
            assert_eq!(kind(&result), "timeout");
            assert!(
                execution.reply.is_closed(),
                "its owner can see that nobody waits"
            );
        });
    }
}

#[test]
fn a_tool_whose_owner_is_gone_or_whose_call_is_cancelled_ends() {
    let (script, _) = answering(plain, true);
    let (config, mut executions) = with_tool();
    with(script, config, async |session, _| {
        let call = start(&session, "mcp__srv__echo", json!({"say": "x"}));
        let execution = executions.recv().await.unwrap();
        call.handle.cancel();
        assert_eq!(kind(&finish(call).await.1), "cancelled");
        drop((execution, executions));
        let gone = crate::harness::call(&session, "mcp__srv__echo", json!({"say": "x"})).await;
        assert_eq!(
            (kind(&gone), gone.error.as_ref().unwrap().message.as_str()),
            ("cancelled", "the owner of the tool is gone")
        );
    });
}

#[test]
fn no_event_has_a_secret_whoever_hears_it() {
    let answer = |request: &Request| match request {
        Request::Bash(_) => ran(Ended::Exited(1), format!("a{KEY}b").as_bytes()),
        _ => (Outcome::Granted, None),
    };
    let (script, _) = answering(answer, true);
    with(script, with_secret(), async |session, records| {
        register_long(&session).await;
        let mut heard = Vec::new();
        for (tool, input) in [
            ("bash", json!({"command": format!("echo {KEY}")})),
            (KEY, json!({})),
            ("long", json!({KEY: 1})),
            ("read", json!({"path": format!("../etc/{KEY}")})),
        ] {
            let (events, result) = finish(start(&session, tool, input)).await;
            heard.extend(events);
            assert!(!String::from_utf8_lossy(&result.text).contains(KEY));
            assert!(!metadata(&result).to_string().contains(KEY));
        }
        for event in heard.iter().chain(&*records.0.borrow()) {
            // The metadata of a result has it inside, and gives it out to nobody.
            if !matches!(&*event.body, Body::Result(_)) {
                assert!(!format!("{event:?}").contains(KEY), "{event:?}");
            }
        }
    });
}
