//! Read before edit, history and undo, as a person and as a model meet them.

use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// `lazaret COMMAND --json ARGUMENTS`, and its exit code.
fn lazaret(world: &World, command: &str, arguments: &[&str]) -> (i32, Value) {
    let finished = run(world.lazaret(command).arg("--json").args(arguments), LIMIT);
    (
        finished.code(),
        serde_json::from_str(&finished.text()).unwrap_or_default(),
    )
}

fn call(world: &World, tool: &str, input: &Value) -> Value {
    let (code, result) = lazaret(world, "call", &[tool, &input.to_string()]);
    assert_eq!(code, 0, "{tool} {input}: {result}");
    result
}

once_test!(a_session_reads_before_it_edits);
fn a_session_reads_before_it_edits() {
    let world = World::new(Place::any());
    world.put("file", "theirs");
    let mut session = Session::open(&world);
    let edit = json!({"path": "file", "edits": [{"old": "theirs", "new": "mine"}]});
    let write = json!({"path": "file", "content": "mine"});
    for (tool, input) in [("file_edit", &edit), ("file_write", &write)] {
        let unread = session.call(tool, input.clone());
        assert_eq!(unread.kind(), "invalid_input");
        assert!(
            unread.text().contains("has not been read"),
            "{}",
            unread.result
        );
    }
    session.call("file_read", json!({"path": "file"})).success();
    session.bash("echo -n 'theirs again' > file").success();
    for (tool, input) in [("file_edit", &edit), ("file_write", &write)] {
        let stale = session.call(tool, input.clone());
        assert_eq!(stale.kind(), "invalid_input");
        assert!(
            stale.text().contains("modified since the last read"),
            "{}",
            stale.result
        );
    }
    assert_eq!(world.get("file"), b"theirs again");
    session
        .call(
            "file_read",
            json!({"path": "file", "offset": 1, "limit": 1}),
        )
        .success();
    session.call("file_edit", edit).success();
    session.call("file_write", write).success();
    assert_eq!(world.get("file"), b"mine");
}

place_test!(a_session_lists_its_changes_and_takes_one_back);
/// By ops of the lines, with the names that another agent's model uses.
fn a_session_lists_its_changes_and_takes_one_back(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session
        .call("Write", json!({"file_path": "a", "content": "one"}))
        .success();
    session
        .call(
            "Edit",
            json!({"file_path": "a", "old_string": "one", "new_string": "two"}),
        )
        .success();
    let mut ask = |line: Value| {
        session.send(&line);
        session.answer_within(line["id"].as_str().unwrap(), LIMIT)
    };
    let listed = ask(json!({"id": "h", "history": true, "limit": 5}));
    let changes = listed.result["metadata"]["changes"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(
        changes
            .iter()
            .map(|change| &change["path"])
            .collect::<Vec<_>>(),
        ["a", "a"]
    );
    let undo = |id: &str, change: &Value, path: &str| json!({"id": id, "op": "undo", "undo": change["number"], "path": path});
    assert_eq!(
        ask(undo("u1", &changes[1], "a")).kind(),
        "invalid_input",
        "the edit came after it"
    );
    assert_eq!(
        ask(undo("u2", &changes[0], "b")).kind(),
        "invalid_input",
        "it was to another file"
    );
    ask(undo("u3", &changes[0], "a")).success();
    assert_eq!(world.get("a"), b"one");
    assert_eq!(
        ask(json!({"id": "u4", "undo": 1, "path": "/etc/passwd"})).kind(),
        "violation"
    );
    session.send(&json!({"id": "u5", "undo": 1, "path": "../x"}));
    assert_eq!(session.answer_within("u5", LIMIT).kind(), "invalid_input");
}

place_test!(each_change_of_a_file_tool_is_undone_by_its_number);
fn each_change_of_a_file_tool_is_undone_by_its_number(place: Place) {
    let world = World::new(place);
    let script = world.put_program("script", "old");
    let written = call(
        &world,
        "file_write",
        &json!({"path": "script", "content": "new"}),
    );
    let edits = json!([{"old": "new", "new": "newer"}]);
    let edited = call(
        &world,
        "file_edit",
        &json!({"path": "script", "edits": edits}),
    );
    let made = call(
        &world,
        "file_write",
        &json!({"path": "dir/made", "content": "x"}),
    );
    let number = |result: &Value| result["metadata"]["change"].as_u64().unwrap().to_string();
    let (first, second, third) = (number(&written), number(&edited), number(&made));
    let (code, history) = lazaret(&world, "history", &[]);
    let changes = history["metadata"]["changes"].as_array().unwrap();
    assert_eq!((code, changes.len()), (0, 3), "{history}");
    assert_eq!(changes[0]["path"], "dir/made");
    assert_eq!(changes[0]["before"], Value::Null);
    assert_eq!(changes[1]["before"], changes[2]["after"]);
    let undo = |change: &str| lazaret(&world, "undo", &[change]);
    assert_eq!(undo(&first).0, 2, "the edit came after it");
    let said = run(world.lazaret("undo").arg(&first), LIMIT);
    for way in [
        format!("later changes of the file: {second};"),
        format!("`lazaret undo {first} --force`"),
    ] {
        assert!(said.errors().contains(&way), "{}", said.errors());
    }
    assert_eq!(undo(&second).0, 0);
    assert_eq!(world.get("script"), b"new");
    assert_eq!(undo(&first).0, 0);
    assert_eq!(world.get("script"), b"old");
    assert_eq!(
        fs::metadata(&script).unwrap().permissions().mode() & 0o777,
        0o755
    );
    let (code, removed) = undo(&third);
    assert_eq!(
        (code, world.project.join("dir/made").exists()),
        (0, false),
        "{removed}"
    );
    assert_eq!(undo(&number(&removed)).0, 0, "an undo is a change");
    assert_eq!(world.get("dir/made"), b"x");
    // What others have done since stays, unless it shall not.
    world.put("script", "theirs");
    let (code, refused) = undo(&first);
    assert_eq!(code, 2, "{refused}");
    assert_eq!(world.get("script"), b"theirs");
    assert_eq!(lazaret(&world, "undo", &[&first, "--force"]).0, 0);
    assert_eq!(world.get("script"), b"old");
    assert_eq!(undo("999").0, 1);
    let history = run(&mut world.lazaret("history"), LIMIT).success();
    assert_eq!(history.lines().count(), 8, "{history}");
    assert!(
        history
            .lines()
            .all(|line| line.contains("script") || line.contains("dir/made"))
    );
}

place_test!(a_call_is_undone_by_the_name_that_the_records_have);
/// A call is named as the records name it: the audit, the run log, the result and the session's first line agree.
fn a_call_is_undone_by_the_name_that_the_records_have(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let id = session.ready["id"].as_str().unwrap().to_owned();
    let write = |content: &str| json!({"path": "a", "content": content});
    let invocations = json!([
        {"tool": "file_write", "input": {"path": "b", "content": "first"}},
        {"tool": "file_write", "input": {"path": "b", "content": "second"}},
        {"tool": "file_write", "input": {"path": "c", "content": "third"}},
    ]);
    let made = session.call("file_write", write("one"));
    let made = made.result["metadata"]["call"].as_u64().unwrap();
    let changed = session.call("file_write", write("two"));
    let changed = changed.result["metadata"]["call"].as_u64().unwrap();
    let batch = session.call("batch", json!({"invocations": invocations}));
    let batch: Vec<String> = batch.result["metadata"]["invocations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| format!("{id}:{}", call["metadata"]["call"]))
        .collect();
    session.close(LIMIT);
    // The records of both programs, and the history.
    let (_, history) = lazaret(&world, "history", &[]);
    let newest = &history["metadata"]["changes"][4];
    assert_eq!(
        (&newest["session"], &newest["call"]),
        (&json!(id), &json!(made)),
        "{history}"
    );
    let audit = run(
        world.program("lazaret").args(["audit", "show", "--json"]),
        LIMIT,
    )
    .success();
    let audit = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let named = |record: &Value| record["session"] == id.as_str() && record["call"] == made;
    let record = audit
        .into_iter()
        .find(|record| record["kind"] == "call" && named(record))
        .unwrap();
    assert_eq!(
        (&record["tool"], &record["path"]),
        (&json!("file_write"), &json!("a"))
    );
    let listed = run(&mut world.lazaret("history"), LIMIT).success();
    let short = format!("{}:{made}", &id[..8]);
    assert!(listed.lines().last().unwrap().contains(&short), "{listed}");
    // A batch is its calls, and the order in which they are named does not matter.
    let words: Vec<&str> = batch.iter().map(String::as_str).collect();
    let (_, missing) = lazaret(&world, "undo", &[words[0], &format!("{id}:99999")]);
    assert_eq!(
        missing["error"]["code"], "not_found",
        "nothing is undone where one is not there"
    );
    assert_eq!(world.get("b"), b"second");
    let done = run(world.lazaret("undo").arg("--json").args(&words), LIMIT).success();
    assert_eq!(done.lines().count(), 3, "{done}");
    assert!(!world.project.join("b").exists() && !world.project.join("c").exists());
    assert_eq!(
        lazaret(&world, "undo", &[&format!("{}:{changed}", &id[..4])]).0,
        0
    );
    assert_eq!(world.get("a"), b"one");
    // The first that is not undone ends it: what is older stays.
    world.put("a", "theirs");
    let (first, second) = (format!("{id}:{made}"), format!("{id}:{changed}"));
    assert_eq!(
        run(world.lazaret("undo").args([&first, &second]), LIMIT).code(),
        2
    );
    assert_eq!(world.get("a"), b"theirs");
    // An argument that is neither is refused with both forms; and a call that changed nothing has nothing to undo.
    let wrong = run(world.lazaret("undo").arg("abc"), LIMIT);
    assert_eq!(wrong.code(), 2);
    assert!(
        wrong.errors().contains("SESSION:NUMBER"),
        "{}",
        wrong.errors()
    );
    assert_eq!(lazaret(&world, "undo", &["0000:1"]).0, 1);
}

once_test!(a_profile_that_only_reads_undoes_nothing_and_a_small_budget_keeps_little);
fn a_profile_that_only_reads_undoes_nothing_and_a_small_budget_keeps_little() {
    let world = World::new(Place::any());
    let policy = "version = 1\n[profile.small.limits]\nundo = \"64 KiB\"\n";
    world.set_policy(policy);
    world.put("file", "old");
    let written = call(
        &world,
        "file_write",
        &json!({"path": "file", "content": "new"}),
    );
    let change = written["metadata"]["change"].to_string();
    assert_eq!(
        lazaret(&world, "undo", &[&change, "--profile", "read-only"]).0,
        126
    );
    assert_eq!(world.get("file"), b"new");
    let mut small = world.configured("session");
    small.args(["--profile", "small"]);
    let mut session = Session::start(&mut small);
    for round in 0..20 {
        let path = format!("f{round}");
        world.put(&path, format!("{round}").repeat(6000));
        session.call("file_read", json!({"path": path})).success();
        let kept = session.call("file_write", json!({"path": path, "content": "x"}));
        assert!(
            kept.result["metadata"]["change"].is_u64(),
            "{}",
            kept.result
        );
    }
    world.put("large", "x".repeat(70_000));
    session
        .call("file_read", json!({"path": "large"}))
        .success();
    let large = session.call("file_write", json!({"path": "large", "content": "x"}));
    assert_eq!(large.result["metadata"]["change"], Value::Null);
    assert!(
        large.success().ends_with("(this cannot be undone)"),
        "{}",
        large.text()
    );
    let store = world.central.join(".lazaret/undo");
    let used: u64 = ["changes", "objects"]
        .iter()
        .flat_map(|folder| fs::read_dir(store.join(folder)).unwrap())
        .map(|entry| entry.unwrap().metadata().unwrap().len() + 4096)
        .sum();
    assert!(used <= 64 << 10, "{used} bytes");
    assert_eq!(
        lazaret(&world, "undo", &[&change]).0,
        1,
        "the oldest was dropped"
    );
}
