//! Clients and commands that want more than the sandbox, or to keep others from it.

use super::client::{Sandbox, ask, config, execute, fields, wanted};
use lazaret_tests::{LIMIT, Place, World, place_test};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

place_test!(a_cell_does_not_reach_the_ports);
/// A command that could call the sandbox would have its approvals, its limits and its time anew.
fn a_cell_does_not_reach_the_ports(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let ports = [sandbox.legacy, sandbox.rest, sandbox.grpc];
    world.put(
        "reach.py",
        "import socket, sys\n\
         for port in sys.argv[1:]:\n\
         \x20   for address in ('127.0.0.1', '0.0.0.0', 'localhost'):\n\
         \x20       try: socket.create_connection((address, int(port)), 3); print('REACHED', address, port)\n\
         \x20       except OSError as error: print(error)\n",
    );
    let ports = ports.map(|port| port.to_string());
    let script = format!("python3 reach.py {}", ports.join(" "));
    let control = world.on_host(&script).success();
    assert_eq!(control.matches("REACHED").count(), 9, "{control}");
    let got = sandbox.execute(&json!({ "command": script })).json();
    assert_eq!(got["exit_code"], 0, "{got}");
    assert!(
        !got["stdout"].as_str().unwrap().contains("REACHED"),
        "{got}"
    );
}

place_test!(no_page_of_a_browser_is_answered, ordinary_only);
fn no_page_of_a_browser_is_answered(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    let body = br#"{"command":"touch planted"}"#;
    let head = |port: u16, more: (&'static str, &'static str)| {
        [
            ("Host", format!("127.0.0.1:{port}")),
            (more.0, more.1.to_owned()),
        ]
    };
    for more in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Host", "evil.example"),
    ] {
        let lines = head(sandbox.legacy, more);
        let lines: Vec<_> = lines
            .iter()
            .filter(|(name, value)| !(more.0 == "Host" && *name == "Host" && value != more.1))
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let got = ask(sandbox.legacy, "POST /execute", &lines, body);
        assert_eq!(got.status, 403, "{more:?}: {got:?}");
        let got = ask(sandbox.rest, "PUT /v1/files/planted", &lines, b"x");
        assert_eq!(
            (got.status, &got.json()["code"]),
            (403, &json!("PERMISSION_DENIED"))
        );
    }
    assert!(!world.project.join("planted").exists());
    assert_eq!(
        ask(sandbox.legacy, "POST /execute", &[], body).status,
        200,
        "the control"
    );
    assert!(world.project.join("planted").exists());
}

place_test!(a_flood_costs_nobody_else_anything, ordinary_only);
fn a_flood_costs_nobody_else_anything(place: Place) {
    let world = World::new(place);
    let sandbox = Sandbox::start(&world);
    // Connections that say nothing, heads that never end, bodies that never come, and bytes that are no request.
    let mut held: Vec<TcpStream> = Vec::new();
    for port in [sandbox.legacy, sandbox.rest, sandbox.grpc] {
        for opening in [
            &b""[..],
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
            b"PUT /v1/files/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\nx",
            b"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\0\xff\xfe\x16\x03\x01",
        ] {
            // An upload holds one of eight places, so not all of these may be such.
            for _ in 0..7 {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let _ = stream.write_all(opening);
                held.push(stream);
            }
        }
    }
    assert_eq!(sandbox.file("PUT", "f", b"x").status, 204);
    assert_eq!(
        sandbox.execute(&json!({ "command": "true" })).json()["exit_code"],
        0
    );
    let mut rpc = sandbox.rpc();
    let got = rpc.call("Execute", &wanted(&config(&["echo", "x"], &[], None)));
    assert_eq!(fields(&got.messages[0])[0].2, b"x\n");
    // A head that is too long ends its connection.
    let mut long = TcpStream::connect(("127.0.0.1", sandbox.rest)).unwrap();
    long.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = long.write_all(&[&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'x'; 1 << 20]].concat());
    let mut answer = Vec::new();
    let _ = long.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
        "{answer:?}"
    );
    // More calls than the executor takes at once: the others wait, and beyond 256 each is told.
    let statuses: Vec<u16> = thread::scope(|scope| {
        let port = sandbox.legacy;
        let ask = move || execute(port, &json!({ "command": "sleep 0.2" })).status;
        let threads: Vec<_> = (0..200).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    drop(held);
    thread::sleep(Duration::from_millis(10));
    assert_eq!(sandbox.rest("GET /v1/health", b"").status, 200);
}

place_test!(metadata_tells_no_secret, ordinary_only);
fn metadata_tells_no_secret(place: Place) {
    let world = World::new(place);
    let mut command = world.lazaret("sandboxd");
    for (name, value) in [
        ("SANDBOX_ID", "sbx-1"),
        ("SANDBOX_API_TOKEN", "super-secret-value"),
        ("SANDBOX_TLS_CERT", "x"),
        ("SANDBOX_COPY", "a super-secret-value b"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
    ] {
        command.env(name, value);
    }
    let sandbox = Sandbox::of(&mut command);
    let told = sandbox.rest("GET /v1/metadata", b"").json();
    assert_eq!(told, json!({ "env": { "SANDBOX_ID": "sbx-1" } }));
    // Nor does a file, or a command that has found one.
    world.put("copied", "the key is super-secret-value.");
    let got = sandbox.file("GET", "copied", b"");
    assert_eq!(got.status, 403, "{got:?}");
    let got = sandbox
        .execute(&json!({ "command": "cat copied; env" }))
        .text();
    assert!(!got.contains("super-secret"), "{got}");
}
