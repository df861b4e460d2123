//! Field names of other agents' tools. This is the border: behind it each tool and field has one name, so policies, results and the
//! audit know only one. Alternative names of tools are in [`policies::tool`], since rules refer to them.

use crate::input_error::FieldError;
use serde_json::{Map, Value, json};

type FieldAliases = &'static [(&'static str, &'static [&'static str])];
type Rewrite = fn(&mut Map<String, Value>) -> Result<(), FieldError>;

/// Other agents' names for the fields of one tool.
struct ToolAliases {
    tool: &'static str,
    fields: FieldAliases,
    /// Fields of other agents that have no effect here; the result reports them to a caller that sent one.
    without_effect: &'static [&'static str],
    /// A field that is a list of objects, with the field names of these objects.
    items: Option<(&'static str, FieldAliases)>,
    /// Converts forms that differ in more than the name; the fields already have their canonical names.
    rewrite: Rewrite,
}

const NONE: ToolAliases = ToolAliases {
    tool: "",
    fields: &[],
    without_effect: &[],
    items: None,
    rewrite: as_it_is,
};

/// Fields in which other agents' models explain a call to a person. They are dropped without a note.
const REMARKS: [&str; 6] = [
    "description",
    "explanation",
    "instruction",
    "justification",
    "reason",
    "toolCallId",
];

const FILE: (&str, &[&str]) = ("path", &["file_path", "filePath", "absolute_path"]);
const DIRECTORY: (&str, &[&str]) = ("path", &["directory", "dir", "dir_path"]);
const SHA256: (&str, &[&str]) = ("expected_sha256", &["expectedSha256"]);
const HIDDEN: (&str, &[&str]) = ("hidden", &["includeHidden", "include_hidden"]);
const IGNORED: (&str, &[&str]) = ("ignored", &["ignore_gitignore"]);
const LIMIT: (&str, &[&str]) = (
    "limit",
    &["max_results", "maxResults", "max_files", "head_limit"],
);
const TIMEOUT: (&str, &[&str]) = ("timeout", &["timeout_s", "timeoutS"]);
const LINES: [(&str, &[&str]); 2] = [("startLine", &["start_line"]), ("endLine", &["end_line"])];

static NAMES: [ToolAliases; 21] = [
    ToolAliases {
        tool: "bash",
        fields: &[
            ("command", &["cmd"]),
            TIMEOUT,
            ("idle_timeout", &["idleTimeout", "idle_timeout_s"]),
            ("cwd", &["directory", "workdir", "dir_path"]),
            ("background", &["run_in_background", "is_background"]),
        ],
        without_effect: &[
            "dangerouslyDisableSandbox",
            "login",
            "max_output_tokens",
            "prefix_rule",
            "sandbox_permissions",
            "with_escalated_permissions",
            "yield_time_ms",
        ],
        rewrite: no_time_limit,
        ..NONE
    },
    ToolAliases {
        tool: "file_read",
        fields: &[
            FILE,
            ("limit", &["line_limit", "lineLimit"]),
            LINES[0],
            LINES[1],
        ],
        rewrite: lines_from_to,
        ..NONE
    },
    ToolAliases {
        tool: "file_write",
        fields: &[FILE, ("content", &["text"]), SHA256],
        rewrite: memory_dump,
        ..NONE
    },
    ToolAliases {
        tool: "file_edit",
        fields: &[FILE, SHA256],
        items: Some(("edits", EDIT)),
        rewrite: flat_edit,
        ..NONE
    },
    ToolAliases {
        tool: "file_list",
        fields: &[
            DIRECTORY,
            ("depth", &["maxDepth", "max_depth"]),
            HIDDEN,
            LIMIT,
        ],
        without_effect: &["file_filtering_options", "ignore"],
        rewrite: recursive,
        ..NONE
    },
    ToolAliases {
        tool: "glob",
        fields: &[DIRECTORY, HIDDEN, IGNORED, LIMIT],
        without_effect: &["case_sensitive", "respect_git_ignore"],
        ..NONE
    },
    ToolAliases {
        tool: "grep",
        fields: &[
            ("path", &["directory", "dir", "file_path"]),
            ("include", &["filePattern", "file_pattern", "glob"]),
            ("literal", &["fixed_strings"]),
            ("ignore_case", &["ignoreCase", "-i"]),
            ("caseSensitive", &["case_sensitive"]),
            IGNORED,
            ("context", &["surround_lines", "-C"]),
            LIMIT,
        ],
        without_effect: &["-n", "output_mode"],
        rewrite: grep_options,
        ..NONE
    },
    ToolAliases {
        tool: "background_log",
        fields: &[("bytes", &["tail"]), ("id", &["bash_id", "shell_id"])],
        rewrite: process_number,
        ..NONE
    },
    ToolAliases {
        tool: "background_kill",
        fields: &[("id", &["bash_id", "shell_id"])],
        rewrite: process_number,
        ..NONE
    },
    ToolAliases {
        tool: "batch",
        items: Some((
            "invocations",
            &[
                ("tool_name", &["toolName", "tool", "name"]),
                ("parameters", &["input", "arguments"]),
            ],
        )),
        rewrite: many_files,
        ..NONE
    },
    ToolAliases {
        tool: "todo_write",
        items: Some(("todos", TODO)),
        rewrite: numbered_entry,
        ..NONE
    },
    ToolAliases {
        tool: "memory",
        rewrite: remember,
        ..NONE
    },
    ToolAliases {
        tool: "goal_switch",
        fields: &[
            ("goal_id", &["goalId", "id"]),
            (
                "description",
                &["newGoalDescription", "new_goal_description"],
            ),
        ],
        ..NONE
    },
    ToolAliases {
        tool: "checkpoint",
        fields: &[
            ("files_modified", &["filesModified"]),
            ("tests_added", &["testsAdded"]),
            ("decisions_locked", &["decisionsLocked"]),
        ],
        rewrite: decision,
        ..NONE
    },
    ToolAliases {
        tool: "read_reasoning",
        fields: &[
            ("trace_id", &["traceId"]),
            ("include_archived", &["includeArchived"]),
        ],
        without_effect: &["goalId", "goal_id"],
        ..NONE
    },
    ToolAliases {
        tool: "trigger_hot_swap",
        fields: &[("preserve_history", &["preserveHistory"])],
        ..NONE
    },
    ToolAliases {
        tool: "view_image",
        fields: &[(
            "path",
            &["file_path", "filePath", "image_path", "imagePath"],
        )],
        rewrite: no_prompt,
        ..NONE
    },
    ToolAliases {
        tool: "web_search",
        fields: &[(
            "max_results",
            &["maxResults", "numResults", "num_results", "limit"],
        )],
        ..NONE
    },
    ToolAliases {
        tool: "web_fetch",
        fields: &[("max_length", &["maxLength"]), TIMEOUT],
        without_effect: &["format", "prompt"],
        ..NONE
    },
    ToolAliases {
        tool: "run_tests",
        fields: &[("path", &["directory", "cwd"]), TIMEOUT],
        ..NONE
    },
    ToolAliases {
        tool: "finish_task",
        fields: &[("summary", &["executive_summary"])],
        ..NONE
    },
];

const EDIT: FieldAliases = &[
    (
        "old",
        &["old_text", "old_string", "oldString", "old_str", "target"],
    ),
    ("line", &["lineHint", "line_hint"]),
    (
        "new",
        &[
            "new_text",
            "new_string",
            "newString",
            "new_str",
            "replacement",
        ],
    ),
    ("occurrence", &["expected_replacements"]),
    ("all", &["replace_all", "replaceAll"]),
];

/// What an entry is called while it is in progress: Claude Code displays it, and nothing here does.
const TODO: FieldAliases = &[(NOWHERE, &["activeForm"])];
/// The name of a field that is dropped.
const NOWHERE: &str = "";

const BROWSER: &str =
    "there is no browser here; add one as an MCP server, or read a page with `web_fetch`";

/// Tools of other agents without a counterpart here, each with the reason.
pub(crate) static NOT_SUPPORTED: [(&str, &str); 13] = [
    (
        "apply_patch",
        "use `file_edit` and `file_write`, which change one file each; `bash` has `git apply`",
    ),
    (
        "cross_run_search",
        "a session does not see others; `lazaret log search` does",
    ),
    ("navigate", BROWSER),
    ("click", BROWSER),
    ("type", BROWSER),
    ("screenshot", BROWSER),
    ("get_page", BROWSER),
    ("browser_navigate", BROWSER),
    ("browser_click", BROWSER),
    ("browser_type", BROWSER),
    ("browser_screenshot", BROWSER),
    ("browser_get_page", BROWSER),
    ("browser_wait_for", BROWSER),
];

/// Gives the fields of an input of `tool` their canonical names and forms; returns the known fields without effect. A `null` field
/// counts as absent, since models often send it so. `own` says which names are the tool's own.
///
/// # Errors
/// If a field is given under two of its names, or its foreign form cannot be converted.
pub(crate) fn translate(
    tool: &str,
    own: &dyn Fn(&str) -> bool,
    input: &mut Map<String, Value>,
) -> Result<Vec<&'static str>, FieldError> {
    input
        .retain(|name, value| !value.is_null() && (own(name) || !REMARKS.contains(&name.as_str())));
    let Some(names) = NAMES.iter().find(|names| names.tool == tool) else {
        return Ok(Vec::new());
    };
    let without_effect = names
        .without_effect
        .iter()
        .filter(|name| input.remove(**name).is_some());
    let without_effect = without_effect.copied().collect();
    rename(names.fields, "", input)?;
    (names.rewrite)(input)?;
    let Some((list, fields)) = names.items else {
        return Ok(without_effect);
    };
    let items = input
        .get_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .enumerate();
    for (at, item) in items.filter_map(|(at, item)| Some((at, item.as_object_mut()?))) {
        item.retain(|_, value| !value.is_null());
        rename(fields, &format!("{list}[{at}]."), item)?;
        item.remove(NOWHERE);
    }
    Ok(without_effect)
}

fn rename(
    fields: FieldAliases,
    parent: &str,
    input: &mut Map<String, Value>,
) -> Result<(), FieldError> {
    for (name, aliases) in fields {
        for alias in *aliases {
            let Some(value) = input.remove(*alias) else {
                continue;
            };
            if input.insert((*name).to_owned(), value).is_some() {
                return Err(FieldError::Twice {
                    name: format!("{parent}{name}"),
                    alias: (*alias).to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Replaces `foreign` with `name` and `value`.
fn put(
    input: &mut Map<String, Value>,
    name: &str,
    foreign: &str,
    value: Value,
) -> Result<(), FieldError> {
    match input.insert(name.to_owned(), value) {
        Some(_) => Err(FieldError::Twice {
            name: name.to_owned(),
            alias: foreign.to_owned(),
        }),
        None => Ok(()),
    }
}

fn as_it_is(_: &mut Map<String, Value>) -> Result<(), FieldError> {
    Ok(())
}

/// A `timeout` of 0 on a background command means no time limit.
fn no_time_limit(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    let in_background = input.get("background") == Some(&Value::Bool(true));
    if in_background && input.get("timeout").and_then(Value::as_f64) == Some(0.0) {
        input.remove("timeout");
    }
    Ok(())
}

/// `startLine` and `endLine`, both inclusive, become `offset` and `limit`.
fn lines_from_to(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    let (start, end) = (input.remove("startLine"), input.remove("endLine"));
    let first = start.as_ref().map_or(Some(1), Value::as_u64);
    if let Some(end) = end {
        let lines = end
            .as_u64()
            .zip(first)
            .and_then(|(end, first)| end.checked_sub(first)?.checked_add(1));
        let expected = "an integer that is not less than startLine";
        let lines = lines.ok_or_else(|| FieldError::expected("endLine", expected, &end))?;
        put(input, "limit", "endLine", json!(lines))?;
    }
    start.map_or(Ok(()), |start| put(input, "offset", "startLine", start))
}

/// A `filename` instead of a path names a file below `central:memory`.
fn memory_dump(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    match input.remove("filename") {
        None => Ok(()),
        Some(Value::String(name)) => put(
            input,
            "path",
            "filename",
            json!(format!("central:memory/{name}")),
        ),
        Some(other) => Err(FieldError::expected("filename", "a string", &other)),
    }
}

/// A single replacement beside the path becomes a list of one.
fn flat_edit(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    let is_flat = |name: &&String| {
        EDIT.iter()
            .any(|(field, aliases)| *name == field || aliases.contains(&name.as_str()))
    };
    let names: Vec<String> = input.keys().filter(is_flat).cloned().collect();
    let Some(first) = names.first() else {
        return Ok(());
    };
    let edit: Map<_, _> = names
        .iter()
        .filter_map(|name| input.remove_entry(name))
        .collect();
    put(input, "edits", first, json!([edit]))
}

/// `recursive` means all levels or one; an explicit depth takes precedence.
fn recursive(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    match input.remove("recursive") {
        None => {}
        Some(Value::Bool(false)) => drop(input.remove("depth")),
        Some(Value::Bool(true)) => drop(input.entry("depth").or_insert(json!(64))),
        Some(other) => return Err(FieldError::expected("recursive", "true or false", &other)),
    }
    Ok(())
}

/// `caseSensitive` is the opposite of `ignore_case`. `-A` and `-B` give context on one side; here it applies to both. A pattern
/// never matches across lines.
fn grep_options(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    match input.remove("multiline") {
        None | Some(Value::Bool(false)) => {}
        Some(other) => {
            return Err(FieldError::expected(
                "multiline",
                "false, as lines are searched one by one",
                &other,
            ));
        }
    }
    for side in ["-A", "-B"] {
        let Some(lines) = input.remove(side) else {
            continue;
        };
        let most = input
            .get("context")
            .and_then(Value::as_u64)
            .max(lines.as_u64());
        let most = most
            .filter(|_| lines.is_u64())
            .map_or(lines, |most| json!(most));
        input.insert("context".to_owned(), most);
    }
    match input.remove("caseSensitive") {
        None => Ok(()),
        Some(Value::Bool(sensitive)) => {
            put(input, "ignore_case", "caseSensitive", json!(!sensitive))
        }
        Some(other) => Err(FieldError::expected(
            "caseSensitive",
            "true or false",
            &other,
        )),
    }
}

/// A process number may be written as a string.
fn process_number(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    if let Some(id) = input.get_mut("id")
        && let Some(number) = id.as_str().and_then(|text| text.parse::<u64>().ok())
    {
        *id = json!(number);
    }
    Ok(())
}

/// A list of `paths` becomes one read for each path, all with the given lines. The batch limits how many.
fn many_files(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    let paths = match input.remove("paths") {
        None => return Ok(()),
        Some(Value::Array(paths)) => paths,
        Some(other) => return Err(FieldError::expected("paths", "an array of strings", &other)),
    };
    let names = ["startLine", "endLine", "start_line", "end_line"];
    let lines: Map<String, Value> = names
        .iter()
        .filter_map(|name| input.remove_entry(*name))
        .collect();
    let read = |path: Value| {
        let mut input = lines.clone();
        input.insert("path".into(), path);
        json!({ "tool_name": "file_read", "parameters": input })
    };
    put(
        input,
        "invocations",
        "paths",
        paths.into_iter().map(read).collect(),
    )
}

/// `id` may be a number.
fn numbered_entry(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    if let Some(id @ Value::Number(_)) = input.get_mut("id") {
        *id = id.to_string().into();
    }
    Ok(())
}

/// A key and a value without an action mean `set`.
fn remember(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    if input.contains_key("key") && input.contains_key("value") {
        input.entry("action").or_insert(json!("set"));
    }
    Ok(())
}

/// A decision with its reasons becomes one text; a locked decision is listed with those that stand.
fn decision(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    let mut reasons = String::new();
    if let Some(rationale) = input.remove("rationale") {
        let text = rationale
            .as_str()
            .ok_or_else(|| FieldError::expected("rationale", "a string", &rationale))?;
        reasons.push_str(&format!("\nbecause: {text}"));
    }
    if let Some(others) = input.remove("alternatives") {
        let texts = others
            .as_array()
            .and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let expected = || FieldError::expected("alternatives", "an array of strings", &others);
        texts
            .ok_or_else(expected)?
            .iter()
            .for_each(|text| reasons.push_str(&format!("\ninstead of: {text}")));
    }
    let locked = match input.remove("locked") {
        None => false,
        Some(Value::Bool(locked)) => locked,
        Some(other) => return Err(FieldError::expected("locked", "true or false", &other)),
    };
    let Some(Value::String(description)) = input.get_mut("description") else {
        return Ok(());
    };
    let decided = description.clone();
    description.push_str(&reasons);
    if locked {
        put(input, "decisions_locked", "locked", json!([decided]))
    } else {
        Ok(())
    }
}

/// What to look for in an image matters only to the model.
fn no_prompt(input: &mut Map<String, Value>) -> Result<(), FieldError> {
    input.remove("prompt");
    Ok(())
}
