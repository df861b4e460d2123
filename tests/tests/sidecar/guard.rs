//! Who gets in, and who does not: pages of other sites, names that lead here, wrong tokens, and what is too large or too much.

use super::messages::script;
use lazaret_tests::process::{self, until};
use lazaret_tests::sidecar::{Frame, HttpAnswer, Sidecar};
use lazaret_tests::{LIMIT, Place, World, once_test, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

fn server() -> (World, Sidecar) {
    let world = World::new(Place::any());
    let sidecar = Sidecar::start(
        &world,
        &script(&[("Hello.", &[])]),
        &["--allow-origin", "app://studio"],
    );
    (world, sidecar)
}

/// Requests that are refused to strangers: a read, a change, and a WebSocket.
#[track_caller]
fn refused(sidecar: &Sidecar, head: &[String], status: u16) {
    let json = vec!["Content-Type: application/json".to_owned()];
    let answers = [
        sidecar.raw("GET /health", head, b""),
        sidecar.raw("POST /run", &[head, &json].concat(), br#"{"prompt":"x"}"#),
        sidecar.websocket(head).err().expect("no WebSocket"),
    ];
    for answer in answers {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
        assert!(!answer.body.contains(&sidecar.token));
    }
}

fn with(sidecar: &Sidecar, more: &str) -> Vec<String> {
    [sidecar.head(), vec![more.to_owned()]].concat()
}

once_test!(a_page_of_another_site_reaches_nothing);
fn a_page_of_another_site_reaches_nothing() {
    let (_world, sidecar) = server();
    assert_eq!(
        sidecar.raw("GET /health", &sidecar.head(), b"").status,
        200,
        "control"
    );
    for origin in [
        "Origin: https://evil.example",
        "Origin: null",
        "Origin: http://localhost:3000",
        "Origin: https://app://studio",
        "Sec-Fetch-Site: cross-site",
    ] {
        // Even if the page had the token.
        refused(&sidecar, &with(&sidecar, origin), 403);
    }
    let named = with(&sidecar, "Origin: app://studio");
    assert_eq!(sidecar.raw("GET /health", &named, b"").status, 200);
    assert!(sidecar.websocket(&named).is_ok());
    // What a browser asks before a request of another site that is not simple.
    let preflight = [
        &sidecar.head()[..1],
        &["Origin: https://evil.example".into()],
    ]
    .concat();
    assert_eq!(sidecar.raw("OPTIONS /run", &preflight, b"").status, 403);
}

once_test!(a_name_that_leads_here_is_refused);
fn a_name_that_leads_here_is_refused() {
    let (_world, sidecar) = server();
    let token = sidecar.head()[1].clone();
    for host in [
        "rebound.evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
    ] {
        refused(
            &sidecar,
            &[format!("Host: {host}:{}", sidecar.port), token.clone()],
            421,
        );
    }
    refused(
        &sidecar,
        &["Host: 127.0.0.1:1".to_owned(), token.clone()],
        421,
    );
    let localhost = [format!("Host: localhost:{}", sidecar.port), token];
    assert_eq!(
        sidecar.raw("GET /health", &localhost, b"").status,
        200,
        "control"
    );
}

once_test!(without_the_token_there_is_nothing);
fn without_the_token_there_is_nothing() {
    let (_world, sidecar) = server();
    let host = sidecar.head()[0].clone();
    let shorter = &sidecar.token[1..];
    for wrong in [
        "X-Nothing: x".to_owned(),
        "Authorization: Bearer".to_owned(),
        format!("Authorization: Bearer {shorter}"),
        format!("Authorization: Basic {}", sidecar.token),
        format!("Cookie: token={}", sidecar.token),
        format!("Sec-WebSocket-Protocol: lazaret.v1, lazaret.token.{shorter}"),
    ] {
        refused(&sidecar, &[host.clone(), wrong], 401);
    }
    let query = sidecar.raw(
        &format!("GET /health?token={}", sidecar.token),
        std::slice::from_ref(&host),
        b"",
    );
    assert_eq!(query.status, 401, "tokens in addresses end in logs");
    // Where a browser can name only protocols.
    let protocol = format!(
        "Sec-WebSocket-Protocol: lazaret.v1, lazaret.token.{}",
        sidecar.token
    );
    assert!(sidecar.websocket(&[host, protocol]).is_ok());
    let world = World::new(Place::any());
    let again = Sidecar::start(&world, &script(&[]), &[]);
    assert_ne!(again.token, sidecar.token, "each start has its own");
}

once_test!(a_form_is_refused_even_with_the_token);
fn a_form_is_refused_even_with_the_token() {
    let (_world, sidecar) = server();
    for kind in [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "",
    ] {
        let head = with(&sidecar, &format!("Content-Type: {kind}"));
        let answer = sidecar.raw("POST /run", &head, br#"{"prompt":"x"}"#);
        assert_eq!(answer.status, 415, "{kind}: {answer:?}");
    }
    assert_eq!(
        sidecar.send("POST", "/run", &json!({"prompt": "x"})).status,
        200,
        "control"
    );
}

once_test!(oversized_body_is_refused_before_it_is_read);
fn oversized_body_is_refused_before_it_is_read() {
    let (_world, sidecar) = server();
    let head = with(&sidecar, "Content-Type: application/json");
    let large = vec![b' '; (4 << 20) + 1];
    let begin = |length: &str| {
        let mut stream = sidecar.connect();
        let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
        write!(
            stream,
            "POST /run HTTP/1.1\r\n{head}Connection: close\r\n{length}\r\n\r\n"
        )
        .unwrap();
        stream
    };
    // Nothing of the body was sent yet.
    assert_eq!(
        HttpAnswer::read(&mut begin("Content-Length: 99999999999")).status,
        413
    );
    let mut stream = begin("Transfer-Encoding: chunked");
    let _ = write!(stream, "{:x}\r\n", large.len());
    let _ = stream.write_all(&large);
    assert_eq!(HttpAnswer::read(&mut stream).status, 413);
    let exact = [br#"{"prompt":"x"}"#.as_slice(), &large[..(4 << 20) - 14]].concat();
    assert_eq!(
        sidecar.raw("POST /run", &head, &exact).status,
        200,
        "at the limit"
    );
    // A head without end.
    let mut stream = sidecar.connect();
    let _ = stream.write_all(b"GET /health HTTP/1.1\r\n");
    let _ = stream.write_all(format!("X: {}\r\n", "x".repeat(100_000)).as_bytes());
    assert_eq!(HttpAnswer::read(&mut stream).status, 431);
    for (length, status) in [(30_000, 200), (33_000, 431), (45_000, 431)] {
        let head = with(&sidecar, &format!("X: {}", "x".repeat(length)));
        assert_eq!(
            sidecar.raw("GET /health", &head, b"").status,
            status,
            "{length}"
        );
    }
    // A message of a WebSocket.
    let mut client = sidecar.client();
    let _ = client.frame(0x81, &large);
    assert!(client.is_closed(LIMIT));
    assert_eq!(sidecar.get("/health").status, 200);
}

once_test!(flood_gets_a_retry_time_and_harms_nobody_else);
fn flood_gets_a_retry_time_and_harms_nobody_else() {
    let world = World::new(Place::any());
    let sidecar = Sidecar::start(&world, &script(&[("Hello.", &[])]), &["--rate", "2"]);
    let mut client = sidecar.client();
    let wrong = [sidecar.head()[0].clone()];
    let refused: Vec<_> = (0..40)
        .map(|_| sidecar.raw("GET /health", &wrong, b""))
        .collect();
    let late = refused
        .iter()
        .find(|answer| answer.status == 429)
        .expect("too many");
    assert!(late.head.contains("retry-after: "), "{late:?}");
    assert!(
        refused
            .iter()
            .all(|answer| matches!(answer.status, 401 | 429))
    );
    // Those who have the token have a measure of their own.
    assert_eq!(sidecar.get("/health").status, 200);
    let mine: Vec<_> = (0..40).map(|_| sidecar.get("/health").status).collect();
    assert!(
        mine.contains(&429) && mine.iter().all(|status| matches!(status, 200 | 429)),
        "{mine:?}"
    );
    // A client that floods its WebSocket is read more slowly, and loses nothing.
    for number in 0..200 {
        client.text(
            &json!({"type": "x", "requestId": number.to_string(), "payload": {}}).to_string(),
        );
    }
    client.say("chat:send", json!({"content": "x"}));
    assert!(!client.to_end().is_empty());
}

once_test!(half_a_request_does_not_stay);
fn half_a_request_does_not_stay() {
    let (_world, sidecar) = server();
    let mut stream = sidecar.connect();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: 127.0")
        .unwrap();
    let begun = Instant::now();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(begun.elapsed() < LIMIT, "it stays open");
}

once_test!(no_id_leads_out_of_its_place);
fn no_id_leads_out_of_its_place() {
    let (_world, sidecar) = server();
    for path in [
        "/runs/..%2f..%2fetc/status",
        "/runs/../../etc/passwd/status",
        "/runs/%00/status",
        "/runs//status",
        "/runs/none/status",
        "/../../etc/passwd",
        "//etc/passwd",
    ] {
        assert_eq!(sidecar.get(path).status, 404, "{path}");
    }
    let mut client = sidecar.client();
    for id in ["../x", "..", "a/b", &"x".repeat(129)] {
        client.say("chat:send", json!({"content": "x", "conversationId": id}));
        assert_eq!(
            client.next_of("request:error")["code"],
            "invalid_request",
            "{id}"
        );
    }
}

once_test!(no_answer_repeats_a_known_secret);
fn no_answer_repeats_a_known_secret() {
    let world = World::new(Place::any());
    let secret = "Sup3rS3cretValue-XyZ";
    let answers = |known: bool| {
        let mut command = Sidecar::command(&world, &script(&[("Hello.", &[])]));
        if known {
            command.env("X_TOKEN", secret);
        }
        let sidecar = Sidecar::of(&mut command);
        let mut texts = vec![
            sidecar.get(&format!("/conversations/{secret}")).body,
            sidecar.get(&format!("/models?provider={secret}")).body,
            sidecar.get(&format!("/runs/{secret}/status")).body,
            sidecar
                .send("POST", "/run", &json!({"prompt": "x", "provider": secret}))
                .body,
            sidecar
                .send(
                    "POST",
                    "/run",
                    &json!({"prompt": "x", "conversationId": secret}),
                )
                .body,
            sidecar
                .send("POST", "/keys/validate", &json!({"provider": secret}))
                .body,
            sidecar.get("/conversations").body,
        ];
        let mut client = sidecar.client();
        client.text(&json!({"type": secret, "requestId": secret, "payload": {}}).to_string());
        texts.push(client.next_of("request:error").to_string());
        texts
    };
    let shows = |texts: &[String]| texts.iter().filter(|text| text.contains(secret)).count();
    let (control, known) = (answers(false), answers(true));
    assert!(shows(&control) >= 7, "{control:?}");
    assert_eq!(shows(&known), 0, "{known:?}");
    // A key that a client brings is one from then on, whatever the provider needs.
    let sidecar = Sidecar::start(&world, &script(&[(secret, &[])]), &[]);
    let told = sidecar.send("POST", "/run", &json!({"prompt": "x", "apiKey": secret}));
    assert!(
        told.status == 200 && !told.body.contains(secret),
        "{told:?}"
    );
}

once_test!(a_name_in_both_ways_is_refused);
fn a_name_in_both_ways_is_refused() {
    let (_world, sidecar) = server();
    for body in [
        json!({"prompt": "x", "conversationId": "x", "conversation_id": "y"}),
        json!(["x"]),
    ] {
        assert_eq!(sidecar.send("POST", "/run", &body).status, 400, "{body}");
    }
}

once_test!(another_address_needs_a_flag_that_cannot_be_missed);
fn another_address_needs_a_flag_that_cannot_be_missed() {
    let world = World::new(Place::any());
    let start = |more: &[&str]| {
        let mut command = world.lazaret("serve");
        command
            .args(["--provider", "mock", "--listen", "0.0.0.0:0"])
            .args(more);
        command
    };
    let refused = run(&mut start(&[]), LIMIT);
    refused.expect(2);
    assert!(
        refused.errors().contains("--expose-to-network"),
        "{}",
        refused.errors()
    );
    let sidecar = Sidecar::of(&mut start(&["--expose-to-network"]));
    assert_eq!(sidecar.get("/health").status, 200);
    let named = [
        format!("Host: evil.example:{}", sidecar.port),
        sidecar.head()[1].clone(),
    ];
    assert_eq!(sidecar.raw("GET /health", &named, b"").status, 421);
}

once_test!(a_unix_socket_is_for_this_user_alone);
fn a_unix_socket_is_for_this_user_alone() {
    let world = World::new(Place::any());
    let folder = world.home.join("run");
    world.make_folder(&folder);
    let path = folder.join("lazaret.sock");
    let start = || {
        let mut command = world.lazaret("serve");
        command.args(["--provider", "mock", "--unix"]).arg(&path);
        Sidecar::of(&mut command)
    };
    let sidecar = start();
    assert_eq!(sidecar.ready["socket"], json!(path));
    assert!(sidecar.ready["address"].is_null(), "no address besides");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let ask = |token: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(
            stream,
            "GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask(&sidecar.token).starts_with("HTTP/1.1 200"));
    assert!(ask("x").starts_with("HTTP/1.1 401"));
    // One that nobody listens on any more is in nobody's way.
    sidecar.end().success();
    start().end().success();
}

once_test!(a_unix_socket_goes_with_its_server);
/// However the server ends, what it leaves is in nobody's way, and what others put there since is left alone.
fn a_unix_socket_goes_with_its_server() {
    let world = World::new(Place::any());
    let path = world.home.join("run/lazaret.sock");
    world.make_folder(path.parent().unwrap());
    let start = || {
        let mut command = world.lazaret("serve");
        command.args(["--provider", "mock", "--unix"]).arg(&path);
        Sidecar::of(&mut command)
    };
    start().end().success();
    assert!(until(LIMIT, || !path.exists()), "the end of its input");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let sidecar = start();
        kill(Pid::from_raw(sidecar.running.pid()), signal).unwrap();
        sidecar.running.finish(LIMIT).expect(128 + signal as i32);
        assert!(until(LIMIT, || !path.exists()), "{signal}");
    }
    let sidecar = start();
    std::fs::remove_file(&path).unwrap();
    let below = process::below(sidecar.running.pid());
    let _other = UnixListener::bind(&path).unwrap();
    sidecar.end().success();
    assert_eq!(process::left_after(&below, LIMIT), []);
    assert!(path.exists(), "another one's socket");
}

once_test!(a_place_that_is_taken_has_a_code_of_its_own);
fn a_place_that_is_taken_has_a_code_of_its_own() {
    let world = World::new(Place::any());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = world.home.join("run/taken.sock");
    world.make_folder(socket.parent().unwrap());
    let _listener = UnixListener::bind(&socket).unwrap();
    world.own(&socket);
    let address = taken.local_addr().unwrap().to_string();
    for (option, place) in [
        ("--listen", address.clone()),
        ("--unix", socket.display().to_string()),
    ] {
        let mut command = world.lazaret("serve");
        let refused = run(command.args(["--provider", "mock", option, &place]), LIMIT);
        refused.expect(125);
        assert!(refused.errors().contains(&place), "{}", refused.errors());
    }
    let other = socket.with_file_name("other.sock");
    let mut command = world.lazaret("serve");
    command
        .args(["--provider", "mock", "--listen", &address, "--unix"])
        .arg(&other);
    run(&mut command, LIMIT).expect(125);
    assert!(
        !other.exists(),
        "where one of two cannot be had, nothing is left"
    );
}

once_test!(an_origin_that_no_page_has_is_refused_at_the_start);
/// `*` and what no browser sends as an Origin would only seem to let somebody in.
fn an_origin_that_no_page_has_is_refused_at_the_start() {
    let world = World::new(Place::any());
    let serve = |origin: &str| {
        let mut command = Sidecar::command(&world, &script(&[]));
        command.args(["--allow-origin", origin]);
        command
    };
    for origin in [
        "*",
        "x",
        "null",
        "http://a/",
        "http://*.example",
        "HTTP://a",
        "http://a:80",
        "http://u@a",
    ] {
        let refused = run(&mut serve(origin), LIMIT);
        refused.expect(2);
        assert!(
            refused.errors().contains("--allow-origin"),
            "{origin}: {}",
            refused.errors()
        );
    }
    let sidecar = Sidecar::of(&mut serve("http://localhost:5173"));
    let head = with(&sidecar, "Origin: http://localhost:5173");
    assert_eq!(sidecar.raw("GET /health", &head, b"").status, 200);
}

once_test!(a_wrong_field_has_its_own_name);
fn a_wrong_field_has_its_own_name() {
    let (_world, sidecar) = server();
    let answer = sidecar.send("POST", "/run", &json!({"prompt": " "}));
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("prompt: 1 to"), "{}", answer.body);
    let mut client = sidecar.client();
    client.say("chat:send", json!({"content": " "}));
    assert!(
        client.next_of("request:error")["message"]
            .as_str()
            .unwrap()
            .contains("content: 1 to")
    );
    for wrong in [json!("always"), json!(1)] {
        client.say("chat:tool-approve", json!({"toolId": "t", "answer": wrong}));
        let message = client.next_of("request:error")["message"].to_string();
        for part in ["answer", "once", "session", "no", "no_and_stop"] {
            assert!(message.contains(part), "{message}");
        }
    }
    client.say(
        "chat:tool-approve",
        json!({"toolId": "t", "answer": "once", "approved": true}),
    );
    let message = client.next_of("request:error")["message"].to_string();
    assert!(message.contains("only one of them"), "{message}");
}

once_test!(no_bytes_of_a_client_end_the_server);
fn no_bytes_of_a_client_end_the_server() {
    let (_world, sidecar) = server();
    let texts = [
        "",
        "{",
        "[]",
        "null",
        "\u{0}",
        r#"{"type":1}"#,
        r#"{"type":"chat:send"}"#,
        r#"{"type":"chat:send","payload":[]}"#,
    ];
    let mut client = sidecar.client();
    for text in texts
        .iter()
        .copied()
        .chain([&*"[".repeat(100_000), &*"{\"a\":".repeat(100_000)])
    {
        client.text(text);
        assert_eq!(
            client.next_message()["type"],
            "request:error",
            "{:.20}",
            text
        );
    }
    let _ = client.frame(0x82, b"\xff\xfe");
    assert_eq!(client.next_message()["type"], "request:error");
    // Text that is none, an answer to nothing, frames that may not be, ends in the middle.
    for (first, bytes) in [
        (0x81, &b"\xff\xfe"[..]),
        (0xf1, b"x"),
        (0x83, b"x"),
        (0x89, &[b'x'; 200]),
        (0x80, b"x"),
    ] {
        let mut client = sidecar.client();
        let _ = client.frame(first, bytes);
        assert!(client.is_closed(LIMIT), "{first:x}");
    }
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0",
    ] {
        let mut stream = sidecar.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    let mut client = sidecar.client();
    client.say("chat:send", json!({"content": "x"}));
    assert!(matches!(client.read(LIMIT), Ok(Frame::Message(_))));
    assert_eq!(sidecar.get("/health").status, 200);
}

once_test!(the_page_is_the_same_for_everybody_and_all_else_needs_the_token);
fn the_page_is_the_same_for_everybody_and_all_else_needs_the_token() {
    let world = World::new(Place::any());
    let turns = script(&[("Hello.", &[])]);
    let without = Sidecar::start(&world, &turns, &[]);
    assert_eq!(
        without.get("/").status,
        404,
        "there is no page that was not asked for"
    );
    assert!(without.ready["page"].is_null());
    let sidecar = Sidecar::start(&world, &turns, &["--ui"]);
    let address = sidecar.ready["page"].as_str().unwrap();
    assert_eq!(
        address,
        format!("http://127.0.0.1:{}/#token={}", sidecar.port, sidecar.token)
    );
    let host = sidecar.head()[..1].to_vec();
    for path in [
        "/",
        "/console.js",
        "/connection.js",
        "/console.css",
        "/icon.svg",
    ] {
        let answer = sidecar.raw(&format!("GET {path}"), &host, b"");
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty() && !answer.body.contains(&sidecar.token));
        for header in [
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
        ] {
            assert!(
                answer.head.contains(header),
                "{path}: {header} in {answer:?}"
            );
        }
        for (head, status) in [
            ("Origin: https://evil.example".to_owned(), 403),
            ("Sec-Fetch-Site: cross-site".to_owned(), 403),
        ] {
            let head = [host.clone(), vec![head]].concat();
            assert_eq!(
                sidecar.raw(&format!("GET {path}"), &head, b"").status,
                status
            );
        }
        let rebound = [format!("Host: rebound.evil.example:{}", sidecar.port)];
        assert_eq!(
            sidecar.raw(&format!("GET {path}"), &rebound, b"").status,
            421
        );
        assert_eq!(sidecar.raw(&format!("POST {path}"), &host, b"").status, 405);
    }
    refused(&sidecar, &host, 401);
    let own = format!("Origin: http://127.0.0.1:{}", sidecar.port);
    refused(&sidecar, &[host[0].clone(), own.clone()], 401);
    refused(
        &sidecar,
        &with(
            &sidecar,
            &format!("Origin: http://localhost:{}", sidecar.port),
        ),
        403,
    );
    assert!(
        sidecar.websocket(&with(&sidecar, &own)).is_ok(),
        "the page itself is served"
    );
    refused(
        &without,
        &with(
            &without,
            &format!("Origin: http://127.0.0.1:{}", without.port),
        ),
        403,
    );
}
