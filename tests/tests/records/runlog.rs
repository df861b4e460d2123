//! The run log: what was asked and answered, joined with the audit by session and call.

use super::written::{of_kind, records};
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, process, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The ids of a world's runs, oldest first.
fn runs(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.state.join("lazaret/runs"))
        .into_iter()
        .flatten()
        .flatten();
    let mut ids: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    ids.sort();
    ids
}

/// Every line of a run, each of which is JSON.
fn lines(world: &World, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(
        world
            .state
            .join("lazaret/runs")
            .join(run)
            .join("runlog.jsonl"),
    )
    .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn log(world: &World, words: &[&str]) -> lazaret_tests::Finished {
    run(world.program("lazaret").arg("log").args(words), LIMIT)
}

once_test!(each_call_has_its_lines_and_they_join_with_the_audit);
fn each_call_has_its_lines_and_they_join_with_the_audit() {
    let world = World::new(Place::any());
    let mut session = Session::open(&world);
    session.bash("echo hello; exit 3");
    session.call(
        "file_write",
        json!({"path": "a", "content": "x".repeat(5000)}),
    );
    session.call("file_read", json!({"path": "/etc/passwd"}));
    session.call("no_such_tool", json!({}));
    session.call("file_read", json!({"path": "a", "offset": -1}));
    session.close(LIMIT);
    let id = runs(&world).pop().unwrap();
    let lines = lines(&world, &id);
    assert!(
        lines.iter().all(|line| line["ts"].is_f64()
            && line["step"].is_u64()
            && line["payload"].is_object())
    );
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["kind"].as_str().unwrap())
        .collect();
    let expected = [
        "session_start",
        "tool_call",
        "tool_error",
        "tool_call",
        "tool_result",
        "tool_call",
        "security_event",
        "tool_error",
        "tool_call",
        "tool_error",
        "tool_call",
        "tool_error",
        "session_end",
    ];
    assert_eq!(kinds, expected);
    let payload = |kind: &str, step: u64| {
        let line = lines
            .iter()
            .find(|line| line["kind"] == kind && line["step"] == step)
            .unwrap();
        line["payload"].clone()
    };
    // The client's own names for them.
    let ids = [1, 2, 3, 4, 5].map(|step| payload("tool_call", step)["id"].clone());
    assert_eq!(ids, ["call-1", "call-2", "call-3", "call-4", "call-5"]);
    // The text for the model and the record of the error are separate.
    let failed = payload("tool_error", 1);
    assert_eq!(
        (&failed["error"], &failed["result"]),
        (&json!("exit_nonzero"), &json!("hello\n"))
    );
    assert_eq!(failed["metadata"]["exitCode"], 3);
    assert_eq!(
        payload("tool_call", 2)["input"]["content"]
            .as_str()
            .unwrap()
            .chars()
            .take_while(|c| *c == 'x')
            .count(),
        2000
    );
    assert_eq!(payload("tool_result", 2)["metadata"]["bytes"], 5000);
    // A violation is an error and an event.
    assert_eq!(payload("tool_error", 3)["error"], "violation");
    assert_eq!(
        payload("security_event", 3)["event_type"],
        "sandbox_violation"
    );
    // The stage at which it failed.
    let stages = [1, 3, 4, 5].map(|step| payload("tool_error", step)["stage"].clone());
    assert_eq!(stages, ["result", "policy", "validation", "validation"]);
    assert_eq!(payload("session_end", 0)["calls"], 5);
    // The audit's session and numbers.
    let start = payload("session_start", 0);
    let calls = of_kind(&records(&world), "call");
    assert_eq!(calls.len(), 3);
    for call in calls {
        assert_eq!(call["session"], start["session"]);
        let joined = lines
            .iter()
            .find(|line| line["payload"]["call"] == call["call"])
            .unwrap();
        assert_eq!(joined["payload"]["tool"], call["tool"]);
    }
}

once_test!(a_kill_leaves_whole_lines);
fn a_kill_leaves_whole_lines() {
    let world = World::new(Place::any());
    let mut session = Session::open(&world);
    session.bash("echo one");
    for _ in 0..20 {
        session.start_call("bash", json!({"command": "sleep 300"}));
    }
    assert!(process::until(LIMIT, || lines(&world, &runs(&world)[0])
        .len()
        >= 23));
    session.child.kill().unwrap();
    session.child.wait().unwrap();
    let id = runs(&world).pop().unwrap();
    let kinds: Vec<Value> = lines(&world, &id)
        .iter()
        .map(|line| line["kind"].clone())
        .collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "tool_call").count(),
        21
    );
    assert!(!kinds.contains(&json!("session_end")));
    // A line that a death cut in two is passed over.
    let path = world
        .state
        .join("lazaret/runs")
        .join(&id)
        .join("runlog.jsonl");
    fs::write(
        &path,
        [fs::read(&path).unwrap(), b"{\"ts\":1,\"ki".to_vec()].concat(),
    )
    .unwrap();
    assert_eq!(
        log(&world, &["show", &id, "--json"])
            .success()
            .lines()
            .count(),
        kinds.len()
    );
    let list: Value = serde_json::from_str(&log(&world, &["list", "--json"]).success()).unwrap();
    assert_eq!(
        (&list[0]["run"], &list[0]["calls"]),
        (&json!(id), &Value::Null)
    );
}

once_test!(run_and_call_have_logs_unless_they_are_told_not_to);
fn run_and_call_have_logs_unless_they_are_told_not_to() {
    let world = World::new(Place::any());
    world.in_cell("echo out; echo err >&2; exit 4").expect(4);
    run(
        &mut world.lazaret_call("glob", &json!({"pattern": "*.needle"})),
        LIMIT,
    )
    .success();
    let ids = runs(&world);
    assert_eq!(ids.len(), 2);
    let list = log(&world, &["list"]).success();
    assert!(
        list.lines().count() == 2 && list.contains("run ") && list.contains("call "),
        "{list}"
    );
    let [called, ran] = list.lines().collect::<Vec<_>>().try_into().unwrap();
    assert!(
        ran.contains(" exit=4 ") && ran.ends_with("echo out; echo err >&2; exit 4"),
        "{list}"
    );
    assert!(
        called.contains(" exit=- ") && called.ends_with("  glob"),
        "{list}"
    );
    assert!(
        log(&world, &["show", &ids[0]])
            .success()
            .contains("exit_nonzero")
    );
    // Found in whatever case, in one run only.
    let found = log(&world, &["search", "*.NEEDLE", "--json"]).success();
    assert!(
        found.lines().count() >= 1 && found.lines().all(|line| line.contains(&ids[1])),
        "{found}"
    );
    assert_eq!(
        log(&world, &["search", "*.NEEDLE", "--kind", "session_end"]).code(),
        1
    );
    log(&world, &["search", "not in any run"]).expect(1);
    let audited = records(&world).len();
    let mut command = world.lazaret("run");
    run(command.args(["--no-log", "--", "true"]), LIMIT).success();
    assert_eq!(runs(&world), ids);
    assert!(
        process::until(LIMIT, || records(&world).len() == audited + 4),
        "the audit cannot be switched off"
    );
}

once_test!(an_id_leads_nowhere_else);
fn an_id_leads_nowhere_else() {
    let world = World::new(Place::any());
    world.in_cell("true").success();
    let id = runs(&world).pop().unwrap();
    world.write(
        &world.state.join("lazaret/secret/runlog.jsonl"),
        "{\"kind\":\"found\"}\n",
    );
    for id in [
        "../secret",
        "..",
        ".",
        "",
        "/etc",
        &format!("{id}/../../secret"),
        &format!("{id}\n"),
    ] {
        let finished = log(&world, &["show", "--", id]);
        assert_eq!(
            (finished.code(), finished.text()),
            (1, String::new()),
            "{id:?}"
        );
    }
    log(&world, &["show", &id]).success();
}

once_test!(two_hundred_logs_are_kept_besides_those_of_running_calls);
fn two_hundred_logs_are_kept_besides_those_of_running_calls() {
    let world = World::new(Place::any());
    let session = Session::open(&world);
    let live = runs(&world).pop().unwrap();
    for number in 0..210 {
        let folder = world
            .state
            .join(format!("lazaret/runs/30000101-000000-{number:06}-1"));
        world.write(&folder.join("runlog.jsonl"), "{}\n");
    }
    run(
        &mut world.lazaret_call("file_list", &json!({"path": "."})),
        LIMIT,
    )
    .success();
    let kept = runs(&world);
    assert!(kept.contains(&live), "a run that goes on is kept");
    assert!((199..=201).contains(&kept.len()), "{}", kept.len());
    drop(session);
}

place_test!(an_old_run_that_cannot_be_removed_costs_no_later_run_its_log);
/// An obstacle to nothing but its own removal; root could not remove it like this either.
fn an_old_run_that_cannot_be_removed_costs_no_later_run_its_log(place: Place) {
    let world = World::new(place);
    let runs_folder = world.state.join("lazaret/runs");
    let old = |number: u32| format!("20000101-000000-{number:06}-1");
    for number in 0..210 {
        world.write(&runs_folder.join(old(number)).join("runlog.jsonl"), "{}\n");
    }
    // No file to use again; a folder that is not empty without its log; a link, which leads to a file of others.
    let stuck = [0, 2, 3].map(|number| runs_folder.join(old(number)));
    let log = |run: &Path| run.join("runlog.jsonl");
    fs::remove_file(log(&stuck[0])).unwrap();
    world.write(&log(&stuck[0]).join("file"), "x");
    world.write(&stuck[1].join("file"), "x");
    let others = world.put("others", "x");
    fs::remove_file(log(&stuck[2])).unwrap();
    symlink(&others, log(&stuck[2])).unwrap();
    let finished = world.in_cell("echo hello");
    assert_eq!(
        (finished.success().as_str(), finished.errors().as_str()),
        ("hello\n", "")
    );
    let kept = runs(&world);
    assert_eq!(kept.len(), 200);
    assert!(stuck.iter().all(|run| run.exists()), "{kept:?}");
    let lines = lines(&world, kept.last().unwrap());
    assert_eq!(
        (&lines[0]["kind"], &lines[lines.len() - 1]["kind"]),
        (&json!("session_start"), &json!("session_end"))
    );
    assert_eq!(world.get("others"), b"x");
}
