//! `/mcp`: clients of the Model Context Protocol over streamable HTTP, behind the guard of the sidecar.

use super::messages::script;
use crate::guards::{BLOCKED, GUARD, dressed, guarded};
use crate::large_writes::largest;
use lazaret_tests::process::{assert_gone, until};
use lazaret_tests::sidecar::{HttpAnswer, Sidecar};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// Most sessions at once.
const SESSIONS_MAX: usize = 64;
/// Most answers of a session at once.
const STREAMS_MAX: usize = 32;

/// A client with a session.
pub struct Client<'s> {
    sidecar: &'s Sidecar,
    session: String,
}

fn begin(capabilities: Value) -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client });
    request(1, "initialize", params)
}

pub fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn bash(id: u64, command: &str) -> Value {
    request(
        id,
        "tools/call",
        json!({ "name": "bash", "arguments": { "command": command } }),
    )
}

fn head(sidecar: &Sidecar, session: Option<&str>) -> Vec<String> {
    let mut head = sidecar.json_head();
    head.push("Accept: application/json, text/event-stream".into());
    head.extend(session.map(|session| format!("Mcp-Session-Id: {session}")));
    head
}

fn post(sidecar: &Sidecar, session: Option<&str>, message: &Value) -> HttpAnswer {
    sidecar.raw(
        "POST /mcp",
        &head(sidecar, session),
        message.to_string().as_bytes(),
    )
}

/// The messages of a stream that has ended.
pub fn messages(answer: &HttpAnswer) -> Vec<Value> {
    let data = answer
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    data.map(|data| serde_json::from_str(&format!("{{{data}")).unwrap())
        .collect()
}

/// The next message of a stream that goes on.
fn next(stream: &mut impl BufRead) -> Value {
    // A stream says that it is alive, so no read lasts too long.
    let begun = Instant::now();
    loop {
        let mut line = String::new();
        assert!(
            stream.read_line(&mut line).unwrap() > 0,
            "the stream has ended"
        );
        assert!(begun.elapsed() < LIMIT, "nothing but {line:?}");
        if line.starts_with("data: {") {
            return serde_json::from_str(&line["data: ".len()..]).unwrap();
        }
    }
}

fn session_of(answer: &HttpAnswer) -> Option<String> {
    let line = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "));
    line.map(str::to_owned)
}

impl<'s> Client<'s> {
    #[track_caller]
    pub fn open(sidecar: &'s Sidecar, capabilities: Value) -> Self {
        let answer = post(sidecar, None, &begin(capabilities));
        let session = session_of(&answer).unwrap_or_else(|| panic!("{answer:?}"));
        let client = Self { sidecar, session };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&ready).status, 202);
        client
    }

    pub fn post(&self, message: &Value) -> HttpAnswer {
        post(self.sidecar, Some(&self.session), message)
    }

    /// Posts a request without waiting for what comes of it.
    fn ask(&self, message: &Value) -> BufReader<TcpStream> {
        let head = head(self.sidecar, Some(&self.session));
        BufReader::new(
            self.sidecar
                .begin("POST /mcp", &head, message.to_string().as_bytes()),
        )
    }

    fn listen(&self) -> BufReader<TcpStream> {
        BufReader::new(self.sidecar.begin(
            "GET /mcp",
            &head(self.sidecar, Some(&self.session)),
            b"",
        ))
    }

    pub fn close(&self) -> HttpAnswer {
        self.sidecar
            .raw("DELETE /mcp", &head(self.sidecar, Some(&self.session)), b"")
    }

    /// The result of a command.
    #[track_caller]
    fn bash(&self, command: &str) -> Value {
        let answer = self.post(&bash(2, command));
        let mut messages = messages(&answer);
        messages.pop().unwrap_or_else(|| panic!("{answer:?}"))["result"].take()
    }
}

fn server(place: Place, more: &[&str]) -> (World, Sidecar) {
    let world = World::new(place);
    let sidecar = Sidecar::start(&world, &script(&[]), more);
    (world, sidecar)
}

const TRUSTED: [&str; 2] = ["--trust", "autonomous"];

place_test!(tools_work_over_http_and_reach_nothing_outside);
fn tools_work_over_http_and_reach_nothing_outside(place: Place) {
    let (world, sidecar) = server(place, &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let attack = format!(
        "cat ~/.ssh/id_rsa {}/secret.txt; touch ../outside/new; env; echo out > made; exit 3",
        world.outside.display()
    );
    let attacked = client.bash(&attack);
    assert_eq!(
        (&attacked["isError"], world.get("made")),
        (&json!(true), b"out\n".to_vec())
    );
    let text = attacked.to_string();
    let escaped = text.contains(&world.canary) || world.outside.join("new").exists();
    assert!(!escaped && !text.contains(&sidecar.token), "{attacked}");
    assert_eq!(attacked["structuredContent"]["metadata"]["exitCode"], 3);
    let listed = messages(&client.post(&request(3, "tools/list", json!({})))).remove(0);
    let named = |name: &str| {
        listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["name"] == name)
    };
    assert!(
        named("bash") && named("file_edit") && !named("todo_write"),
        "{listed}"
    );
    assert_eq!(client.close().status, 202);
    assert_eq!(client.post(&bash(4, "true")).status, 404, "it has ended");
}

place_test!(the_end_of_a_session_ends_its_commands);
fn the_end_of_a_session_ends_its_commands(place: Place) {
    let (world, sidecar) = server(place, &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let (marker, background) = (long_sleep(), long_sleep());
    let started = request(
        2,
        "tools/call",
        json!({ "name": "bash", "arguments": { "command": format!("sleep {background}"), "background": true } }),
    );
    assert!(client.post(&started).body.contains("\"isError\":false"));
    let _waits = client.ask(&bash(3, &format!("touch begun; sleep {marker}")));
    assert!(
        until(LIMIT, || world.project.join("begun").exists()),
        "the command begins"
    );
    assert_eq!(client.close().status, 202);
    assert_gone(&marker, LIMIT);
    assert_gone(&background, LIMIT);
    assert_eq!(
        Client::open(&sidecar, json!({})).bash("echo next")["isError"],
        false,
        "the server goes on"
    );
}

once_test!(a_page_reaches_no_tool);
fn a_page_reaches_no_tool() {
    let (world, sidecar) = server(Place::any(), &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let attempt = |head: &[String], status: u16| {
        for (first, body) in [
            ("POST /mcp", bash(2, "touch made").to_string()),
            ("POST /mcp", begin(json!({})).to_string()),
            ("GET /mcp", String::new()),
            ("DELETE /mcp", String::new()),
        ] {
            let answer = sidecar.raw(first, head, body.as_bytes());
            assert_eq!(answer.status, status, "{first} {answer:?}");
            assert!(!answer.head.contains("access-control"), "{answer:?}");
        }
        assert!(!world.project.join("made").exists());
    };
    let own = head(&sidecar, Some(&client.session));
    let without = |name: &str| {
        own.iter()
            .filter(|line| !line.starts_with(name))
            .cloned()
            .collect::<Vec<_>>()
    };
    attempt(&without("Authorization"), 401);
    for origin in [
        "Origin: https://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
    ] {
        attempt(&[own.clone(), vec![origin.into()]].concat(), 403);
    }
    let rebound = [
        without("Host"),
        vec![format!("Host: evil.example:{}", sidecar.port)],
    ]
    .concat();
    attempt(&rebound, 421);
    assert_eq!(client.bash("touch made")["isError"], false, "control");
    assert!(world.project.join("made").exists());
}

once_test!(request_without_a_session_is_not_served);
fn request_without_a_session_is_not_served() {
    let (world, sidecar) = server(Place::any(), &TRUSTED);
    let call = bash(2, "touch made");
    assert_eq!(post(&sidecar, None, &call).status, 400);
    assert_eq!(
        post(
            &sidecar,
            Some("00000000-0000-4000-8000-000000000000"),
            &call
        )
        .status,
        404
    );
    for first in ["GET /mcp", "DELETE /mcp"] {
        assert_eq!(
            sidecar.raw(first, &head(&sidecar, None), b"").status,
            400,
            "{first}"
        );
    }
    assert_eq!(
        sidecar.raw("PUT /mcp", &head(&sidecar, None), b"").status,
        405
    );
    // What needs no session in a later version of the protocol would have no limit either.
    let client = Client::open(&sidecar, json!({}));
    for (version, named) in [
        ("2026-07-28", true),
        ("2025-11-25", false),
        ("2025-11-25", true),
    ] {
        let mut alone = call.clone();
        alone["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let mut head = head(&sidecar, Some(client.session.as_str()).filter(|_| named));
        head.extend(["Mcp-Method: tools/call".into(), "Mcp-Name: bash".into()]);
        head.push(format!("MCP-Protocol-Version: {version}"));
        let answer = sidecar.raw("POST /mcp", &head, alone.to_string().as_bytes());
        assert_eq!(answer.status, 400, "{version} {answer:?}");
    }
    let version = |version: &str| {
        let head = [
            head(&sidecar, Some(&client.session)),
            vec![format!("MCP-Protocol-Version: {version}")],
        ];
        sidecar
            .raw(
                "POST /mcp",
                &head.concat(),
                request(3, "ping", json!({})).to_string().as_bytes(),
            )
            .status
    };
    assert_eq!((version("2025-11-25"), version("1999-01-01")), (200, 400));
    assert!(!world.project.join("made").exists());
    assert_eq!(client.bash("touch made")["isError"], false, "control");
}

once_test!(the_largest_write_fits_into_a_body);
fn the_largest_write_fits_into_a_body() {
    let (world, sidecar) = server(Place::any(), &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let content = largest(b'a');
    let input =
        json!({ "name": "file_write", "arguments": { "path": "file", "content": content } });
    let answer = client.post(&request(2, "tools/call", input));
    assert_eq!(messages(&answer)[0]["result"]["isError"], false);
    assert_eq!(world.get("file"), content.as_bytes());
}

once_test!(a_body_and_its_kind_have_limits);
fn a_body_and_its_kind_have_limits() {
    let (_world, sidecar) = server(Place::any(), &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let own = head(&sidecar, Some(&client.session));
    let ping = request(2, "ping", json!({})).to_string();
    let padded = |length: usize| format!("{ping}{}", " ".repeat(length - ping.len()));
    assert_eq!(
        sidecar
            .raw("POST /mcp", &own, padded(32 << 20).as_bytes())
            .status,
        200,
        "at the limit"
    );
    assert_eq!(
        sidecar
            .raw("POST /mcp", &own, padded((32 << 20) + 1).as_bytes())
            .status,
        413
    );
    let form: Vec<_> = own
        .iter()
        .map(|line| line.replace("application/json", "text/plain"))
        .collect();
    assert_eq!(sidecar.raw("POST /mcp", &form, ping.as_bytes()).status, 415);
    for broken in ["", "{", "[]", "null", "{\"jsonrpc\":\"2.0\"}", "\u{0}"] {
        let status = sidecar.raw("POST /mcp", &own, broken.as_bytes()).status;
        assert!((400..500).contains(&status), "{broken:?}: {status}");
    }
    assert_eq!(
        client.post(&request(3, "ping", json!({}))).status,
        200,
        "the session goes on"
    );
}

once_test!(sessions_have_a_limit);
fn sessions_have_a_limit() {
    let (_world, sidecar) = server(Place::any(), &TRUSTED);
    let clients: Vec<_> = (0..SESSIONS_MAX)
        .map(|_| Client::open(&sidecar, json!({})))
        .collect();
    let refused = post(&sidecar, None, &begin(json!({})));
    assert_eq!(
        (refused.status, session_of(&refused)),
        (429, None),
        "{refused:?}"
    );
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    assert_eq!(
        clients[0].post(&request(2, "ping", json!({}))).status,
        200,
        "the others go on"
    );
    assert_eq!(clients[0].close().status, 202);
    assert!(
        until(LIMIT, || post(&sidecar, None, &begin(json!({}))).status
            == 200),
        "there is room again"
    );
}

once_test!(answers_of_a_session_have_a_limit);
fn answers_of_a_session_have_a_limit() {
    let (world, sidecar) = server(Place::any(), &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let streams: Vec<_> = (0..STREAMS_MAX)
        .map(|_| {
            let mut stream = client.listen();
            let mut first = String::new();
            stream.read_line(&mut first).unwrap();
            assert!(first.contains("200"), "{first}");
            stream
        })
        .collect();
    let refused = client.post(&bash(2, "touch made"));
    assert!(
        refused.status == 429 && refused.head.contains("retry-after: "),
        "{refused:?}"
    );
    assert!(!world.project.join("made").exists());
    assert_eq!(
        Client::open(&sidecar, json!({})).bash("true")["isError"],
        false,
        "others go on"
    );
    drop(streams);
    assert!(until(LIMIT, || client
        .post(&request(3, "ping", json!({})))
        .status
        == 200));
}

once_test!(flooding_client_gets_a_retry_time);
fn flooding_client_gets_a_retry_time() {
    let (_world, sidecar) = server(Place::any(), &["--rate", "5"]);
    let client = Client::open(&sidecar, json!({}));
    let ping = request(2, "ping", json!({}));
    let refused = (0..200)
        .map(|_| client.post(&ping))
        .find(|answer| answer.status == 429);
    assert!(refused.expect("a limit").head.contains("retry-after"));
}

once_test!(a_question_comes_on_the_stream_of_its_call);
fn a_question_comes_on_the_stream_of_its_call() {
    let (world, sidecar) = server(Place::any(), &[]);
    let mut client = Client::open(&sidecar, json!({}));
    let refused = client.bash("touch made");
    assert_eq!(
        (&refused["isError"], world.project.join("made").exists()),
        (&json!(true), false)
    );
    client = Client::open(&sidecar, json!({ "elicitation": { "form": {} } }));
    for (answer, runs) in [("no", false), ("once", true)] {
        let mut stream = client.ask(&bash(2, "touch made"));
        let question = loop {
            let message = next(&mut stream);
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        assert!(!world.project.join("made").exists());
        let result = json!({ "action": "accept", "content": { "answer": answer } });
        let said =
            client.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        assert_eq!(said.status, 202);
        let result = next(&mut stream);
        assert_eq!(result["result"]["isError"], !runs, "{result}");
        assert_eq!(world.project.join("made").exists(), runs);
    }
}

once_test!(live_output_and_messages_come_on_their_streams);
fn live_output_and_messages_come_on_their_streams() {
    let (_world, sidecar) = server(Place::any(), &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let mut listening = client.listen();
    let mut call = bash(9, "echo one; until [ -e go ]; do sleep 0.01; done");
    call["params"]["_meta"] = json!({ "progressToken": "t" });
    let mut stream = client.ask(&call);
    let progress = next(&mut stream);
    assert_eq!(progress["params"]["message"], "one\n", "{progress}");
    let other = client.bash("touch go");
    assert_eq!(other["isError"], false, "another call runs meanwhile");
    assert_eq!(next(&mut stream)["result"]["isError"], false);
    let message = next(&mut listening);
    assert_eq!(
        message["method"], "notifications/message",
        "the session was opened: {message}"
    );
}

once_test!(a_cancelled_request_over_http_ends_its_command);
fn a_cancelled_request_over_http_ends_its_command() {
    let (world, sidecar) = server(Place::any(), &TRUSTED);
    let client = Client::open(&sidecar, json!({}));
    let marker = long_sleep();
    let stream = client.ask(&bash(7, &format!("touch begun; sleep {marker}")));
    assert!(
        until(LIMIT, || world.project.join("begun").exists()),
        "the command begins"
    );
    // A connection that breaks cancels nothing: its client may come back.
    stream.get_ref().shutdown(Shutdown::Both).unwrap();
    assert_eq!(client.bash("true")["isError"], false);
    assert!(
        !lazaret_tests::process::with_marker(&marker).is_empty(),
        "it goes on"
    );
    let params = json!({ "requestId": 7 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(client.post(&cancel).status, 202);
    assert_gone(&marker, LIMIT);
    assert_eq!(
        client.bash("echo next")["isError"],
        false,
        "the session goes on"
    );
}

once_test!(each_client_has_a_session_of_its_own_project);
fn each_client_has_a_session_of_its_own_project() {
    let world = World::new(Place::any());
    let other = World::new(Place::any());
    let mut command = Sidecar::command_nowhere(&world, &script(&[]));
    let sidecar = Sidecar::of(command.args(TRUSTED));
    let none = Client::open(&sidecar, json!({}));
    let refused = none.bash("true");
    assert!(refused.to_string().contains("no project: "), "{refused}");
    let client = Client::open(&sidecar, json!({ "roots": {} }));
    let mut stream = client.ask(&bash(2, "touch made"));
    let asked = next(&mut stream);
    assert_eq!(asked["method"], "roots/list", "{asked}");
    let root = format!("file://{}", other.project.display());
    let roots = json!({ "roots": [{ "uri": root }] });
    client.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots }));
    let result = loop {
        let message = next(&mut stream);
        if message["id"] == 2 {
            break message;
        }
    };
    assert_eq!(result["result"]["isError"], false, "{result}");
    assert!(other.project.join("made").exists() && !world.project.join("made").exists());
}

place_test!(calls_over_http_are_guarded_by_the_users_hooks);
fn calls_over_http_are_guarded_by_the_users_hooks(place: Place) {
    let world = World::new(place);
    guarded(&world, "before_tool", GUARD, "");
    let mut command = dressed(&world, Sidecar::command(&world, &script(&[])));
    let sidecar = Sidecar::of(command.args(TRUSTED));
    let client = Client::open(&sidecar, json!({}));
    assert_eq!(client.bash("touch made")["isError"], false, "control");
    let refused = client.bash("touch secret");
    assert_eq!(
        (&refused["isError"], &refused["content"][0]["text"]),
        (&json!(true), &json!(BLOCKED))
    );
    assert!(world.project.join("made").exists() && !world.project.join("secret").exists());
}
