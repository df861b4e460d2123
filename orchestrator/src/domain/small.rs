//! The small tools: notes of the agent's own, several calls in one, an image, a test suite. Rows of the catalogue, and
//! what their input becomes.

use super::catalogue::{Category, SECONDS, Tool};
use super::field::{Field, FieldError, Input, Kind, shown};
use super::request::{self, InputError, Invocation, Plan, Work, put, required_text};
use super::state::goal;
use super::state::{Order, memory, todo};
use super::web;
use broker_protocol::{Bash, Framework, Risk, Roots, Stdin};
use serde_json::{Map, Value, json};

/// Calls in one batch.
pub const INVOCATIONS: usize = 32;

const LEVELS: Kind = Kind::Choice(&["low", "medium", "high"]);
const TITLE: Kind = Kind::Short(1000);
const TEXT: Kind = Kind::Short(8000);
const LIST: Kind = Kind::Texts(100);

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    description: &'static str,
    fields: &'static [Field],
    build: fn(Input, &Roots) -> Result<Plan, InputError>,
) -> Tool {
    Tool {
        name,
        aliases,
        description,
        category: Category::Agent,
        risk: Risk::Low,
        fields,
        rewrite: request::as_it_is,
        build: Work::Other(build),
    }
}

/// Several calls at once.
pub const BATCH: Tool = Tool { rewrite: many_files, ..BATCH_ROW };

const BATCH_ROW: Tool = row(
    "batch",
    &["read_many_files"],
    "Makes several calls that do not depend on each other at once, and returns all results in order. All are checked \
     before the first one runs, and each is allowed or refused by itself. Calls that change files run one after the \
     other. A batch holds no batch.",
    &[
        Field::may("description", TITLE, "What the calls are for, in a few words, for the user."),
        Field::must(
            "invocations",
            Kind::List {
                fields: &[
                    Field::must("tool_name", Kind::Short(128), "The tool.").or(&["toolName", "tool", "name"]),
                    Field::may("parameters", Kind::Object, "Its input.").or(&["input", "arguments"]),
                ],
                least: 1,
                most: INVOCATIONS,
            },
            "The calls.",
        ),
    ],
    batch,
);

/// A list of `paths` is as many reads, each of the lines that are named beside it.
fn many_files(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    let Some(Value::Array(paths)) = values.get_mut("paths").map(Value::take) else { return Ok(()) };
    if !(1..=INVOCATIONS).contains(&paths.len()) {
        return Err(wrong("paths", &format!("a list of 1 to {INVOCATIONS} paths"), &paths.into()));
    }
    values.remove("paths");
    let lines: Map<String, Value> = ["startLine", "endLine", "start_line", "end_line"]
        .iter()
        .filter_map(|name| values.remove_entry(*name))
        .collect();
    let read = |path: Value| {
        let mut input = lines.clone();
        input.insert("path".into(), path);
        json!({ "tool_name": "file_read", "parameters": input })
    };
    put(values, "invocations", paths.into_iter().map(read).collect())
}

fn batch(mut input: Input, _: &Roots) -> Result<Plan, InputError> {
    let invocation = |mut input: Input| {
        let tool = input.text("tool_name").unwrap_or_default();
        Invocation { tool, input: input.value("parameters").unwrap_or_else(|| json!({})) }
    };
    Ok(Plan::Batch(input.list("invocations").into_iter().map(invocation).collect()))
}

/// The list of things to do.
pub const TODO_READ: Tool =
    row("todo_read", &["read_todos"], "Returns the list of things to do for this project.", &[], |_, _| {
        Ok(Plan::State(Order::TodoRead))
    });

/// Replaces that list.
pub const TODO_WRITE: Tool = Tool {
    rewrite: one_todo,
    ..row(
        "todo_write",
        &["write_todos"],
        "Replaces the list of things to do for this project, or changes one entry of it.",
        &[
            Field::may(
                "todos",
                Kind::List {
                    fields: &[
                        Field::must("content", TITLE, "What is to be done."),
                        Field::must("status", Kind::Choice(&todo::STATUS), "How far it is."),
                        Field::may("priority", LEVELS, "medium if absent."),
                        Field::may("id", Kind::Key, "A name for it, if it needs one."),
                    ],
                    least: 0,
                    most: todo::MOST,
                },
                "The whole new list; may be empty.",
            ),
            Field::may(
                "action",
                Kind::Choice(&["add", "complete", "remove", "list"]),
                "Instead of a list: change one entry.",
            ),
            Field::may("task", TITLE, "The entry to add."),
            Field::may(
                "id",
                Kind::Key,
                "The entry to complete or remove: its id, or its place counted from 1.",
            ),
        ],
        todo_write,
    )
};

/// `id` may be a number.
fn one_todo(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    if let Some(Value::Number(number)) = values.get("id") {
        let text = number.to_string();
        values.insert("id".into(), text.into());
    }
    Ok(())
}

fn todo_write(mut input: Input, _: &Roots) -> Result<Plan, InputError> {
    let (list, action) = (input.value("todos"), input.text("action"));
    let change = match (list, action.as_deref()) {
        (Some(list), None) => {
            return Ok(Plan::State(Order::TodoWrite(todo::Change::Replace(todo::from_checked(list)))));
        }
        (None, Some("add")) => todo::Change::Add(required_text(&mut input, "task")?),
        (None, Some("complete")) => todo::Change::Complete(required_text(&mut input, "id")?),
        (None, Some("remove")) => todo::Change::Remove(required_text(&mut input, "id")?),
        (None, Some(_)) => return Ok(Plan::State(Order::TodoRead)),
        (None, None) => return Err(FieldError::Missing("todos".into()).into()),
        (Some(list), Some(_)) => {
            let rule = "either `todos` or `action`, not both".into();
            return Err(FieldError::Rule { name: "todos".into(), rule, found: shown(&list) }.into());
        }
    };
    Ok(Plan::State(Order::TodoWrite(change)))
}

/// Values by name.
pub const MEMORY: Tool = Tool {
    rewrite: remember,
    ..row(
        "memory",
        &["remember"],
        "Keeps values by name for this project, from session to session.",
        &[
            Field::must("action", Kind::Choice(&["get", "set", "delete", "list"]), "What to do."),
            Field::may("key", Kind::Key, "The name; not for `list`."),
            Field::may("value", Kind::Any, "The value, for `set`: a text, or any JSON of at most 16 KiB."),
            Field::may(
                "category",
                Kind::Choice(&["fact", "preference", "context"]),
                "For `set`: what kind it is.",
            ),
        ],
        memory,
    )
};

/// A key and a value without an action are to be kept.
fn remember(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    if !values.contains_key("action") && values.contains_key("key") && values.contains_key("value") {
        put(values, "action", json!("set"))?;
    }
    Ok(())
}

fn memory(mut input: Input, _: &Roots) -> Result<Plan, InputError> {
    let action = required_text(&mut input, "action")?;
    let change = match action.as_str() {
        "list" => memory::Action::List,
        "get" => memory::Action::Get(required_text(&mut input, "key")?),
        "delete" => memory::Action::Delete(required_text(&mut input, "key")?),
        _ => {
            let key = required_text(&mut input, "key")?;
            let value = input.value("value").ok_or_else(|| FieldError::Missing("value".into()))?;
            if value.to_string().len() > memory::VALUE {
                let rule = format!("at most {} bytes of JSON", memory::VALUE);
                return Err(FieldError::Rule { name: "value".into(), rule, found: shown(&value) }.into());
            }
            memory::Action::Set { key, value, category: input.text("category") }
        }
    };
    Ok(Plan::State(Order::Memory(change)))
}

/// A new goal.
pub const GOAL_CREATE: Tool = row(
    "goal_create",
    &["create_goal"],
    "Adds a goal for this project. It becomes the active one if none is.",
    &[
        Field::must("description", TITLE, "What is to be reached."),
        Field::may("priority", LEVELS, "medium if absent."),
        Field::may("subtasks", LIST, "Steps on the way."),
    ],
    |mut input, _| {
        let description = required_text(&mut input, "description")?;
        let (priority, subtasks) = (input.text("priority"), input.texts("subtasks"));
        Ok(Plan::State(Order::Goals(goal::Change::Create { description, priority, subtasks })))
    },
);

/// Another active goal.
pub const GOAL_SWITCH: Tool = row(
    "goal_switch",
    &["switch_goal"],
    "Pauses the active goal, resumes another one, or begins a new one.",
    &[
        Field::must("action", Kind::Choice(&["pause", "resume", "new"]), "What to do."),
        Field::may("goal_id", Kind::Key, "The goal to resume.").or(&["goalId", "id"]),
        Field::may("description", TITLE, "What the new goal is.")
            .or(&["newGoalDescription", "new_goal_description"]),
        Field::may("priority", LEVELS, "That of the new goal."),
    ],
    |mut input, _| {
        let change = match required_text(&mut input, "action")?.as_str() {
            "pause" => goal::Change::Pause,
            "resume" => goal::Change::Resume(required_text(&mut input, "goal_id")?),
            _ => goal::Change::New {
                description: required_text(&mut input, "description")?,
                priority: input.text("priority"),
            },
        };
        Ok(Plan::State(Order::Goals(change)))
    },
);

/// A goal is reached.
pub const GOAL_COMPLETE: Tool = row(
    "goal_complete",
    &["complete_goal"],
    "Says that the active goal is reached.",
    &[
        Field::must("summary", TEXT, "What was done."),
        Field::may("artifacts", LIST, "Files or other things that came of it."),
    ],
    |mut input, _| {
        let summary = required_text(&mut input, "summary")?;
        Ok(Plan::State(Order::Goals(goal::Change::Complete { summary, artifacts: input.texts("artifacts") })))
    },
);

/// The goals.
pub const GOAL_LIST: Tool = row(
    "goal_list",
    &["list_goals"],
    "Returns the goals of this project and their checkpoints.",
    &[],
    |_, _| Ok(Plan::State(Order::GoalList)),
);

/// Where the work stands.
pub const CHECKPOINT: Tool = Tool { rewrite: decision, ..CHECKPOINT_ROW };

/// A decision with its reasons is a text; one that is locked stands with those that stand.
fn decision(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    let mut reasons = String::new();
    if let Some(rationale) = values.remove("rationale").filter(|value| !value.is_null()) {
        let text = rationale.as_str().ok_or_else(|| wrong("rationale", "a text", &rationale))?;
        reasons.push_str(&format!("\nbecause: {text}"));
    }
    if let Some(others) = values.remove("alternatives").filter(|value| !value.is_null()) {
        let texts =
            others.as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let texts = texts.ok_or_else(|| wrong("alternatives", "a list of texts", &others))?;
        texts.iter().for_each(|text| reasons.push_str(&format!("\ninstead of: {text}")));
    }
    let locked = values.remove("locked").filter(|value| !value.is_null());
    let locked = match &locked {
        None => false,
        Some(value) => value.as_bool().ok_or_else(|| wrong("locked", "true or false", value))?,
    };
    let Some(Value::String(description)) = values.get_mut("description") else { return Ok(()) };
    let decided = description.clone();
    description.push_str(&reasons);
    if locked { put(values, "decisions_locked", json!([decided])) } else { Ok(()) }
}

fn wrong(name: &str, rule: &str, found: &Value) -> FieldError {
    FieldError::Rule { name: name.into(), rule: rule.into(), found: shown(found) }
}

const CHECKPOINT_ROW: Tool = row(
    "checkpoint",
    &["create_checkpoint", "record_decision"],
    "Notes where the work on the active goal stands. It changes no files and keeps no copy of them.",
    &[
        Field::must("description", TEXT, "What is done so far."),
        Field::may("files_modified", LIST, "Files that were changed.").or(&["filesModified"]),
        Field::may("tests_added", LIST, "Tests that were added.").or(&["testsAdded"]),
        Field::may("decisions_locked", LIST, "Decisions that stand.").or(&["decisionsLocked"]),
    ],
    |mut input, _| {
        Ok(Plan::State(Order::Checkpoint(goal::Checkpoint {
            description: required_text(&mut input, "description")?,
            files_modified: input.texts("files_modified"),
            tests_added: input.texts("tests_added"),
            decisions_locked: input.texts("decisions_locked"),
        })))
    },
);

/// No effect.
pub const THINKING: Tool = row(
    "thinking",
    &["think"],
    "Notes a thought. It has no effect.",
    &[Field::must("thought", Kind::Short(20_000), "The thought.")],
    |_, _| Ok(Plan::Thought),
);

/// The end of a task.
pub const FINISH_TASK: Tool = row(
    "finish_task",
    &[],
    "Ends the task and hands over its result.",
    &[
        Field::must("summary", TEXT, "What was done, or found out.").or(&["executive_summary"]),
        Field::may("tests_verified", Kind::Flag, "Whether the tests ran and passed."),
        Field::may("artifacts", LIST, "Files or other things that came of it."),
        Field::may("next_steps", LIST, "What is left to do."),
        Field::may("notes", TEXT, "What else is worth knowing."),
        Field::may("key_findings", LIST, "What was found out, each in a sentence or two."),
        Field::may(
            "citations",
            Kind::List {
                fields: &[
                    Field::must("url", Kind::Short(2000), "Where it stands."),
                    Field::must("claim", TITLE, "What it is a source for."),
                    Field::may("fetched_at", Kind::Short(64), "When it was read."),
                ],
                least: 0,
                most: 100,
            },
            "Sources.",
        ),
    ],
    |input, _| Ok(Plan::Finish(input.into_value())),
);

/// An image for the model.
pub const VIEW_IMAGE: Tool = Tool {
    category: Category::File,
    rewrite: image_of_others,
    ..row(
        "view_image",
        &["image_recognition"],
        "Shows an image: PNG, JPEG, GIF or WebP, of at most 5 MB. It is a file, or is fetched from an address, which is \
         allowed where `web_fetch` is; a redirection is not followed but named.",
        &[Field::must(
            "path",
            Kind::Path,
            "A file: absolute, or relative to the project root; `central:` before it means the central root. Or an address, \
             with https://.",
        )
        .or(&["file_path", "filePath", "image_path", "imagePath"])],
        image,
    )
};

/// What is to be looked for in the image is the model's own affair.
fn image_of_others(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    values.remove("prompt");
    Ok(())
}

/// A path may begin with `file://`. A file below a directory called `https:` has a path that begins otherwise (`./https:`).
fn image(mut input: Input, roots: &Roots) -> Result<Plan, InputError> {
    let path = required_text(&mut input, "path")?;
    if web::is_address(&path) {
        return Ok(Plan::Web(web::view("path", &path)?));
    }
    Ok(Plan::Image(roots.parse(path.strip_prefix("file://").unwrap_or(&path))?))
}

/// A test suite.
pub const RUN_TESTS: Tool = Tool {
    category: Category::Exec,
    risk: Risk::High,
    ..row(
        Framework::TOOL,
        &[],
        "Runs the tests of the project, or of a directory in it, and says how many passed and failed. It is a command \
         like any other: what the policy says of `bash` holds for it.",
        &[
            Field::may(
                "framework",
                Kind::Choice(&Framework::NAMES),
                "auto if absent: by the files that are there.",
            ),
            Field::may("path", Kind::Path, "The directory to run them in; the project root if absent.")
                .or(&["directory", "cwd"]),
            Field::may("timeout", SECONDS, "Time limit in seconds; the policy's maximum is never exceeded.")
                .or(&["timeout_s", "timeoutS"]),
        ],
        run_tests,
    )
};

fn run_tests(mut input: Input, roots: &Roots) -> Result<Plan, InputError> {
    let framework = Framework::named(input.text("framework").as_deref());
    let command = Bash {
        command: framework.command(),
        directory: input.text("path").map(|path| roots.parse(&path)).transpose()?,
        timeout_s: input.seconds("timeout"),
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
    };
    Ok(Plan::Tests { framework, command })
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{ErrorKind, Failed, Request};

    fn roots() -> Roots {
        Roots { project: "/p".into(), central: "/c".into() }
    }

    fn plan(tool: &str, input: Value) -> Plan {
        Tool::find(tool).unwrap().plan(input, &roots()).unwrap()
    }

    #[test]
    fn forms_of_other_systems_become_ours() {
        let many = plan("read_many_files", json!({"paths": ["a", "b"], "startLine": 2, "endLine": 3}));
        let lines = |path: &str| json!({"path": path, "startLine": 2, "endLine": 3});
        let call = |input| Invocation { tool: "file_read".into(), input };
        assert_eq!(many, Plan::Batch(vec![call(lines("a")), call(lines("b"))]));
        for count in [0, INVOCATIONS, INVOCATIONS + 1] {
            let input = json!({ "paths": vec!["a"; count] });
            let planned = Tool::find("read_many_files").unwrap().plan(input, &roots()).map_err(Failed::from);
            assert_eq!(planned.is_ok(), count == INVOCATIONS, "{count}");
            let said = planned.err().map(|failed| failed.message);
            assert!(said.is_none_or(|said| said.starts_with("field `paths`: a list of 1 to 32 paths")));
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
        assert_eq!(plan("record_decision", decided), Plan::State(Order::Checkpoint(checkpoint)));
        let wrong = Tool::find("record_decision").unwrap();
        for input in
            [json!({"description": "x", "locked": 1}), json!({"description": "x", "alternatives": "y"})]
        {
            assert!(wrong.plan(input, &roots()).is_err());
        }
        let edit = json!({"path": "a", "edits": [{"target": "x", "replacement": "y", "lineHint": 3}]});
        assert_eq!(plan("edit_file", edit), plan("file_edit", json!({"path": "a", "old": "x", "new": "y"})));
        let dump = |name: &str| {
            Tool::find("write_memory_dump").unwrap().plan(json!({"content": "x", "filename": name}), &roots())
        };
        let Ok(Plan::Request(Request::FileWrite(write))) = dump("a.md") else { panic!("no write") };
        assert_eq!(write.path.to_string(), "central:memory/a.md");
        assert!(matches!(dump("../../a"), Err(InputError::Path(_))));
    }

    #[test]
    fn a_wrong_input_names_field_rule_and_value() {
        let todo = |value: Value| json!({"todos": [value]});
        let cases = [
            ("batch", json!({}), "field `invocations`: required, and missing"),
            (
                "batch",
                json!({"invocations": []}),
                "field `invocations`: a list of 1 to 32 objects, this is []",
            ),
            (
                "batch",
                json!({"invocations": [{"tool_name": "ls", "parameters": "x"}]}),
                "field `invocations[0].parameters`: an object, this is \"x\"",
            ),
            (
                "batch",
                json!({"invocations": [{"parameters": {}}]}),
                "field `invocations[0].tool_name`: required, and missing",
            ),
            ("todo_read", json!({"all": 1}), "field `all`: not a field here; there are "),
            ("todo_write", json!({}), "field `todos`: required, and missing"),
            (
                "todo_write",
                todo(json!({"content": "x", "status": "done"})),
                "field `todos[0].status`: one of pending, in_progress, completed, canceled, this is \"done\"",
            ),
            (
                "todo_write",
                todo(json!({"content": "x", "status": "pending", "priority": "max"})),
                "field `todos[0].priority`: one of low, medium, high, this is \"max\"",
            ),
            (
                "todo_write",
                todo(json!({"content": "", "status": "pending"})),
                "field `todos[0].content`: 1 to 1000 characters, this is \"\"",
            ),
            ("todo_write", json!({"action": "add"}), "field `task`: required, and missing"),
            (
                "todo_write",
                json!({"todos": [], "action": "add", "task": "x"}),
                "field `todos`: either `todos` or `action`, not both, this is []",
            ),
            ("memory", json!({"action": "get"}), "field `key`: required, and missing"),
            ("memory", json!({"action": "set", "key": "a"}), "field `value`: required, and missing"),
            (
                "memory",
                json!({"action": "get", "key": "../x"}),
                "field `key`: 1 to 64 letters, digits, '.', '_' or '-', this is \"../x\"",
            ),
            (
                "memory",
                json!({"action": "wipe"}),
                "field `action`: one of get, set, delete, list, this is \"wipe\"",
            ),
            (
                "memory",
                json!({"action": "set", "key": "a", "value": "x".repeat(memory::VALUE)}),
                "field `value`: at most 16384 bytes of JSON, this is a text of 16384 bytes",
            ),
            ("goal_create", json!({}), "field `description`: required, and missing"),
            ("goal_switch", json!({"action": "resume"}), "field `goal_id`: required, and missing"),
            ("goal_complete", json!({"artifacts": []}), "field `summary`: required, and missing"),
            ("checkpoint", json!({"description": 5}), "field `description`: a text, this is 5"),
            ("thinking", json!({}), "field `thought`: required, and missing"),
            ("finish_task", json!({"notes": "x"}), "field `summary`: required, and missing"),
            (
                "finish_task",
                json!({"summary": "x", "tests_verified": "yes"}),
                "field `tests_verified`: true or false, this is \"yes\"",
            ),
            (
                "finish_task",
                json!({"summary": "x", "citations": [{"url": "u"}]}),
                "field `citations[0].claim`: required, and missing",
            ),
            ("view_image", json!({}), "field `path`: required, and missing"),
            (
                "view_image",
                json!({"image_path": "https://u:p@x/y.png"}),
                "field `path`: a URL without a user name or password, this is \"https://u:p@x/y.png\"",
            ),
            (
                "run_tests",
                json!({"framework": "make"}),
                "field `framework`: one of auto, pytest, cargo, npm, this is \"make\"",
            ),
        ];
        for (tool, input, want) in cases {
            let error = Tool::find(tool).unwrap().plan(input.clone(), &roots()).unwrap_err();
            let failed = Failed::from(error);
            assert_eq!(
                (failed.kind, failed.message.as_str()),
                (ErrorKind::InvalidInput, want),
                "{tool} {input}"
            );
        }
        let out = Tool::find("run_tests").unwrap().plan(json!({"path": "/etc"}), &roots()).unwrap_err();
        assert_eq!(Failed::from(out).kind, ErrorKind::Violation);
    }

    #[test]
    fn forms_of_other_systems_mean_the_same() {
        assert_eq!(
            plan("remember", json!({"key": "a", "value": 1})),
            plan("memory", json!({"action": "set", "key": "a", "value": 1}))
        );
        assert_eq!(
            plan("image_recognition", json!({"image_path": "file:///p/a.png", "prompt": "?"})),
            plan("view_image", json!({"path": "a.png"}))
        );
        let address = plan("image_recognition", json!({"image_path": "HTTPS://x/y.png", "prompt": "?"}));
        assert_eq!(address, plan("view_image", json!({"path": "https://x/y.png"})));
        let leave = Request::Effect(broker_protocol::Effect::WebFetch { url: "https://x/y.png".into() });
        assert_eq!(address.request(), Some(leave));
        assert!(matches!(plan("view_image", json!({"path": "./https://x/y.png"})), Plan::Image(_)));
        assert_eq!(
            plan("switch_goal", json!({"action": "new", "newGoalDescription": "g"})),
            plan("goal_switch", json!({"action": "new", "description": "g"}))
        );
        assert_eq!(
            plan("create_checkpoint", json!({"description": "d", "filesModified": ["a"]})),
            plan("checkpoint", json!({"description": "d", "files_modified": ["a"]}))
        );
        assert_eq!(plan("write_todos", json!({"action": "list"})), plan("todo_read", json!({})));
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
}
