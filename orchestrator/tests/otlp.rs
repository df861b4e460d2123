//! Spans of `lazaret serve` at a collector, through the program's own confinement and with the real executor, which stands beside the
//! program: `cargo build && cargo test -p orchestrator --features otel --test otlp`.

#![cfg(feature = "otel")]
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What may be in no span.
const PLANTED: &str = "planted-5ecret-0f93";
/// A key for the collector, which is in a header and nowhere else.
const HEADER: &str = "collector-key-77";

/// Most runs of one server, which all have the same script.
const RUNS: usize = 3;

/// A request as the collector has it: its head, and its body.
type Received = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

#[derive(Clone, Copy)]
enum Manner {
    Good,
    Failing,
    Silent,
    Endless,
}

fn collector(manner: Manner) -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let received = Received::default();
    let requests = received.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let requests = requests.clone();
            thread::spawn(move || serve(stream, manner, &requests));
        }
    });
    (url, received)
}

/// Takes requests of a connection until it ends.
fn serve(stream: TcpStream, manner: Manner, requests: &Received) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            (reader.read_line(&mut head).ok()? > 0).then_some(())?;
        }
        let length = head
            .to_lowercase()
            .split("content-length: ")
            .nth(1)?
            .lines()
            .next()?
            .parse()
            .ok()?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        requests.lock().unwrap().push((head, body));
        let end = "Content-Type: application/x-protobuf\r\nContent-Length: ";
        match manner {
            Manner::Good => write!(stream, "HTTP/1.1 200 OK\r\n{end}0\r\n\r\n").ok()?,
            Manner::Failing => write!(
                stream,
                "HTTP/1.1 503 No\r\nRetry-After: 30\r\n{end}0\r\n\r\n"
            )
            .ok()?,
            // Until the client ends the connection.
            Manner::Silent => drop(reader.read(&mut [0]).ok()?),
            Manner::Endless => {
                write!(stream, "HTTP/1.1 200 OK\r\n{end}99999999\r\n\r\n").ok()?;
                while stream.write_all(&[b'x'; 4096]).is_ok() {}
            }
        }
    }
}

struct Server {
    child: Child,
    address: String,
    token: String,
    _folder: TempDir,
}

impl Server {
    fn start(otlp: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        ["project", "home", "state"]
            .iter()
            .for_each(|name| fs::create_dir(at(name)).unwrap());
        let call = json!({"name": "bash", "input": {"command": format!("echo {PLANTED}")}});
        let turns = [
            json!({"text": "Look.", "toolCalls": [call]}),
            json!({"text": PLANTED}),
        ];
        let script = json!({"turns": vec![turns; RUNS].concat()});
        fs::write(at("script.json"), script.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lazaret"));
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--provider",
            "mock",
            "--trust",
            "autonomous",
        ]);
        command
            .arg("--script")
            .arg(at("script.json"))
            .arg("--project")
            .arg(at("project"));
        command
            .arg("--central")
            .arg(at("central"))
            .args(["--otlp", otlp]);
        command
            .env("HOME", at("home"))
            .env("XDG_STATE_HOME", at("state"));
        command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={HEADER}"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        Self {
            child,
            address: text("address"),
            token: text("token"),
            _folder: folder,
        }
    }

    /// The events of a run.
    fn run(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let body = json!({"prompt": PLANTED, "conversationId": "c-7"}).to_string();
        write!(
            stream,
            "POST /run/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("_run_done_"), "{answer}");
        answer
    }

    /// Ends it; how long that takes.
    fn end(mut self) -> Duration {
        let begun = Instant::now();
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        begun.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of a protobuf message.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number has no end")
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, Wire::Number(number(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => number(&mut bytes) as usize,
            5 => 4,
            other => panic!("no wire type {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        fields.push((key >> 3, Wire::Bytes(value)));
        bytes = rest;
    }
    fields
}

fn parts(bytes: &[u8], wanted: u64) -> Vec<&[u8]> {
    let part = |(field, value)| match value {
        Wire::Bytes(bytes) if field == wanted => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(part).collect()
}

#[derive(Debug)]
struct Span {
    name: String,
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    attributes: BTreeMap<String, String>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn attribute(bytes: &[u8]) -> (String, String) {
    let value = match fields(parts(bytes, 2)[0]).remove(0) {
        (1, Wire::Bytes(value)) => text(value),
        (_, Wire::Number(value)) => value.to_string(),
        _ => "other".to_owned(),
    };
    (text(parts(bytes, 1)[0]), value)
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(body: &[u8]) -> Vec<Span> {
    let scopes = parts(body, 1)
        .into_iter()
        .flat_map(|resource| parts(resource, 2));
    let one = |bytes: &[u8], field| {
        parts(bytes, field)
            .first()
            .map(|part| part.to_vec())
            .unwrap_or_default()
    };
    scopes
        .flat_map(|scope| parts(scope, 2))
        .map(|span| Span {
            name: text(&one(span, 5)),
            trace: one(span, 1),
            id: one(span, 2),
            parent: one(span, 4),
            attributes: parts(span, 9).into_iter().map(attribute).collect(),
        })
        .collect()
}

#[test]
fn a_run_is_one_trace_at_the_collector_and_holds_no_content() {
    let (url, received) = collector(Manner::Good);
    let server = Server::start(&url);
    assert!(
        server.run().matches(PLANTED).count() >= 2,
        "control: the run has it"
    );
    let token = server.token.clone();
    server.end();
    let requests = received.lock().unwrap();
    let all: Vec<Span> = requests.iter().flat_map(|(_, body)| spans(body)).collect();
    let named = |name: &str| {
        let found = all.iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {all:#?}"))
    };
    let line = [
        "tools.run_tool.bash",
        "chat.turn",
        "chat.run",
        "http.request",
    ]
    .map(named);
    for pair in line.windows(2) {
        let [span, parent] = pair else { unreachable!() };
        let around = all.iter().find(|other| other.id == span.parent).unwrap();
        assert_eq!((&around.name, &span.trace), (&parent.name, &parent.trace));
    }
    assert!(line[3].parent.is_empty(), "a root");
    for stage in ["tools.validate", "tools.execute"] {
        assert_eq!(named(stage).parent, line[0].id);
    }
    let of = |span: &Span, names: &[&str]| -> Vec<String> {
        names
            .iter()
            .map(|name| span.attributes.get(*name).cloned().unwrap_or_default())
            .collect()
    };
    assert_eq!(
        of(line[0], &["tool", "outcome", "agent"]),
        ["bash", "ok", "agent"]
    );
    assert_eq!(
        of(line[2], &["conversation", "provider", "reason"]),
        ["c-7", "mock", "done"]
    );
    assert_eq!(of(line[3], &["method", "path"]), ["POST", "/run/stream"]);
    assert_eq!(
        of(named("chat.model_request"), &["provider", "attempt"]),
        ["mock", "1"]
    );
    for (head, body) in requests.iter() {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        let head = head.to_lowercase();
        assert!(
            head.contains("content-type: application/x-protobuf") && head.contains(HEADER),
            "{head}"
        );
        let body = String::from_utf8_lossy(body);
        for secret in [PLANTED, &token, HEADER] {
            assert!(!body.contains(secret), "{secret}");
        }
        assert!(body.contains("service.name"), "what it is from");
    }
}

#[test]
fn a_collector_that_does_not_do_its_part_costs_no_call() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut urls = vec![format!("http://{closed}")];
    let manners = [Manner::Failing, Manner::Silent, Manner::Endless].map(collector);
    urls.extend(manners.iter().map(|(url, _)| url.clone()));
    for url in urls {
        let server = Server::start(&url);
        (0..RUNS).for_each(|_| drop(server.run()));
        let took = server.end();
        // The bound of the last batch is 3 s; without one, a collector would be waited for 10 s or more.
        assert!(took < Duration::from_secs(9), "{url}: {took:?}");
    }
    assert!(
        manners
            .iter()
            .all(|(_, received)| !received.lock().unwrap().is_empty()),
        "control: each was asked"
    );
}
