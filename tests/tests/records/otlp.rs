//! `lazaret audit export --otlp`: what a collector has is what a file export has, the cursor moves when it is acknowledged and only then,
//! and no answer of a collector ends in a record that is left out.

use super::written::{audit_of, records};
use broker_protocol::chain::{self, Head};
use lazaret_tests::model_server::{ModelServer, Reply, ReplyEnd, SeenRequest};
use lazaret_tests::process::{Running, figure, until};

use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{Finished, LIMIT, Place, Serving, World, once_test, place_test, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn taken() -> Reply {
    Reply::status(200, &json!({"partialSuccess": {}}))
}

/// A collector that takes everything.
fn taking() -> ModelServer {
    ModelServer::answering("127.0.0.1", |_| taken())
}

fn cursor(world: &World) -> PathBuf {
    world.outside.join("cursor")
}

fn export(world: &World, url: &str, options: &[&str]) -> Command {
    let mut command = world.program("lazaret");
    command.args(["audit", "export", "--otlp", url]);
    command.arg("--cursor").arg(cursor(world)).args(options);
    command
}

/// A world whose audit has four records.
fn written(place: Place) -> World {
    let world = World::new(place);
    world.in_cell("true").success();
    assert!(until(LIMIT, || records(&world).len() == 4));
    world
}

fn logs(request: &SeenRequest) -> &[Value] {
    let scope = &request.body["resourceLogs"][0]["scopeLogs"][0];
    scope["logRecords"].as_array().unwrap()
}

/// The bodies of all log records, one a line.
fn bodies(requests: &[SeenRequest]) -> String {
    let all = requests.iter().flat_map(logs);
    let body = |log: &Value| format!("{}\n", log["body"]["stringValue"].as_str().unwrap());
    all.map(body).collect()
}

fn printed(world: &World, options: &[&str]) -> String {
    let mut command = world.program("lazaret");
    run(command.args(["audit", "export"]).args(options), LIMIT).success()
}

fn last_hash(world: &World) -> String {
    let last = records(world).pop().unwrap();
    last["hash"].as_str().unwrap().to_owned()
}

fn at_cursor(world: &World) -> String {
    fs::read_to_string(cursor(world)).unwrap()
}

place_test!(a_collector_gets_each_record_once_and_the_export_goes_on_from_there);
fn a_collector_gets_each_record_once_and_the_export_goes_on_from_there(place: Place) {
    let world = written(place);
    let collector = taking();
    let mut command = export(&world, &collector.url(), &[]);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=collector%20key");
    let told = run(&mut command, LIMIT).success();
    assert!(told.contains("{\"acknowledged\":4,"), "{told}");
    let requests = collector.asked();
    let [request] = &requests[..] else {
        panic!("one request: {requests:?}")
    };
    assert_eq!(request.line, "POST /v1/logs HTTP/1.1");
    for line in [
        "content-type: application/json\r\n",
        "x-key: collector key\r\n",
    ] {
        assert!(request.head.contains(line), "{}", request.head);
    }
    assert_eq!(bodies(&requests), printed(&world, &[]));
    assert_eq!(at_cursor(&world), format!("{}\n", last_hash(&world)));
    // Nothing is new, so nothing is sent.
    assert_eq!(
        run(&mut export(&world, &collector.url(), &[]), LIMIT).success(),
        ""
    );
    world.in_cell("true").success();
    assert!(until(LIMIT, || records(&world).len() == 8));
    run(
        &mut export(&world, &collector.url(), &["--format", "ocsf"]),
        LIMIT,
    )
    .success();
    let requests = collector.asked();
    assert_eq!((requests.len(), logs(&requests[1]).len()), (2, 4));
    let raw = |log: &Value| {
        let event: Value =
            serde_json::from_str(log["body"]["stringValue"].as_str().unwrap()).unwrap();
        format!("{}\n", event["raw_data"].as_str().unwrap())
    };
    let raw: String = logs(&requests[1]).iter().map(raw).collect();
    let whole = printed(&world, &[]);
    assert_eq!(raw, whole.split_inclusive('\n').skip(4).collect::<String>());
}

once_test!(collected_records_are_verified_by_signed_heads);
fn collected_records_are_verified_by_signed_heads() {
    let world = written(Place::any());
    let key = world.outside.join("audit.pub");
    let mut command = world.program("lazaret");
    world.write(&key, run(command.args(["audit", "key"]), LIMIT).success());
    let collector = taking();
    run(&mut export(&world, &collector.url(), &["--sign"]), LIMIT).success();
    let verify = |export: &str| {
        let file = world.outside.join("export.jsonl");
        world.write(&file, export);
        let mut command = world.program("lazaret");
        command.args(["audit", "verify-export", "--key"]).arg(&key);
        run(command.arg(&file), LIMIT).code()
    };
    let whole = bodies(&collector.asked());
    assert_eq!((whole.lines().count(), verify(&whole)), (5, 0));
    let changed = whole.replacen("\"allow\"", "\"other\"", 1);
    assert_ne!(changed, whole);
    assert_eq!(verify(&changed), 1);
}

/// An export that a collector refuses: its end, and the cursor.
fn refused(world: &World, reply: Reply) -> (Finished, String) {
    let collector = ModelServer::answering("127.0.0.1", move |_| reply.clone());
    let finished = run(&mut export(world, &collector.url(), &[]), LIMIT);
    assert_eq!(collector.asked().len(), 1, "it is not asked again");
    (finished, at_cursor(world))
}

once_test!(a_collector_that_refuses_moves_no_cursor);
fn a_collector_that_refuses_moves_no_cursor() {
    let world = written(Place::any());
    let elsewhere = taking();
    let location = format!("Location: {}/v1/logs\r\n", elsewhere.url());
    let partial =
        json!({"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "too\u{1b}[2J old"}});
    let advice = format!("--after {}", last_hash(&world));
    for (reply, why) in [
        (Reply::status(400, &json!({})), "it answered 400"),
        (Reply::status(500, &json!({})), advice.as_str()),
        (Reply::status(200, &partial), "it rejected 3 of them"),
        (Reply::stream("<html>"), "not that of a collector"),
        (
            Reply {
                head: location,
                ..Reply::status(307, &json!({}))
            },
            "redirects are not followed",
        ),
    ] {
        let (finished, cursor) = refused(&world, reply);
        let errors = finished.errors();
        assert_eq!((finished.code(), cursor.as_str()), (1, ""), "{errors}");
        assert!(errors.contains(why), "{why}: {errors}");
        assert!(!errors.contains('\u{1b}'), "{errors:?}");
    }
    assert_eq!(elsewhere.asked().len(), 0, "no redirect is followed");
    // The control: with an acknowledgement it moves.
    run(&mut export(&world, &elsewhere.url(), &[]), LIMIT).success();
    assert_eq!(at_cursor(&world), format!("{}\n", last_hash(&world)));
}

once_test!(a_batch_is_sent_again_until_it_is_acknowledged);
fn a_batch_is_sent_again_until_it_is_acknowledged() {
    let world = written(Place::any());
    let busy = Reply {
        head: "Retry-After: 1\r\n".into(),
        ..Reply::status(429, &json!({}))
    };
    let cut = Reply {
        end: ReplyEnd::Cut,
        ..taken()
    };
    let collector = ModelServer::start(vec![busy, Reply::status(503, &json!({})), cut, taken()]);
    let finished = run(&mut export(&world, &collector.url(), &[]), LIMIT);
    assert!(
        finished.errors().contains("it answered 429"),
        "{}",
        finished.errors()
    );
    assert!(finished.success().contains("{\"acknowledged\":4,"));
    let requests = collector.asked();
    assert_eq!(requests.len(), 4);
    assert!(
        requests
            .iter()
            .all(|request| logs(request) == logs(&requests[0]))
    );
    // One that never takes them is given up, and nothing is lost by that.
    fs::remove_file(cursor(&world)).unwrap();
    let down = ModelServer::answering("127.0.0.1", |_| Reply {
        head: "Retry-After: 0\r\n".into(),
        ..Reply::status(503, &json!({}))
    });
    let finished = run(&mut export(&world, &down.url(), &[]), LIMIT);
    assert_eq!((finished.code(), down.asked().len()), (1, 5));
    assert_eq!(at_cursor(&world), "");
}

fn end(following: Running) -> Finished {
    kill(Pid::from_raw(following.pid()), Signal::SIGTERM).unwrap();
    following.finish(LIMIT)
}

once_test!(an_export_that_follows_ends_at_a_signal_with_its_cursor);
fn an_export_that_follows_ends_at_a_signal_with_its_cursor() {
    let world = written(Place::any());
    let collector = taking();
    let url = collector.url();
    let mut following = Running::start(&mut export(&world, &url, &["--follow"]));
    following.wait_for("{\"acknowledged\":4,", LIMIT);
    // Two exports would move one cursor past records of the other's.
    let second = run(&mut export(&world, &url, &[]), LIMIT);
    assert_eq!(second.code(), 2);
    assert!(
        second.errors().contains("another export moves it"),
        "{}",
        second.errors()
    );
    world.in_cell("true").success();
    following.wait_for("{\"acknowledged\":8,", LIMIT);
    end(following).success();
    assert_eq!(at_cursor(&world), format!("{}\n", last_hash(&world)));
    assert_eq!(bodies(&collector.asked()), printed(&world, &[]));
}

/// KiB of memory that an export may take at most: many times what it needs, and a part of what a flood sends.
const MEMORY_MAX: u64 = 96 << 10;

once_test!(a_hostile_collector_costs_neither_memory_nor_a_record);
fn a_hostile_collector_costs_neither_memory_nor_a_record() {
    let world = written(Place::any());
    let flood = "x".repeat(128 << 20);
    let asked = Arc::new(AtomicUsize::new(0));
    let serve = |answer: String| {
        let asked = asked.clone();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        let serving = Serving::start(listener, move |mut stream| {
            let mut first = [0; 4096];
            let _ = stream.read(&mut first);
            asked.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(answer.as_bytes());
            // Until it is closed.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        (address, serving)
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", flood.len());
    let long_head = format!("HTTP/1.1 200 OK\r\nX: {flood}");
    for (scheme, answer, attempts) in [
        ("http", format!("{head}{flood}"), 2),
        ("http", long_head, 2),
        ("http", String::new(), 1),
        ("https", "HTTP/1.1 400 no TLS\r\n\r\n".to_owned(), 2),
    ] {
        let shown: String = answer.chars().take(40).collect();
        asked.store(0, Ordering::SeqCst);
        let (address, _serving) = serve(answer);
        let url = format!("{scheme}://{address}");
        let following = Running::start(&mut export(&world, &url, &["--follow"]));
        assert!(
            until(LIMIT, || asked.load(Ordering::SeqCst) >= attempts),
            "{shown}"
        );
        let memory = figure(following.pid(), "status", "VmHWM").unwrap();
        let finished = end(following);
        assert!(finished.took < LIMIT / 2, "{shown}: {:?}", finished.took);
        finished.success();
        assert!(memory < MEMORY_MAX, "{shown}: {memory} KiB");
        assert!(
            finished.errors().contains("are not exported yet"),
            "{shown}"
        );
        assert_eq!(at_cursor(&world), "", "{shown}");
    }
}

/// A collector with TLS, whose log has the path of each request.
const COLLECTOR: &str = "
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        print(self.path, file=log, flush=True)
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'{}')
    def log_message(self, *words):
        pass
";

once_test!(a_collector_without_a_trusted_certificate_gets_nothing);
fn a_collector_without_a_trusted_certificate_gets_nothing() {
    let world = written(Place::any());
    let host = TlsHost::start(&world, &["localhost"], COLLECTOR);
    let url = format!("https://localhost:{}", host.port);
    let finished = run(&mut export(&world, &url, &[]), LIMIT);
    assert_eq!(finished.code(), 1);
    assert!(
        finished.errors().contains("invalid peer certificate"),
        "{}",
        finished.errors()
    );
    assert_eq!((host.log().len(), at_cursor(&world).as_str()), (0, ""));
    // The control: with its authority it is a collector like others.
    let mut trusting = export(&world, &url, &[]);
    trusting.env("SSL_CERT_FILE", host.authority());
    run(&mut trusting, LIMIT).success();
    assert_eq!(host.log(), ["/v1/logs"]);
}

/// An audit with these records in place of the world's.
fn set_records(world: &World, texts: impl IntoIterator<Item = String>) {
    let (mut head, mut file) = (Head::EMPTY, Vec::new());
    for (seq, text) in (1..).zip(texts) {
        let record = json!({"seq": seq, "ts": 1_795_168_954.5, "kind": "call", "text": text});
        let mut record = record.to_string().into_bytes();
        head.hash = chain::seal(head.hash, &mut record);
        head.seq = seq;
        file.extend(record);
    }
    head.bytes = file.len() as u64;
    world.write(&audit_of(world).join(chain::file_name(1)), file);
    world.write(&audit_of(world).join(chain::HEAD), head.encode());
}

/// More bytes than a request can have: one batch that is nearly full, and the largest record.
const REQUEST_MAX: usize = 3 << 20;

once_test!(batches_have_bounds_and_leave_nothing_out);
fn batches_have_bounds_and_leave_nothing_out() {
    let world = written(Place::any());
    // Quotes: each is escaped more than once.
    let large = "\"".repeat(20_000);
    let texts = (0..1500).map(|number| match number % 50 {
        0 => large.clone(),
        _ => "small".to_owned(),
    });
    set_records(&world, texts);
    let collector = taking();
    let mut command = export(&world, &collector.url(), &["--format", "ocsf"]);
    let told = run(&mut command, LIMIT).success();
    assert!(
        told.ends_with(&format!("\"hash\":\"{}\"}}\n", last_hash(&world))),
        "{told}"
    );
    let requests = collector.asked();
    let seqs = requests.iter().flat_map(logs).map(|log| {
        let raw: Value =
            serde_json::from_str(log["body"]["stringValue"].as_str().unwrap()).unwrap();
        raw["metadata"]["sequence"].as_u64().unwrap()
    });
    assert!(seqs.eq(1..=1500));
    for request in &requests {
        let bytes = request.body.to_string().len();
        assert!(logs(request).len() <= 512 && bytes < REQUEST_MAX, "{bytes}");
    }
    assert!(
        requests.len() > 3,
        "control: bytes bound it too, not records alone"
    );
    // Cut off in the middle, it goes on behind the last acknowledgement.
    fs::remove_file(cursor(&world)).unwrap();
    let refusing = ModelServer::start(vec![taken(), taken()]);
    assert_eq!(
        run(&mut export(&world, &refusing.url(), &[]), LIMIT).code(),
        1
    );
    let taken: usize = refusing.asked()[..2]
        .iter()
        .map(|seen| logs(seen).len())
        .sum();
    let rest = taking();
    run(&mut export(&world, &rest.url(), &[]), LIMIT).success();
    let left: usize = rest.asked().iter().map(|seen| logs(seen).len()).sum();
    assert_eq!(taken + left, 1500);
}

once_test!(changed_records_are_not_sent);
fn changed_records_are_not_sent() {
    let world = written(Place::any());
    let file = audit_of(&world).join(chain::file_name(1));
    let text = fs::read_to_string(&file).unwrap();
    let third = text.split_inclusive('\n').nth(2).unwrap();
    world.write(
        &file,
        text.replace(third, &third.replacen("\"ts\":1", "\"ts\":2", 1)),
    );
    let collector = taking();
    let finished = run(&mut export(&world, &collector.url(), &["--follow"]), LIMIT);
    assert_eq!(finished.code(), 1);
    assert!(
        finished.errors().contains("record 3"),
        "{}",
        finished.errors()
    );
    assert_eq!(bodies(&collector.asked()).lines().count(), 2);
    // A hash that no record has: who resumes there would miss records.
    world.write(&file, text);
    let after = ["--after", &"0".repeat(64)];
    let finished = run(&mut export(&world, &collector.url(), &after), LIMIT);
    assert_eq!((finished.code(), collector.asked().len()), (1, 1));
}

once_test!(a_collector_is_named_without_secrets_and_keys_are_not_sent_in_clear_text);
fn a_collector_is_named_without_secrets_and_keys_are_not_sent_in_clear_text() {
    let world = written(Place::any());
    for (url, headers, why) in [
        ("http://u:p@h", "", "without a name, password"),
        ("http://198.51.100.1:4318", "x-key=1", "clear text"),
        ("http://127.0.0.1:1", "host=h", "headers are name=value"),
    ] {
        let mut command = export(&world, url, &[]);
        command.env("OTEL_EXPORTER_OTLP_LOGS_HEADERS", headers);
        let finished = run(&mut command, LIMIT);
        assert_eq!(finished.code(), 2, "{url}");
        assert!(finished.errors().contains(why), "{}", finished.errors());
    }
}
