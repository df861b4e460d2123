//! Tools: names, input, results, and what a session does with violations.

use lazaret_tests::process::{assert_gone, with_marker};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/tools.json");
/// One call of the command line: exit code, and the result as JSON.
#[track_caller]
fn call(world: &World, tool: &str, input: Value) -> (i32, Value) {
    let done = run(world.lazaret_call(tool, &input).arg("--json"), LIMIT);
    let result = serde_json::from_str(&done.text());
    (
        done.code(),
        result.unwrap_or_else(|error| panic!("{error}: {} {}", done.text(), done.errors())),
    )
}

fn sorted(tools: &[Value]) -> Value {
    let mut tools = json!(tools);
    tools.sort_all_objects();
    tools
}

fn kind(result: &Value) -> &str {
    result["error"]["code"].as_str().unwrap_or_default()
}

/// So many bytes that begin as a PNG does.
pub fn png(bytes: usize) -> Vec<u8> {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(bytes, 0xfe);
    image
}

fn bash(command: &str) -> Value {
    json!({ "command": command })
}

once_test!(tool_definitions_are_camel_case);
fn tool_definitions_are_camel_case() {
    let world = World::new(Place::any());
    let listed = run(world.program("lazaret").args(["tools", "--json"]), LIMIT).success();
    // Clients and vendors that follow no reference would not see what it stands for.
    assert!(
        !listed.contains("$ref") && !listed.contains("$defs"),
        "{listed}"
    );
    let tools: Vec<Value> = serde_json::from_str(&listed).unwrap();
    for tool in &tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(
            tool["inputSchema"]["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
        assert!(
            tool["name"].is_string()
                && tool["description"].is_string()
                && tool.get("input_schema").is_none()
        );
    }
    assert!(tools.len() >= 20);
    // The text for a model changes only on purpose.
    let now = serde_json::to_string_pretty(&sorted(&tools)).unwrap() + "\n";
    if std::env::var_os("LAZARET_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &now).unwrap();
    }
    let then = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(
        then == now,
        "{GOLDEN}: write it again with LAZARET_GOLDEN=write, and look"
    );
    // And what the executor answers.
    let (_, result) = call(&world, "bash", bash("true"));
    for (name, _) in result["metadata"]
        .as_object()
        .unwrap()
        .iter()
        .chain(result.as_object().unwrap())
    {
        assert!(!name.contains('_'), "{name}");
    }
    assert!(result["metadata"]["usage"]["wallUs"].is_u64(), "{result}");
}

place_test!(a_path_that_climbs_is_a_violation);
fn a_path_that_climbs_is_a_violation(place: Place) {
    let world = World::new(place);
    for path in [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../../etc/passwd",
        "central:../../etc/passwd",
    ] {
        let (code, result) = call(&world, "file_read", json!({ "path": path }));
        assert_eq!((code, kind(&result)), (3, "violation"), "{path}");
        assert!(
            result["error"]["message"]
                .as_str()
                .unwrap()
                .contains("outside sandbox"),
            "{result}"
        );
    }
}

place_test!(a_link_that_leads_out_opens_nothing_to_tool_or_shell);
fn a_link_that_leads_out_opens_nothing_to_tool_or_shell(place: Place) {
    let world = World::new(place);
    symlink("/etc/shadow", world.project.join("shadow")).unwrap();
    symlink("/etc/passwd", world.project.join("link")).unwrap();
    let outside = world.home.join("outside");
    world.write(&outside, "OUTSIDE");
    symlink(&outside, world.project.join("out")).unwrap();
    symlink("/etc/passwd", world.central.join("link")).unwrap();
    for name in ["link", "shadow", "out", "central:link"] {
        let (code, result) = call(&world, "file_read", json!({ "path": name }));
        assert_eq!((code, kind(&result)), (3, "violation"), "{name}: {result}");
    }
    // The shell reads by a link what it could read by its own name, and nothing else: neither a file outside, nor one that
    // is root's. What the profile lets every cell read, as the list of users, is none that a link would open.
    let own = [
        "/etc/shadow".to_owned(),
        outside.display().to_string(),
        "/etc/passwd".into(),
    ];
    for (link, own) in ["shadow", "out", "link"].iter().zip(&own) {
        let read = |name: &str| {
            let (code, result) = call(&world, "bash", bash(&format!("cat {name} 2>/dev/null")));
            // What was denied is told by the name in the command, and a link has another.
            let text = result["result"].as_str().unwrap_or_default();
            (
                code,
                text.split(" [denied: ")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        let by_link = read(link);
        assert_eq!(by_link, read(own), "{own}");
        assert_eq!(
            by_link.0,
            i32::from(*link != "link"),
            "{own}: {}",
            by_link.1
        );
        assert!(!by_link.1.contains("OUTSIDE"), "{own}");
    }
}

place_test!(a_path_inside_may_be_written_and_is_named_in_full);
fn a_path_inside_may_be_written_and_is_named_in_full(place: Place) {
    let world = World::new(place);
    let (code, result) = call(
        &world,
        "file_write",
        json!({"path": "sub/a.txt", "content": "x"}),
    );
    assert_eq!(code, 0, "{result}");
    let path = world.project.canonicalize().unwrap().join("sub/a.txt");
    assert_eq!(result["metadata"]["path"], path.to_str().unwrap());
    assert_eq!(world.get("sub/a.txt"), b"x");
}

place_test!(a_protected_name_is_written_by_neither_tool_nor_shell);
fn a_protected_name_is_written_by_neither_tool_nor_shell(place: Place) {
    let world = World::new(place);
    world.put(".env", "KEY=1\n");
    let (code, result) = call(
        &world,
        "file_write",
        json!({"path": ".env", "content": "x"}),
    );
    assert_eq!((code, kind(&result)), (126, "denied_policy"), "{result}");
    let (code, result) = call(&world, "bash", bash("echo x > .env"));
    assert_ne!(code, 0, "{result}");
    assert_eq!(world.get(".env"), b"KEY=1\n");
}

place_test!(the_environment_has_a_path_and_no_keys);
fn the_environment_has_a_path_and_no_keys(place: Place) {
    let world = World::new(place);
    let (code, result) = call(
        &world,
        "bash",
        bash("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"),
    );
    let text = result["result"].as_str().unwrap();
    assert!(
        text.contains("PATH=") && !text.contains("MY_API_KEY") && !text.contains(&world.canary),
        "{text}"
    );
    assert!(code == 0 || code == 1, "{result}");
}

once_test!(an_unknown_server_is_a_typed_error);
fn an_unknown_server_is_a_typed_error() {
    let (code, result) = call(&World::new(Place::any()), "mcp__bogus__tool", json!({}));
    assert_eq!((code, kind(&result)), (2, "unknown_tool"));
    assert_eq!(result["error"]["message"], "there is no server \"bogus\"");
}

place_test!(a_file_is_read);
fn a_file_is_read(place: Place) {
    let world = World::new(place);
    world.put("test.txt", "hello");
    let (code, result) = call(&world, "file_read", json!({"path": "test.txt"}));
    assert_eq!(
        (code, &result["result"], &result["status"]),
        (0, &json!("hello"), &json!("success"))
    );
}

once_test!(a_file_that_is_not_there_is_an_error_of_the_result);
fn a_file_that_is_not_there_is_an_error_of_the_result() {
    let (code, result) = call(
        &World::new(Place::any()),
        "file_read",
        json!({"path": "missing.txt"}),
    );
    assert_eq!(
        (code, kind(&result), &result["error"]["layer"]),
        (1, "not_found", &json!("result"))
    );
    assert_eq!(result["result"], "file not found: missing.txt");
}

place_test!(parents_are_made);
fn parents_are_made(place: Place) {
    let world = World::new(place);
    let (code, result) = call(
        &world,
        "file_write",
        json!({"path": "new/dir/file.txt", "content": "data"}),
    );
    assert_eq!(
        (code, world.get("new/dir/file.txt").as_slice()),
        (0, &b"data"[..]),
        "{result}"
    );
}

place_test!(a_command_says_what_it_printed_and_its_code);
fn a_command_says_what_it_printed_and_its_code(place: Place) {
    let (code, result) = call(&World::new(place), "bash", bash("echo hello"));
    assert_eq!((code, &result["result"]), (0, &json!("hello\n")));
    assert_eq!(result["metadata"]["exitCode"], 0);
}

once_test!(nonzero_exit_code_is_an_error);
fn nonzero_exit_code_is_an_error() {
    let (code, result) = call(&World::new(Place::any()), "bash", bash("exit 42"));
    assert_eq!(
        (code, kind(&result), &result["status"]),
        (1, "exit_nonzero", &json!("error"))
    );
    assert_eq!(
        (&result["metadata"]["exitCode"], &result["result"]),
        (&json!(42), &json!("the command exited with code 42"))
    );
    // What a model reads says it too where something was printed.
    let (_, result) = call(
        &World::new(Place::any()),
        "bash",
        bash("echo part; exit 42"),
    );
    let reported = "<error>the command exited with code 42</error>\n<result>part\n</result>";
    assert_eq!(result["result"], reported);
}

place_test!(a_time_limit_kills_everything);
fn a_time_limit_kills_everything(place: Place) {
    let world = World::new(place);
    for shape in ["sleep N", "sleep N; true", "setsid sleep N & sleep N"] {
        let marker = long_sleep();
        let mut session = Session::open(&world);
        let start = Instant::now();
        let input = json!({"command": shape.replace('N', &marker), "timeout": 1});
        let answer = session.call("bash", input);
        let took = start.elapsed();
        assert_eq!(
            (answer.kind(), answer.exit_code()),
            ("timeout", None),
            "{}",
            answer.result
        );
        assert!(took >= Duration::from_secs(1), "{shape}: {took:?}");
        assert_gone(&marker, LIMIT);
        assert!(with_marker(&marker).is_empty());
    }
}

place_test!(a_command_with_the_fields_of_other_systems);
/// The fields of other systems are accepted here, and the answer for a command in the background is enough.
fn a_command_with_the_fields_of_other_systems(place: Place) {
    let world = World::new(place);
    world.put("src/a", "");
    let mut session = Session::open(&world);
    let line = "cd src && ls || echo no; echo x | cat";
    let input = json!({"description": "d", "command": line, "timeout": 10, "background": false});
    let answer = session.call("bash", input);
    assert_eq!(
        (answer.success(), &answer.result["metadata"]["timeout"]),
        ("a\nx\n", &json!(10))
    );
    // Seconds here, milliseconds there: never more than the policy's maximum, and the result says what it was.
    for (field, timeout, want, note) in [
        (
            "timeout",
            9999,
            600,
            "[timeout: 600 s is in force, 9999 s were asked for",
        ),
        (
            "timeout",
            1000,
            600,
            "[timeout: 600 s is in force, 1000 s were asked for",
        ),
        (
            "timeout_ms",
            30_000,
            30,
            "[timeout: 30 s; 30000 was read as milliseconds",
        ),
        (
            "timeoutMs",
            120_000,
            120,
            "[timeout: 120 s; 120000 was read as milliseconds",
        ),
        ("timeout", 700, 600, "[timeout: 600 s"),
    ] {
        let input = json!({"command": "pwd", "cwd": "src", field: timeout, "idleTimeout": 5000});
        let answer = session.call("shell", input);
        assert!(
            answer.success().contains("/src\n") && answer.success().contains(note),
            "{}",
            answer.result
        );
        assert_eq!(answer.result["metadata"]["timeout"], want, "{timeout}");
    }
    let lost = session.call("shell", json!({"command": "true", "cwd": "nope"}));
    assert_eq!(lost.kind(), "not_found");
    assert!(
        lost.result.to_string().contains("/nope cannot be entered"),
        "{}",
        lost.result
    );
    let argv = session.call("shell", json!({"cmd": ["echo", "a  b"], "timeout_s": 120}));
    assert_eq!(
        (argv.success(), &argv.result["metadata"]["timeout"]),
        ("a  b\n", &json!(120))
    );
    // In the background there is no time limit, which others say with a 0.
    let marker = long_sleep();
    let input = json!({"description": "d", "command": format!("sleep {marker}"), "background": true, "timeout": 0});
    let started = session.call("bash", input);
    let metadata = &started.result["metadata"];
    assert_eq!(
        (&metadata["background"], &metadata["timeout"]),
        (&json!(1), &Value::Null)
    );
    let log = metadata["log"].as_str().unwrap();
    assert_eq!(
        started.success(),
        format!("started background process 1; its output goes to {log}")
    );
    let listed = session.call("view_background_processes", json!({}));
    let text = listed.success();
    assert!(text.starts_with("1: alive, started 2"), "{text}");
    assert!(
        text.ends_with(&format!(" to {log}: sleep {marker}")),
        "{text}"
    );
    assert_eq!(
        session.call("file_read", json!({ "path": log })).success(),
        ""
    );
    session.close(LIMIT);
    assert_gone(&marker, LIMIT);
}

place_test!(an_error_is_a_result_and_the_session_goes_on);
fn an_error_is_a_result_and_the_session_goes_on(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    for (tool, input) in [
        ("bash", bash("exit 1")),
        ("file_read", json!({"path": "no"})),
        ("nope", json!({})),
        ("bash", json!({})),
    ] {
        assert!(!session.call(tool, input).ok());
    }
    session.bash("echo still here").success();
}

place_test!(refusals_inside_the_roots_end_no_session);
/// The control is the last call: a path outside ends it.
fn refusals_inside_the_roots_end_no_session(place: Place) {
    let world = World::new(place);
    world.put(".env", "KEY=1\n");
    symlink(".env", world.project.join("notes")).unwrap();
    let mut session = Session::start(world.lazaret("session").args([
        "--trust",
        "autonomous",
        "--max-violations",
        "1",
    ]));
    for (tool, input) in [
        ("file_read", json!({"path": ".env"})),
        (
            "file_write",
            json!({"path": ".git/hooks/pre-commit", "content": "x"}),
        ),
        (
            "file_edit",
            json!({"path": ".env", "edits": [{"old": "KEY", "new": "x"}]}),
        ),
        ("file_read", json!({"path": "notes"})),
        ("view_image", json!({"path": ".env"})),
        ("web_fetch", json!({"url": "http://169.254.169.254/"})),
    ] {
        let answer = session.call(tool, input.clone());
        assert_eq!(
            (answer.kind(), answer.events.len()),
            ("denied_policy", 0),
            "{input}: {}",
            answer.result
        );
    }
    session.bash("true").success();
    assert_eq!(
        session.call("file_read", json!({"path": "../x"})).kind(),
        "violation"
    );
    assert_eq!(session.bash("true").kind(), "denied_policy");
}

place_test!(violations_end_the_session_and_tool_errors_do_not);
fn violations_end_the_session_and_tool_errors_do_not(place: Place) {
    let world = World::new(place);
    let mut session = Session::start(world.lazaret("session").args([
        "--trust",
        "autonomous",
        "--max-violations",
        "3",
    ]));
    (0..5).for_each(|_| {
        assert_eq!(
            session.call("file_read", json!({"path": "no"})).kind(),
            "not_found"
        )
    });
    // Seen by the orchestrator, by the broker's policy, and by the file worker.
    symlink("/etc/passwd", world.project.join("link")).unwrap();
    for (count, path) in ["../x", "/etc/passwd", "link"].into_iter().enumerate() {
        let answer = session.call("file_read", json!({ "path": path }));
        assert_eq!(answer.kind(), "violation", "{path}");
        let [event] = &answer.events[..] else {
            panic!("{:?}", answer.events)
        };
        assert_eq!(event["event"], "security_event");
        assert_eq!(event["securityEvent"]["violations"], count + 1);
    }
    assert_eq!(session.bash("echo x").kind(), "denied_policy");
    assert_eq!(session.close(LIMIT).code(), Some(3));
}

place_test!(the_calls_of_a_batch_run_at_once);
fn the_calls_of_a_batch_run_at_once(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    // Whatever is made once a session is made now.
    session.bash("true").success();
    // Each waits for all.
    let meet = |text: &str| {
        let command = format!(
            "touch at-{text}; until [ -e at-a -a -e at-b -a -e at-c ]; do sleep 0.05; done; echo {text}"
        );
        json!({"tool_name": "bash", "parameters": bash(&command)})
    };
    let input = json!({"description": "three", "invocations": [meet("a"), meet("b"), meet("c")]});
    let answer = session.call("batch", input);
    let order: Vec<_> = answer
        .success()
        .lines()
        .filter_map(|line| line.strip_prefix("<result>"))
        .collect();
    assert_eq!(order, ["a", "b", "c"]);
    let nested = json!({"tool_name": "batch", "parameters": {"invocations": [meet("d")]}});
    assert_eq!(
        session
            .call("batch", json!({"invocations": [nested]}))
            .kind(),
        "invalid_input"
    );
}

once_test!(small_tools_keep_what_they_are_told_from_session_to_session);
fn small_tools_keep_what_they_are_told_from_session_to_session() {
    let world = World::new(Place::any());
    let mut first = Session::open(&world);
    let todos = json!([{"content": "one", "status": "in_progress", "priority": "high"}]);
    first.call("todo_write", json!({"todos": todos})).success();
    first
        .call(
            "memory",
            json!({"action": "set", "key": "colour", "value": "blue"}),
        )
        .success();
    first
        .call("create_goal", json!({"description": "done by noon"}))
        .success();
    first
        .call("checkpoint", json!({"description": "half way"}))
        .success();
    assert!(first.close(LIMIT).success());
    let mut second = Session::open(&world);
    assert_eq!(
        second.call("todo_read", json!({})).success(),
        "1. [in_progress] (high) one"
    );
    assert_eq!(
        second
            .call("memory", json!({"action": "get", "key": "colour"}))
            .success(),
        "blue"
    );
    let goals = second.call("goal_list", json!({}));
    assert_eq!(
        goals.success(),
        "g1 [active] (medium) done by noon\n  at: half way"
    );
    // A command may write there: what it leaves is neither believed nor shown.
    second
        .bash(&format!(
            "printf '\\033]52;c;x\\a' > {}/state/todo.json",
            world.central.display()
        ))
        .success();
    let spoilt = second.call("todo_read", json!({}));
    assert_eq!(spoilt.kind(), "io");
    assert!(
        spoilt.text().contains("central:state/todo.json"),
        "{}",
        spoilt.result
    );
    // Two changes at once are both kept.
    let set = |key: &str| json!({"tool_name": "memory", "parameters": {"action": "set", "key": key, "value": 1}});
    second
        .call(
            "batch",
            json!({"invocations": [set("a"), set("b"), set("c"), set("d")]}),
        )
        .success();
    assert_eq!(
        second.call("memory", json!({"action": "list"})).success(),
        "a\nb\ncolour\nc\nd".replace("colour\nc", "c\ncolour")
    );
}

once_test!(an_image_is_shown_and_a_text_that_is_called_one_is_not);
fn an_image_is_shown_and_a_text_that_is_called_one_is_not() {
    let world = World::new(Place::any());
    world.put("a.png", png(2_500_000));
    world.put("b.png", "just text");
    world.put(".env", "\u{89}PNG");
    let mut session = Session::open(&world);
    let answer = session.call("view_image", json!({"path": "a.png"}));
    assert_eq!(answer.success(), "image/png, 2500000 bytes: a.png");
    let rendered = &answer.result["image"];
    assert_eq!(
        (
            &rendered["mediaType"],
            rendered["dataBase64"].as_str().unwrap().len()
        ),
        (&json!("image/png"), 3_333_336)
    );
    assert_eq!(
        session.call("view_image", json!({"path": "b.png"})).kind(),
        "invalid_input"
    );
    assert_eq!(
        session.call("view_image", json!({"path": ".env"})).kind(),
        "denied_policy"
    );
    world.put("c.png", png(5_000_001));
    assert_eq!(
        session.call("view_image", json!({"path": "c.png"})).kind(),
        "invalid_input"
    );
}

place_test!(tests_run_in_a_cell_and_are_counted);
fn tests_run_in_a_cell_and_are_counted(place: Place) {
    let world = World::new(place);
    world.put(
        "package.json",
        r#"{"name":"x","scripts":{"test":"node --test"}}"#,
    );
    world.put(
        "a.test.js",
        "const t=require('node:test');t('good',()=>{});t('bad',()=>{throw new Error('x')});",
    );
    let mut session = Session::open(&world);
    let answer = session.call("run_tests", json!({}));
    assert_eq!(
        (answer.kind(), &answer.result["metadata"]["tool"]),
        ("exit_nonzero", &json!("run_tests"))
    );
    let tests = &answer.result["metadata"]["tests"];
    assert_eq!(
        (&tests["passed"], &tests["failed"]),
        (&json!(1), &json!(1)),
        "{}",
        answer.result
    );
    // With pytest or without it.
    let suite = "import unittest\nclass T(unittest.TestCase):\n  def test_good(self): pass\n  def test_bad(self): self.fail()\n";
    world.put("py/tests/test_it.py", suite);
    let answer = session.call("run_tests", json!({"path": "py"}));
    let tests = &answer.result["metadata"]["tests"];
    assert_eq!(
        (&tests["passed"], &tests["failed"]),
        (&json!(1), &json!(1)),
        "{}",
        answer.result
    );
    a_python_project_is_tested_with_its_own(&world, &mut session);
    // A script that lacks a program lacks none of a toolchain.
    world.put(
        "js/package.json",
        r#"{"name":"x","scripts":{"test":"no-such-program"}}"#,
    );
    let script = session.call("run_tests", json!({"path": "js"}));
    assert!(
        !script.ok() && !script.result.to_string().contains("try `--profile"),
        "{}",
        script.result
    );
    let none = session.call("run_tests", json!({"path": "central:"}));
    // 127 would mean a missing program, for which a profile is suggested.
    assert_eq!(none.exit_code(), Some(1), "{}", none.result);
    assert!(
        !none.result.to_string().contains("--profile"),
        "{}",
        none.result
    );
}

/// The project's Python here says how it was called: with pytest where the project is configured for it, by whatever file.
fn a_python_project_is_tested_with_its_own(world: &World, session: &mut Session) {
    let python = "#!/bin/sh\n[ \"$3\" = --version ] && exit 1\necho \"own $*\"\n";
    for (at, (directory, file, content, called)) in [
        (
            ".venv",
            "pyproject.toml",
            "[tool.pytest.ini_options]\n",
            "pytest",
        ),
        ("venv", "tox.ini", "[pytest]\n", "pytest"),
        (".venv", "setup.cfg", "[tool:pytest]\n", "pytest"),
        (".venv", "conftest.py", "", "pytest"),
        (".venv", "pytest.ini", "", "pytest"),
        (
            ".venv",
            "pyproject.toml",
            "[project]\n",
            "unittest discover",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let project = format!("own{at}");
        let program = format!("{project}/{directory}/bin/python");
        world.put(&program, python);
        world.put(&format!("{project}/{file}"), content);
        let program = world.project.join(program);
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        let answer = session.call("run_tests", json!({ "path": project }));
        let text = answer.success();
        assert!(text.contains(&format!("own -m {called}")), "{file}: {text}");
        let pytest = session.call(
            "run_tests",
            json!({ "path": project, "framework": "pytest" }),
        );
        assert!(pytest.success().contains("own -m pytest -q"), "{file}");
    }
}

place_test!(a_profile_cuts_at_its_bounds_and_the_whole_is_in_a_file);
fn a_profile_cuts_at_its_bounds_and_the_whole_is_in_a_file(place: Place) {
    let world = World::new(place);
    world.put("at", "x".repeat(10_240));
    world.put("over", "x".repeat(10_241));
    let mut session = Session::start(
        world
            .lazaret("session")
            .args(["--model-profile", "compact"]),
    );
    assert_eq!(
        session
            .call("file_read", json!({"path": "at"}))
            .success()
            .len(),
        10_240
    );
    let over = session.call("file_read", json!({"path": "over"}));
    assert!(
        over.success()
            .contains("[truncated: total=10241 shown=5120 strategy=head full=")
    );
    assert_eq!(
        session
            .bash("head -c 10240 /dev/zero | tr '\\0' x")
            .success()
            .len(),
        10_240
    );
    // In short words: the one at a cut is left out, as it may be part of a secret.
    let over = session.bash("yes | head -c 10241; echo");
    let note = over.success().lines().next().unwrap();
    let full = note
        .strip_prefix("[truncated: total=10242 shown=5119 strategy=tail full=")
        .unwrap();
    // Read by lines, which has no digest to say that it is whole, and cut as well.
    let whole = session.call("file_read", json!({"path": full.trim_end_matches(']')}));
    assert_eq!(whole.result["metadata"]["size"], 10_242, "{}", whole.result);
    for count in [1000, 1001] {
        let folder = format!("d{count}");
        session
            .bash(&format!(
                "mkdir {folder}; cd {folder}; touch $(seq 1 {count})"
            ))
            .success();
        let listed = session.call("file_list", json!({ "path": folder }));
        let lines = listed.success().lines().count();
        let cut = &listed.result["metadata"]["truncated"];
        match count {
            1000 => assert_eq!((lines, cut), (1000, &Value::Null)),
            _ => assert_eq!(
                (lines, &cut["total"], &cut["shown"]),
                (501, &json!(1001), &json!(500))
            ),
        }
    }
    for count in [100, 101] {
        world.put("lines", "match\n".repeat(count));
        let found = session.call("grep", json!({"pattern": "match", "path": "lines"}));
        let cut = &found.result["metadata"]["truncated"];
        match count {
            100 => assert_eq!(cut, &Value::Null),
            _ => assert_eq!((&cut["total"], &cut["shown"]), (&json!(101), &json!(50))),
        }
    }
}

once_test!(nothing_that_is_not_seen_reaches_a_model);
fn nothing_that_is_not_seen_reaches_a_model() {
    let world = World::new(Place::any());
    let evil = "a\x1b]52;c;aGk=\x07b\x1b[2Jc\u{202e}d\u{200b}e\u{9b}31mf";
    world.put("evil", evil);
    let mut session = Session::open(&world);
    for answer in [
        session.bash("cat evil"),
        session.call("file_read", json!({"path": "evil"})),
    ] {
        assert_eq!(answer.success(), "abcdef");
        assert!(
            answer.events.iter().all(|event| event["chunk"] == "abcdef"),
            "{:?}",
            answer.events
        );
    }
    let found = session.call("grep", json!({"pattern": "a", "path": "evil"}));
    assert_eq!(found.success(), "evil:1:abcdef");
    let mut raw = Session::start(world.lazaret("session").arg("--raw-output"));
    assert_eq!(raw.bash("cat evil").success(), evil);
}
