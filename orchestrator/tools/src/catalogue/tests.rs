//! How inputs in our own and in other agents' forms are converted, and which errors invalid ones give.

use super::*;
use crate::aliases::NOT_SUPPORTED;
use crate::plan::MemberInvocation;
use crate::state::{StateCommand, goal, memory};
use broker_protocol::{
    BackgroundKill, BackgroundLog, Command, Effect, ErrorKind, Failed, Request, Roots, Stdin, limit,
};
use orchestrator_web::request::{QUERY_MAX, RESULTS_MAX, SHOWN_MAX, WebRequest};
use std::collections::HashSet;

fn roots() -> Roots {
    Roots {
        project: "/p".into(),
        central: "/c".into(),
    }
}

fn try_plan(tool: &str, input: Value) -> Result<Plan, Failed> {
    let roots = roots();
    let context = PlanContext {
        roots: &roots,
        names: &[],
        directory: None,
        paths_from: None,
    };
    CatalogueTool::find(tool)
        .unwrap()
        .plan(input, &context)
        .map(|planned| planned.plan)
        .map_err(Failed::from)
}

fn plan(tool: &str, input: Value) -> Plan {
    try_plan(tool, input).unwrap()
}

fn request(tool: &str, input: Value) -> Request {
    match plan(tool, input) {
        Plan::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

fn error(tool: &str, input: Value) -> Failed {
    try_plan(tool, input).unwrap_err()
}

#[test]
fn no_name_means_two_tools() {
    let mut names = HashSet::new();
    for tool in &TOOLS {
        assert!(names.insert(tool.name), "{}", tool.name);
        assert!(
            policies::tool::aliases(tool.name)
                .iter()
                .all(|alias| names.insert(alias)),
            "{}",
            tool.name
        );
    }
}

/// Every tool of another agent is one of ours, or is unsupported for a stated reason.
#[test]
fn every_tool_of_the_other_systems_has_its_answer() {
    for name in [
        "file_read",
        "file_write",
        "bash",
        "web_search",
        "file_edit",
        "file_multi_edit",
        "grep_tool",
        "glob_tool",
        "batch",
        "view_background_processes",
        "thinking",
        "image_recognition",
        "view_image",
        "web_fetch",
        "todo_read",
        "todo_write",
        "glob",
        "ls",
        "grep",
        "read_file",
        "read_many_files",
        "edit_file",
        "write_file",
        "shell",
        "memory",
        "remember",
        "write_memory_dump",
        "create_goal",
        "switch_goal",
        "complete_goal",
        "create_checkpoint",
        "record_decision",
        "write_todos",
        "list_files",
        "run_tests",
        "fetch_url",
        "finish_task",
    ] {
        assert!(canonical(name).is_some(), "{name}");
    }
    for (name, why) in NOT_SUPPORTED {
        assert!(canonical(name).is_none() && !why.is_empty(), "{name}");
    }
}

/// The risk that the catalogue shows to a model equals the risk by which the request is decided.
#[test]
fn a_tool_has_the_risk_of_its_request() {
    let mut compared = 0;
    for tool in &TOOLS {
        if let Some(request) = plan(tool.name, example(tool.name)).decisive_request() {
            assert_eq!(request.risk(), tool.risk, "{}", tool.name);
            compared += 1;
        } else {
            assert_eq!(tool.risk, Risk::Low, "{}", tool.name);
        }
    }
    assert_eq!(compared, TOOLS.len() - UNASKED.len());
}

/// Each tool's schema compiles, names every field of its struct, and refuses other fields.
#[test]
fn schemas_accept_the_inputs_of_their_tools() {
    for tool in &TOOLS {
        let json = tool.to_json();
        let schema = &json["inputSchema"];
        assert_eq!(
            schema["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &json!(false))
        );
        assert!(
            json["description"]
                .as_str()
                .is_some_and(|text| text.ends_with('.')),
            "{}",
            tool.name
        );
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            assert!(field["description"].is_string(), "{}.{name}", tool.name);
            assert!(
                field.get("$ref").is_none() && field["type"] != "null",
                "{}.{name}",
                tool.name
            );
        }
        let mut input = example(tool.name);
        assert!(try_plan(tool.name, input.clone()).is_ok(), "{}", tool.name);
        input["no_such_field"] = json!(1);
        let unknown = error(tool.name, input).message;
        assert!(
            unknown.starts_with("unknown field `no_such_field`, "),
            "{}: {unknown}",
            tool.name
        );
        if let Some(first) = schema["required"]
            .as_array()
            .and_then(|names| names.first())
        {
            let want = format!("missing field `{}`", first.as_str().unwrap());
            assert_eq!(error(tool.name, json!({})).message, want, "{}", tool.name);
        }
    }
    let edit = CatalogueTool::find("file_edit").unwrap().to_json();
    let items = &edit["inputSchema"]["properties"]["edits"]["items"];
    assert_eq!(
        (&items["required"], &items["additionalProperties"]),
        (&json!(["old", "new"]), &json!(false))
    );
    assert_eq!(edit["risk"], "medium");
}

fn example(tool: &str) -> Value {
    match tool {
        "bash" => json!({"command": "x"}),
        "file_read" | "view_image" => json!({"path": "a"}),
        "file_write" => json!({"path": "a", "content": "x"}),
        "file_edit" => json!({"path": "a", "old": "x", "new": "y"}),
        "glob" | "grep" => json!({"pattern": "x"}),
        "background_log" | "background_kill" => json!({"id": 1}),
        "batch" => json!({"invocations": [{"tool": "ls"}]}),
        "todo_write" => json!({"todos": []}),
        "memory" => json!({"action": "list"}),
        "goal_create" | "checkpoint" => json!({"description": "x"}),
        "goal_switch" => json!({"action": "pause"}),
        "goal_complete" | "finish_task" => json!({"summary": "x"}),
        "thinking" => json!({"thought": "x"}),
        "subagent" => json!({"question": "x"}),
        "read_reasoning" | "trigger_hot_swap" => json!({}),
        "web_search" => json!({"query": "x"}),
        "web_fetch" => json!({"url": "https://example.org/"}),
        _ => json!({}),
    }
}

#[test]
fn aliases_lead_to_the_canonical_tool() {
    for (alias, name) in [
        ("read_file", "file_read"),
        ("ls", "file_list"),
        ("shell", "bash"),
        ("grep", "grep"),
        ("Bash", "bash"),
        ("Read", "file_read"),
        ("MultiEdit", "file_edit"),
        ("TodoWrite", "todo_write"),
        ("run_tests", "run_tests"),
    ] {
        assert_eq!(CatalogueTool::find(alias).unwrap().name, name);
    }
    for tool in &TOOLS {
        assert_eq!(CatalogueTool::find(tool.name).unwrap().name, tool.name);
    }
    assert!(
        ["", "B ash!x", "mcp__fs__read", "history"]
            .iter()
            .all(|name| CatalogueTool::find(name).is_none())
    );
}

/// Calls as the models of other agents write them.
#[test]
fn calls_of_other_agents_are_understood_and_fields_without_effect_are_named() {
    let edit = json!({"path": "a", "edits": [{"old": "x", "new": "y", "all": true}]});
    let none: &[&str] = &[];
    let cases = [
        (
            "Bash",
            json!({"command": "make", "description": "build", "timeout": 120_000, "run_in_background": false,
                "dangerouslyDisableSandbox": true}),
            (
                "bash",
                json!({"command": "make", "timeout": 120_000, "background": false}),
            ),
            &["dangerouslyDisableSandbox"][..],
        ),
        (
            "exec_command",
            json!({"cmd": "ls", "workdir": "/p/d", "yield_time_ms": 1000, "justification": "look"}),
            ("bash", json!({"command": "ls", "cwd": "d"})),
            &["yield_time_ms"],
        ),
        (
            "Read",
            json!({"file_path": "/p/a", "offset": 2, "limit": 3}),
            ("file_read", json!({"path": "a", "offset": 2, "limit": 3})),
            none,
        ),
        (
            "Edit",
            json!({"file_path": "/p/a", "old_string": "x", "new_string": "y", "replace_all": true}),
            ("file_edit", edit.clone()),
            none,
        ),
        (
            "edit",
            json!({"filePath": "/p/a", "oldString": "x", "newString": "y", "replaceAll": true}),
            ("file_edit", edit),
            none,
        ),
        (
            "replace",
            json!({"file_path": "a", "instruction": "i", "old_string": "x", "new_string": "y", "expected_replacements": 2}),
            (
                "file_edit",
                json!({"path": "a", "edits": [{"old": "x", "new": "y", "occurrence": 2}]}),
            ),
            none,
        ),
        (
            "Write",
            json!({"file_path": "a", "content": "t"}),
            ("file_write", json!({"path": "a", "content": "t"})),
            none,
        ),
        (
            "Glob",
            json!({"pattern": "*.rs", "path": "src", "respect_git_ignore": true}),
            ("glob", json!({"pattern": "*.rs", "path": "src"})),
            &["respect_git_ignore"],
        ),
        (
            "Grep",
            json!({"pattern": "x", "glob": "*.rs", "-i": true, "-n": true, "-A": 2, "-B": 1, "head_limit": 5,
                "output_mode": "content", "multiline": false}),
            (
                "grep",
                json!({"pattern": "x", "include": "*.rs", "ignore_case": true, "context": 2, "limit": 5}),
            ),
            &["-n", "output_mode"],
        ),
        (
            "list_directory",
            json!({"dir_path": "d", "ignore": ["x"]}),
            ("file_list", json!({"path": "d"})),
            &["ignore"],
        ),
        (
            "BashOutput",
            json!({"bash_id": "3"}),
            ("background_log", json!({"id": 3})),
            none,
        ),
        (
            "KillShell",
            json!({"shell_id": "3"}),
            ("background_kill", json!({"id": 3})),
            none,
        ),
    ];
    let roots = roots();
    let context = PlanContext {
        roots: &roots,
        names: &[],
        directory: None,
        paths_from: None,
    };
    for (tool, input, (ours, want), without_effect) in cases {
        let planned = CatalogueTool::find(tool)
            .unwrap()
            .plan(input, &context)
            .unwrap_or_else(|error| panic!("{tool}: {error}"));
        assert_eq!(
            (planned.plan, &planned.without_effect[..]),
            (plan(ours, want), without_effect),
            "{tool}"
        );
    }
    let todos = json!({"todos": [{"content": "c", "status": "pending", "activeForm": "doing c"}]});
    assert_eq!(
        plan("TodoWrite", todos),
        plan(
            "todo_write",
            json!({"todos": [{"content": "c", "status": "pending"}]})
        )
    );
    // A field that would change a call's meaning is not ignored.
    for (tool, input) in [
        ("Grep", json!({"pattern": "x", "multiline": true})),
        ("Grep", json!({"pattern": "x", "-A": "two"})),
        (
            "Edit",
            json!({"file_path": "a", "old_string": "x", "new_string": "y", "dry_run": true}),
        ),
        (
            "Write",
            json!({"file_path": "a", "path": "b", "content": "t"}),
        ),
        ("KillShell", json!({"shell_id": "x"})),
    ] {
        assert_eq!(
            error(tool, input.clone()).kind,
            ErrorKind::InvalidInput,
            "{tool} {input}"
        );
    }
}

#[test]
fn a_command_is_for_the_shell_or_for_a_program() {
    let Request::Bash(bash) = request(
        "bash",
        json!({"command": "echo hi", "timeout": 5, "cwd": "/c/x"}),
    ) else {
        panic!()
    };
    assert_eq!(bash.command, Command::Shell("echo hi".into()));
    assert_eq!(bash.timeout_s, Some(5));
    assert_eq!(bash.directory.unwrap().to_string(), "central:x");
    assert_eq!(bash.stdin, Stdin::Null);
    let Request::Bash(bash) = request(
        "shell",
        json!({"cmd": ["ls", "-l"], "timeout_s": 7, "stdin": true}),
    ) else {
        panic!()
    };
    assert_eq!(
        bash.command,
        Command::Arguments(vec![b"ls".to_vec().into(), b"-l".to_vec().into()])
    );
    assert_eq!((bash.timeout_s, bash.stdin), (Some(7), Stdin::Stream));
}

#[test]
fn forms_of_other_systems_mean_the_same() {
    let want = request("file_read", json!({"path": "a", "offset": 3, "limit": 5}));
    assert_eq!(
        request(
            "read_file",
            json!({"file_path": "/p/a", "startLine": 3, "endLine": 7})
        ),
        want
    );
    let want = request(
        "file_edit",
        json!({"path": "a", "edits": [{"old": "x", "new": "y"}]}),
    );
    assert_eq!(
        request(
            "edit_file",
            json!({"file_path": "a", "old_text": "x", "new_text": "y"})
        ),
        want
    );
    assert_eq!(
        request(
            "edit",
            json!({"path": "a", "edits": [{"target": "x", "replacement": "y"}]})
        ),
        want
    );
    let want = request(
        "file_list",
        json!({"path": "d", "depth": 64, "hidden": true}),
    );
    assert_eq!(
        request(
            "ls",
            json!({"directory": "d", "recursive": true, "includeHidden": true})
        ),
        want
    );
    assert_eq!(
        request(
            "ls",
            json!({"path": ".", "recursive": false, "maxDepth": 9})
        ),
        request("file_list", json!({}))
    );
    let want = request(
        "grep",
        json!({"pattern": "x", "ignore_case": true, "literal": true, "include": "*.rs"}),
    );
    let foreign = json!({"pattern": "x", "caseSensitive": false, "fixed_strings": true, "filePattern": "*.rs"});
    assert_eq!(request("grep_tool", foreign), want);
    let want = request(
        "file_write",
        json!({"path": "a", "content": "t", "overwrite": true}),
    );
    assert_eq!(
        request("write_file", json!({"path": "a", "text": "t"})),
        want
    );
}

#[test]
fn background_processes_go_by_their_number() {
    let Request::Bash(bash) = request("bash", json!({"command": "x", "background": true})) else {
        panic!()
    };
    assert!(bash.background && bash.timeout_s.is_none());
    assert_eq!(
        request("view_background_processes", json!({})),
        Request::BackgroundList
    );
    let log = BackgroundLog {
        id: 3,
        from: None,
        most: 8192,
    };
    assert_eq!(
        request("background_log", json!({"id": 3})),
        Request::BackgroundLog(log.clone())
    );
    let log = BackgroundLog {
        from: Some(0),
        most: 5,
        ..log
    };
    assert_eq!(
        request("background_log", json!({"id": 3, "offset": 0, "bytes": 5})),
        Request::BackgroundLog(log)
    );
    assert_eq!(
        request("background_kill", json!({"id": 3})),
        Request::BackgroundKill(BackgroundKill { id: 3 })
    );
}

#[test]
fn a_wrong_input_has_its_kind() {
    let cases = [
        (
            "file_read",
            json!({"path": "../../etc/passwd"}),
            ErrorKind::Violation,
        ),
        (
            "bash",
            json!({"command": "x", "cwd": "../x"}),
            ErrorKind::Violation,
        ),
        (
            "file_read",
            json!({"path": "a\u{0}"}),
            ErrorKind::InvalidInput,
        ),
        (
            "file_read",
            json!({"path": "a", "startLine": 5, "endLine": 3}),
            ErrorKind::InvalidInput,
        ),
        (
            "file_read",
            json!({"path": "a", "startLine": 5, "offset": 3}),
            ErrorKind::InvalidInput,
        ),
        (
            "bash",
            json!({"command": "x".repeat(limit::COMMAND + 1)}),
            ErrorKind::InvalidInput,
        ),
        (
            "bash",
            json!({"command": "a\u{0}b"}),
            ErrorKind::InvalidInput,
        ),
        (
            "bash",
            json!({"command": "x", "background": true, "stdin": true}),
            ErrorKind::InvalidInput,
        ),
        (
            "background_log",
            json!({"id": 1, "bytes": limit::LOG + 1}),
            ErrorKind::InvalidInput,
        ),
        ("background_kill", json!({}), ErrorKind::InvalidInput),
        (
            "file_edit",
            json!({"path": "a", "edits": [{"old": "", "new": "y"}]}),
            ErrorKind::InvalidInput,
        ),
        (
            "file_edit",
            json!({"path": "a", "old": "x", "edits": []}),
            ErrorKind::InvalidInput,
        ),
        (
            "file_edit",
            json!({"path": "a", "edits": [{"old": "x", "new": "y", "all": true, "occurrence": 2}]}),
            ErrorKind::InvalidInput,
        ),
        (
            "file_list",
            json!({"recursive": 1}),
            ErrorKind::InvalidInput,
        ),
        (
            "grep",
            json!({"pattern": "x".repeat(limit::PATTERN + 1)}),
            ErrorKind::InvalidInput,
        ),
        ("glob", json!("*.rs"), ErrorKind::InvalidInput),
    ];
    for (tool, input, kind) in cases {
        let error = error(tool, input.clone());
        assert_eq!(error.kind, kind, "{tool} {input}: {}", error.message);
    }
}

#[test]
fn limits_are_named_with_their_field() {
    let message = error("bash", json!({"command": "x".repeat(limit::COMMAND + 1)})).message;
    let (most, sent) = (limit::COMMAND, limit::COMMAND + 1);
    assert_eq!(
        message,
        format!("field `command`: at most {most} bytes, this has {sent}")
    );
}

/// A value above the maximum becomes the maximum, and the executor reports it.
#[test]
fn a_time_limit_above_the_most_is_the_most() {
    for timeout in [86_400, 86_401, 864_000_001] {
        let input = json!({"command": "x", "timeout": timeout, "idleTimeout": timeout});
        let Request::Bash(bash) = request("shell", input) else {
            panic!()
        };
        assert_eq!(
            (bash.timeout_s, bash.idle_timeout_s),
            (Some(86_400), Some(86_400))
        );
    }
    let input = json!({"command": "x", "timeout": 1000, "idleTimeoutMs": 1500});
    let Request::Bash(bash) = request("shell", input) else {
        panic!()
    };
    assert_eq!((bash.timeout_s, bash.idle_timeout_s), (Some(1000), Some(2)));
    // For a background command, other agents use 0 for no time limit.
    let none = |background| json!({"command": "x", "background": background, "timeout": 0});
    assert!(matches!(request("bash", none(true)), Request::Bash(bash) if bash.timeout_s.is_none()));
    assert_eq!(error("bash", none(false)).kind, ErrorKind::InvalidInput);
}

#[test]
fn a_field_may_be_null_or_a_whole_number_in_another_form_and_is_given_once() {
    let input = json!({"path": "a", "offset": 3.0, "limit": null});
    let want = request("file_read", json!({"path": "a", "offset": 3}));
    assert_eq!(request("file_read", input), want);
    let twice = error("file_read", json!({"path": "a", "file_path": "b"})).message;
    assert_eq!(
        twice,
        "field `path`: given twice, as `path` and as `file_path`"
    );
    let edits = json!([{"old": "x", "old_text": "y", "new": "z"}]);
    let twice = error("file_edit", json!({"path": "a", "edits": edits})).message;
    assert_eq!(
        twice,
        "field `edits[0].old`: given twice, as `edits[0].old` and as `old_text`"
    );
}

#[test]
fn a_model_reads_which_field_was_wrong_what_was_expected_and_what_was_found() {
    let todo = |value: Value| json!({"todos": [value]});
    let cases = [
        (
            "bash",
            json!([]),
            "the input must be a JSON object, this is []",
        ),
        (
            "bash",
            json!({"comand": "x"}),
            "unknown field `comand`, expected one of `background`, `command`, `cwd`, `description`, `idle_timeout`, `split`, `stdin`, `timeout`; did you mean `command`?",
        ),
        (
            "bash",
            json!({"command": []}),
            "field `command`: expected a string or an array of at least 1 strings, this is []",
        ),
        (
            "bash",
            json!({"command": "x", "timeout": 0}),
            "field `timeout`: expected an integer of at least 1, this is 0",
        ),
        (
            "bash",
            json!({"command": "x", "timeout": "9"}),
            "field `timeout`: expected an integer of at least 1, this is \"9\"",
        ),
        (
            "bash",
            json!({"command": "x", "background": "yes"}),
            "field `background`: expected true or false, this is \"yes\"",
        ),
        (
            "file_list",
            json!({"depth": 65}),
            "field `depth`: expected an integer from 1 to 64, this is 65",
        ),
        (
            "file_list",
            json!({"limit": 1.5}),
            "field `limit`: expected an integer from 1 to 10000, this is 1.5",
        ),
        (
            "file_write",
            json!({"path": "a", "content": "", "expected_sha256": "zz"}),
            "field `expected_sha256`: expected a string that matches ^[0-9a-fA-F]{64}$, this is \"zz\"",
        ),
        (
            "file_edit",
            json!({"path": "a", "edits": [{"old": "x", "nwe": ""}]}),
            "unknown field `edits[0].nwe`, expected one of `all`, `line`, `new`, `occurrence`, `old`; did you mean `new`?",
        ),
        (
            "file_edit",
            json!({"path": "a", "edits": [7]}),
            "field `edits[0]`: expected an object, this is 7",
        ),
        (
            "file_edit",
            json!({"path": "a", "edits": []}),
            "field `edits`: expected an array of 1 to 256 objects, this is []",
        ),
        ("batch", json!({}), "missing field `invocations`"),
        (
            "batch",
            json!({"invocations": []}),
            "field `invocations`: expected an array of 1 to 32 objects, this is []",
        ),
        (
            "batch",
            json!({"invocations": [{"tool_name": "ls", "parameters": "x"}]}),
            "field `invocations[0].parameters`: expected an object, this is \"x\"",
        ),
        (
            "batch",
            json!({"invocations": [{"parameters": {}}]}),
            "missing field `invocations[0].tool_name`",
        ),
        (
            "read_many_files",
            json!({"paths": "a"}),
            "field `paths`: expected an array of strings, this is \"a\"",
        ),
        (
            "todo_read",
            json!({"all": 1}),
            "unknown field `all`, there are none",
        ),
        ("todo_write", json!({}), "missing field `todos`"),
        (
            "todo_write",
            todo(json!({"content": "x", "status": "done"})),
            "field `todos[0].status`: expected one of pending, in_progress, completed, canceled, this is \"done\"",
        ),
        (
            "todo_write",
            todo(json!({"content": "x", "status": "pending", "priority": "max"})),
            "field `todos[0].priority`: expected one of low, medium, high, this is \"max\"",
        ),
        (
            "todo_write",
            todo(json!({"content": "", "status": "pending"})),
            "field `todos[0].content`: expected a string of 1 to 1000 characters, this is \"\"",
        ),
        (
            "todo_write",
            json!({"action": "add"}),
            "missing field `task`",
        ),
        (
            "todo_write",
            json!({"todos": [], "action": "add", "task": "x"}),
            "field `todos`: expected either `todos` or `action`, not both, this is []",
        ),
        ("memory", json!({"action": "get"}), "missing field `key`"),
        (
            "memory",
            json!({"action": "set", "key": "a"}),
            "missing field `value`",
        ),
        (
            "memory",
            json!({"action": "get", "key": "../x"}),
            "field `key`: expected a string that matches ^[A-Za-z0-9._-]{1,64}$, this is \"../x\"",
        ),
        (
            "memory",
            json!({"action": "wipe"}),
            "field `action`: expected one of get, set, delete, list, this is \"wipe\"",
        ),
        (
            "memory",
            json!({"action": "set", "key": "a", "value": "x".repeat(memory::VALUE_MAX)}),
            "field `value`: expected at most 16384 bytes of JSON, this is a string of 16384 bytes",
        ),
        ("goal_create", json!({}), "missing field `description`"),
        (
            "goal_switch",
            json!({"action": "resume"}),
            "missing field `goal_id`",
        ),
        (
            "goal_complete",
            json!({"artifacts": []}),
            "missing field `summary`",
        ),
        (
            "checkpoint",
            json!({"description": 5}),
            "field `description`: expected a string of 1 to 8000 characters, this is 5",
        ),
        (
            "checkpoint",
            json!({"description": "x", "tests_added": ["a", ""]}),
            "field `tests_added[1]`: expected a string of 1 to 2000 characters, this is \"\"",
        ),
        (
            "finish_task",
            json!({"summary": "x", "tests_verified": "yes"}),
            "field `tests_verified`: expected true or false, this is \"yes\"",
        ),
        (
            "finish_task",
            json!({"summary": "x", "citations": [{"url": "u"}]}),
            "missing field `citations[0].claim`",
        ),
        (
            "view_image",
            json!({"image_path": "https://u:p@x/y.png"}),
            "field `path`: expected a URL without a user name or password, this is \"https://u:p@x/y.png\"",
        ),
        (
            "run_tests",
            json!({"framework": "make"}),
            "field `framework`: expected one of auto, pytest, cargo, npm, this is \"make\"",
        ),
        (
            "web_search",
            json!({"query": " "}),
            "field `query`: expected a string of 1 to 2000 bytes that is not blank, this is \" \"",
        ),
        (
            "web_search",
            json!({"query": "x", "max_results": 21}),
            "field `max_results`: expected an integer from 1 to 20, this is 21",
        ),
        (
            "web_fetch",
            json!({"url": "https://a.example", "timeout": 0}),
            "field `timeout`: expected an integer of at least 1, this is 0",
        ),
        (
            "web_fetch",
            json!({"url": "https://a.example", "max_length": SHOWN_MAX + 1}),
            "field `max_length`: expected an integer from 1 to 1048576, this is 1048577",
        ),
        (
            "web_fetch",
            json!({"url": "https://a.example", "selector": "a >"}),
            "field `selector`: expected a CSS selector (nothing follows the last combinator), this is \"a >\"",
        ),
        (
            "web_fetch",
            json!({"url": "file:///etc/passwd"}),
            "field `url`: expected a URL that begins with https:// (or http://), this is \"file:///etc/passwd\"",
        ),
    ];
    for (tool, input, want) in cases {
        let failed = error(tool, input.clone());
        assert_eq!(
            (failed.kind, failed.message.as_str()),
            (ErrorKind::InvalidInput, want),
            "{tool} {input}"
        );
    }
    assert_eq!(
        error("run_tests", json!({"path": "../etc"})).kind,
        ErrorKind::Violation
    );
}

/// Errors come in this order: unknown fields, missing fields, types and values.
#[test]
fn existence_comes_before_presence_and_presence_before_values() {
    assert!(
        error("file_list", json!({"nope": 1, "depth": "x"}))
            .message
            .contains("`nope`")
    );
    assert!(
        error("grep", json!({"limit": "x", "context": 99}))
            .message
            .contains("`pattern`")
    );
    assert!(
        error("grep", json!({"pattern": "x", "context": 99, "limit": "x"}))
            .message
            .contains("`limit`")
    );
}

#[test]
fn web_requests_have_their_bounds() {
    let Plan::Web(WebRequest::Search(search)) = plan("web_search", json!({"query": "x"})) else {
        panic!()
    };
    assert_eq!(search.max_results, 5);
    let input = json!({"query": "x".repeat(QUERY_MAX), "numResults": 20});
    let Plan::Web(WebRequest::Search(search)) = plan("web_search", input) else {
        panic!()
    };
    assert_eq!(search.max_results, RESULTS_MAX);
    assert!(try_plan("web_search", json!({"query": "x".repeat(QUERY_MAX + 1)})).is_err());
    let input = json!({"url": "https://a.example/#x", "maxLength": 7, "timeout": 120_000});
    let Plan::Web(WebRequest::Fetch(fetch)) = plan("fetch_url", input) else {
        panic!()
    };
    let got = (fetch.target.to_string(), fetch.shown, fetch.timeout_s);
    assert_eq!(got, ("https://a.example/".into(), 7, 120));
}

#[test]
fn forms_of_other_systems_become_ours() {
    let many = plan(
        "read_many_files",
        json!({"paths": ["a", "b"], "startLine": 2, "endLine": 3}),
    );
    let lines = |path: &str| json!({"path": path, "startLine": 2, "endLine": 3});
    let call = |input| MemberInvocation {
        tool: "file_read".into(),
        input,
    };
    assert_eq!(many, Plan::Batch(vec![call(lines("a")), call(lines("b"))]));
    let max = inputs::INVOCATIONS_MAX;
    for count in [0, max, max + 1] {
        let planned = try_plan("read_many_files", json!({ "paths": vec!["a"; count] }));
        assert_eq!(planned.is_ok(), count == max, "{count}");
    }
    let decided = json!({
        "description": "use x", "rationale": "it is fast", "alternatives": ["y", "z"], "locked": true,
    });
    let checkpoint = goal::Checkpoint {
        description: "use x\nbecause: it is fast\ninstead of: y\ninstead of: z".into(),
        files_modified: vec![],
        tests_added: vec![],
        decisions_locked: vec!["use x".into()],
    };
    assert_eq!(
        plan("record_decision", decided),
        Plan::State(StateCommand::Checkpoint(checkpoint))
    );
    for input in [
        json!({"description": "x", "locked": 1}),
        json!({"description": "x", "alternatives": "y"}),
    ] {
        assert!(try_plan("record_decision", input).is_err());
    }
    let edit = json!({"path": "a", "edits": [{"target": "x", "replacement": "y", "lineHint": 3}]});
    assert_eq!(
        plan("edit_file", edit),
        plan(
            "file_edit",
            json!({"path": "a", "old": "x", "new": "y", "line": 3})
        )
    );
    let dump = |name: &str| {
        try_plan(
            "write_memory_dump",
            json!({"content": "x", "filename": name}),
        )
    };
    let Ok(Plan::Request(Request::FileWrite(write))) = dump("a.md") else {
        panic!("no write")
    };
    assert_eq!(write.path.to_string(), "central:memory/a.md");
    assert_eq!(dump("../../a").unwrap_err().kind, ErrorKind::Violation);
}

/// An approval is for the file that would be written.
#[test]
fn order_of_fields_does_not_change_the_stored_text() {
    let stored = |text: &str| {
        let Plan::State(command) = plan("memory", serde_json::from_str(text).unwrap()) else {
            panic!("{text}")
        };
        command.apply(None).unwrap().save.unwrap()
    };
    assert_eq!(
        stored(r#"{"action":"set","key":"a","value":{"x":1,"y":2}}"#),
        stored(r#"{"value":{"y":2,"x":1},"key":"a","action":"set"}"#)
    );
}

/// Removing parts of a schema keeps no order that means something; a model's text changes only on purpose.
#[test]
fn a_schema_is_sorted() {
    for tool in &TOOLS {
        let schema = tool.to_json()["inputSchema"].take();
        let mut sorted = schema.clone();
        sorted.sort_all_objects();
        assert_eq!(schema.to_string(), sorted.to_string(), "{}", tool.name);
    }
}

#[test]
fn other_names_of_the_small_tools_mean_the_same() {
    assert_eq!(
        plan("remember", json!({"key": "a", "value": 1})),
        plan("memory", json!({"action": "set", "key": "a", "value": 1}))
    );
    assert_eq!(
        plan(
            "image_recognition",
            json!({"image_path": "file:///p/a.png", "prompt": "?"})
        ),
        plan("view_image", json!({"path": "a.png"}))
    );
    let address = plan(
        "image_recognition",
        json!({"image_path": "HTTPS://x/y.png", "prompt": "?"}),
    );
    assert_eq!(
        address,
        plan("view_image", json!({"path": "https://x/y.png"}))
    );
    let fetch = Request::Effect(Effect::WebFetch {
        url: "https://x/y.png".into(),
    });
    assert_eq!(address.decisive_request(), Some(fetch));
    assert!(matches!(
        plan("view_image", json!({"path": "./https://x/y.png"})),
        Plan::Image(_)
    ));
    assert_eq!(
        plan(
            "switch_goal",
            json!({"action": "new", "newGoalDescription": "g"})
        ),
        plan("goal_switch", json!({"action": "new", "description": "g"}))
    );
    assert_eq!(
        plan(
            "create_checkpoint",
            json!({"description": "d", "filesModified": ["a"]})
        ),
        plan(
            "checkpoint",
            json!({"description": "d", "files_modified": ["a"]})
        )
    );
    assert_eq!(
        plan("write_todos", json!({"action": "list"})),
        plan("todo_read", json!({}))
    );
    assert_eq!(
        plan("write_todos", json!({"action": "remove", "id": 2})),
        plan("todo_write", json!({"action": "remove", "id": "2"}))
    );
    let batch = |call: Value| plan("batch", json!({"invocations": [call]}));
    assert_eq!(
        batch(json!({"tool": "ls", "input": {"path": "a"}})),
        batch(json!({"tool_name": "ls", "parameters": {"path": "a"}}))
    );
    assert_eq!(
        plan("finish_task", json!({"executive_summary": "s"})),
        Plan::Finish(json!({"summary": "s"}))
    );
}
