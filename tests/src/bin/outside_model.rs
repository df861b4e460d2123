//! Tests `lazaret chat` against a third-party mock of all vendors: `llmock` of the npm package `@copilotkit/aimock`. First two
//! calls in one answer for each vendor, through the real executor and with one order of events; then runs in which the mock drops
//! requests and breaks answers: each of them ends with the stream's end, and no process is left.

use clap::Parser;
use lazaret_tests::process::{self, Running, left_after, until};
use lazaret_tests::{Place, World, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Runs `lazaret chat` against `llmock`. Needs `npm i @copilotkit/aimock` and its `node_modules/.bin` in PATH.
#[derive(Parser)]
struct Options {
    /// Runs in which the mock fails at random
    #[arg(default_value_t = 40)]
    runs: u32,
}

const VENDORS: [(&str, &str); 4] = [
    ("claude", "claude-x"),
    ("openai", "gpt-x"),
    ("openai-chat", "gpt-x"),
    ("ollama", "llama3.1"),
];
/// Longer than any run that works.
const LIMIT: Duration = Duration::from_secs(60);

/// The order of events, the same for all vendors.
const ORDER: &str = "stream-start session text-delta turn-end tool-start tool-delta tool-result tool-start tool-result \
                     text-delta turn-end stream-end";

/// The answers of the mock. Those to conversations with results come first, since the first match counts.
fn fixture() -> Value {
    let call = |name: &str, input: Value| json!({"name": name, "arguments": input.to_string()});
    let calls = [
        call("bash", json!({"command": "ls -la", "timeout": 5})),
        call("file_read", json!({"path": "a.txt"})),
    ];
    json!({"fixtures": [
        {"match": {"userMessage": "list files", "hasToolResult": true}, "response": {"content": "Done: two files."}},
        {"match": {"userMessage": "list files"}, "response": {"content": "I will run it.", "toolCalls": calls}},
    ]})
}

/// A mock that is killed when this value is dropped.
struct Mock {
    child: Child,
    port: u16,
}

impl Mock {
    fn start(world: &World, arguments: &[&str]) -> Option<Self> {
        let path = world.outside.join("fixture.json");
        world.write(&path, fixture().to_string());
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a port of this machine").port();
        let mut command = Command::new("llmock");
        command
            .arg("-p")
            .arg(port.to_string())
            .arg("-f")
            .arg(path)
            .args(["--log-level", "silent"])
            .args(arguments);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let mock = Self { child, port };
        until(LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_ok()).then_some(mock)
    }

    fn chat(&self, world: &World, (vendor, model): (&str, &str)) -> Command {
        let mut command = world.lazaret("chat");
        command.args([
            "--json",
            "--trust",
            "autonomous",
            "--provider",
            vendor,
            "--model",
            model,
        ]);
        command
            .arg("--base-url")
            .arg(format!("http://127.0.0.1:{}", self.port))
            .arg("list files");
        command
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> ExitCode {
    let Options { runs } = Options::parse();
    if Command::new("llmock").arg("--help").output().is_err() {
        eprintln!(
            "llmock is not in PATH: npm i @copilotkit/aimock, and PATH=node_modules/.bin:$PATH"
        );
        return ExitCode::from(2);
    }
    let world = World::new(Place::any());
    world.put("a.txt", "content of a");
    let complaints = [orders(&world), chaos(&world, runs)].concat();
    match complaints.as_slice() {
        [] => ExitCode::SUCCESS,
        _ => {
            println!(
                "\n{} complaints:\n  {}",
                complaints.len(),
                complaints.join("\n  ")
            );
            ExitCode::FAILURE
        }
    }
}

fn kinds(text: &str) -> Vec<String> {
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let kind = |event: Value| {
        event["type"]
            .as_str()?
            .strip_prefix("chat:")
            .map(str::to_owned)
    };
    events.filter_map(kind).collect()
}

/// Two calls in one answer, for each vendor.
fn orders(world: &World) -> Vec<String> {
    let Some(mock) = Mock::start(world, &["--strict"]) else {
        return vec!["llmock does not start".to_owned()];
    };
    let mut complaints = Vec::new();
    for vendor in VENDORS {
        let finished = run(&mut mock.chat(world, vendor), LIMIT);
        let mut order = kinds(&finished.text());
        order.dedup();
        let order = order.join(" ");
        println!(
            "{:<12} {}",
            vendor.0,
            if order == ORDER {
                "as it should be"
            } else {
                &order
            }
        );
        let read = finished.text().contains("content of a");
        if order != ORDER || finished.code() != 0 || !read {
            complaints.push(format!(
                "{}: {} {}",
                vendor.0,
                finished.code(),
                finished.errors()
            ));
        }
    }
    complaints
}

/// Runs while the mock drops requests and breaks answers.
fn chaos(world: &World, runs: u32) -> Vec<String> {
    let arguments = [
        "--chaos-drop",
        "0.2",
        "--chaos-malformed",
        "0.2",
        "--chaos-disconnect",
        "0.1",
    ];
    let Some(mock) = Mock::start(world, &arguments) else {
        return vec!["llmock does not start".to_owned()];
    };
    let (mut complaints, mut ends) = (Vec::new(), BTreeMap::<String, u32>::new());
    for number in 0..runs {
        let vendor = VENDORS[number as usize % VENDORS.len()];
        let running = Running::start(&mut mock.chat(world, vendor));
        let pid = running.pid();
        let mut below = process::below(pid);
        let finished = running.finish(LIMIT);
        below.retain(|process| process.pid != pid);
        let kinds = kinds(&finished.text());
        let end = if kinds.iter().any(|kind| kind == "error") {
            "error"
        } else {
            "answer"
        };
        *ends.entry(format!("{} {end}", vendor.0)).or_default() += 1;
        if kinds.last().map(String::as_str) != Some("stream-end") {
            complaints.push(format!(
                "{}: {}{}",
                vendor.0,
                finished.text(),
                finished.errors()
            ));
        }
        let left = left_after(&below, Duration::from_secs(5));
        if !left.is_empty() {
            complaints.push(format!("left running: {left:?}"));
        }
    }
    println!("{runs} runs with chaos: {ends:?}");
    complaints
}
