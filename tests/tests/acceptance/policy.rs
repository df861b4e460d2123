//! Scopes, trust and rules, and what `lazaret policy` prints about them.

use broker_protocol::{
    Bash, Effect, Ended, ErrorKind, FileEdit, FileList, FileRead, FileWrite, FromBroker, Glob,
    Grep, Open, Outcome, Permission, Request, Scope, Tier, ToBroker, Zone, ZonePath, limit,
};
use lazaret_tests::process::{self, until};
use lazaret_tests::wire::{opening, shell};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Broker, LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

pub const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/matrix.txt");

/// An input that each tool takes. What would change something makes a file in the project.
pub fn example(tool: &str) -> Value {
    match tool {
        "bash" => json!({ "command": "touch bash" }),
        "file_read" | "view_image" => json!({ "path": "absent" }),
        "file_write" => json!({ "path": "written", "content": "x" }),
        "file_edit" => json!({ "path": "absent", "edits": [{ "old": "a", "new": "b" }] }),
        "glob" | "grep" => json!({ "pattern": "x" }),
        "background_log" | "background_kill" => json!({ "id": 99 }),
        "batch" => json!({ "invocations": [{ "tool": "thinking", "input": { "thought": "x" } }] }),
        "todo_write" => json!({ "todos": [{ "content": "x", "status": "pending" }] }),
        "memory" => json!({ "action": "list" }),
        "goal_create" | "checkpoint" => json!({ "description": "x" }),
        "goal_switch" => json!({ "action": "pause" }),
        "goal_complete" | "finish_task" => json!({ "summary": "x" }),
        "thinking" => json!({ "thought": "x" }),
        "run_tests" => json!({ "framework": "cargo" }),
        "subagent" => json!({ "question": "x" }),
        "web_search" => json!({ "query": "x" }),
        // Nobody may go there, which is found after the executor's leave.
        "web_fetch" => json!({ "url": "http://127.0.0.1:9/" }),
        "file_list" | "background_list" | "todo_read" | "goal_list" | "read_reasoning"
        | "trigger_hot_swap" => {
            json!({})
        }
        other => panic!("no example of {other}: add one"),
    }
}

/// The names that `lazaret tools` lists with these words after it.
fn tools(world: &World, words: &[&str]) -> BTreeSet<String> {
    let listed = run(
        world
            .program("lazaret")
            .args(["tools", "--json"])
            .args(words),
        LIMIT,
    )
    .success();
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    listed
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

once_test!(without_a_scope_the_core_tools_are_there);
fn without_a_scope_the_core_tools_are_there() {
    let world = World::new(Place::any());
    let all = tools(&world, &[]);
    assert_eq!(tools(&world, &["--scope", "none"]), all);
    assert!(
        all.is_superset(&names(&["file_read", "file_write", "bash", "web_search"])),
        "{all:?}"
    );
    // And the executor lets each of them be called.
    let mut session = Session::start(world.lazaret("session").args(["--scope", "none"]));
    session
        .call("file_write", json!({ "path": "a", "content": "text" }))
        .success();
    assert_eq!(
        session.call("file_read", json!({ "path": "a" })).success(),
        "text"
    );
    assert_eq!(session.bash("cat a").success(), "text");
    // No engine is set up, which is found after the executor's leave.
    assert_eq!(
        session.call("web_search", json!({ "query": "q" })).kind(),
        "io"
    );
}

once_test!(a_scope_of_two_tools_shows_two);
fn a_scope_of_two_tools_shows_two() {
    let world = World::new(Place::any());
    let text = "tool_permissions:\n  file_read: { allowed: true }\n  web_search: { allowed: true }\n  bash: { allowed: false }\n";
    let yaml = world.put("scope.yaml", text);
    let toml =
        "[tool_permissions]\nfile_read = { allowed = true }\nweb_search = { allowed = true }\n";
    let toml = world.put("scope.toml", toml);
    let two: BTreeSet<String> = names(&["file_read", "web_search"]);
    let want: BTreeSet<String> = tools(&world, &[]).intersection(&two).cloned().collect();
    assert!(want.contains("file_read"));
    for file in [yaml, toml] {
        assert_eq!(tools(&world, &["--scope", file.to_str().unwrap()]), want);
    }
    // The executor holds a client to them that does not hold itself.
    let both = ["file_read", "web_search"].map(|tool| permission(tool, &[]));
    let mut broker = narrowed(&world, both.into());
    let search = || Request::Effect(Effect::WebSearch { query: "q".into() });
    let fetch = Request::Effect(Effect::WebFetch {
        url: "https://example.org/".into(),
    });
    for (request, want) in [
        (read("scope.yaml"), "ok"),
        (search(), "granted"),
        (fetch, "scope:web_fetch"),
        (write("b"), "scope:file_write"),
        (Request::Bash(shell("true")), "scope:bash"),
    ] {
        assert_eq!(
            verdict_of(&mut broker, request.clone()),
            want,
            "{request:?}"
        );
    }
}

once_test!(an_empty_scope_has_the_safe_tools_only);
fn an_empty_scope_has_the_safe_tools_only() {
    let world = World::new(Place::any());
    let two: BTreeSet<String> = names(&["file_read", "web_search"]);
    let want: BTreeSet<String> = tools(&world, &[]).intersection(&two).cloned().collect();
    for text in ["", "tool_permissions: {}\n"] {
        let file = world.put("scope.yaml", text);
        assert_eq!(
            tools(&world, &["--scope", file.to_str().unwrap()]),
            want,
            "{text:?}"
        );
        // And the broker agrees.
        let mut call = world.lazaret("call");
        call.arg("--scope")
            .arg(&file)
            .args(["bash", r#"{"command":"touch ran"}"#]);
        run(&mut call, LIMIT).expect(126);
        assert!(!world.project.join("ran").exists());
    }
}

place_test!(a_tool_outside_the_scope_is_refused_and_nothing_runs);
fn a_tool_outside_the_scope_is_refused_and_nothing_runs(place: Place) {
    let world = World::new(place);
    let file = world.put(
        "scope.yaml",
        "tool_permissions:\n  file_read: { allowed: true }\n",
    );
    world.put("a", "text");
    let mut session = Session::start(world.lazaret("session").arg("--scope").arg(file));
    let refused = session.call("bash", json!({ "command": "touch ran" }));
    assert_eq!(refused.kind(), "denied_policy");
    assert!(
        refused
            .result
            .to_string()
            .contains("is not permitted in the scope"),
        "{}",
        refused.result
    );
    assert!(!world.project.join("ran").exists());
    assert!(
        session
            .call("file_read", json!({ "path": "a" }))
            .success()
            .contains("text")
    );
    // The control: without the scope it runs.
    let mut open = Session::open(&world);
    open.call("bash", json!({ "command": "touch ran" }))
        .success();
    assert!(world.project.join("ran").exists());
}

fn permission(tool: &str, paths: &[&str]) -> Permission {
    let paths = paths.iter().map(ToString::to_string).collect();
    Permission {
        tool: tool.into(),
        allowed: true,
        paths,
        timeout_s: None,
        network: tool.starts_with("web_"),
    }
}

once_test!(without_the_network_a_scope_has_no_web_tools);
/// A scope without the network has no web tools, in the client's list and in the executor.
fn without_the_network_a_scope_has_no_web_tools() {
    let world = World::new(Place::any());
    let text = "tool_permissions:\n  web_search: { allowed: true, network: false }\n  web_fetch: { allowed: true }\n";
    let file = world.put("scope.yaml", text);
    assert_eq!(
        tools(&world, &["--scope", file.to_str().unwrap()]),
        names(&["web_fetch"])
    );
    let mut call = world.lazaret("call");
    call.arg("--scope")
        .arg(&file)
        .args(["web_search", r#"{"query":"q"}"#]);
    run(&mut call, LIMIT).expect(126);
    let closed = |tool: &str| Permission {
        network: false,
        ..permission(tool, &[])
    };
    let mut broker = narrowed(
        &world,
        vec![closed("web_search"), permission("web_fetch", &[])],
    );
    for (request, want) in [
        (
            Request::Effect(Effect::WebSearch { query: "q".into() }),
            "scope:web_search",
        ),
        (
            Request::Effect(Effect::WebFetch {
                url: "https://example.org/".into(),
            }),
            "granted",
        ),
    ] {
        assert_eq!(
            verdict_of(&mut broker, request.clone()),
            want,
            "{request:?}"
        );
    }
}

/// A session that a hostile client has narrowed, and will not keep to.
fn narrowed(world: &World, permissions: Vec<Permission>) -> Broker {
    let mut broker = Broker::greeted(world);
    let scope = Some(Scope { permissions });
    broker.send(&ToBroker::Open(Open {
        scope,
        ..opening(world)
    }));
    match broker.message() {
        FromBroker::Opened(_) => broker,
        other => panic!("the session did not open: {other:?}"),
    }
}

fn zone(path: &str) -> ZonePath {
    match path.strip_prefix("central:") {
        Some(rest) => ZonePath::new(Zone::Central, rest).unwrap(),
        None => ZonePath::new(Zone::Project, path).unwrap(),
    }
}

fn read(path: &str) -> Request {
    Request::FileRead(FileRead {
        path: zone(path),
        offset: None,
        limit: None,
    })
}

fn write(path: &str) -> Request {
    Request::FileWrite(FileWrite {
        path: zone(path),
        content: b"new".to_vec(),
        overwrite: true,
        expected_sha256: None,
    })
}

fn list(path: &str) -> Request {
    Request::FileList(FileList {
        path: zone(path),
        depth: 9,
        hidden: true,
        limit: 100,
    })
}

fn glob(path: &str, pattern: &str) -> Request {
    let pattern = pattern.into();
    Request::Glob(Glob {
        pattern,
        path: zone(path),
        hidden: true,
        ignored: true,
        limit: 100,
    })
}

fn grep(path: &str) -> Request {
    Request::Grep(Grep {
        pattern: ".".into(),
        literal: false,
        ignore_case: false,
        path: zone(path),
        include: None,
        ignored: true,
        context: 0,
        limit: 100,
        sort: broker_protocol::GrepSort::Path,
    })
}

/// `ok`, or who refused: the broker before anything was done, or the worker that met a link.
fn verdict_of(broker: &mut Broker, request: Request) -> String {
    let file = !matches!(request, Request::Bash(_));
    let done = broker.call(1, request);
    match done.outcome {
        Outcome::Refused(refused) => refused.rule,
        Outcome::Answered if file => {
            match broker_protocol::frame::decode_whole::<broker_protocol::FileAnswer>(&done.parts)
                .unwrap()
            {
                Ok(_) => "ok".into(),
                Err(failed) => failed.kind.name().into(),
            }
        }
        Outcome::Ran(ran) if ran.ended == Ended::Exited(0) => "ok".into(),
        Outcome::Granted => "granted".into(),
        other => format!("{other:?}"),
    }
}

place_test!(paths_hold_a_client_that_does_not_keep_to_its_scope);
fn paths_hold_a_client_that_does_not_keep_to_its_scope(place: Place) {
    let world = World::new(place);
    for file in ["src/a", "docs/a", "notes.md"] {
        world.put(file, "text");
    }
    world.write(&world.central.join("notes/a"), "text");
    world.write(&world.central.join("other/a"), "text");
    symlink("../docs", world.project.join("src/docs")).unwrap();
    symlink("../docs/a", world.project.join("src/link")).unwrap();
    symlink(world.central.join("other"), world.project.join("src/other")).unwrap();
    let cases = [
        (read("src/a"), "ok"),
        (read("notes.md"), "ok"),
        (read("central:notes/a"), "ok"),
        (write("src/new/b"), "ok"),
        (list("src"), "ok"),
        (glob("src", "*"), "ok"),
        (grep("src"), "ok"),
        (read("docs/a"), "scope:file_read"),
        (read("central:other/a"), "scope:file_read"),
        (read("docs/notes.md"), "scope:file_read"),
        (write("docs/a"), "scope:file_write"),
        (write("b"), "scope:file_write"),
        (write("central:b"), "scope:file_write"),
        (list(""), "scope:file_list"),
        (list("docs"), "scope:file_list"),
        (glob("", "docs/*"), "scope:glob"),
        (grep("docs"), "scope:grep"),
        (grep("central:"), "scope:grep"),
        // A link leads out of the scope, not out of the zones.
        (read("src/link"), "denied_policy"),
        (read("src/docs/a"), "denied_policy"),
        (write("src/docs/b"), "denied_policy"),
        (write("src/link"), "denied_policy"),
        (write("src/other/b"), "denied_policy"),
        (list("src/docs"), "denied_policy"),
        (glob("src/docs", "*"), "denied_policy"),
        (glob("src", "docs/*"), "denied_policy"),
        (grep("src/docs"), "denied_policy"),
        (grep("src/link"), "denied_policy"),
        (Request::Bash(shell("true")), "scope:bash"),
    ];
    let globs = ["src/**", "*.md", "central:notes/**"];
    let tools = ["file_read", "file_write", "file_list", "glob", "grep"];
    let mut broker = narrowed(&world, tools.map(|tool| permission(tool, &globs)).into());
    for (request, want) in &cases {
        assert_eq!(
            verdict_of(&mut broker, request.clone()),
            *want,
            "{request:?}"
        );
    }
    assert_eq!(world.get("docs/a"), b"text");
    assert!(!world.project.join("docs/b").exists() && !world.project.join("b").exists());
    // The control: all of it works where the scope is everything.
    let mut broker = narrowed(&world, tools.map(|tool| permission(tool, &["**"])).into());
    for (request, want) in cases
        .iter()
        .filter(|(request, _)| !matches!(request, Request::Bash(_)))
    {
        let missing =
            matches!(request, Request::FileRead(read) if read.path.relative() == "docs/notes.md");
        // An existing file is written only by who has read it.
        if let Request::FileWrite(write) = request {
            verdict_of(&mut broker, read(write.path.relative()));
        }
        let got = verdict_of(&mut broker, request.clone());
        assert_eq!(
            got,
            if missing { "not_found" } else { "ok" },
            "{want} {request:?}"
        );
    }
}

once_test!(a_scope_sets_and_bounds_the_time_of_a_command);
fn a_scope_sets_and_bounds_the_time_of_a_command() {
    let world = World::new(Place::any());
    let limited = |seconds| {
        vec![Permission {
            timeout_s: Some(seconds),
            ..permission("bash", &[])
        }]
    };
    let mut broker = narrowed(&world, limited(120));
    let time = |broker: &mut Broker, asked| {
        let done = broker.call(
            1,
            Request::Bash(Bash {
                timeout_s: asked,
                ..shell("true")
            }),
        );
        match done.outcome {
            Outcome::Ran(ran) => ran.timeout_s,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(time(&mut broker, None), Some(120));
    assert_eq!(time(&mut broker, Some(5)), Some(5));
    assert_eq!(time(&mut broker, Some(500)), Some(120));
    let mut broker = narrowed(&world, limited(1));
    let done = broker.call(
        1,
        Request::Bash(Bash {
            timeout_s: Some(60),
            ..shell("sleep 300")
        }),
    );
    assert!(
        matches!(&done.outcome, Outcome::Ran(ran) if ran.ended == Ended::TimedOut),
        "{:?}",
        done.outcome
    );
    // In the background too, where there is no limit else: what began before it without one outlives it.
    let behind = |broker: &mut Broker| {
        let marker = long_sleep();
        let bash = Bash {
            background: true,
            ..shell(&format!("sleep {marker}"))
        };
        assert!(
            broker
                .call(2, Request::Bash(bash))
                .outcome
                .error()
                .is_none()
        );
        assert!(until(LIMIT, || !process::with_marker(&marker).is_empty()));
        marker
    };
    let mut unlimited = narrowed(&world, vec![permission("bash", &[])]);
    let (endless, ended) = (behind(&mut unlimited), behind(&mut broker));
    let is_gone = |marker: &str| process::with_marker(marker).is_empty();
    assert!(
        until(LIMIT, || is_gone(&ended)),
        "a scope's time does not hold in the background"
    );
    assert!(!is_gone(&endless));
}

once_test!(a_scope_that_cannot_be_held_opens_no_session);
fn a_scope_that_cannot_be_held_opens_no_session() {
    let world = World::new(Place::any());
    world.put("docs/a", "");
    symlink("docs", world.project.join("link")).unwrap();
    let many = |count: usize| {
        (0..count)
            .map(|number| permission(&format!("t{number}"), &[]))
            .collect::<Vec<_>>()
    };
    for permissions in [
        many(limit::PERMISSIONS + 1),
        vec![permission("bash", &[]), permission("bash", &[])],
        vec![permission("a b", &[])],
        vec![permission("grep", &[&"x".repeat(limit::SCOPE_PATH + 1)])],
        vec![permission("grep", &["../x"])],
        vec![permission("grep", &["[x"])],
        vec![Permission {
            timeout_s: Some(0),
            ..permission("bash", &[])
        }],
        // Commands are held to directories that exist, by no link.
        vec![permission("bash", &["*.md"])],
        vec![permission("bash", &["nowhere/**"])],
        vec![permission("bash", &["docs/a/**"])],
        vec![permission("bash", &["link/**"])],
    ] {
        let mut broker = Broker::greeted(&world);
        let scope = Some(Scope { permissions });
        broker.send(&ToBroker::Open(Open {
            scope: scope.clone(),
            ..opening(&world)
        }));
        let answer = broker.message();
        let invalid =
            matches!(&answer, FromBroker::Fault(failed) if failed.kind == ErrorKind::InvalidInput);
        assert!(invalid, "{scope:?}: {answer:?}");
    }
    drop(narrowed(&world, many(limit::PERMISSIONS)));
}

/// Writes that a command tries, each with the file that says whether it worked.
const WRITES: [(&str, &str); 13] = [
    ("echo x > docs/deep/made", "docs/deep/made"),
    ("echo x > docs/made", "docs/made"),
    ("echo x > made", "made"),
    ("mkdir docs/dir", "docs/dir"),
    ("echo x >> docs/grown", "docs/grown"),
    ("truncate -s 0 docs/cut", "docs/cut"),
    ("rm docs/gone", "docs/gone"),
    ("mv docs/moved src/moved", "docs/moved"),
    ("mv src/there docs/there", "docs/there"),
    ("ln docs/cut docs/linked", "docs/linked"),
    ("ln -s /etc docs/symbolic", "docs/symbolic"),
    ("chmod 600 docs/mode", "docs/mode"),
    ("touch -d 2001-01-01 docs/time", "docs/time"),
];

/// Reads of a command that its scope does not name; `C` is the central root.
const READS: [&str; 8] = [
    "cat docs/mode",
    "ls docs",
    "cat notes.md",
    "cd docs && cat mode",
    "cat src/../docs/mode",
    "ln -sf ../docs/mode src/lead; cat src/lead",
    "cat C/other/a",
    "cat /proc/self/root$PWD/docs/mode",
];

/// Those of [`READS`] that get something.
fn reads(world: &World, broker: &mut Broker) -> Vec<&'static str> {
    let central = world.central.display().to_string();
    let tries = READS.iter().filter(|script| {
        let done = broker.call(
            1,
            Request::Bash(shell(&script.replace("C/", &format!("{central}/")))),
        );
        matches!(&done.outcome, Outcome::Ran(ran) if ran.ended == Ended::Exited(0))
    });
    tries.copied().collect()
}

/// A picture of one name: it is the same after what did nothing.
fn picture(path: &Path) -> Option<(u32, i64, u64)> {
    fs::symlink_metadata(path)
        .ok()
        .map(|file| (file.mode(), file.mtime(), file.len()))
}

fn furnish(world: &World) {
    for file in ["grown", "cut", "gone", "moved", "mode", "time"] {
        world.put(&format!("docs/{file}"), "text");
    }
    // The last one makes of each directory above it a mount that holds it.
    for file in ["src/there", "src/old", "src/.env", "docs/deep/.env"] {
        world.put(file, "text");
    }
    world.put("notes.md", "text");
    world.write(&world.central.join("notes/a"), "text");
    world.write(&world.central.join("other/a"), "text");
}

/// Runs each line of [`WRITES`] and says which changed something.
fn changed(world: &World, broker: &mut Broker) -> Vec<&'static str> {
    let tries = WRITES.iter().filter(|(script, file)| {
        let path = world.project.join(file);
        let before = picture(&path);
        verdict_of(broker, Request::Bash(shell(script)));
        picture(&path) != before
    });
    tries.map(|(script, _)| *script).collect()
}

place_test!(a_command_reaches_only_the_paths_of_its_scope);
fn a_command_reaches_only_the_paths_of_its_scope(place: Place) {
    for wide in [false, true] {
        let world = World::new(place);
        furnish(&world);
        let globs = ["src/**", "central:notes/**"];
        let mut permissions = vec![permission("bash", &globs), permission("file_read", &[])];
        permissions.push(permission(
            "file_write",
            if wide { &["**"] } else { &globs },
        ));
        let mut broker = narrowed(&world, permissions);
        for script in [
            "echo x > src/made && echo y >> src/old && mkdir -p src/d/e && mv src/made src/d/e && rm src/old",
            "chmod 600 src/d/e/made && touch -d 2001-01-01 src/d && ln src/d/e/made src/linked",
            "cat src/there && ls src && cp src/there src/copy && cp src/there \"$TMPDIR/x\" && echo x > ~/x",
            "cd src && pwd && cat there",
        ] {
            assert_eq!(
                verdict_of(&mut broker, Request::Bash(shell(script))),
                "ok",
                "{script}"
            );
        }
        assert!(
            reads(&world, &mut broker).is_empty(),
            "{:?}, wide: {wide}",
            reads(&world, &mut broker)
        );
        let central = world.central.display();
        let in_central = |file: &str| Request::Bash(shell(&format!("echo x > '{central}/{file}'")));
        assert_eq!(verdict_of(&mut broker, in_central("notes/b")), "ok");
        assert_ne!(verdict_of(&mut broker, in_central("other/b")), "ok");
        assert_ne!(verdict_of(&mut broker, in_central("b")), "ok");
        assert!(
            changed(&world, &mut broker).is_empty(),
            "{:?}, wide: {wide}",
            changed(&world, &mut broker)
        );
        // A file tool has its own paths.
        let want = if wide { "ok" } else { "scope:file_write" };
        assert_eq!(verdict_of(&mut broker, write("docs/by-tool")), want);
        assert_eq!(verdict_of(&mut broker, write("src/by-tool")), "ok");
        assert_eq!(
            verdict_of(&mut broker, write("central:notes/by-tool")),
            "ok"
        );
    }
    // The control: without paths every line of it changes something.
    let world = World::new(place);
    furnish(&world);
    let mut broker = narrowed(&world, vec![permission("bash", &[])]);
    let all: Vec<&str> = WRITES.iter().map(|(script, _)| *script).collect();
    assert_eq!(reads(&world, &mut broker), READS);
    assert_eq!(changed(&world, &mut broker), all);
}

place_test!(a_whole_zone_of_a_scope_is_the_zone_itself);
/// A file that a command writes into a zone that it may use as a whole is there when it has ended.
fn a_whole_zone_of_a_scope_is_the_zone_itself(place: Place) {
    let world = World::new(place);
    let mut broker = narrowed(&world, vec![permission("bash", &["central:**"])]);
    let write = format!("echo x > '{}/made'", world.central.display());
    assert_eq!(verdict_of(&mut broker, Request::Bash(shell(&write))), "ok");
    assert_eq!(
        std::fs::read_to_string(world.central.join("made")).unwrap(),
        "x\n"
    );
    assert_ne!(
        verdict_of(&mut broker, Request::Bash(shell("echo x > made"))),
        "ok"
    );
    assert!(!world.project.join("made").exists());
}

place_test!(a_scope_opens_no_protected_name);
/// Protected names stay closed inside a directory that the scope opens.
fn a_scope_opens_no_protected_name(place: Place) {
    let world = World::new(place);
    world.put("src/.env", "KEY=1");
    world.put(".git/hooks/pre-commit", "hook");
    let globs = ["src/**", ".git/hooks/**"];
    let tools = ["bash", "file_read", "file_write", "file_edit"];
    let mut broker = narrowed(&world, tools.map(|tool| permission(tool, &globs)).into());
    assert_eq!(verdict_of(&mut broker, read("src/.env")), "protect:.env");
    assert_eq!(verdict_of(&mut broker, write("src/.env")), "protect:.env");
    let edits = vec![];
    let edit = FileEdit {
        path: zone(".git/hooks/pre-commit"),
        edits,
        expected_sha256: None,
    };
    assert_ne!(verdict_of(&mut broker, Request::FileEdit(edit)), "ok");
    for script in [
        "cat src/.env",
        "echo x > src/.env",
        "echo x > .git/hooks/pre-commit",
        "rm src/.env",
    ] {
        assert_ne!(
            verdict_of(&mut broker, Request::Bash(shell(script))),
            "ok",
            "{script}"
        );
    }
    assert_eq!(
        (world.get("src/.env"), world.get(".git/hooks/pre-commit")),
        (b"KEY=1".into(), b"hook".into())
    );
}

// What `lazaret policy` says.

/// `lazaret policy …` with the policy files of `world`.
fn policy(world: &World, words: &[&str]) -> lazaret_tests::Finished {
    let mut command = world.configured("policy");
    command.args(words);
    run(&mut command, LIMIT)
}

fn own_policy(world: &World, text: &str) {
    world.set_policy(text);
}

/// A command in a session under the user's policy `text`.
fn called_under(world: &World, text: &str) -> process::Finished {
    own_policy(world, text);
    let mut call = world.configured("call");
    call.args(["bash", r#"{"command":"true"}"#]);
    run(&mut call, LIMIT)
}

place_test!(a_required_layer_forbids_a_tier_without_it);
fn a_required_layer_forbids_a_tier_without_it(place: Place) {
    let world = World::new(place);
    // What only one tier has forbids the other.
    for (layer, has_it) in [
        ("mount-namespace", place.tier == Tier::Namespaced),
        ("landlock-network", place.tier == Tier::Flat),
    ] {
        let done = called_under(&world, &format!("version = 1\nrequired = ['{layer}']\n"));
        let refused = done
            .errors()
            .contains(&format!("the policy requires the layer {layer}"));
        assert_eq!(
            (done.code() == 0, refused),
            (has_it, !has_it),
            "{layer}: {}",
            done.errors()
        );
    }
    // The control: what a profile only expects of a tier that could have it forbids none.
    called_under(&world, "version = 1\n").success();
    let text = "version = 1\n[profile.mine]\nexpected = ['mount-namespace', 'landlock-network']\n";
    own_policy(&world, text);
    let mut call = world.configured("call");
    call.args(["--profile", "mine"]);
    run(call.args(["bash", r#"{"command":"true"}"#]), LIMIT).success();
}

once_test!(the_matrix_is_the_golden_table);
/// Three trusts by every tool. `LAZARET_GOLDEN=write` writes the table again after a change of the catalogue.
fn the_matrix_is_the_golden_table() {
    let world = World::new(Place::any());
    let now = policy(&world, &["matrix"]).success();
    if std::env::var_os("LAZARET_GOLDEN").is_some() {
        fs::write(GOLDEN, &now).unwrap();
    }
    assert_eq!(
        fs::read_to_string(GOLDEN).unwrap_or_default(),
        now,
        "write it again with LAZARET_GOLDEN=write, and look"
    );
    // It has every tool, and the risk decides wherever there is anything to ask about.
    let unasked = ["batch", "thinking", "finish_task"];
    let rows: Vec<Value> =
        serde_json::from_str(&policy(&world, &["matrix", "--json"]).success()).unwrap();
    let named: BTreeSet<String> = rows
        .iter()
        .map(|row| row["tool"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(named, tools(&world, &[]));
    for row in &rows {
        let low = row["risk"] == "low";
        let asked = !unasked.contains(&row["tool"].as_str().unwrap());
        assert_eq!(
            row["supervised"],
            if asked { "ask" } else { "allow" },
            "{row}"
        );
        assert_eq!(row["guided"], if low { "allow" } else { "ask" }, "{row}");
        assert_eq!(row["autonomous"], "allow", "{row}");
    }
}

once_test!(expectations_are_compared_with_the_policy);
fn expectations_are_compared_with_the_policy() {
    let world = World::new(Place::any());
    own_policy(
        &world,
        "version = 1\n[profile.mine]\nnetwork.allow = ['registry.example:443']\n[[rule]]\ntool = 'grep'\naction = 'deny'\nwhy = 'w'\n",
    );
    let held = "version = 1\n\
                [[expect]]\ntool = 'grep'\ninput = { pattern = 'x' }\nverdict = 'deny'\nrule = 'rule:user:4'\n\
                [[expect]]\ntool = 'file_read'\ninput = { path = '.env' }\nverdict = 'deny'\n\
                [[expect]]\ntool = 'bash'\ninput = { command = 'true' }\nverdict = 'ask'\ntrust = 'supervised'\n\
                [[expect]]\ntool = 'bash'\ninput = { command = 'true' }\nverdict = 'allow'\ntrust = 'autonomous'\n\
                [[expect]]\nhost = 'registry.example:443'\nverdict = 'allow'\nprofile = 'mine'\n\
                [[expect]]\nhost = 'registry.example:443'\nverdict = 'deny'\n";
    let test = |text: &str| {
        let file = world.put("expected.toml", text);
        policy(&world, &["test", "--json", file.to_str().unwrap()])
    };
    let rows: Vec<Value> = serde_json::from_str(&test(held).success()).unwrap();
    let lines: Vec<_> = rows.iter().map(|row| row["line"].as_u64()).collect();
    assert_eq!(lines, [2, 7, 11, 16, 21, 25].map(Some));
    // Each kind of expectation can fail, and an expectation that says nothing does.
    for (from, to) in [
        ("verdict = 'ask'", "verdict = 'allow'"),
        ("rule = 'rule:user:4'", "rule = 'rule:user:2'"),
        ("profile = 'mine'", "profile = 'default'"),
        ("profile = 'mine'", "profile = 'none'"),
        ("host = 'registry.example:443'", "host = 'registry.example'"),
        ("tool = 'grep'", "tool = 'nothing'"),
        ("tool = 'grep'", "tool = 'grep'\nhost = 'x:1'"),
    ] {
        let rows: Vec<Value> =
            serde_json::from_str(&test(&held.replacen(from, to, 1)).expect(1)).unwrap();
        let failed = rows.iter().filter(|row| row["ok"] == false).count();
        assert_eq!(failed, 1, "{from} to {to}: {rows:?}");
    }
    for wrong in [
        "",
        "version = 1\n",
        "version = 2\n[[expect]]\ntool = 'bash'\nverdict = 'ask'\n",
        "version = 1\n[[expect]]\ntool = 'bash'\nverdict = 'maybe'\n",
        "version = 1\n[[expect]]\ntool = 'bash'\nverdict = 'ask'\ncolour = 1\n",
    ] {
        test(wrong).expect(2);
    }
    let many = "[[expect]]\nhost = 'x:1'\nverdict = 'deny'\n".repeat(1_000);
    test(&format!("version = 1\n{many}")).expect(0);
    test(&format!(
        "version = 1\n{many}[[expect]]\nhost = 'x:1'\nverdict = 'deny'\n"
    ))
    .expect(2);
}

place_test!(the_administrators_parts_are_read_too, root_only);
/// In a mount namespace with an `/etc` of its own, as their place is fixed.
fn the_administrators_parts_are_read_too(place: Place) {
    let world = World::new(place);
    let etc = world.base().join("etc");
    let call = |mode: &str| {
        let mut inner = world.lazaret("call");
        inner.args(["grep", r#"{"pattern":"x"}"#]);
        let (words, etc) = (process::shell_words(&inner), etc.display());
        let script = format!(
            "cp -a /etc {etc} && mkdir -p {etc}/lazaret/policy.d && \
             printf 'version = 1\n[[rule]]\ntool = \"grep\"\naction = \"deny\"\nwhy = \"by the site\"\n' > {etc}/lazaret/policy.d/10-site.toml && \
             chmod {mode} {etc}/lazaret/policy.d && mount --bind {etc} /etc && {{ {words}; code=$?; umount /etc; rm -r {etc}; exit $code; }}"
        );
        run(
            world.host("unshare").args(["-m", "bash", "-c", &script]),
            LIMIT,
        )
    };
    // The control: elsewhere it is not read.
    run(
        &mut world.lazaret_call("grep", &json!({ "pattern": "x" })),
        LIMIT,
    )
    .success();
    let denied = call("755");
    denied.expect(126);
    let said = format!("{}{}", denied.text(), denied.errors());
    assert!(said.contains("by the site"), "{said}");
    // Whoever may write there could remove what it forbids.
    let refused = call("757");
    refused.expect(125);
    let said = format!("{}{}", refused.text(), refused.errors());
    assert!(said.contains("others may write its directory"), "{said}");
}

once_test!(the_matrix_knows_scope_and_rules);
fn the_matrix_knows_scope_and_rules() {
    let world = World::new(Place::any());
    own_policy(
        &world,
        "version = 1\n[[rule]]\ntool = 'grep'\naction = 'deny'\nwhy = 'w'\n",
    );
    let scope = world.put(
        "s.yaml",
        "tool_permissions:\n  grep: { allowed: true }\n  bash: { allowed: true }\n",
    );
    let rows = policy(
        &world,
        &["matrix", "--json", "--scope", scope.to_str().unwrap()],
    )
    .success();
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    // A test suite is a command: a scope has to permit both, and a rule knows it as one.
    let suites = world.put(
        "t.yaml",
        "tool_permissions:\n  run_tests: { allowed: true }\n",
    );
    let suite = [
        "explain",
        "run_tests",
        "{}",
        "--json",
        "--scope",
        suites.to_str().unwrap(),
    ];
    let printed: Value = serde_json::from_str(&policy(&world, &suite).success()).unwrap();
    assert_eq!(
        (&printed["verdict"], &printed["rule"]),
        (&json!("deny"), &json!("scope:bash"))
    );
    let mut call = world.lazaret_call("run_tests", &json!({}));
    run(call.arg("--scope").arg(&suites), LIMIT).expect(126);
    for (name, reason) in [
        ("run_tests", "rules know this tool as `bash`"),
        ("Bash", "rules know this tool as `bash`"),
        ("thinking", "rules do not apply to this tool"),
    ] {
        own_policy(
            &world,
            &format!("version = 1\n[[rule]]\ntool = '{name}'\naction = 'deny'\nwhy = 'w'\n"),
        );
        let checked = policy(&world, &["check"]);
        assert!(
            checked.code() == 1 && checked.text().contains(reason),
            "{name}: {}",
            checked.text()
        );
    }
    own_policy(
        &world,
        "version = 1\n[[rule]]\ntool = 'undo'\naction = 'ask'\nwhy = 'w'\n",
    );
    let noted = policy(&world, &["check"]).success();
    assert!(!noted.contains("undo"), "{noted}");
    for row in &rows {
        let want = if row["tool"] == "bash" {
            ["ask", "ask", "allow"]
        } else {
            ["deny"; 3]
        };
        assert_eq!(
            [&row["supervised"], &row["guided"], &row["autonomous"]]
                .map(|cell| cell.as_str().unwrap()),
            want,
            "{row}"
        );
    }
}

once_test!(no_variable_is_needed_to_find_a_home);
/// Records and policy come from the account's home where `HOME` says nothing; so do the data.
fn no_variable_is_needed_to_find_a_home() {
    let world = World::new(Place::any());
    let mut explain = world.program("lazaret");
    let words = ["policy", "explain", "thinking", "{\"thought\":\"x\"}"];
    run(explain.args(words).env_remove("HOME"), LIMIT).success();
}

once_test!(explain_names_the_rule_its_reason_and_its_place);
fn explain_names_the_rule_its_reason_and_its_place() {
    let world = World::new(Place::any());
    let text = policy(&world, &["explain", "bash", r#"{"command":"rm -rf x"}"#]).success();
    let shipped = include_str!("../../../policies/profiles/rules.toml");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("where    shipped rules.toml:"))
        .expect(&text);
    let line: usize = line.parse().unwrap();
    let rule = shipped
        .lines()
        .skip(line - 1)
        .take(6)
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        rule.starts_with("[[rule]]") && rule.contains("program = \"rm\""),
        "{rule}"
    );
    assert!(
        text.contains("verdict  ask") && text.contains(&format!("rule:shipped:{line}")),
        "{text}"
    );
    let why = rule
        .lines()
        .find_map(|line| line.strip_prefix("why = "))
        .unwrap()
        .trim_matches('"');
    assert!(text.contains(why), "{text}");
    // One of the user's own, an alias of the tool, as JSON.
    own_policy(
        &world,
        "version = 1\n\n[[rule]]\ntool = 'file_read'\naction = 'deny'\nwhy = 'Not this.'\nwhen = [{ param = 'path', matches = 'x/**' }]\n",
    );
    let json = policy(
        &world,
        &["explain", "read_file", r#"{"path":"x/y"}"#, "--json"],
    )
    .success();
    let json: Value = serde_json::from_str(&json).unwrap();
    let file = world.policy();
    assert_eq!(
        (&json["verdict"], &json["why"], &json["line"]),
        (&json!("deny"), &json!("Not this."), &json!(3))
    );
    assert_eq!(json["file"], file.to_str().unwrap());
    // An error names the field, and has a code.
    let wrong = policy(&world, &["explain", "file_read", r#"{"path":3}"#]);
    assert_eq!(wrong.code(), 2);
    assert!(wrong.errors().contains("path"), "{}", wrong.errors());
}

once_test!(programs_that_need_a_terminal_are_refused_by_rules_to_take);
/// Nothing is banned by default; the rules to take refuse what waits at a terminal, say what to do instead, and are explained.
fn programs_that_need_a_terminal_are_refused_by_rules_to_take() {
    const RULES: &str = include_str!("../../../policies/examples/no-terminal.toml");
    let world = World::new(Place::any());
    let explain = |command: &str, trust: &str| {
        let input = json!({ "command": command }).to_string();
        let printed = policy(
            &world,
            &["explain", "bash", &input, "--json", "--trust", trust],
        )
        .success();
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    let programs = "vim vi nvim view vimdiff nano pico emacs less more most man top htop";
    for program in programs.split(' ') {
        assert_eq!(
            explain(&format!("{program} x"), "autonomous")["verdict"],
            "allow",
            "{program}"
        );
    }
    own_policy(&world, &format!("version = 1\n{RULES}"));
    policy(&world, &["check"]).success();
    let file = world.policy();
    for program in programs.split(' ') {
        for line in [
            format!("{program} x"),
            format!("cd src && /usr/bin/{program} x"),
            format!("git diff | {program}"),
        ] {
            let printed = explain(&line, "autonomous");
            assert_eq!(
                (&printed["verdict"], printed["file"].as_str()),
                (&json!("deny"), file.to_str()),
                "{line}"
            );
            let why = printed["why"].as_str().unwrap();
            assert!(
                why.contains("terminal") && RULES.contains(why),
                "{line}: {why}"
            );
            let at = printed["line"].as_u64().unwrap() as usize;
            let rule: Vec<_> = fs::read_to_string(&file)
                .unwrap()
                .lines()
                .skip(at - 1)
                .map(str::to_owned)
                .collect();
            assert_eq!(rule[0], "[[rule]]");
            assert!(
                rule[3].starts_with("program = ") && rule[3].contains(program),
                "{line}: {}",
                rule[3]
            );
        }
    }
    for fine in [
        "cd src && make",
        "echo vim",
        "ls less",
        "topology x",
        "cat view",
    ] {
        assert_eq!(explain(fine, "autonomous")["verdict"], "allow", "{fine}");
    }
    // The model gets the same reason, before anything has run.
    let mut command = world.lazaret_call("bash", &json!({ "command": "touch ran; vim x" }));
    let refused = run(
        command.env("XDG_CONFIG_HOME", world.home.join("settings")),
        LIMIT,
    );
    assert_eq!(refused.code(), 126);
    assert!(
        refused.errors().contains("file_edit"),
        "{}",
        refused.errors()
    );
    assert!(!world.project.join("ran").exists());
}

once_test!(every_tool_is_explained);
/// Every tool is explained, also those that are not the executor's to do, and a batch by its calls.
fn every_tool_is_explained() {
    let world = World::new(Place::any());
    let explain = |tool: &str, input: Value, words: &[&str]| {
        let input = input.to_string();
        let words = [&["explain", tool, &input, "--json"], words].concat();
        serde_json::from_str::<Value>(&policy(&world, &words).success()).unwrap()
    };
    let golden = fs::read_to_string(GOLDEN).unwrap();
    for row in golden.lines().skip(1) {
        let row: Vec<&str> = row.split_whitespace().collect();
        let [tool, risk, verdicts @ ..] = &row[..] else {
            panic!("{row:?}")
        };
        for (trust, verdict) in ["supervised", "guided", "autonomous"].iter().zip(verdicts) {
            // The example is one that the policy for hosts refuses.
            let input = if *tool == "web_fetch" {
                json!({ "url": "https://example.org/" })
            } else {
                example(tool)
            };
            let printed = explain(tool, input, &["--trust", trust]);
            assert_eq!(
                (&printed["tool"], &printed["verdict"]),
                (&json!(tool), &json!(verdict)),
                "{printed}"
            );
            assert_eq!(printed["risk"], *risk, "{printed}");
        }
    }
    let call = |tool: &str, input: Value| json!({ "tool": tool, "input": input });
    let calls = [
        call("ls", json!({})),
        call("bash", json!({ "command": "true" })),
    ];
    let batch = explain("batch", json!({ "invocations": calls }), &[]);
    let verdicts = [&batch, &batch["calls"][0], &batch["calls"][1]]
        .map(|call| call["verdict"].as_str().unwrap());
    assert_eq!(verdicts, ["allow", "allow", "ask"]);
    let unknown = policy(&world, &["explain", "mcp__bogus__x", "{}"]);
    assert_eq!(
        (
            unknown.code(),
            unknown.errors().contains("no server \"bogus\"")
        ),
        (2, true)
    );
    own_policy(
        &world,
        "version = 1\n[[rule]]\ntool = 'web_fetch'\naction = 'deny'\nwhy = 'w'\nwhen = [{ param = 'url', contains = 'x' }]\n",
    );
    let url = |url: &str| explain("fetch_url", json!({ "url": url }), &[])["verdict"].clone();
    assert_eq!(
        [url("https://x.example/"), url("https://a.org/")],
        [json!("deny"), json!("allow")]
    );
}

once_test!(explained_verdict_is_the_actual_one);
/// The broker says what `explain` says.
fn explained_verdict_is_the_actual_one() {
    let world = World::new(Place::any());
    own_policy(
        &world,
        "version = 1\n[[rule]]\ntool = 'bash'\naction = 'deny'\nprogram = 'touch'\nwhy = 'No touching.'\n",
    );
    for (command, verdict) in [
        ("touch a", "deny"),
        ("echo a && touch b", "deny"),
        ("echo touch", "allow"),
        ("$x; true", "allow"),
    ] {
        let input = json!({ "command": command }).to_string();
        let printed = policy(
            &world,
            &["explain", "bash", &input, "--json", "--trust", "autonomous"],
        )
        .success();
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["verdict"], verdict, "{command}");
        let mut call = world.configured("session");
        let answer = Session::start(&mut call).call("bash", json!({ "command": command }));
        let denied = answer.result["status"] == "error" && answer.kind() == "denied_policy";
        assert_eq!(denied, verdict == "deny", "{command}: {}", answer.result);
    }
}

once_test!(a_tool_that_a_rule_denies_outright_is_not_shown);
/// A model is shown only what something can come of: what the matrix denies at any trust is not in the list.
fn a_tool_that_a_rule_denies_outright_is_not_shown() {
    let world = World::new(Place::any());
    let listed = |session: bool| {
        let settings = world.home.join("settings");
        let mut program = world.program("lazaret");
        program.arg(if session { "session" } else { "tools" });
        program.env("XDG_CONFIG_HOME", settings);
        let listed: Value = if session {
            let mut session = Session::start(&mut program);
            session.send(&json!({ "id": "t", "tools": true }));
            session.event("t", LIMIT).unwrap()["tools"].clone()
        } else {
            serde_json::from_str(&run(program.arg("--json"), LIMIT).success()).unwrap()
        };
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all: BTreeSet<String> = listed(false);
    // A session without models lists all the others.
    let models = names(&["subagent", "read_reasoning", "trigger_hot_swap"]);
    assert!(all.contains("bash") && &all - &models == listed(true));
    own_policy(
        &world,
        "version = 1\n[[rule]]\ntool = 'bash'\naction = 'deny'\nwhy = 'w'\n[[rule]]\ntool = 'grep'\naction = 'deny'\nwhy = 'w'\nwhen = [{ param = 'path', equals = 'x' }]\n",
    );
    let without = &all - &names(&["bash", "run_tests"]);
    let session = &without - &models;
    assert_eq!((&listed(false), &listed(true)), (&without, &session));
}

once_test!(refusal_without_a_rule_is_explained);
/// Refusals by the orchestrator, before it asks or with leave, are explained beforehand: none of that needs a network.
fn refusal_without_a_rule_is_explained() {
    let world = World::new(Place::any());
    own_policy(
        &world,
        "version = 1\n[web]\nallow = ['docs.rs', '*.local.example', '127.0.0.1']\n",
    );
    let url = |url: &str| json!({ "url": url });
    let path = |path: &str| json!({ "path": path });
    let mut session = world.lazaret("session");
    session
        .args(["--max-violations", "99"])
        .env("XDG_CONFIG_HOME", world.home.join("settings"));
    let mut session = Session::start(&mut session);
    for (tool, input, rule) in [
        ("web_fetch", url("https://evil.example/"), "denied_policy"),
        ("web_fetch", url("http://169.254.169.254/"), "denied_policy"),
        ("web_fetch", url("http://0x7f.1/"), "denied_policy"),
        (
            "view_image",
            path("https://evil.example/a.png"),
            "denied_policy",
        ),
        (
            "view_image",
            path("http://169.254.169.254/a.png"),
            "denied_policy",
        ),
        ("file_read", path("../../etc/passwd"), "violation"),
        (
            "file_write",
            json!({ "path": "../x", "content": "x" }),
            "violation",
        ),
    ] {
        let printed = policy(&world, &["explain", tool, &input.to_string(), "--json"]).success();
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(
            (&printed["verdict"], &printed["rule"]),
            (&json!("deny"), &json!(rule)),
            "{input}: {printed}"
        );
        let answer = session.call(tool, input.clone());
        assert_eq!(answer.kind(), rule, "{input}");
        assert_eq!(
            answer.result["error"]["message"], printed["why"],
            "{input}: {}",
            answer.result
        );
    }
    let plain = policy(
        &world,
        &["explain", "web_fetch", &url("http://docs.rs/").to_string()],
    )
    .success();
    assert!(
        plain.contains("verdict  deny") && plain.contains("only with https://"),
        "{plain}"
    );
    for (tool, input) in [
        ("web_fetch", url("https://docs.rs/x")),
        ("file_read", path("x")),
    ] {
        let printed = policy(&world, &["explain", tool, &input.to_string(), "--json"]).success();
        assert!(printed.contains("\"allow\""), "{input}: {printed}");
    }
}

once_test!(check_says_where_a_file_is_wrong);
fn check_says_where_a_file_is_wrong() {
    let world = World::new(Place::any());
    policy(&world, &["check"]).success();
    let files = [
        (
            "good.toml",
            "version = 1\n[profile.a]\nproject = 'read'\n",
            "",
        ),
        (
            "good.yaml",
            "tool_permissions:\n  bash: { allowed: true, timeout: 120s, paths: ['src/**'] }\n",
            "",
        ),
        (
            "good-scope.toml",
            "[tool_permissions.bash]\nallowed = true\n",
            "",
        ),
        (
            "key.toml",
            "version = 1\n[[rule]]\ntol = 'bash'\n",
            "key.toml:3:1: unknown field `tol`",
        ),
        (
            "key.yaml",
            "tool_permissions:\n  bash: { allowed: true, pats: [] }\n",
            "key.yaml:2:26: unknown field `pats`",
        ),
        (
            "why.toml",
            "version = 1\n\n[[rule]]\ntool = '*'\naction = 'ask'\nwhy = ' '\n",
            "why.toml:3:1: a rule has a `why`",
        ),
        (
            "base.toml",
            "version = 1\n[profile.a]\nextends = 'b'\n",
            "`b`",
        ),
        (
            "held.yaml",
            "tool_permissions:\n  bash: { allowed: true, paths: ['*.md'] }\n",
            "`*.md`",
        ),
    ];
    for (name, text, words) in files {
        let file = world.put(name, text);
        let checked = policy(&world, &["check", file.to_str().unwrap()]);
        assert_eq!(
            checked.code(),
            i32::from(!words.is_empty()),
            "{name}: {}",
            checked.text()
        );
        assert!(checked.text().contains(words), "{name}: {}", checked.text());
    }
    let all: Vec<String> = files
        .iter()
        .map(|(name, ..)| world.project.join(name).display().to_string())
        .collect();
    let words: Vec<&str> = ["check", "--json"]
        .into_iter()
        .chain(all.iter().map(String::as_str))
        .collect();
    let json: Vec<Value> = serde_json::from_str(&policy(&world, &words).text()).unwrap();
    let good: Vec<bool> = json
        .iter()
        .map(|row| row["ok"].as_bool().unwrap())
        .collect();
    assert_eq!(good, files.map(|(.., words)| words.is_empty()));
}

once_test!(show_prints_the_policy_of_a_session);
fn show_prints_the_policy_of_a_session() {
    let world = World::new(Place::any());
    own_policy(&world, "version = 1\n[approval]\ntrust = 'supervised'\n");
    let json: Value = serde_json::from_str(
        &policy(&world, &["show", "--profile", "read-only", "--json"]).success(),
    )
    .unwrap();
    assert_eq!(
        (&json["profile"], &json["project"], &json["trust"]),
        (&json!("read-only"), &json!("read"), &json!("supervised"))
    );
    assert!(
        json["protect"]
            .as_array()
            .unwrap()
            .iter()
            .any(|name| name["name"] == ".env")
    );
    let text = policy(&world, &["show"]).success();
    assert!(
        text.contains("[[rule]]") && text.contains("where = \"shipped rules.toml:"),
        "{text}"
    );
    assert_eq!(
        policy(&world, &["show", "--profile", "none-of-this"]).code(),
        2
    );
}
