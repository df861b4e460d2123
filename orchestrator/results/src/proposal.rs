//! A call as it is shown to the person who has to approve it: a summary of a few lines, then the whole call as lines.
//!
//! Nothing is left out: a long text is paged, never cut, because what matters may be at its end.

use broker_protocol::{
    BackgroundKill, BackgroundLog, Bash, Command, Digest, Edit, Effect, FileAnswer, FileBytes,
    FileEdit, FileList, FileRead, FileReply, FileWrite, Glob, Grep, GrepSort, History, Occurrence,
    Request, Service, State, StateChange, Stdin, Terminal, Undo, Variable,
};
use orchestrator_text::{diff, escape};
use policies::secret::looks_secret;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// How long to search for the shortest diff; after that a longer one is shown.
const DIFF: Duration = Duration::from_millis(500);

/// The effect of a call, for a person.
#[derive(Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The summary, in escaped lines.
    pub about: Vec<String>,
    /// The whole call, in escaped lines.
    pub body: Vec<String>,
    /// Bytes of what it would run or write.
    pub bytes: usize,
}

impl Proposal {
    /// What `request` would do. `before` is the file that it would change, if it could be read.
    pub fn new(request: &Request, before: Option<&FileAnswer>) -> Self {
        match request {
            Request::Bash(bash) => command(bash).with(request),
            Request::Service(wanted) => service(wanted).with(request),
            Request::FileWrite(write) => file_write(write, before).with(request),
            Request::FileEdit(edit) => file_edit(edit, before).with(request),
            Request::FileRead(_)
            | Request::FileList(_)
            | Request::Glob(_)
            | Request::Grep(_)
            | Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_)
            | Request::Undo(_)
            | Request::FileBytes(_)
            | Request::State(_)
            | Request::Effect(_) => {
                let input = serde_json::to_string_pretty(&input(request)).unwrap_or_default();
                let body = escape::lines(&input);
                Self {
                    about: Vec::new(),
                    body,
                    bytes: input.len(),
                }
            }
        }
    }

    /// Adds those fields of `request` that the body does not show.
    fn with(mut self, request: &Request) -> Self {
        self.about.push(other_fields(request));
        self
    }
}

fn command(bash: &Bash) -> Proposal {
    let mut about = Vec::new();
    if let Some(directory) = &bash.directory {
        about.push(format!("in {}", escape::line(&directory.to_string())));
    }
    if bash.background {
        about.push("in the background: it runs on when the call has its result".into());
    }
    match bash.stdin {
        Stdin::Null => {}
        Stdin::Stream => about.push("its input comes from the client".into()),
        Stdin::Terminal(_) => {
            about.push("at a terminal of the client: what is typed there is not shown here".into())
        }
    }
    lines_of(&bash.command, about)
}

fn service(wanted: &Service) -> Proposal {
    let mut about = vec![format!(
        "as the service {}, for as long as the session lasts",
        escape::line(&wanted.name)
    )];
    if let Some(directory) = &wanted.directory {
        about.push(format!("in {}", escape::line(&directory.to_string())));
    }
    about.push("its input comes from the client".into());
    lines_of(&wanted.command, about)
}

fn lines_of(command: &Command, about: Vec<String>) -> Proposal {
    match command {
        Command::Shell(text) => Proposal {
            about,
            body: escape::lines(text),
            bytes: text.len(),
        },
        Command::Arguments(arguments) => {
            let words = arguments
                .iter()
                .map(|word| String::from_utf8_lossy(word))
                .enumerate();
            let body = words.flat_map(|(at, word)| argument(at, &word)).collect();
            Proposal {
                about,
                body,
                bytes: arguments.iter().map(|word| word.len()).sum(),
            }
        }
    }
}

/// An argument with its number; its further lines follow below.
fn argument(at: usize, word: &str) -> Vec<String> {
    let first = |line| {
        if line == 0 {
            format!("{at:>3}: ")
        } else {
            "   | ".to_owned()
        }
    };
    word.split('\n')
        .enumerate()
        .map(|(line, text)| first(line) + &escape::line(text))
        .collect()
}

fn file_write(write: &FileWrite, before: Option<&FileAnswer>) -> Proposal {
    let mut about = vec![escape::one_line(&write.path.to_string())];
    let new = String::from_utf8_lossy(&write.content);
    if matches!(new, Cow::Owned(_)) {
        about.push("the new content is not text; other bytes are shown as \u{fffd}".into());
    }
    let body = match old_text(before, &mut about) {
        Some(old) => unified_diff(&old, &new),
        None => escape::lines(&new)
            .into_iter()
            .map(|line| format!("+{line}"))
            .collect(),
    };
    Proposal {
        about,
        body,
        bytes: write.content.len(),
    }
}

fn file_edit(edit: &FileEdit, before: Option<&FileAnswer>) -> Proposal {
    let mut about = vec![escape::one_line(&edit.path.to_string())];
    let bytes = edit
        .edits
        .iter()
        .map(|edit| edit.old.len() + edit.new.len())
        .sum();
    let old = old_text(before, &mut about);
    let applied = old.and_then(|old| Some((apply(&old, &edit.edits)?, old)));
    let body = match applied {
        Some((new, old)) => unified_diff(&old, &new),
        None => {
            about.push(
                "the edits do not fit the file as it is; they are shown as they were given".into(),
            );
            edit.edits
                .iter()
                .enumerate()
                .flat_map(|(at, edit)| as_given(at + 1, edit))
                .collect()
        }
    };
    Proposal { about, body, bytes }
}

/// The current text of the file; remarks about it are added to `about`.
fn old_text(before: Option<&FileAnswer>, about: &mut Vec<String>) -> Option<String> {
    match before {
        Some(Ok(FileReply::Read(read))) => {
            if read.truncated.is_some() {
                about.push(format!(
                    "the file has {} bytes; it is compared as far as it can be read",
                    read.size
                ));
            }
            let text = String::from_utf8_lossy(&read.content);
            if matches!(text, Cow::Owned(_)) {
                about.push("the file is not text; other bytes are shown as \u{fffd}".into());
            }
            Some(text.into_owned())
        }
        Some(Ok(_)) | None => {
            about.push("the file as it is could not be read".into());
            None
        }
        Some(Err(failed)) => {
            about.push(format!("before: {}", escape::one_line(&failed.message)));
            None
        }
    }
}

/// The text after all edits, if each of them applies.
fn apply(old: &str, edits: &[Edit]) -> Option<String> {
    let mut text = old.to_owned();
    for edit in edits {
        let found = text.matches(&edit.old).count();
        if let Occurrence::Near(line) = edit.occurrence {
            let places = text.match_indices(&edit.old).map(|(place, _)| place);
            let place = Occurrence::nearest(text.as_bytes(), places, line)?;
            text.replace_range(place..place + edit.old.len(), &edit.new);
            continue;
        }
        let fits = match edit.occurrence {
            Occurrence::Only | Occurrence::Near(_) => found == 1,
            Occurrence::All => found > 0,
            Occurrence::Exactly(count) => found == count as usize,
        };
        if !fits {
            return None;
        }
        text = text.replace(&edit.old, &edit.new);
    }
    Some(text)
}

fn as_given(number: usize, edit: &Edit) -> Vec<String> {
    let which = match edit.occurrence {
        Occurrence::Only => "the only place".to_owned(),
        Occurrence::All => "all places".to_owned(),
        Occurrence::Exactly(count) => format!("{count} places"),
        Occurrence::Near(line) => format!("the place closest to line {line}"),
    };
    let signed = |sign: char, text: &str| -> Vec<String> {
        escape::lines(text)
            .into_iter()
            .map(|line| format!("{sign}{line}"))
            .collect()
    };
    let head = vec![format!("@@ edit {number}, {which} @@")];
    [head, signed('-', &edit.old), signed('+', &edit.new)].concat()
}

/// The unified diff of two texts, with context and with invisible characters escaped.
fn unified_diff(old: &str, new: &str) -> Vec<String> {
    if old == new {
        return vec!["no change".into()];
    }
    diff::lines(old, new, (1, 1), Instant::now() + DIFF, escape::line)
}

/// All fields of a request, under the names in its tool's input. A new field of a request does not compile until it is added here,
/// because an approval covers all fields.
pub fn input(request: &Request) -> Value {
    match request {
        Request::Bash(bash) => bash_input(bash),
        Request::Service(service) => service_input(service),
        Request::FileRead(FileRead {
            path,
            offset,
            limit,
        }) => {
            json!({ "path": path.to_string(), "offset": offset, "limit": limit })
        }
        Request::FileWrite(FileWrite {
            path,
            content,
            overwrite,
            expected_sha256,
        }) => json!({
            "path": path.to_string(), "content": String::from_utf8_lossy(content), "overwrite": overwrite,
            "expected_sha256": digest(expected_sha256.as_ref()),
        }),
        Request::FileEdit(FileEdit {
            path,
            edits,
            expected_sha256,
        }) => json!({
            "path": path.to_string(), "edits": edits.iter().map(edit_input).collect::<Vec<_>>(),
            "expected_sha256": digest(expected_sha256.as_ref()),
        }),
        Request::BackgroundList => json!({}),
        Request::BackgroundLog(BackgroundLog { id, from, most }) => {
            json!({ "id": id, "from": from, "most": most })
        }
        Request::BackgroundKill(BackgroundKill { id }) => json!({ "id": id }),
        Request::History(History { limit }) => json!({ "limit": limit }),
        Request::Undo(Undo {
            change,
            path,
            force,
        }) => {
            json!({ "change": change, "path": path.to_string(), "force": force })
        }
        Request::FileBytes(FileBytes {
            path,
            offset,
            limit,
        }) => {
            json!({ "path": path.to_string(), "offset": offset, "limit": limit })
        }
        Request::State(State { tool, change }) => {
            let change = change.as_ref().map(|StateChange { content, expected_sha256 }| {
                json!({ "content": String::from_utf8_lossy(content), "expected_sha256": digest(expected_sha256.as_ref()) })
            });
            json!({ "tool": tool.name(), "change": change })
        }
        Request::Effect(effect) => effect_input(effect),
        Request::FileList(FileList {
            path,
            depth,
            hidden,
            limit,
        }) => {
            json!({ "path": path.to_string(), "depth": depth, "hidden": hidden, "limit": limit })
        }
        Request::Glob(Glob {
            pattern,
            path,
            hidden,
            ignored,
            limit,
        }) => json!({
            "pattern": pattern, "path": path.to_string(), "hidden": hidden, "ignored": ignored, "limit": limit,
        }),
        Request::Grep(Grep {
            pattern,
            literal,
            ignore_case,
            path,
            include,
            ignored,
            context,
            limit,
            sort,
        }) => json!({
            "pattern": pattern, "path": path.to_string(), "literal": literal, "ignore_case": ignore_case,
            "include": include, "ignored": ignored, "context": context, "limit": limit,
            "sort": match sort {
                GrepSort::Path => "path",
                GrepSort::Modified => "modified",
            },
        }),
    }
}

fn bash_input(bash: &Bash) -> Value {
    let Bash {
        command,
        directory,
        timeout_s,
        idle_timeout_s,
        stdin,
        live,
        background,
        split,
        attended,
    } = bash;
    json!({
        "command": command_input(command),
        "cwd": directory.as_ref().map(ToString::to_string),
        "timeout": timeout_s,
        "idle_timeout": idle_timeout_s,
        "stdin": match stdin {
            Stdin::Null => json!(false),
            Stdin::Stream => json!(true),
            Stdin::Terminal(Terminal { rows, columns, term }) => {
                json!({ "rows": rows, "columns": columns, "term": term })
            }
        },
        "live": live,
        "background": background,
        "split": split,
        "attended": attended,
    })
}

fn command_input(command: &Command) -> Value {
    match command {
        Command::Shell(text) => json!(text),
        Command::Arguments(words) => {
            json!(
                words
                    .iter()
                    .map(|word| String::from_utf8_lossy(word))
                    .collect::<Vec<_>>()
            )
        }
    }
}

/// A variable whose name marks it as a secret must not appear on a screen or in a log: its length replaces the value.
fn service_input(
    Service {
        name,
        command,
        directory,
        environment,
    }: &Service,
) -> Value {
    let shown = |Variable { name, value }: &Variable| {
        let value = match looks_secret(name.as_ref()) {
            true => format!("(a secret of {} bytes)", value.len()),
            false => value.clone(),
        };
        (name.clone(), Value::String(value))
    };
    json!({
        "name": name,
        "command": command_input(command),
        "cwd": directory.as_ref().map(ToString::to_string),
        "environment": environment.iter().map(shown).collect::<serde_json::Map<_, _>>(),
    })
}

fn edit_input(
    Edit {
        old,
        new,
        occurrence,
    }: &Edit,
) -> Value {
    match occurrence {
        Occurrence::Only => json!({ "old": old, "new": new }),
        Occurrence::All => json!({ "old": old, "new": new, "all": true }),
        Occurrence::Exactly(count) => json!({ "old": old, "new": new, "occurrence": count }),
        Occurrence::Near(line) => json!({ "old": old, "new": new, "line": line }),
    }
}

fn effect_input(effect: &Effect) -> Value {
    match effect {
        Effect::WebSearch { query } => json!({ "query": query }),
        Effect::WebFetch { url } => json!({ "url": url }),
        // Name and risk are those of the call.
        Effect::Added {
            tool: _,
            risk: _,
            input,
        } => serde_json::from_str(input).unwrap_or_else(|_| json!(input)),
    }
}

fn digest(digest: Option<&Digest>) -> Value {
    digest.map_or(Value::Null, |digest| digest.to_string().into())
}

/// The fields of a request that its body does not show, on one line.
fn other_fields(request: &Request) -> String {
    const IN_THE_BODY: [&str; 4] = ["command", "path", "content", "edits"];
    let Value::Object(mut fields) = input(request) else {
        return String::new();
    };
    fields.retain(|name, _| !IN_THE_BODY.contains(&name.as_str()));
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(" ");
    escape::one_line(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{ErrorKind, Failed, Read, Zone, ZonePath};

    fn path() -> ZonePath {
        ZonePath::new(Zone::Project, "a.txt").unwrap()
    }

    fn read(content: &str) -> FileAnswer {
        let (content, size) = (content.as_bytes().to_vec(), content.len() as u64);
        Ok(FileReply::Read(Read {
            content,
            first_line: 1,
            lines: 1,
            size,
            truncated: None,
            sha256: None,
            total_lines: None,
        }))
    }

    fn write(content: &str) -> Request {
        let content = content.as_bytes().to_vec();
        Request::FileWrite(FileWrite {
            path: path(),
            content,
            overwrite: true,
            expected_sha256: None,
        })
    }

    fn edit(old: &str, new: &str) -> Request {
        let edits = vec![Edit {
            old: old.into(),
            new: new.into(),
            occurrence: Occurrence::Only,
        }];
        Request::FileEdit(FileEdit {
            path: path(),
            edits,
            expected_sha256: None,
        })
    }

    #[test]
    fn a_write_is_a_difference_or_all_new() {
        let old = read("one\ntwo\nthree\n");
        let body = Proposal::new(&write("one\n2\u{200b}\nthree"), Some(&old)).body;
        let want = [
            "@@ -1,3 +1,3 @@",
            " one",
            "-two",
            "-three",
            "+2\\u{200b}",
            "+three",
            "\\ No newline at end of file",
        ];
        assert_eq!(body, want);
        let missing = Err(Failed {
            kind: ErrorKind::NotFound,
            message: "no\x1b file".into(),
        });
        let new = Proposal::new(&write("a\nb\n"), Some(&missing));
        assert_eq!(
            (new.body, &*new.about[1]),
            (vec!["+a".into(), "+b".into()], "before: no\\u{1b} file")
        );
    }

    #[test]
    fn an_edit_is_the_difference_it_makes_or_shown_as_given() {
        let old = read("one\ntwo\n");
        assert_eq!(
            Proposal::new(&edit("two", "2"), Some(&old)).body,
            ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
        );
        let unfit = Proposal::new(&edit("three", "3"), Some(&old));
        assert_eq!(unfit.body, ["@@ edit 1, the only place @@", "-three", "+3"]);
        assert!(unfit.about.iter().any(|line| line.contains("do not fit")));
    }

    #[test]
    fn nothing_of_a_long_command_is_left_out() {
        let text = format!("true\n{}rm -rf x", "\n".repeat(5000));
        let bash = Bash {
            command: Command::Shell(text),
            directory: None,
            timeout_s: None,
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
            split: false,
            attended: false,
        };
        let proposal = Proposal::new(&Request::Bash(bash), None);
        assert_eq!(
            (proposal.body.len(), proposal.body.last().unwrap().as_str()),
            (5002, "rm -rf x")
        );
    }

    #[test]
    fn each_field_of_a_request_is_shown() {
        let bash = Bash {
            command: Command::Shell("ls".into()),
            directory: Some(ZonePath::new(Zone::Project, "d").unwrap()),
            timeout_s: Some(7),
            idle_timeout_s: Some(8),
            stdin: Stdin::Stream,
            live: true,
            background: true,
            split: true,
            attended: false,
        };
        let about = Proposal::new(&Request::Bash(bash), None).about.join("\n");
        for field in [
            "timeout=7",
            "idle_timeout=8",
            "stdin=true",
            "live=true",
            "background=true",
            "split=true",
        ] {
            assert!(about.contains(field), "{field} in {about}");
        }
        let write = FileWrite {
            path: path(),
            content: vec![],
            overwrite: false,
            expected_sha256: Some(Digest([7; 32])),
        };
        let about = Proposal::new(&Request::FileWrite(write), None)
            .about
            .join("\n");
        assert!(
            about.contains("overwrite=false") && about.contains(&"07".repeat(32)),
            "{about}"
        );
        let all = Edit {
            old: "a".into(),
            new: "b".into(),
            occurrence: Occurrence::All,
        };
        let edit = FileEdit {
            path: path(),
            edits: vec![all],
            expected_sha256: None,
        };
        assert_eq!(input(&Request::FileEdit(edit))["edits"][0]["all"], true);
    }
}
