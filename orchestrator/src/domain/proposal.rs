//! A call as it is shown to who has to allow it: what it is, in a few lines, and all of it, as a list of lines.
//!
//! Nothing is left out: a long text is paged, never cut, because what matters may stand at its end.

use super::{difference, visible};
use broker_protocol::{
    Bash, Command, Edit, Effect, FileAnswer, FileEdit, FileReply, FileWrite, Occurrence, Request, Stdin,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// How long the shortest difference is looked for; after that a longer one is shown.
const DIFF: Duration = Duration::from_millis(500);

/// What a call would do, for a person.
#[derive(Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What it is: each line can be shown.
    pub about: Vec<String>,
    /// All of it: each line can be shown.
    pub body: Vec<String>,
    /// Bytes of what it would run or write.
    pub bytes: usize,
}

impl Proposal {
    /// What `request` would do, where `before` is the file it would change, if it was looked at.
    pub fn new(request: &Request, before: Option<&FileAnswer>) -> Self {
        match request {
            Request::Bash(bash) => command(bash),
            Request::FileWrite(write) => file_write(write, before),
            Request::FileEdit(edit) => file_edit(edit, before),
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
                let body = visible::lines(&input);
                Self { about: Vec::new(), body, bytes: input.len() }
            }
        }
    }
}

fn command(bash: &Bash) -> Proposal {
    let mut about = Vec::new();
    if let Some(directory) = &bash.directory {
        about.push(format!("in {}", visible::line(&directory.to_string())));
    }
    if bash.background {
        about.push("in the background: it goes on when the call has its answer".into());
    }
    match bash.stdin {
        Stdin::Null => {}
        Stdin::Stream => about.push("its input comes from the client".into()),
        Stdin::Terminal(_) => {
            about.push("at a terminal of the client's: what is typed there is not shown here".into())
        }
    }
    match &bash.command {
        Command::Shell(text) => Proposal { about, body: visible::lines(text), bytes: text.len() },
        Command::Arguments(arguments) => {
            let words = arguments.iter().map(|word| String::from_utf8_lossy(word)).enumerate();
            let body = words.flat_map(|(at, word)| argument(at, &word)).collect();
            Proposal { about, body, bytes: arguments.iter().map(|word| word.len()).sum() }
        }
    }
}

/// An argument with its number, and what of it stands on further lines below.
fn argument(at: usize, word: &str) -> Vec<String> {
    let first = |line| if line == 0 { format!("{at:>3}: ") } else { "   | ".to_owned() };
    word.split('\n').enumerate().map(|(line, text)| first(line) + &visible::line(text)).collect()
}

/// A text on one line: its line ends are shown too.
fn one_line(text: &str) -> String {
    text.split('\n').map(visible::line).collect::<Vec<_>>().join("\\n")
}

fn file_write(write: &FileWrite, before: Option<&FileAnswer>) -> Proposal {
    let mut about = vec![one_line(&write.path.to_string())];
    let new = String::from_utf8_lossy(&write.content);
    if matches!(new, Cow::Owned(_)) {
        about.push("the new content is not text; bytes that are none are shown as \u{fffd}".into());
    }
    let body = match old_text(before, &mut about) {
        Some(old) => diff(&old, &new),
        None => visible::lines(&new).into_iter().map(|line| format!("+{line}")).collect(),
    };
    Proposal { about, body, bytes: write.content.len() }
}

fn file_edit(edit: &FileEdit, before: Option<&FileAnswer>) -> Proposal {
    let mut about = vec![one_line(&edit.path.to_string())];
    let bytes = edit.edits.iter().map(|edit| edit.old.len() + edit.new.len()).sum();
    let old = old_text(before, &mut about);
    let applied = old.and_then(|old| Some((apply(&old, &edit.edits)?, old)));
    let body = match applied {
        Some((new, old)) => diff(&old, &new),
        None => {
            about.push("the edits do not fit the file as it is; they are shown as they were given".into());
            edit.edits.iter().enumerate().flat_map(|(at, edit)| as_given(at + 1, edit)).collect()
        }
    };
    Proposal { about, body, bytes }
}

/// The file as it is, and what there is to say about it.
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
                about.push("the file is not text; bytes that are none are shown as \u{fffd}".into());
            }
            Some(text.into_owned())
        }
        Some(Ok(_)) | None => {
            about.push("the file as it is could not be looked at".into());
            None
        }
        Some(Err(failed)) => {
            about.push(format!("before: {}", one_line(&failed.message)));
            None
        }
    }
}

/// The text after the edits, where each fits.
fn apply(old: &str, edits: &[Edit]) -> Option<String> {
    let mut text = old.to_owned();
    for edit in edits {
        let found = text.matches(&edit.old).count();
        let fits = match edit.occurrence {
            Occurrence::Only => found == 1,
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
    };
    let signed = |sign: char, text: &str| -> Vec<String> {
        visible::lines(text).into_iter().map(|line| format!("{sign}{line}")).collect()
    };
    let head = vec![format!("@@ edit {number}, {which} @@")];
    [head, signed('-', &edit.old), signed('+', &edit.new)].concat()
}

/// The difference of two texts by lines, with what stands around it, and what hides made visible.
fn diff(old: &str, new: &str) -> Vec<String> {
    if old == new {
        return vec!["no change".into()];
    }
    difference::lines(old, new, (1, 1), Instant::now() + DIFF, visible::line)
}

/// The input of a request as its tool takes it, in canonical names.
pub fn input(request: &Request) -> Value {
    match request {
        Request::Bash(bash) => json!({
            "command": match &bash.command {
                Command::Shell(text) => json!(text),
                Command::Arguments(words) => {
                    json!(words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>())
                }
            },
            "cwd": bash.directory.as_ref().map(ToString::to_string),
            "timeout": bash.timeout_s,
            "idleTimeout": bash.idle_timeout_s,
            "background": bash.background,
        }),
        Request::FileRead(read) => {
            json!({ "path": read.path.to_string(), "offset": read.offset, "limit": read.limit })
        }
        Request::FileWrite(write) => json!({
            "path": write.path.to_string(),
            "content": String::from_utf8_lossy(&write.content),
            "overwrite": write.overwrite,
        }),
        Request::FileEdit(edit) => {
            let one = |edit: &Edit| json!({ "old": edit.old, "new": edit.new });
            json!({ "path": edit.path.to_string(), "edits": edit.edits.iter().map(one).collect::<Vec<_>>() })
        }
        Request::BackgroundList => json!({}),
        Request::BackgroundLog(log) => json!({ "id": log.id, "from": log.from, "most": log.most }),
        Request::BackgroundKill(kill) => json!({ "id": kill.id }),
        Request::History(history) => json!({ "limit": history.limit }),
        Request::Undo(undo) => {
            json!({ "change": undo.change, "path": undo.path.to_string(), "force": undo.force })
        }
        Request::FileBytes(bytes) => {
            json!({ "path": bytes.path.to_string(), "offset": bytes.offset, "limit": bytes.limit })
        }
        Request::State(state) => json!({
            "change": state.change.as_ref().map(|change| String::from_utf8_lossy(&change.content)),
        }),
        Request::Effect(effect) => match effect {
            Effect::WebSearch { query } => json!({ "query": query }),
            Effect::WebFetch { url } => json!({ "url": url }),
            Effect::Added { input, .. } => serde_json::from_str(input).unwrap_or_else(|_| json!(input)),
        },
        Request::FileList(list) => json!({
            "path": list.path.to_string(), "depth": list.depth, "hidden": list.hidden, "limit": list.limit,
        }),
        Request::Glob(glob) => json!({
            "pattern": glob.pattern, "path": glob.path.to_string(), "hidden": glob.hidden,
            "ignored": glob.ignored, "limit": glob.limit,
        }),
        Request::Grep(grep) => json!({
            "pattern": grep.pattern, "path": grep.path.to_string(), "literal": grep.literal,
            "ignoreCase": grep.ignore_case, "include": grep.include, "ignored": grep.ignored,
            "context": grep.context, "limit": grep.limit,
        }),
    }
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
        Request::FileWrite(FileWrite { path: path(), content, overwrite: true, expected_sha256: None })
    }

    fn edit(old: &str, new: &str) -> Request {
        let edits = vec![Edit { old: old.into(), new: new.into(), occurrence: Occurrence::Only }];
        Request::FileEdit(FileEdit { path: path(), edits, expected_sha256: None })
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
        let missing = Err(Failed { kind: ErrorKind::NotFound, message: "no\x1b file".into() });
        let new = Proposal::new(&write("a\nb\n"), Some(&missing));
        assert_eq!((new.body, &*new.about[1]), (vec!["+a".into(), "+b".into()], "before: no\\u{1b} file"));
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
        };
        let proposal = Proposal::new(&Request::Bash(bash), None);
        assert_eq!((proposal.body.len(), proposal.body.last().unwrap().as_str()), (5002, "rm -rf x"));
    }
}
