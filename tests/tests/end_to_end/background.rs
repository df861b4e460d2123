//! Background processes: a number at once, a log, an end.

use lazaret_tests::process::{self, until};
use lazaret_tests::session::Answer;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

#[track_caller]
fn start(session: &mut Session, command: impl Into<Value>) -> (u64, Answer) {
    let answer = session.call(
        "bash",
        json!({"command": command.into(), "background": true}),
    );
    answer.success();
    (
        answer.result["metadata"]["background"].as_u64().unwrap(),
        answer,
    )
}

fn log(session: &mut Session, id: u64) -> String {
    session
        .call("background_log", json!({"id": id}))
        .success()
        .to_owned()
}

/// How a process stands in the list.
fn state(session: &mut Session, id: u64) -> String {
    let list = session.call("background_list", json!({}));
    let processes = list.result["metadata"]["processes"]
        .as_array()
        .unwrap()
        .clone();
    let process = processes.into_iter().find(|process| process["id"] == id);
    process.map_or(String::new(), |process| {
        process["state"].as_str().unwrap().to_owned()
    })
}

place_test!(a_server_runs_on_beside_other_calls_and_its_log_can_be_read);
fn a_server_runs_on_beside_other_calls_and_its_log_can_be_read(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let server = "echo one; echo two >&2; until [ -e stop ]; do sleep 0.05; done; echo bye; exit 3";
    let (id, answer) = start(&mut session, server);
    let file = answer.result["metadata"]["log"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(answer.text().contains(&format!("process {id}")) && answer.text().contains(&file));
    assert!(until(LIMIT, || log(&mut session, id) == "one\ntwo\n"));
    assert_eq!(state(&mut session, id), "alive");
    let part = session.call("background_log", json!({"id": id, "offset": 4, "bytes": 2}));
    assert_eq!(part.success(), "tw");
    assert_eq!(part.result["metadata"]["next"], 6);
    // A call of the foreground leaves it alone, and is swept itself.
    let marker = long_sleep();
    session
        .bash(&format!("setsid sleep {marker} & echo done"))
        .success();
    process::assert_gone(&format!("sleep {marker}"), Duration::ZERO);
    assert_eq!(state(&mut session, id), "alive");
    session
        .call("file_write", json!({"path": "stop", "content": ""}))
        .success();
    assert!(until(LIMIT, || state(&mut session, id) == "exited with code 3"));
    assert_eq!(log(&mut session, id), "one\ntwo\nbye\n");
    assert_eq!(
        session.call("file_read", json!({"path": file})).success(),
        "one\ntwo\nbye\n"
    );
    let list = session.call("background_list", json!({}));
    let usage = &list.result["metadata"]["processes"][0]["usage"];
    assert!(
        usage["wallUs"].as_u64() > Some(0) && usage["stdoutBytes"] == 8,
        "{usage}"
    );
    let ended = session.call("background_kill", json!({"id": id}));
    assert!(
        ended.success().contains("exited with code 3"),
        "{}",
        ended.result
    );
    assert_eq!(ended.result["metadata"]["processes"][0]["exitCode"], 3);
    assert_eq!(
        session.call("background_log", json!({"id": id + 1})).kind(),
        "not_found"
    );
}

place_test!(a_kill_ends_all_of_it_before_it_is_answered);
fn a_kill_ends_all_of_it_before_it_is_answered(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let [killed, kept] = [long_sleep(), long_sleep()].map(|marker| {
        let command = format!("trap '' HUP INT TERM; setsid sleep {marker} & sleep {marker}");
        (start(&mut session, command).0, format!("sleep {marker}"))
    });
    let sleeps = |marker: &str| {
        process::with_marker(marker)
            .iter()
            .filter(|p| p.name == "sleep")
            .count()
    };
    assert!(until(LIMIT, || sleeps(&killed.1) == 2 && sleeps(&kept.1) == 2));
    let answer = session.call("background_kill", json!({"id": killed.0}));
    process::assert_gone(&killed.1, Duration::ZERO);
    assert!(answer.success().ends_with("killed"), "{}", answer.result);
    assert_eq!(sleeps(&kept.1), 2, "it has ended another too");
    assert_eq!(state(&mut session, kept.0), "alive");
    assert!(session.close(LIMIT).success());
    process::assert_gone(&kept.1, LIMIT);
}

place_test!(limits_hold_in_the_background_too);
fn limits_hold_in_the_background_too(place: Place) {
    let world = World::new(place);
    let policy = "version = 1\n[profile.small.limits]\nspill = \"4 KiB\"\nwritten = \"2 MiB\"\nfile_size = \"1 MiB\"\n";
    world.set_policy(policy);
    let mut small = world.configured("session");
    small.args(["--profile", "small"]);
    let mut session = Session::start(&mut small);
    let input = json!({"command": "sleep 100", "background": true, "timeout": 1});
    let timed = session.call("bash", input).result["metadata"]["background"]
        .as_u64()
        .unwrap();
    let (written, _) = start(
        &mut session,
        "while :; do head -c 500000 /dev/zero > part; done",
    );
    let (large, _) = start(&mut session, "exec head -c 2000000 /dev/zero > large");
    let (missing, _) = start(&mut session, json!(["/nowhere"]));
    let (chatty, answer) = start(&mut session, "seq 100000; sleep 100");
    for (id, want) in [
        (timed, "ended by its time limit"),
        (written, "ended by the policy's limit `written`"),
        (large, "ended by the policy's limit `file_size`"),
        (
            missing,
            "not started: No such file or directory (os error 2)",
        ),
    ] {
        assert!(
            until(LIMIT, || state(&mut session, id) != "alive"),
            "{want}"
        );
        assert_eq!(state(&mut session, id), want);
    }
    // The file stops at the policy's cap; the end of the log can be read all the same.
    assert!(until(LIMIT, || log(&mut session, chatty).ends_with("\n100000\n")));
    let file = answer.result["metadata"]["log"].as_str().unwrap();
    assert_eq!(fs::metadata(file).unwrap().len(), 4096);
    assert_eq!(
        session
            .call(
                "background_log",
                json!({"id": chatty, "offset": 0, "bytes": 4})
            )
            .text(),
        "1\n2\n"
    );
    assert_eq!(state(&mut session, chatty), "alive");
}

once_test!(a_single_call_has_no_background);
fn a_single_call_has_no_background() {
    let world = World::new(Place::any());
    let call = run(
        &mut world.lazaret_call("bash", &json!({"command": "true", "background": true})),
        LIMIT,
    );
    assert_eq!(call.code(), 2);
    assert!(
        call.errors().contains("lazaret session"),
        "{}",
        call.errors()
    );
}
