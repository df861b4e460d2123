//! What a call asks for once its input is checked: mostly one [`Request`].

use super::field::{FieldError, Input};
use super::state;
use super::web::Ask;
use broker_protocol::{
    BackgroundKill, BackgroundLog, Bash, Command, Digest, Edit, ErrorKind, Failed, FileBytes, FileEdit,
    FileList, FileRead, FileWrite, Framework, Glob, Grep, Occurrence, PathError, Request, Roots, State,
    StateChange, Stdin, TooLarge, Zone, ZonePath, limit,
};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// Bytes of a background process's output that are shown where nothing else is asked for.
const LOG_BYTES: u32 = 8 * 1024;

/// What a call asks for.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// One request to the broker.
    Request(Request),
    /// A read whose lines are shown with their numbers.
    Numbered(FileRead),
    /// A look at what a small tool keeps, or a change of it.
    State(state::Order),
    /// An image, in pieces.
    Image(ZonePath),
    /// What comes from the internet, once the executor gives leave.
    Web(Ask),
    /// A test suite: a command, and its output read.
    Tests {
        /// Which runner.
        framework: Framework,
        /// The command.
        command: Bash,
    },
    /// Several calls at once.
    Batch(Vec<Invocation>),
    /// Nothing: a thought.
    Thought,
    /// Nothing: the task is over, and this is its result.
    Finish(Value),
}

impl Plan {
    /// What the broker is asked, and so decides on: of several requests the one that weighs most. `None` where it is asked
    /// nothing, or about each call of a batch by itself.
    pub fn request(self) -> Option<Request> {
        match self {
            Plan::Request(request) => Some(request),
            Plan::Numbered(read) => Some(Request::FileRead(read)),
            Plan::State(order) => {
                let tool = order.tool();
                let change = StateChange { content: Vec::new(), expected_sha256: None };
                Some(Request::State(State { tool, change: (!tool.only_reads()).then_some(change) }))
            }
            Plan::Image(path) => Some(Request::FileBytes(FileBytes { path, offset: 0, limit: 1 })),
            Plan::Web(ask) => Some(Request::Effect(ask.effect())),
            Plan::Tests { command, .. } => Some(Request::Bash(command)),
            Plan::Batch(_) | Plan::Thought | Plan::Finish(_) => None,
        }
    }
}

/// A call within a batch.
#[derive(Debug, PartialEq)]
pub struct Invocation {
    /// The tool's name as it was given.
    pub tool: String,
    /// Its input.
    pub input: Value,
}

/// What checked input becomes.
#[derive(Clone, Copy)]
pub enum Work {
    /// One request.
    Request(Build),
    /// Another plan.
    Other(fn(Input, &Roots) -> Result<Plan, InputError>),
}

/// Turns foreign forms of an input into ours.
pub type Rewrite = fn(&mut Map<String, Value>) -> Result<(), FieldError>;
/// Makes a request from checked input.
pub type Build = fn(Input, &Roots) -> Result<Request, InputError>;

/// Why a call is not a plan.
#[derive(Debug, Error)]
pub enum InputError {
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A path is wrong.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A limit of the border is passed.
    #[error("field `{}`: {}", .0.field, .0.rule)]
    TooLarge(#[from] TooLarge),
}

impl From<InputError> for Failed {
    fn from(error: InputError) -> Self {
        let kind = match &error {
            InputError::Path(PathError::Outside(_)) => ErrorKind::Violation,
            InputError::Path(_) | InputError::Field(_) | InputError::TooLarge(_) => ErrorKind::InvalidInput,
        };
        Failed { kind, message: error.to_string() }
    }
}

/// The same request, with the output of a command sent while it comes.
pub fn live(mut request: Request) -> Request {
    if let Request::Bash(bash) = &mut request {
        bash.live = true;
    }
    request
}

/// No foreign form but names.
pub fn as_it_is(_: &mut Map<String, Value>) -> Result<(), FieldError> {
    Ok(())
}

/// A command in the background that has a `timeout` of 0 has none.
pub fn no_time_limit(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    if values.get("background") == Some(&Value::Bool(true)) {
        let is_none = |name: &str, value: &Value| {
            ["timeout", "timeout_s", "timeoutS"].contains(&name) && value.as_f64() == Some(0.0)
        };
        values.retain(|name, value| !is_none(name, value));
    }
    Ok(())
}

/// `startLine` and `endLine`, both counted in, become `offset` and `limit`.
pub fn lines_from_to(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    let start = take_either(values, "startLine", "start_line")?;
    let end = take_either(values, "endLine", "end_line")?;
    let first = start.as_ref().map_or(Some(1), Value::as_u64);
    if let Some(end) = end {
        let lines = end.as_u64().zip(first).and_then(|(end, first)| end.checked_sub(first)?.checked_add(1));
        let lines = lines.ok_or_else(|| FieldError::Rule {
            name: "endLine".into(),
            rule: "a whole number, not less than startLine".into(),
            found: end.to_string(),
        })?;
        put(values, "limit", json!(lines))?;
    }
    start.map_or(Ok(()), |start| put(values, "offset", start))
}

/// A `filename` beside no path is a name below `central:memory`.
pub fn memory_dump(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    match values.remove("filename") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(name)) => put(values, "path", json!(format!("central:memory/{name}"))),
        Some(other) => {
            let (name, rule) = ("filename".into(), "a text".into());
            Err(FieldError::Rule { name, rule, found: other.to_string() })
        }
    }
}

/// One replacement beside the path becomes a list of one. A hint at the line is not needed: a text that stands in several
/// places is an error that says so.
pub fn flat_edit(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    values.remove("lineHint");
    let edits = values.get_mut("edits").and_then(Value::as_array_mut);
    for edit in edits.into_iter().flatten().filter_map(Value::as_object_mut) {
        edit.remove("lineHint");
    }
    let flat = |name: &&String| {
        super::catalogue::EDIT
            .iter()
            .any(|field| field.name == name.as_str() || field.aliases.contains(&name.as_str()))
    };
    let names: Vec<String> = values.keys().filter(flat).cloned().collect();
    if names.is_empty() {
        return Ok(());
    }
    let edit: Map<_, _> = names.iter().filter_map(|name| values.remove_entry(name)).collect();
    put(values, "edits", json!([edit]))
}

/// `recursive` says all levels, or one; a depth beside it wins.
pub fn recursive(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    let deep =
        ["depth", "maxDepth", "max_depth"].iter().any(|name| values.get(*name).is_some_and(|v| !v.is_null()));
    match values.remove("recursive") {
        Some(Value::Bool(false)) => {
            ["depth", "maxDepth", "max_depth"].iter().for_each(|name| drop(values.remove(*name)));
            Ok(())
        }
        Some(Value::Bool(true)) if !deep => put(values, "depth", json!(64)),
        None | Some(Value::Null | Value::Bool(true)) => Ok(()),
        Some(other) => Err(FieldError::Rule {
            name: "recursive".into(),
            rule: "true or false".into(),
            found: other.to_string(),
        }),
    }
}

/// `caseSensitive` is the opposite of `ignore_case`.
pub fn case_sensitive(values: &mut Map<String, Value>) -> Result<(), FieldError> {
    match take_either(values, "caseSensitive", "case_sensitive")? {
        None => Ok(()),
        Some(Value::Bool(sensitive)) => put(values, "ignore_case", json!(!sensitive)),
        Some(other) => Err(FieldError::Rule {
            name: "caseSensitive".into(),
            rule: "true or false".into(),
            found: other.to_string(),
        }),
    }
}

fn take_either(
    values: &mut Map<String, Value>,
    name: &str,
    alias: &str,
) -> Result<Option<Value>, FieldError> {
    let taken = [name, alias].map(|name| values.remove(name).filter(|value| !value.is_null()));
    match taken {
        [Some(_), Some(_)] => Err(FieldError::Twice(name.to_owned())),
        [first, second] => Ok(first.or(second)),
    }
}

pub(super) fn put(values: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), FieldError> {
    match values.insert(name.to_owned(), value) {
        Some(old) if !old.is_null() => Err(FieldError::Twice(name.to_owned())),
        _ => Ok(()),
    }
}

/// Builds a [`Bash`] without live output; see [`live`].
pub fn bash(mut input: Input, roots: &Roots) -> Result<Request, InputError> {
    let command = match input.value("command") {
        Some(Value::Array(items)) => Command::Arguments(items.into_iter().filter_map(argument).collect()),
        Some(Value::String(text)) => Command::Shell(text),
        _ => return Err(FieldError::Missing("command".into()).into()),
    };
    Ok(Request::Bash(Bash {
        command,
        directory: input.text("cwd").map(|path| roots.parse(&path)).transpose()?,
        timeout_s: input.seconds("timeout"),
        idle_timeout_s: input.seconds("idle_timeout"),
        stdin: if input.flag("stdin") { Stdin::Stream } else { Stdin::Null },
        live: false,
        background: input.flag("background"),
    }))
}

/// Builds a [`Request::BackgroundList`].
pub fn background_list(_: Input, _: &Roots) -> Result<Request, InputError> {
    Ok(Request::BackgroundList)
}

/// Builds a [`BackgroundLog`].
pub fn background_log(input: Input, _: &Roots) -> Result<Request, InputError> {
    let id = input.whole("id").ok_or_else(|| FieldError::Missing("id".into()))?;
    let most = input.small("bytes").unwrap_or(LOG_BYTES);
    Ok(Request::BackgroundLog(BackgroundLog { id, from: input.whole("offset"), most }))
}

/// Builds a [`BackgroundKill`].
pub fn background_kill(input: Input, _: &Roots) -> Result<Request, InputError> {
    let id = input.whole("id").ok_or_else(|| FieldError::Missing("id".into()))?;
    Ok(Request::BackgroundKill(BackgroundKill { id }))
}

fn argument<B: From<Vec<u8>>>(item: Value) -> Option<B> {
    match item {
        Value::String(text) => Some(text.into_bytes().into()),
        _ => None,
    }
}

/// Builds a [`FileRead`].
pub fn file_read(mut input: Input, roots: &Roots) -> Result<Plan, InputError> {
    let (offset, limit) = (input.whole("offset"), input.whole("limit"));
    let read = FileRead { path: required_path(&mut input, roots)?, offset, limit };
    Ok(if input.flag("numbered") { Plan::Numbered(read) } else { Plan::Request(Request::FileRead(read)) })
}

/// Builds a [`FileWrite`].
pub fn file_write(mut input: Input, roots: &Roots) -> Result<Request, InputError> {
    Ok(Request::FileWrite(FileWrite {
        path: required_path(&mut input, roots)?,
        content: required_text(&mut input, "content")?.into_bytes(),
        overwrite: input.value("overwrite") != Some(Value::Bool(false)),
        expected_sha256: digest(&mut input),
    }))
}

/// Builds a [`FileEdit`].
pub fn file_edit(mut input: Input, roots: &Roots) -> Result<Request, InputError> {
    Ok(Request::FileEdit(FileEdit {
        path: required_path(&mut input, roots)?,
        edits: input.list("edits").into_iter().map(edit).collect::<Result<_, _>>()?,
        expected_sha256: digest(&mut input),
    }))
}

fn edit(mut input: Input) -> Result<Edit, InputError> {
    let occurrence = match (input.small("occurrence"), input.flag("all")) {
        (None, false) => Occurrence::Only,
        (None, true) => Occurrence::All,
        (Some(count), false) => Occurrence::Exactly(count),
        (Some(count), true) => {
            let rule = "either `occurrence` or `all`, not both".to_owned();
            return Err(
                FieldError::Rule { name: "edits.occurrence".into(), rule, found: count.to_string() }.into()
            );
        }
    };
    Ok(Edit { old: required_text(&mut input, "old")?, new: required_text(&mut input, "new")?, occurrence })
}

/// Builds a [`FileList`].
pub fn file_list(mut input: Input, roots: &Roots) -> Result<Request, InputError> {
    Ok(Request::FileList(FileList {
        path: path_or_project(&mut input, roots)?,
        depth: input.small("depth").unwrap_or(1).try_into().unwrap_or(u16::MAX),
        hidden: input.flag("hidden"),
        limit: input.small("limit").unwrap_or(1000).min(limit::ENTRIES),
    }))
}

/// Builds a [`Glob`].
pub fn glob(mut input: Input, roots: &Roots) -> Result<Request, InputError> {
    Ok(Request::Glob(Glob {
        pattern: required_text(&mut input, "pattern")?,
        path: path_or_project(&mut input, roots)?,
        hidden: input.flag("hidden"),
        ignored: input.flag("ignored"),
        limit: input.small("limit").unwrap_or(100),
    }))
}

/// Builds a [`Grep`].
pub fn grep(mut input: Input, roots: &Roots) -> Result<Request, InputError> {
    Ok(Request::Grep(Grep {
        pattern: required_text(&mut input, "pattern")?,
        literal: input.flag("literal"),
        ignore_case: input.flag("ignore_case"),
        path: path_or_project(&mut input, roots)?,
        include: input.text("include"),
        ignored: input.flag("ignored"),
        context: input.small("context").unwrap_or(0).try_into().unwrap_or(u16::MAX),
        limit: input.small("limit").unwrap_or(100),
    }))
}

pub(super) fn required_text(input: &mut Input, name: &str) -> Result<String, InputError> {
    input.text(name).ok_or_else(|| FieldError::Missing(name.to_owned()).into())
}

fn required_path(input: &mut Input, roots: &Roots) -> Result<ZonePath, InputError> {
    Ok(roots.parse(&required_text(input, "path")?)?)
}

fn path_or_project(input: &mut Input, roots: &Roots) -> Result<ZonePath, InputError> {
    match input.text("path") {
        Some(path) => Ok(roots.parse(&path)?),
        None => Ok(ZonePath::root(Zone::Project)),
    }
}

fn digest(input: &mut Input) -> Option<Digest> {
    input.text("expected_sha256").and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::Tool;
    use super::*;

    fn roots() -> Roots {
        Roots { project: "/p".into(), central: "/c".into() }
    }

    fn ok(tool: &str, input: Value) -> Request {
        match Tool::find(tool).unwrap().plan(input, &roots()).unwrap() {
            Plan::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn error(tool: &str, input: Value) -> Failed {
        Tool::find(tool).unwrap().plan(input, &roots()).unwrap_err().into()
    }

    #[test]
    fn a_command_is_for_the_shell_or_for_a_program() {
        let Request::Bash(bash) = ok("bash", json!({"command": "echo hi", "timeout": 5, "cwd": "/c/x"}))
        else {
            panic!()
        };
        assert_eq!(bash.command, Command::Shell("echo hi".into()));
        assert_eq!(bash.timeout_s, Some(5));
        assert_eq!(bash.directory.unwrap().to_string(), "central:x");
        assert_eq!(bash.stdin, Stdin::Null);
        let Request::Bash(bash) = ok("shell", json!({"cmd": ["ls", "-l"], "timeout_s": 7, "stdin": true}))
        else {
            panic!()
        };
        assert_eq!(bash.command, Command::Arguments(vec![b"ls".to_vec().into(), b"-l".to_vec().into()]));
        assert_eq!((bash.timeout_s, bash.stdin), (Some(7), Stdin::Stream));
    }

    #[test]
    fn forms_of_other_systems_mean_the_same() {
        let want = ok("file_read", json!({"path": "a", "offset": 3, "limit": 5}));
        assert_eq!(ok("read_file", json!({"file_path": "/p/a", "startLine": 3, "endLine": 7})), want);
        let want = ok("file_edit", json!({"path": "a", "edits": [{"old": "x", "new": "y"}]}));
        assert_eq!(ok("edit_file", json!({"file_path": "a", "old_text": "x", "new_text": "y"})), want);
        assert_eq!(ok("edit", json!({"path": "a", "edits": [{"target": "x", "replacement": "y"}]})), want);
        let want = ok("file_list", json!({"path": "d", "depth": 64, "hidden": true}));
        assert_eq!(ok("ls", json!({"directory": "d", "recursive": true, "includeHidden": true})), want);
        assert_eq!(
            ok("ls", json!({"path": ".", "recursive": false, "maxDepth": 9})),
            ok("file_list", json!({}))
        );
        let want =
            ok("grep", json!({"pattern": "x", "ignore_case": true, "literal": true, "include": "*.rs"}));
        let foreign =
            json!({"pattern": "x", "caseSensitive": false, "fixed_strings": true, "filePattern": "*.rs"});
        assert_eq!(ok("grep_tool", foreign), want);
        let want = ok("file_write", json!({"path": "a", "content": "t", "overwrite": true}));
        assert_eq!(ok("write_file", json!({"path": "a", "text": "t"})), want);
    }

    #[test]
    fn background_processes_are_asked_about_by_their_number() {
        let Request::Bash(bash) = ok("bash", json!({"command": "x", "background": true})) else { panic!() };
        assert!(bash.background && bash.timeout_s.is_none());
        assert_eq!(ok("view_background_processes", json!({})), Request::BackgroundList);
        let log = BackgroundLog { id: 3, from: None, most: 8192 };
        assert_eq!(ok("background_log", json!({"id": 3})), Request::BackgroundLog(log.clone()));
        let log = BackgroundLog { from: Some(0), most: 5, ..log };
        assert_eq!(
            ok("background_log", json!({"id": 3, "offset": 0, "bytes": 5})),
            Request::BackgroundLog(log)
        );
        assert_eq!(
            ok("background_kill", json!({"id": 3})),
            Request::BackgroundKill(BackgroundKill { id: 3 })
        );
    }

    #[test]
    fn what_is_wrong_has_its_kind() {
        let cases = [
            ("file_read", json!({"path": "../../etc/passwd"}), ErrorKind::Violation),
            ("file_read", json!({"path": "/etc/passwd"}), ErrorKind::Violation),
            ("bash", json!({"command": "x", "cwd": "/etc"}), ErrorKind::Violation),
            ("file_read", json!({"path": "a\u{0}"}), ErrorKind::InvalidInput),
            ("file_read", json!({"path": "a", "startLine": 5, "endLine": 3}), ErrorKind::InvalidInput),
            ("file_read", json!({"path": "a", "startLine": 5, "offset": 3}), ErrorKind::InvalidInput),
            ("bash", json!({"command": "x".repeat(limit::COMMAND + 1)}), ErrorKind::InvalidInput),
            ("bash", json!({"command": "a\u{0}b"}), ErrorKind::InvalidInput),
            ("bash", json!({"command": "x", "background": true, "stdin": true}), ErrorKind::InvalidInput),
            ("background_log", json!({"id": 1, "bytes": limit::LOG + 1}), ErrorKind::InvalidInput),
            ("background_kill", json!({}), ErrorKind::InvalidInput),
            ("file_edit", json!({"path": "a", "edits": [{"old": "", "new": "y"}]}), ErrorKind::InvalidInput),
            ("file_edit", json!({"path": "a", "old": "x", "edits": []}), ErrorKind::InvalidInput),
            (
                "file_edit",
                json!({"path": "a", "edits": [{"old": "x", "new": "y", "all": true, "occurrence": 2}]}),
                ErrorKind::InvalidInput,
            ),
            ("file_list", json!({"recursive": 1}), ErrorKind::InvalidInput),
            ("grep", json!({"pattern": "x".repeat(limit::PATTERN + 1)}), ErrorKind::InvalidInput),
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
        assert_eq!(message, "field `command`: at most 131071 bytes, this has 131072");
        let message = error("bash", json!({"command": "x", "timeout": 0})).message;
        assert_eq!(message, "field `timeout`: a whole number from 1 on, this is 0");
    }

    /// Other systems count milliseconds: what is above every maximum is the maximum, and the executor says which.
    #[test]
    fn a_time_limit_above_the_most_is_the_most() {
        for timeout in [86_400, 86_401, 120_000_000, u64::MAX] {
            let input = json!({"command": "x", "timeout": timeout, "idleTimeout": timeout});
            let Request::Bash(bash) = ok("shell", input) else { panic!() };
            assert_eq!((bash.timeout_s, bash.idle_timeout_s), (Some(86_400), Some(86_400)));
        }
        // In the background other systems say 0 for none.
        let none = |background| json!({"command": "x", "background": background, "timeout": 0});
        assert!(matches!(ok("bash", none(true)), Request::Bash(bash) if bash.timeout_s.is_none()));
        assert_eq!(error("bash", none(false)).kind, ErrorKind::InvalidInput);
    }
}
