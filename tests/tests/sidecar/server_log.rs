//! The operational log: what is in it, what is not, and what it costs others.

use super::messages::script;
use lazaret_tests::process::until;
use lazaret_tests::sidecar::{HttpAnswer, Sidecar};
use lazaret_tests::{LIMIT, Place, World, once_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Known to nobody as a secret: what is not to be in the log is not in it for another reason.
const PLANTED: &str = "planted-5ecret-0f93";
/// Longest the log may get in each of its two files.
const BYTES_MAX: u64 = 8 << 20;

fn log(world: &World) -> PathBuf {
    world.home.join("serve.log")
}

fn start(world: &World, turns: &Value) -> Sidecar {
    started(world, turns, &[])
}

fn started(world: &World, turns: &Value, more: &[&str]) -> Sidecar {
    let mut command = Sidecar::command(world, turns);
    command.args(more);
    command
        .args(["--trust", "autonomous", "--server-log"])
        .arg(log(world))
        .env("OWN_TOKEN", "known-5ecret-11");
    Sidecar::of(&mut command)
}

#[track_caller]
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
}

/// The lines of an event, once there are so many.
#[track_caller]
fn events(world: &World, event: &str, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    let are_there = until(LIMIT, || {
        found = lines(&log(world))
            .into_iter()
            .filter(|line| line["event"] == event)
            .collect();
        found.len() >= count
    });
    assert!(are_there, "{count} of {event} in {:#?}", lines(&log(world)));
    found
}

once_test!(each_request_run_and_call_has_a_line_and_no_secret_is_in_any);
fn each_request_run_and_call_has_a_line_and_no_secret_is_in_any() {
    let world = World::new(Place::any());
    let echo = json!({"command": format!("echo {PLANTED} $OWN_TOKEN; exit 3")});
    let turns = script(&[
        ("Look.", &[("bash", echo), (PLANTED, json!({}))]),
        (PLANTED, &[]),
    ]);
    let sidecar = start(&world, &turns);
    let head = [sidecar.json_head(), vec![format!("X-Planted: {PLANTED}")]].concat();
    let body =
        json!({"prompt": PLANTED, "conversationId": "c-7", "systemPrompt": PLANTED}).to_string();
    let stream = sidecar.raw(
        &format!("POST /run/stream?{PLANTED}"),
        &head,
        body.as_bytes(),
    );
    assert!(
        stream.body.matches(PLANTED).count() >= 2,
        "control: {stream:?}"
    );
    let status = sidecar.get(&format!("/runs/{PLANTED}/status"));
    assert_eq!(
        (status.status, status.body.contains(PLANTED)),
        (404, true),
        "control: {status:?}"
    );
    assert_eq!(
        sidecar
            .raw(&format!("{PLANTED} /{PLANTED}"), &head, b"")
            .status,
        404
    );
    let mut client = sidecar.client();
    client.text(&json!({"type": PLANTED, "payload": {"x": PLANTED}}).to_string());
    assert!(
        client.next_of("request:error")["message"]
            .as_str()
            .unwrap()
            .contains(PLANTED),
        "control"
    );
    client.say(
        "chat:send",
        json!({"content": PLANTED, "conversationId": "c-8", "apiKey": PLANTED}),
    );
    client.to_end();
    drop(client);
    let requests = events(&world, "request", 4);
    let told = |line: &Value| ["method", "path", "status", "code"].map(|field| line[field].clone());
    assert_eq!(
        told(&requests[0]),
        [json!("POST"), json!("/run/stream"), json!(200), Value::Null]
    );
    assert_eq!(
        told(&requests[1]),
        [
            json!("GET"),
            json!("/runs/*/status"),
            json!(404),
            json!("unknown_run")
        ]
    );
    assert_eq!(
        told(&requests[2]),
        [json!("*"), json!("*"), json!(404), json!("not_found")]
    );
    assert_eq!(
        told(&requests[3]),
        [json!("GET"), json!("/ws"), json!(101), Value::Null]
    );
    assert_eq!(
        (&requests[0]["conversation"], &requests[0]["level"]),
        (&json!("c-7"), &json!("info"))
    );
    assert_eq!(
        (&requests[1]["peer"], &requests[1]["level"]),
        (&json!("127.0.0.1"), &json!("warn"))
    );
    assert!(
        requests
            .iter()
            .all(|line| line["connection"].is_u64() && line["duration_ms"].is_u64())
    );
    let messages = events(&world, "message", 2);
    let told = |line: &Value| {
        [
            line["kind"].clone(),
            line["code"].clone(),
            line["conversation"].clone(),
        ]
    };
    assert_eq!(
        told(&messages[0]),
        [json!("*"), json!("unknown_type"), Value::Null]
    );
    assert_eq!(
        told(&messages[1]),
        [json!("chat:send"), Value::Null, json!("c-8")]
    );
    events(&world, "websocket", 1);
    let call = events(&world, "call", 1).remove(0);
    let told =
        ["tool", "outcome", "error", "agent", "conversation"].map(|field| call[field].clone());
    assert_eq!(
        told,
        ["bash", "failed", "exit_nonzero", "agent", "c-7"],
        "{call}"
    );
    assert!(
        call["tier"].is_string() && call["audit_call"].is_u64() && call["bytes"].is_u64(),
        "{call}"
    );
    assert_eq!(
        call["connection"], requests[0]["connection"],
        "a call leads to its request"
    );
    let runs = events(&world, "run", 2);
    let told = |line: &Value| {
        [
            line["conversation"].clone(),
            line["reason"].clone(),
            line["provider"].clone(),
        ]
    };
    assert_eq!(told(&runs[0]), [json!("c-7"), json!("done"), json!("mock")]);
    assert_eq!(told(&runs[1])[0], "c-8");
    events(&world, "model request", 2);
    let token = sidecar.token.clone();
    assert_eq!(sidecar.end().code(), 0);
    let all = lines(&log(&world));
    let order = [&all[0], &all[1], all.last().unwrap()].map(|line| line["event"].clone());
    assert_eq!(order, ["begin", "listen", "end"]);
    let text = fs::read_to_string(log(&world)).unwrap();
    for secret in [PLANTED, &token, "known-5ecret-11"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
    assert_eq!(fs::metadata(log(&world)).unwrap().mode() & 0o777, 0o600);
}

once_test!(refused_requests_are_logged_and_a_flood_is_summarised);
fn refused_requests_are_logged_and_a_flood_is_summarised() {
    let world = World::new(Place::any());
    let sidecar = started(&world, &script(&[]), &["--rate", "2"]);
    let host = sidecar.head()[0].clone();
    let wrong = [
        host.clone(),
        format!("Authorization: Bearer {}x", sidecar.token),
    ];
    assert_eq!(
        sidecar
            .raw(&format!("GET /health?token={}", sidecar.token), &wrong, b"")
            .status,
        401
    );
    assert_eq!(
        sidecar
            .raw("GET /health", &["Host: evil.example\u{1}".into()], b"")
            .status,
        400,
        "control"
    );
    let page = [sidecar.head(), vec!["Origin: https://evil.example".into()]].concat();
    assert_eq!(sidecar.raw("GET /health", &page, b"").status, 403);
    let codes = |event: &[Value]| {
        event
            .iter()
            .map(|line| line["code"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        codes(&events(&world, "request", 2)),
        ["unauthorized", "wrong_origin"]
    );
    let token = sidecar.token.clone();
    let begun = Instant::now();
    // Many are under way at once: a line is written for each second of them, however slow the machine is.
    let flooded: usize = (0..20)
        .map(|_| {
            let asked: Vec<_> = (0..20)
                .map(|_| sidecar.begin("GET /health", &wrong, b""))
                .collect();
            let answers = asked
                .into_iter()
                .map(|mut stream| HttpAnswer::read(&mut stream));
            answers.filter(|answer| answer.status == 429).count()
        })
        .sum();
    let seconds = begun.elapsed().as_secs();
    sidecar.end();
    let all = lines(&log(&world));
    let written: Vec<_> = all.iter().filter(|line| line["status"] == 429).collect();
    assert!(
        !written.is_empty() && written.len() as u64 <= seconds + 1,
        "{} in {seconds} s",
        written.len()
    );
    assert!(
        flooded > 3 * written.len(),
        "control: {flooded} requests, {} lines",
        written.len()
    );
    assert!(!fs::read_to_string(log(&world)).unwrap().contains(&token));
}

once_test!(a_full_log_goes_on_behind_the_confinement);
/// The file is full once the program can open, rename and remove none any more.
fn a_full_log_goes_on_behind_the_confinement() {
    let world = World::new(Place::any());
    let line = format!("{{\"event\":\"old\",\"text\":\"{}\"}}\n", "x".repeat(999));
    let count = (BYTES_MAX - 1200) / line.len() as u64;
    world.write(&log(&world), line.repeat(count as usize));
    let sidecar = start(&world, &script(&[("Hello.", &[])]));
    (0..40).for_each(|_| assert_eq!(sidecar.get("/health").status, 200));
    sidecar.end();
    let before = world.home.join("serve.log.1");
    let old = lines(&before);
    assert_eq!(
        old.iter().filter(|line| line["event"] == "old").count() as u64,
        count
    );
    assert!(
        old.iter().any(|line| line["event"] == "begin"),
        "what came before it was full is there too"
    );
    let requests = |lines: &[Value]| {
        lines
            .iter()
            .filter(|line| line["event"] == "request")
            .count()
    };
    assert_eq!(requests(&old) + requests(&lines(&log(&world))), 40);
    for path in [&before, &log(&world)] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(metadata.len() <= BYTES_MAX);
    }
}

once_test!(a_log_that_is_not_ours_alone_stops_the_start);
fn a_log_that_is_not_ours_alone_stops_the_start() {
    let world = World::new(Place::any());
    world.put("victim", "content");
    let refused = |log: &Path| {
        let mut command = Sidecar::command(&world, &script(&[]));
        let done = run(command.arg("--server-log").arg(log), LIMIT);
        done.expect(2);
        assert!(done.errors().contains("--server-log"), "{}", done.errors());
    };
    let link = world.home.join("link.log");
    std::os::unix::fs::symlink(world.project.join("victim"), &link).unwrap();
    refused(&link);
    refused(&world.home);
    refused(&world.home.join("nowhere/serve.log"));
    assert_eq!(world.get("victim"), b"content");
    let sidecar = start(&world, &script(&[]));
    refused(&log(&world));
    sidecar.end();
    // Others could read it before.
    fs::set_permissions(log(&world), fs::Permissions::from_mode(0o644)).unwrap();
    start(&world, &script(&[])).end();
    assert_eq!(fs::metadata(log(&world)).unwrap().mode() & 0o777, 0o600);
}

once_test!(a_log_on_standard_error_waits_for_no_reader);
fn a_log_on_standard_error_waits_for_no_reader() {
    let world = World::new(Place::any());
    let mut lazaret = Sidecar::command(&world, &script(&[]));
    lazaret.args(["--rate", "10000", "--server-log", "-"]);
    let sidecar = Sidecar::of(&mut lazaret);
    assert_eq!(sidecar.get("/health").status, 200);
    let done = sidecar.end();
    let written: Vec<Value> = done
        .errors()
        .lines()
        .map(|line| serde_json::from_str(line).expect("only lines of the log"))
        .collect();
    assert!(
        written.iter().any(|line| line["event"] == "request"),
        "{written:?}"
    );
    // Nobody reads this one: a pipe takes 64 KiB.
    let unread = world.home.join("unread");
    nix::unistd::mkfifo(&unread, nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.own(&unread);
    let mut command = world.host("sh");
    command
        .args(["-c", "exec \"$@\" 2<>\"$0\""])
        .arg(unread)
        .arg(lazaret.get_program())
        .args(lazaret.get_args());
    let sidecar = Sidecar::of(&mut command);
    for number in 0..1000 {
        assert_eq!(sidecar.get("/health").status, 200, "{number}");
    }
    assert_eq!(sidecar.end().code(), 0);
}

once_test!(without_the_feature_an_export_is_an_error_that_names_it);
fn without_the_feature_an_export_is_an_error_that_names_it() {
    let world = World::new(Place::any());
    let mut command = Sidecar::command(&world, &script(&[]));
    let done = run(command.args(["--otlp", "http://127.0.0.1:4318"]), LIMIT);
    done.expect(2);
    assert!(
        done.errors().contains("--features otel"),
        "{}",
        done.errors()
    );
    // The variable is for every program: we start, and say that it has no effect.
    let mut command = Sidecar::command(&world, &script(&[]));
    let sidecar = Sidecar::of(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"));
    assert_eq!(sidecar.get("/health").status, 200);
    let errors = sidecar.end().errors();
    assert!(
        errors.contains("OTEL_EXPORTER_OTLP_ENDPOINT") && errors.contains("--features otel"),
        "{errors}"
    );
}
