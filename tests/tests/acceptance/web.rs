//! The web tools and images of the web. Engines are of this machine; the executor allows the calls and records them.

use super::tools::png;
use lazaret_tests::approval::{dressed, set_policy};
use lazaret_tests::{LIMIT, Place, Serving, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An engine that answers every request alike, and how often it was asked.
struct Engine {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    _serving: Serving,
}

impl Engine {
    fn start(status: u16, body: Value) -> Self {
        Self::serving(status, "application/json", body.to_string().into_bytes())
    }

    fn serving(status: u16, media: &'static str, body: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (
            listener.local_addr().unwrap(),
            Arc::<AtomicUsize>::default(),
        );
        let count = asked.clone();
        let serving = Serving::start(listener, move |stream| {
            serve(stream, status, media, &body, &count)
        });
        Self {
            address,
            asked,
            _serving: serving,
        }
    }

    fn searxng(results: Value) -> Self {
        Self::start(200, json!({ "results": results }))
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, status: u16, media: &str, body: &[u8], asked: &AtomicUsize) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
        head.push(byte[0]);
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
}

fn one() -> Value {
    json!([{ "title": "One", "url": "https://one.example/", "content": "first" }])
}

fn nowhere() -> String {
    format!(
        "http://{}",
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    )
}

fn engines(command: &mut Command, searxng: &str, brave: &str) {
    let brave = [
        ("BRAVE_SEARCH_API_KEY", "brave-key-5e0c"),
        ("BRAVE_SEARCH_URL", brave),
    ];
    command.env("SEARXNG_URL", searxng).envs(brave);
}

/// `lazaret call web_search`: its code and its result.
fn search(world: &World, searxng: &str, brave: &str) -> (i32, Value) {
    let mut command = world.lazaret_call("web_search", &json!({ "query": "q" }));
    engines(&mut command, searxng, brave);
    let done = run(command.arg("--json"), LIMIT);
    (done.code(), serde_json::from_str(&done.text()).unwrap())
}

/// Audit records of the executor about a tool.
fn audited(world: &World, tool: &str) -> Vec<Value> {
    let rendered = run(
        world.program("lazaret").args(["audit", "show", "--json"]),
        LIMIT,
    )
    .success();
    let records = rendered
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .filter(|record| record["kind"] == "call" && record["tool"] == tool)
        .collect()
}

once_test!(a_search_is_formatted);
fn a_search_is_formatted() {
    let world = World::new(Place::any());
    let engine = Engine::searxng(one());
    let (code, result) = search(&world, &engine.url(), &nowhere());
    assert_eq!(
        (code, &result["result"]),
        (0, &json!("1. One\n   https://one.example/\n   first"))
    );
    let metadata = &result["metadata"];
    assert_eq!(
        (&metadata["provider"], &metadata["resultCount"]),
        (&json!("searxng"), &json!(1))
    );
    let [record] = &audited(&world, "web_search")[..] else {
        panic!("one record a request")
    };
    assert_eq!(
        (&record["verdict"], &record["end"]),
        (&json!("allow"), &json!("granted"))
    );
    assert_eq!(record["call"], metadata["call"]);
}

once_test!(second_engine_answers_if_the_first_is_down);
fn second_engine_answers_if_the_first_is_down() {
    let world = World::new(Place::any());
    let results = json!([{ "title": "B", "url": "https://b.example/", "description": "second" }]);
    let brave = Engine::start(200, json!({ "web": { "results": results } }));
    let (code, result) = search(&world, &nowhere(), &brave.url());
    assert_eq!(
        (code, &result["result"]),
        (0, &json!("1. B\n   https://b.example/\n   second"))
    );
    assert_eq!(
        (&result["metadata"]["provider"], brave.asked()),
        (&json!("brave"), 1)
    );
}

once_test!(failure_of_both_engines_is_an_error);
fn failure_of_both_engines_is_an_error() {
    let world = World::new(Place::any());
    let failing = Engine::start(500, json!({}));
    let (code, result) = search(&world, &nowhere(), &failing.url());
    assert_eq!(
        (code, &result["status"], failing.asked()),
        (1, &json!("error"), 1)
    );
    assert_eq!(result["error"]["code"], "io");
}

place_test!(a_web_tool_waits_for_the_answer_and_for_the_policy);
/// The orchestrator does what the executor has no part in, but only with its leave.
fn a_web_tool_waits_for_the_answer_and_for_the_policy(place: Place) {
    let world = World::new(place);
    let engine = Engine::searxng(one());
    let session = |approval: &str, words: &[&str]| {
        set_policy(&world, approval);
        let mut command = dressed(&world, world.lazaret("session"));
        engines(&mut command, &engine.url(), &nowhere());
        Session::start(command.args(words))
    };
    let supervised = ["--trust", "supervised"];
    let query = || json!({ "query": "q" });
    for (seconds, answer, want) in [
        (600, Some("no"), "denied_user"),
        (1, None, "approval_timeout"),
    ] {
        let mut asking = session(&format!("timeout_s = {seconds}"), &supervised);
        let id = asking.start_call("web_search", query());
        let question = asking.event(&id, LIMIT).unwrap();
        assert_eq!(
            (&question["event"], &question["tool"]),
            (&json!("approval"), &json!("web_search"))
        );
        if let Some(answer) = answer {
            asking.send(&json!({ "id": id, "approve": answer }));
        }
        assert_eq!(asking.answer_within(&id, LIMIT).kind(), want);
    }
    assert_eq!(engine.asked(), 0, "it was asked before the answer");
    // One yes is for one call; in a batch each is asked about by itself.
    let mut asking = session("timeout_s = 600", &supervised);
    let id = asking.start_call(
        "batch",
        json!({ "invocations": [{ "tool": "web_search", "input": query() }] }),
    );
    assert_eq!(
        asking.event(&id, LIMIT).unwrap()["approval"]["rule"],
        "trust:supervised"
    );
    asking.send(&json!({ "id": id, "approve": "once" }));
    assert!(
        asking
            .answer_within(&id, LIMIT)
            .success()
            .contains("https://one.example/")
    );
    assert_eq!(engine.asked(), 1);
    asking.close(LIMIT);
    let records = audited(&world, "web_search");
    let printed = |record: &Value| {
        ["verdict", "end"].map(|key| record[key].as_str().unwrap_or("").to_owned())
    };
    // Each session has a file of its own, in no order.
    let mut printed: Vec<_> = records.iter().map(printed).collect();
    printed.sort();
    assert_eq!(
        printed,
        [["ask", "failed"], ["ask", "failed"], ["ask", "granted"]]
    );
    let granted = records.iter().find(|record| record["end"] == "granted");
    assert_eq!(granted.unwrap()["grant"], "once");
    // A rule of the executor's policy holds for what is not its own to do.
    let rule = "[[rule]]\ntool = \"web_search\"\naction = \"deny\"\nwhy = \"Not that.\"\nwhen = [{ param = \"query\", contains = \"secret\" }]";
    let mut ruled = session(
        &format!("timeout_s = 1\n{rule}"),
        &["--trust", "autonomous"],
    );
    let denied = ruled.call("web_search", json!({ "query": "a SECRET thing" }));
    assert_eq!((denied.kind(), engine.asked()), ("denied_policy", 1));
    assert!(
        denied.result.to_string().contains("Not that."),
        "{}",
        denied.result
    );
    ruled.call("web_search", query()).success();
    assert_eq!(engine.asked(), 2);
}

place_test!(an_image_of_an_address_needs_what_a_page_needs);
/// An image of an address is decided on, asked about and recorded as the fetch that it is.
fn an_image_of_an_address_needs_what_a_page_needs(place: Place) {
    let world = World::new(place);
    let image = Engine::serving(200, "image/png", png(1000));
    let session = |seconds: u32, rules: &str, words: &[&str]| {
        let open = format!("[profile.local.web]\nprivate = [\"{}\"]\n", image.address);
        set_policy(&world, &format!("timeout_s = {seconds}\n{open}{rules}"));
        let mut command = dressed(&world, world.lazaret("session"));
        Session::start(command.args(["--profile", "local"]).args(words))
    };
    let input = || json!({ "path": format!("{}/a.png", image.url()) });
    let supervised = ["--trust", "supervised"];
    for (seconds, answer, want) in [
        (600, Some("no"), "denied_user"),
        (1, None, "approval_timeout"),
    ] {
        let mut asking = session(seconds, "", &supervised);
        let id = asking.start_call("view_image", input());
        let question = asking.event(&id, LIMIT).unwrap();
        assert_eq!(
            (&question["event"], &question["tool"]),
            (&json!("approval"), &json!("view_image"))
        );
        if let Some(answer) = answer {
            asking.send(&json!({ "id": id, "approve": answer }));
        }
        assert_eq!(asking.answer_within(&id, LIMIT).kind(), want);
    }
    assert_eq!(image.asked(), 0, "it was asked before the answer");
    let mut asking = session(600, "", &supervised);
    let id = asking.start_call("view_image", input());
    assert_eq!(
        asking.event(&id, LIMIT).unwrap()["approval"]["rule"],
        "trust:supervised"
    );
    asking.send(&json!({ "id": id, "approve": "once" }));
    let answer = asking.answer_within(&id, LIMIT);
    assert_eq!(
        answer.success(),
        format!("image/png, 1000 bytes: {}/a.png", image.url())
    );
    assert_eq!(answer.result["image"]["mediaType"], "image/png");
    assert_eq!(image.asked(), 1);
    asking.close(LIMIT);
    let records = audited(&world, "web_fetch");
    // Each session has a file of its own, in no order.
    let mut ends: Vec<_> = records
        .iter()
        .map(|record| record["end"].as_str().unwrap_or(""))
        .collect();
    ends.sort();
    assert_eq!(ends, ["failed", "failed", "granted"]);
    let granted = records.iter().find(|record| record["end"] == "granted");
    assert_eq!(answer.result["metadata"]["call"], granted.unwrap()["call"]);
    // A rule for web_fetch, a scope without it, and one without the network.
    let rule = "[[rule]]\ntool = \"web_fetch\"\naction = \"deny\"\nwhy = \"Not that.\"\nwhen = [{ param = \"url\", contains = \"a.png\" }]";
    let mut ruled = session(600, rule, &["--trust", "autonomous"]);
    let denied = ruled.call("view_image", input());
    assert_eq!(denied.kind(), "denied_policy");
    assert!(
        denied.result.to_string().contains("Not that."),
        "{}",
        denied.result
    );
    ruled
        .call(
            "view_image",
            json!({ "path": format!("{}/b", image.url()) }),
        )
        .success();
    world.put("a.png", png(10));
    let both = "  view_image: { allowed: true }\n  web_fetch: { allowed: true";
    for (scope, rendered) in [
        ("  view_image: { allowed: true }\n".to_owned(), false),
        (format!("{both}, network: false }}\n"), false),
        ("  web_fetch: { allowed: true }\n".to_owned(), false),
        (format!("{both} }}\n"), true),
    ] {
        let file = world.put("scope.yaml", format!("tool_permissions:\n{scope}"));
        let mut scoped = session(600, "", &["--scope", file.to_str().unwrap()]);
        let before = image.asked();
        let answer = scoped.call("view_image", input());
        assert_eq!(
            (answer.kind(), image.asked() - before),
            if rendered {
                ("", 1)
            } else {
                ("denied_policy", 0)
            },
            "{scope}"
        );
        // A file has no part in that.
        if scope.contains("view_image") {
            scoped
                .call("view_image", json!({ "path": "a.png" }))
                .success();
        }
    }
}

place_test!(a_long_page_is_kept_whole);
/// The part of a page beyond the displayed one is kept where `file_read` opens it.
fn a_long_page_is_kept_whole(place: Place) {
    let world = World::new(place);
    let body: String = (0..20_000)
        .map(|line| format!("line {line} of a long page\n"))
        .collect();
    let page = Engine::serving(200, "text/plain", body.clone().into_bytes());
    let open = format!(
        "timeout_s = 1\n[profile.local.web]\nprivate = [\"{}\"]\n",
        page.address
    );
    set_policy(&world, &open);
    let mut session = Session::start(dressed(&world, world.lazaret("session")).args([
        "--profile",
        "local",
        "--trust",
        "autonomous",
    ]));
    let answer = session.call("web_fetch", json!({ "url": page.url() }));
    let text = answer.success();
    let spill = &answer.result["metadata"]["spill"];
    let full = spill["path"].as_str().unwrap();
    assert_eq!(
        (&spill["bytes"], &spill["whole"]),
        (&json!(body.len()), &json!(true))
    );
    let note = format!(
        "[truncated: total={} shown=102400 strategy=head full={full}]",
        body.len()
    );
    assert!(
        text.ends_with(&format!("\n{note}")),
        "{}",
        &text[text.len() - 200..]
    );
    assert!(
        full.starts_with(world.central.join("outputs").to_str().unwrap()),
        "{full}"
    );
    // All of it, and a part by its lines; a command finds it too.
    let whole = session.call("file_read", json!({ "path": full }));
    assert_eq!(whole.success(), body);
    let part = session.call(
        "file_read",
        json!({ "path": full, "offset": 15_001, "limit": 1 }),
    );
    assert_eq!(part.success().trim_end(), "line 15000 of a long page");
    assert_eq!(
        session.bash(&format!("wc -c < {full}")).success().trim(),
        body.len().to_string()
    );
    // A page that is shown whole is not kept, and a batch shows less.
    let short = session.call(
        "web_fetch",
        json!({ "url": page.url(), "max_length": 1 << 20 }),
    );
    assert_eq!(
        (short.success(), &short.result["metadata"]["spill"]),
        (body.as_str(), &Value::Null)
    );
    session.close(LIMIT);
    let rendered = run(
        world.program("lazaret").args(["audit", "show", "--json"]),
        LIMIT,
    )
    .success();
    let records = rendered
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kept: Vec<_> = records.filter(|record| record["kind"] == "kept").collect();
    let [record] = &kept[..] else {
        panic!("one text was kept: {kept:?}")
    };
    assert_eq!(
        (&record["call"], &record["bytes"]),
        (&answer.result["metadata"]["call"], &spill["bytes"])
    );
    let sum = run(world.host("sha256sum").arg(full), LIMIT).success();
    assert_eq!(sum.split(' ').next(), record["sha256"].as_str());
    assert!(
        full.ends_with(
            record["path"]
                .as_str()
                .unwrap()
                .strip_prefix("central:")
                .unwrap()
        )
    );
    // Where it cannot be kept, the note names no place, and nothing else is different.
    std::fs::rename(world.central.join("outputs"), world.central.join("away")).unwrap();
    world.write(&world.central.join("outputs"), "in the way");
    let mut session = Session::start(dressed(&world, world.lazaret("session")).args([
        "--profile",
        "local",
        "--trust",
        "autonomous",
    ]));
    let answer = session.call("web_fetch", json!({ "url": page.url() }));
    assert!(answer.success().ends_with(" shown=102400 strategy=head]"));
    assert_eq!(answer.result["metadata"]["spill"], Value::Null);
}

place_test!(saved_page_has_no_known_secret);
/// No known secret of a page comes into a file, and a batch keeps the parts that it does not show.
fn saved_page_has_no_known_secret(place: Place) {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let world = World::new(place);
    let body = format!("{}\n{SECRET}\n{}", "x".repeat(3000), "y".repeat(3000));
    let page = Engine::serving(200, "text/plain", body.into_bytes());
    let open = format!(
        "timeout_s = 1\n[profile.local.web]\nprivate = [\"{}\"]\n",
        page.address
    );
    set_policy(&world, &open);
    let mut command = dressed(&world, world.lazaret("session"));
    command.args([
        "--profile",
        "local",
        "--trust",
        "autonomous",
        "--model-profile",
        "compact",
    ]);
    let mut session = Session::start(command.env("PAGE_API_KEY", SECRET));
    let input = json!({ "url": page.url() });
    let part = json!({ "tool_name": "fetch_url", "parameters": input });
    session
        .call("batch", json!({ "invocations": [part, part] }))
        .success();
    let answer = session.call("web_fetch", input);
    let kept: Vec<_> = std::fs::read_dir(world.central.join("outputs"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(kept.len(), 3);
    for file in kept {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let want = format!(
            "{}\n[redacted:PAGE_API_KEY]\n{}",
            "x".repeat(3000),
            "y".repeat(3000)
        );
        assert_eq!(text, want);
    }
    let full = answer.result["metadata"]["spill"]["path"].as_str().unwrap();
    assert!(
        session
            .bash(&format!("cat {full}"))
            .success()
            .contains("[redacted:PAGE_API_KEY]")
    );
}
