//! Tools that the application of a session brings itself, with a broker that gives leave or does not.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use broker_protocol::{CallId, Effect, FromBroker, Outcome, Refused, Request, Risk, ToBroker};
use lazaret_fakes::{Broker, Client, Peer};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Gives leave to everything, until lazaret is gone.
fn generous(peer: &mut Peer) {
    peer.open();
    while let Some(message) = peer.receive() {
        match message {
            ToBroker::Call { call, .. } => peer.done(call, Outcome::Granted),
            ToBroker::Grants => peer.send(&FromBroker::Grants(vec![])),
            ToBroker::Keep {
                call, last: true, ..
            } => peer.send(&FromBroker::Kept { call, spill: None }),
            _ => {}
        }
    }
}

fn tool(name: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {"to": {"type": "string", "maxLength": 20000}}});
    json!({"name": name, "description": "d", "inputSchema": schema, "risk": "low"})
}

fn register(client: &mut Client, tool: Value) {
    let name = tool["name"].clone();
    client.send(json!({"id": "r", "register": tool}));
    assert_eq!(
        client.receive(),
        json!({"id": "r", "event": "registered", "tool": name})
    );
}

fn with_tool(broker: &Broker) -> Client {
    let mut client = broker.session();
    register(&mut client, tool("deploy"));
    client
}

fn call(id: impl Into<Value>, to: &str) -> Value {
    json!({"id": id.into(), "tool": "deploy", "input": {"to": to}})
}

fn execute(id: impl Into<Value>, to: &str) -> Value {
    json!({"id": id.into(), "event": "execute", "tool": "deploy", "input": {"to": to}})
}

fn kind(event: &Value) -> &str {
    event["error"]["code"].as_str().unwrap_or_default()
}

/// What became of a line that is no call.
fn ask(client: &mut Client, line: Value) -> (Value, String, String) {
    client.send(&line);
    let event = client.receive();
    assert_eq!(event["id"], line["id"], "{event}");
    let message = event["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (event["event"].clone(), kind(&event).to_owned(), message)
}

#[test]
fn a_call_goes_to_the_executor_then_to_the_application_and_has_one_result() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, request) = peer.call();
        let Request::Effect(Effect::Added { tool, risk, input }) = request else {
            panic!("{request:?}")
        };
        assert_eq!(
            (tool.as_str(), risk, input.as_str()),
            ("deploy", Risk::Low, r#"{"to":"x"}"#)
        );
        peer.done(call, Outcome::Granted);
        let (call, _) = peer.call();
        peer.done(call, Outcome::Granted);
        assert_eq!(peer.receive(), None);
    });
    let mut client = with_tool(&broker);
    client.send(call(7, "x"));
    assert_eq!(client.receive(), execute(7, "x"));
    client.send(json!({"id": 7, "result": "all\u{1b}[2J well", "structured": {"n": 1}}));
    let result = client.receive();
    assert_eq!(
        (&result["status"], &result["result"]),
        (&json!("success"), &json!("all well"))
    );
    let metadata = &result["metadata"];
    assert_eq!(
        (&metadata["tool"], &metadata["structured"]),
        (&json!("deploy"), &json!({"n": 1}))
    );
    assert!(
        metadata["call"].is_u64() && metadata["usage"]["wallUs"].as_u64().unwrap() > 0,
        "{metadata}"
    );
    // Its id is free again, and an error is one.
    client.send(call(7, "y"));
    assert_eq!(client.receive(), execute(7, "y"));
    client.send(json!({"id": 7, "error": {"code": "not_found", "message": "no\u{202e} y"}}));
    let result = client.receive();
    assert_eq!(
        result["error"],
        json!({"code": "not_found", "layer": "result", "message": "no y", "advice": "check the name that the message has"})
    );
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn without_leave_the_application_hears_nothing_of_it() {
    let broker = Broker::start(|peer| {
        peer.open();
        let (call, _) = peer.call();
        let refused = Refused {
            rule: "r".into(),
            why: "w".into(),
            violation: false,
        };
        peer.done(call, Outcome::Refused(refused));
        assert_eq!(peer.receive(), None);
    });
    let mut client = with_tool(&broker);
    client.send(call("a", "x"));
    let result = client.receive();
    assert_eq!(
        (&result["event"], kind(&result)),
        (&json!("result"), "denied_policy")
    );
    // What its schema refuses does not even come to the executor.
    client.send(json!({"id": "b", "tool": "deploy", "input": {"to": 1}}));
    let result = client.receive();
    assert_eq!(kind(&result), "invalid_input");
    assert!(
        result["result"]
            .as_str()
            .unwrap()
            .starts_with("field `to`: "),
        "{result}"
    );
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}

#[test]
fn tools_come_and_go_and_are_listed() {
    let broker = Broker::start(generous);
    let mut client = broker.session();
    let names = |client: &mut Client| -> Vec<String> {
        client.send(r#"{"id":"l","tools":true}"#);
        let listed = client.receive();
        assert_eq!(
            (&listed["id"], &listed["event"]),
            (&json!("l"), &json!("tools"))
        );
        let tools = listed["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let built_in = names(&mut client);
    assert!(built_in.contains(&"bash".to_owned()) && built_in.is_sorted());
    register(&mut client, tool("deploy"));
    let mut with = built_in.clone();
    with.push("deploy".into());
    with.sort();
    assert_eq!(names(&mut client), with);
    assert_eq!(
        ask(&mut client, json!({"id": 1, "unregister": "deploy"})),
        (json!("unregistered"), String::new(), String::new())
    );
    assert_eq!(names(&mut client), built_in);
    client.send(call(1, "x"));
    assert_eq!(kind(&client.receive()), "unknown_tool");
    // It may come back.
    register(&mut client, tool("deploy"));
    client.send(call(1, "x"));
    assert_eq!(client.receive(), execute(1, "x"));
    // A call that is running goes on without it.
    ask(&mut client, json!({"id": 2, "unregister": "deploy"}));
    client.send(r#"{"id":1,"result":"done"}"#);
    assert_eq!(client.receive()["result"], "done");
    client.end();
    broker.join();
}

#[test]
fn invalid_tool_is_not_registered_and_the_error_says_why() {
    let broker = Broker::start(generous);
    let mut client = with_tool(&broker);
    let with = |key: &str, value: Value| {
        let mut one = tool("other");
        one[key] = value;
        one
    };
    let cases = [
        (tool("deploy"), "there is a tool \"deploy\" already"),
        (tool("bash"), "there is a tool \"bash\" already"),
        (tool("shell"), "there is a tool \"shell\" already"),
        (tool("undo"), "there is a tool \"undo\" already"),
        (tool("a b"), "is not a name for a tool"),
        (tool("mcp__a__b"), "is not a name for a tool"),
        (tool(&"x".repeat(65)), "is not a name for a tool"),
        (
            with("inputSchema", json!({"type": "string"})),
            "the type \"object\"",
        ),
        (
            with("inputSchema", json!({"type": "object", "$ref": "http://x"})),
            "refer only to its own",
        ),
        (
            with("inputSchema", json!({"type": "object", "properties": 1})),
            "not a JSON Schema",
        ),
        (
            with(
                "inputSchema",
                json!({"type": "object", "title": "x".repeat(65 << 10)}),
            ),
            "65536 are allowed",
        ),
        (
            with("description", json!("x".repeat(4097))),
            "a description of 4097 bytes",
        ),
        (with("timeout", json!(601)), "1 to 600 are allowed"),
        (with("timeout", json!(0)), "1 to 600 are allowed"),
        (
            with("risk", json!("none")),
            "field `register.risk`: expected one of",
        ),
        (
            with("surplus", json!(1)),
            "unknown field `register.surplus`",
        ),
    ];
    for (tool, want) in cases {
        let (event, kind, message) = ask(&mut client, json!({"id": "x", "register": tool}));
        assert_eq!(
            (event, kind.as_str()),
            (json!("result"), "invalid_input"),
            "{message}"
        );
        assert!(message.contains(want) && message.len() < 1000, "{message}");
    }
    let (_, kind, message) = ask(&mut client, json!({"id": "x", "unregister": "bash"}));
    assert_eq!(kind, "invalid_input");
    assert!(message.contains("built in"));
    assert_eq!(
        ask(&mut client, json!({"id": "x", "unregister": "nope"})).1,
        "unknown_tool"
    );
    // As many as there may be, and one more.
    (1..1000).for_each(|n| register(&mut client, tool(&format!("t{n}"))));
    let (_, kind, message) = ask(&mut client, json!({"id": "x", "register": tool("last")}));
    assert_eq!(
        (kind.as_str(), message.as_str()),
        (
            "resource_limit",
            "no more than 1000 tools can be registered"
        )
    );
    client.end();
    broker.join();
}

#[test]
fn an_answer_that_nobody_waits_for_is_said_to_be_one() {
    let broker = Broker::start(generous);
    let mut client = with_tool(&broker);
    let nobody = |client: &mut Client, line: Value| {
        let (event, kind, message) = ask(client, line);
        assert_eq!((event, kind.as_str()), (json!("notice"), "invalid_input"));
        assert!(
            message.contains("does not wait for its tool's result"),
            "{message}"
        );
    };
    nobody(&mut client, json!({"id": "never", "result": "x"}));
    client.send(call("a", "x"));
    client.receive();
    nobody(&mut client, json!({"id": "a", "part": 0, "result": "x"}));
    client.send(r#"{"id":"a","result":"first"}"#);
    assert_eq!(client.receive()["result"], "first");
    nobody(
        &mut client,
        json!({"id": "a", "error": {"message": "second"}}),
    );
    // An invalid answer leaves the call waiting.
    client.send(call("a", "x"));
    client.receive();
    assert_eq!(
        ask(&mut client, json!({"id": "a", "result": 1})).0,
        "notice"
    );
    let violation = json!({"id": "a", "error": {"code": "violation", "message": "m"}});
    assert_eq!(ask(&mut client, violation).0, "notice");
    client.send(r#"{"id":"a","result":"third"}"#);
    assert_eq!(client.receive()["result"], "third");
    client.end();
    broker.join();
}

#[test]
fn an_application_that_does_not_answer_is_waited_for_as_long_as_the_tool_says() {
    let broker = Broker::start(generous);
    let mut client = broker.session();
    let mut slow = tool("deploy");
    slow["timeout"] = json!(1);
    register(&mut client, slow);
    let begun = Instant::now();
    client.send(call("a", "x"));
    client.receive();
    let result = client.receive();
    assert_eq!(
        (&result["event"], kind(&result)),
        (&json!("result"), "timeout")
    );
    assert!(
        (1..10).contains(&begun.elapsed().as_secs()),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        ask(&mut client, json!({"id": "a", "result": "late"})).0,
        "notice"
    );
    client.end();
    broker.join();
}

#[test]
fn a_cancel_and_the_end_of_the_input_end_a_call_that_waits() {
    let broker = Broker::start(generous);
    let mut client = with_tool(&broker);
    client.send(call("a", "x"));
    client.receive();
    client.send(r#"{"id":"a","cancel":true}"#);
    let result = client.receive();
    assert_eq!(
        (&result["event"], kind(&result)),
        (&json!("result"), "cancelled")
    );
    assert_eq!(
        ask(&mut client, json!({"id": "a", "result": "late"})).0,
        "notice"
    );
    client.send(call("b", "x"));
    client.receive();
    let begun = Instant::now();
    let (events, code) = client.end();
    assert_eq!((events.len(), code, kind(&events[0])), (1, 0, "cancelled"));
    assert!(
        events[0]["result"]
            .as_str()
            .unwrap()
            .contains("input ended"),
        "{events:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    broker.join();
}

#[test]
fn the_calls_of_a_batch_are_answered_by_their_place() {
    let broker = Broker::start(generous);
    let mut client = with_tool(&broker);
    let calls = ["x", "y"].map(|to| json!({"tool": "deploy", "input": {"to": to}}));
    client.send(json!({"id": "b", "tool": "batch", "input": {"invocations": calls}}));
    let mut asked = [client.receive(), client.receive()];
    asked.sort_by_key(|event| event["part"].as_u64());
    for (part, to) in ["x", "y"].into_iter().enumerate() {
        let mut want = execute("b", to);
        want["part"] = json!(part);
        assert_eq!(asked[part], want);
    }
    // It could be for either.
    assert_eq!(
        ask(&mut client, json!({"id": "b", "result": "z"})).0,
        "notice"
    );
    client.send(r#"{"id":"b","part":1,"result":"second"}"#);
    client.send(r#"{"id":"b","part":0,"error":{"message":"first"}}"#);
    let result = client.receive();
    assert_eq!(result["metadata"]["failed"], 1, "{result}");
    let text = result["result"].as_str().unwrap();
    assert!(
        text.find("first").unwrap() < text.find("second").unwrap(),
        "{text}"
    );
    client.end();
    broker.join();
}

#[test]
fn application_texts_are_limited_cleaned_and_redacted() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let broker = Broker::start(generous);
    let mut command = broker.lazaret("session");
    let mut client = Client::start(
        command
            .env("MY_API_KEY", SECRET)
            .args(["--model-profile", "compact"]),
    );
    client.receive();
    register(&mut client, tool("deploy"));
    // One in the open, one in pieces, and one in the place where it is cut.
    for filler in (4900..5140).step_by(7) {
        let (start, end) = SECRET.split_at(9);
        let text = format!(
            "{SECRET} {start}\u{200b}{end}\n{}{SECRET}{}",
            "x".repeat(filler),
            "y".repeat(20_000)
        );
        client.send(call("a", "x"));
        client.receive();
        client.send(json!({"id": "a", "result": text, "structured": {"key": SECRET}}));
        let result = client.receive();
        let said = result.to_string();
        assert!(
            !said.contains("hunter2") && said.len() < 8000,
            "{filler}: {said}"
        );
        assert_eq!(
            result["metadata"]["structured"]["key"],
            "[redacted:MY_API_KEY]"
        );
        assert_eq!(
            result["metadata"]["truncated"]["strategy"], "head",
            "{said}"
        );
        client.send(call("a", "x"));
        client.receive();
        client.send(json!({"id": "a", "error": {"message": format!("no: {SECRET}")}}));
        assert_eq!(client.receive()["result"], "no: [redacted:MY_API_KEY]");
    }
    client.end();
    broker.join();
}

/// What the executor has given leave to does not count there any more, so it is counted here.
#[test]
fn no_more_than_64_calls_wait_for_the_application() {
    let broker = Broker::start(generous);
    let mut client = with_tool(&broker);
    (0..70).for_each(|id| client.send(call(id, "x")));
    let mut waiting: Vec<Value> = (0..64).map(|_| client.receive()["id"].clone()).collect();
    for _ in 64..70 {
        // Whatever is cancelled or answered makes room for one more.
        client.send(json!({"id": waiting.pop().unwrap(), "cancel": true}));
        let (first, second) = (client.receive(), client.receive());
        let events = [&first["event"], &second["event"]];
        assert!(
            events.contains(&&json!("execute")) && events.contains(&&json!("result")),
            "{events:?}"
        );
    }
    let (events, code) = client.end();
    assert_eq!((events.len(), code), (64, 0));
    broker.join();
}

#[test]
fn a_scope_hides_a_tool_that_it_does_not_permit() {
    let broker = Broker::start(|peer: &mut Peer| {
        let open = peer.open();
        assert!(open.scope.is_some());
        let (call, request): (CallId, Request) = peer.call();
        assert_eq!(request.tool(), "deploy");
        peer.done(call, Outcome::Granted);
        assert_eq!(peer.receive(), None);
    });
    let scope = broker.folder.join("scope.yaml");
    std::fs::write(
        &scope,
        "tool_permissions: { deploy: { allowed: true, timeout: 1 } }\n",
    )
    .unwrap();
    let mut client = Client::start(broker.lazaret("session").arg("--scope").arg(&scope));
    client.receive();
    register(&mut client, tool("deploy"));
    register(&mut client, tool("drop"));
    client.send(r#"{"id":1,"tools":true}"#);
    let listed = client.receive();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 1);
    assert_eq!(listed["tools"][0]["name"], "deploy");
    client.send(r#"{"id":1,"tool":"drop","input":{}}"#);
    assert_eq!(kind(&client.receive()), "denied_policy");
    // The scope's time is shorter than the tool's.
    client.send(call(1, "x"));
    assert_eq!(client.receive(), execute(1, "x"));
    assert_eq!(kind(&client.receive()), "timeout");
    assert_eq!(client.end(), (vec![], 0));
    broker.join();
}
