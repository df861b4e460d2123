//! The HTTP interface, and the descriptions of the wire.

use super::messages::script;
use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::{LIMIT, Place, World, once_test, run};
use serde_json::{Value, json};

fn server(turns: &Value) -> (World, Sidecar) {
    let world = World::new(Place::any());
    let sidecar = Sidecar::start(&world, turns, &["--trust", "autonomous"]);
    (world, sidecar)
}

once_test!(a_run_over_http_is_its_result_or_its_events);
fn a_run_over_http_is_its_result_or_its_events() {
    let (_world, sidecar) = server(&script(&[
        ("Look.", &[("bash", json!({"command": "echo hello"}))]),
        ("Done.", &[]),
    ]));
    let whole = sidecar.send(
        "POST",
        "/run",
        &json!({"prompt": "x", "modelKey": "script"}),
    );
    assert_eq!(whole.status, 200, "{whole:?}");
    let meta = &whole.json()["_meta"];
    assert_eq!(
        (&whole.json()["text"], &meta["status"]),
        (&json!("Done."), &json!("ended"))
    );
    let status = sidecar.get(&format!("/runs/{}/status", meta["runId"].as_str().unwrap()));
    assert_eq!(&status.json(), meta);
    let stream = sidecar.send("POST", "/run/stream", &json!({"prompt": "x"}));
    assert!(stream.head.contains("text/event-stream"), "{stream:?}");
    let events: Vec<Value> = stream
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        (kinds[0], *kinds.last().unwrap()),
        ("chat:stream-start", "_run_done_"),
        "{kinds:?}"
    );
    assert!(kinds.contains(&"chat:tool-delta"));
    assert_eq!(events.last().unwrap()["data"]["text"], "Done.");
    assert_eq!(
        (&events[0]["step"], &events.last().unwrap()["step"]),
        (&json!(0), &json!(2))
    );
    let world = World::new(Place::any());
    let failing = Sidecar::start(&world, &json!({"turns": []}), &[]);
    let stream = failing.send("POST", "/run/stream", &json!({"prompt": "x"}));
    assert!(stream.body.contains("_run_error_"), "{stream:?}");
}

once_test!(the_descriptions_are_those_of_the_types);
fn the_descriptions_are_those_of_the_types() {
    let (world, sidecar) = server(&script(&[]));
    for (name, option) in [("openapi", "--openapi"), ("asyncapi", "--asyncapi")] {
        let served = sidecar.get(&format!("/{name}.json")).json();
        let mut command = world.program("lazaret");
        let printed: Value =
            serde_json::from_str(&run(command.args(["serve", option]), LIMIT).success()).unwrap();
        assert_eq!(served, printed);
        assert!(served[name].is_string());
    }
    let paths = sidecar.get("/openapi.json").json()["paths"]
        .as_object()
        .unwrap()
        .clone();
    for path in paths.keys() {
        assert_ne!(
            sidecar.get(&path.replace("{id}", "x")).status,
            500,
            "{path}"
        );
    }
}

once_test!(missing_resources_and_invalid_bodies_get_an_error);
fn missing_resources_and_invalid_bodies_get_an_error() {
    let (_world, sidecar) = server(&script(&[]));
    assert_eq!(sidecar.get("/").status, 404);
    assert_eq!(sidecar.get("/conversations/x").status, 404);
    assert_eq!(
        sidecar.get("/conversations").json(),
        json!({"conversations": []})
    );
    let wrong = sidecar.get("/run");
    assert_eq!(wrong.status, 405);
    assert!(wrong.head.contains("allow: post"), "{wrong:?}");
    assert_eq!(sidecar.get("/ws").status, 426);
    for body in [
        json!({}),
        json!([]),
        json!({"prompt": 1}),
        json!({"prompt": ""}),
        json!({"prompt": "x", "other": 1}),
    ] {
        assert_eq!(sidecar.send("POST", "/run", &body).status, 400, "{body}");
    }
    for (body, status) in [
        (r#"{"prompt":"x","prompt":"y"}"#, 400),
        (r#"{"prompt":"x","context":{"a":1,"a":2}}"#, 400),
        (r#"{"prompt":"x"}"#, 200),
    ] {
        let answer = sidecar.raw("POST /run", &sidecar.json_head(), body.as_bytes());
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert_eq!(
            status == 400,
            format!("{answer:?}").contains("duplicate name"),
            "{body}: {answer:?}"
        );
    }
    assert_eq!(
        sidecar.send("POST", "/runs/x/cancel", &json!({})).status,
        404
    );
    assert_eq!(sidecar.get("/models?x=y").status, 400);
    let models = sidecar.get("/models").json();
    assert_eq!(models["models"][0]["supports_tools"], true, "{models}");
}

once_test!(a_key_is_tried_and_is_in_no_answer);
fn a_key_is_tried_and_is_in_no_answer() {
    let key = "sk-a-key-that-is-wrong";
    let refusal = json!({"error": {"type": "authentication_error", "message": format!("invalid x-api-key {key}")}});
    let listed = json!({"data": [{"id": "m", "type": "model"}], "has_more": false});
    let server = ModelServer::start(vec![
        Reply::status(401, &refusal),
        Reply::status(200, &listed),
        Reply::status(500, &json!({})),
    ]);
    let world = World::new(Place::any());
    let mut command = world.lazaret("serve");
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--provider",
        "claude",
        "--base-url",
        &server.url(),
    ]);
    let sidecar = Sidecar::of(&mut command);
    for want in ["invalid", "valid", "unknown"] {
        let answer = sidecar.send("POST", "/keys/validate", &json!({"apiKey": key}));
        assert_eq!(answer.json()["state"], want, "{answer:?}");
        assert!(!answer.body.contains(key), "{answer:?}");
    }
}

once_test!(a_run_without_network_has_no_web_tools);
fn a_run_without_network_has_no_web_tools() {
    let turns = script(&[
        (
            "",
            &[
                ("web_fetch", json!({"url": "https://example.com"})),
                ("bash", json!({"command": "echo ok"})),
            ],
        ),
        ("Done", &[]),
    ]);
    let (_world, sidecar) = server(&turns);
    let stream = sidecar.send(
        "POST",
        "/run/stream",
        &json!({"prompt": "x", "networkAllowed": false}),
    );
    assert!(
        stream.body.contains("\"code\":\"unknown_tool\""),
        "{}",
        stream.body
    );
    assert!(stream.body.contains("ok\\n"), "{}", stream.body);
}
