//! A call's outcome becomes what the model reads, what went wrong, and what is known about it.
//!
//! Nothing is decided on a message here, only on the [`ErrorKind`].

use super::file_answer::Place;
use super::text::{continued, unfinished};
use broker_protocol::{
    CallId, Captured, Command, Ended, ErrorKind, Failed, FileAnswer, LayerSet, Outcome, Ran, Request, Roots,
    Spill, Usage, Zone, ZonePath,
};
use serde::Serialize;

/// What of a request is needed to speak about its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The tool's canonical name.
    pub tool: &'static str,
    /// The file or directory it is about.
    pub path: Option<ZonePath>,
    /// The program of a command without a shell.
    pub program: Option<String>,
    /// The idle limit of a command, in seconds.
    pub idle_s: Option<u32>,
}

impl Asked {
    /// Takes it from `request`.
    pub fn of(request: &Request) -> Self {
        let (path, program, idle_s) = match request {
            Request::Bash(bash) => (None, program(&bash.command), bash.idle_timeout_s),
            Request::FileRead(read) => (Some(&read.path), None, None),
            Request::FileWrite(write) => (Some(&write.path), None, None),
            Request::FileEdit(edit) => (Some(&edit.path), None, None),
            Request::FileList(list) => (Some(&list.path), None, None),
            Request::Glob(glob) => (Some(&glob.path), None, None),
            Request::Grep(grep) => (Some(&grep.path), None, None),
            Request::Undo(undo) => (Some(&undo.path), None, None),
            Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_) => (None, None, None),
        };
        Self { tool: request.tool(), path: path.cloned(), program, idle_s }
    }

    /// For a call that never became a request.
    pub fn only(tool: &'static str) -> Self {
        Self { tool, path: None, program: None, idle_s: None }
    }
}

fn program(command: &Command) -> Option<String> {
    match command {
        Command::Shell(_) => None,
        Command::Arguments(arguments) => {
            arguments.first().map(|program| String::from_utf8_lossy(program).into_owned())
        }
    }
}

/// How a call ended, as the executor said it.
#[derive(Debug)]
pub struct Finished {
    /// The outcome.
    pub outcome: Outcome,
    /// A file tool's answer.
    pub answer: Option<FileAnswer>,
    /// What it used.
    pub usage: Usage,
    /// The layers that were in force around it.
    pub layers: LayerSet,
}

/// The answer of one call.
#[derive(Debug)]
pub struct Answer {
    /// What the tool found or a command printed: bytes, because that may be any.
    pub text: Vec<u8>,
    /// What went wrong, if anything did.
    pub error: Option<Failed>,
    /// How a command ended.
    pub ended: Option<Ended>,
    /// What is known about the call.
    pub about: About,
}

/// What is known about a call besides its text.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// The tool's canonical name.
    pub tool: &'static str,
    /// The call's number in the broker's audit, if it came that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The exit code of a command that exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What it used.
    pub usage: Used,
    /// Names of the layers that were in force.
    pub layers: Vec<&'static str>,
    /// What was left out of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Cut>,
    /// What only this tool knows.
    #[serde(flatten)]
    pub details: Details,
}

/// [`Usage`] in JSON.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // Those of `Usage`.
pub struct Used {
    pub wall_us: u64,
    pub user_us: u64,
    pub system_us: u64,
    pub peak_kib: u64,
    pub stdin_bytes: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

/// What was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// How much there is; absent where it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How much of it is in the text.
    pub shown: u64,
    /// Which part: `head`, or `both` ends.
    pub strategy: &'static str,
}

/// What only one tool knows of its call.
#[derive(Debug, Default, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[allow(missing_docs)] // Field names are those of the protocol.
pub enum Details {
    /// Nothing: the call failed.
    #[default]
    #[serde(serialize_with = "nothing")]
    None,
    Command {
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        spill: Option<Spilled>,
    },
    Read {
        path: String,
        first_line: u64,
        lines: u64,
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
    Written {
        path: String,
        bytes: u64,
        created: bool,
        sha256: String,
        /// Number of the change; absent where it cannot be undone.
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
    },
    Edited {
        path: String,
        replaced: Vec<u32>,
        bytes: u64,
        sha256: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
    },
    Searched {
        provider: &'static str,
        result_count: u64,
    },
    Fetched {
        url: String,
        media_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        bytes: u64,
    },
    Found {
        path: String,
        count: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        binary: Option<u64>,
    },
    Started {
        background: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        log: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
    },
    Background {
        processes: Vec<Process>,
    },
    Logged {
        /// Number of the first byte of the text.
        offset: u64,
        /// The offset to go on with.
        next: u64,
        total: u64,
        alive: bool,
    },
    Changes {
        changes: Vec<Changed>,
    },
    Undone {
        path: String,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
    },
}

/// A background process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // Field names are those of the protocol.
pub struct Process {
    pub id: u64,
    pub command: String,
    pub started_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// `alive`, or how it ended.
    pub state: String,
    pub usage: Used,
}

/// A change of a file tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // Field names are those of the protocol.
pub struct Changed {
    pub number: u64,
    pub call: u64,
    pub time_ms: u64,
    pub path: String,
    /// Digest; `null` where there was no file.
    pub before: Option<String>,
    pub after: Option<String>,
}

fn nothing<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    serializer.serialize_map(Some(0))?.end()
}

/// Where the whole output of a command stands.
#[derive(Debug, Serialize)]
pub struct Spilled {
    /// Absolute, so that commands and file tools both find it.
    pub path: String,
    /// Bytes in it.
    pub bytes: u64,
    /// Whether that is all of the output.
    pub whole: bool,
}

impl Answer {
    /// The answer of a call that `error` kept from running, or cut off.
    pub fn failed(asked: &Asked, error: Failed) -> Self {
        let about = About { tool: asked.tool, ..About::default() };
        Self { text: Vec::new(), error: Some(error), ended: None, about }
    }

    /// The answer of a call that ran, or was refused.
    pub fn of(asked: &Asked, finished: Finished, roots: &Roots) -> Self {
        let kind = finished.outcome.error();
        let mut answer = match finished.outcome {
            Outcome::Ran(ran) => Self::ran(asked, ran, roots),
            Outcome::Answered => Self::answered(asked, finished.answer, roots),
            Outcome::Refused(refused) => Self::refused(asked, kind, refused.to_string()),
            Outcome::Failed(failed) => Self::failed(asked, failed),
            Outcome::Broken(broken) => Self::refused(asked, kind, broken.to_string()),
        };
        answer.about.usage = used(finished.usage);
        answer.about.layers = finished.layers.iter().map(|layer| layer.name()).collect();
        answer
    }

    fn refused(asked: &Asked, kind: Option<ErrorKind>, message: String) -> Self {
        Self::failed(asked, Failed { kind: kind.unwrap_or(ErrorKind::Internal), message })
    }

    fn ran(asked: &Asked, ran: Ran, roots: &Roots) -> Self {
        let error = ran.ended.error().map(|kind| Failed { kind, message: end_message(asked, &ran) });
        let spill = ran.spill.as_ref().map(|spill| spilled(spill, roots));
        let (text, truncated) = output(&ran.output, spill.as_ref());
        let mut about = About { tool: asked.tool, truncated, ..About::default() };
        match ran.ended {
            Ended::Exited(code) => about.exit_code = Some(code),
            Ended::Signalled(signal) => about.signal = Some(signal),
            Ended::TimedOut | Ended::Idle | Ended::Cancelled | Ended::Limited(_) | Ended::NotStarted(_) => {}
        }
        about.details = Details::Command { timeout: ran.timeout_s, spill };
        Self { text, error, ended: Some(ran.ended), about }
    }

    fn answered(asked: &Asked, answer: Option<FileAnswer>, roots: &Roots) -> Self {
        let reply = match answer {
            Some(Ok(reply)) => reply,
            Some(Err(failed)) => return Self::failed(asked, failed),
            None => return Self::refused(asked, None, "the executor sent no answer".to_owned()),
        };
        let path = asked.path.clone().unwrap_or_else(|| ZonePath::root(Zone::Project));
        let place = Place { absolute: roots.absolute(&path), path };
        let (text, truncated, details) = place.tell(reply, roots);
        let about = About { tool: asked.tool, truncated, details, ..About::default() };
        Self { text, error: None, ended: None, about }
    }
}

/// `usage` in JSON.
pub(super) fn used(usage: Usage) -> Used {
    Used {
        wall_us: usage.wall_us,
        user_us: usage.user_us,
        system_us: usage.system_us,
        peak_kib: usage.peak_kib,
        stdin_bytes: usage.stdin_bytes,
        stdout_bytes: usage.stdout_bytes,
        stderr_bytes: usage.stderr_bytes,
    }
}

/// What is said of a command that did not simply succeed.
fn end_message(asked: &Asked, ran: &Ran) -> String {
    let seconds = |limit: Option<u32>| limit.map_or(String::new(), |limit| format!(" of {limit} s"));
    match ran.ended {
        Ended::Exited(code) => format!("the command exited with code {code}"),
        Ended::Signalled(signal) => format!("signal {signal} ended the command"),
        Ended::TimedOut => {
            format!("the command ran into its time limit{} and was killed", seconds(ran.timeout_s))
        }
        Ended::Idle => {
            format!("the command printed nothing for its idle time{} and was killed", seconds(asked.idle_s))
        }
        Ended::Cancelled => "the call was cancelled".to_owned(),
        Ended::Limited(limit) => {
            format!("the command ran into the policy's limit `{}` and was killed", limit.name())
        }
        Ended::NotStarted(errno) => {
            let program = asked.program.as_deref().unwrap_or("bash");
            format!("{program:?} cannot be started: {}", std::io::Error::from_raw_os_error(errno))
        }
    }
}

fn spilled(spill: &Spill, roots: &Roots) -> Spilled {
    Spilled { path: roots.absolute(&spill.path), bytes: spill.bytes, whole: spill.whole }
}

/// The kept output, with a note where its middle is left out. No character is cut in two there.
fn output(captured: &Captured, spill: Option<&Spilled>) -> (Vec<u8>, Option<Cut>) {
    if captured.omitted == 0 {
        return ([&captured.head[..], &captured.tail[..]].concat(), None);
    }
    let head = &captured.head[..captured.head.len() - unfinished(&captured.head)];
    let tail = &captured.tail[continued(&captured.tail)..];
    let total = (captured.head.len() + captured.tail.len()) as u64 + captured.omitted;
    let shown = (head.len() + tail.len()) as u64;
    let full = spill.map_or(String::new(), |spill| format!(" full={}", spill.path));
    let note = format!("\n[truncated: total={total} shown={shown} strategy=both{full}]\n");
    ([head, note.as_bytes(), tail].concat(), Some(Cut { total: Some(total), shown, strategy: "both" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{
        Digest, Edited, FileReply, Grepped, Layer, Listed, ListedEntry, ListedKind, Match, MatchLine, Read,
        Refused, Truncated, Walked, Written,
    };
    use serde_json::{Value, json};

    fn roots() -> Roots {
        Roots { project: "/p".into(), central: "/c".into() }
    }

    fn asked(path: Option<&str>) -> Asked {
        let path = path.map(|path| roots().parse(path).unwrap());
        Asked { tool: "t", path, program: Some("prog".into()), idle_s: Some(3) }
    }

    fn answer(outcome: Outcome, file: Option<FileAnswer>, path: &str) -> Answer {
        let layers = LayerSet::default().with(Layer::Seccomp);
        let finished = Finished { outcome, answer: file, usage: Usage::default(), layers };
        Answer::of(&asked(Some(path)), finished, &roots())
    }

    fn ran(ended: Ended, head: &[u8], tail: &[u8], omitted: u64) -> Ran {
        let spill = (omitted > 0).then(|| Spill {
            path: ZonePath::new(Zone::Central, "outputs/1.log").unwrap(),
            bytes: 9,
            whole: true,
        });
        let output = Captured { head: head.to_vec(), tail: tail.to_vec(), omitted };
        Ran { ended, output, spill, timeout_s: Some(10) }
    }

    fn file(reply: FileReply, path: &str) -> (String, Value) {
        let answer = answer(Outcome::Answered, Some(Ok(reply)), path);
        assert!(answer.error.is_none());
        (String::from_utf8(answer.text).unwrap(), serde_json::to_value(answer.about).unwrap())
    }

    #[test]
    fn each_end_of_a_command_has_its_error() {
        let cases = [
            (Ended::Exited(42), "the command exited with code 42", ErrorKind::ExitNonzero),
            (Ended::Signalled(9), "signal 9 ended the command", ErrorKind::ExitNonzero),
            (
                Ended::TimedOut,
                "the command ran into its time limit of 10 s and was killed",
                ErrorKind::Timeout,
            ),
            (
                Ended::Idle,
                "the command printed nothing for its idle time of 3 s and was killed",
                ErrorKind::IdleTimeout,
            ),
            (Ended::Cancelled, "the call was cancelled", ErrorKind::Cancelled),
            (
                Ended::NotStarted(2),
                "\"prog\" cannot be started: No such file or directory (os error 2)",
                ErrorKind::NotFound,
            ),
        ];
        for (ended, message, kind) in cases {
            let answer = answer(Outcome::Ran(ran(ended, b"", b"", 0)), None, "");
            assert_eq!(answer.error, Some(Failed { kind, message: message.into() }));
            assert_eq!(answer.ended, Some(ended));
        }
        let fine = answer(Outcome::Ran(ran(Ended::Exited(0), b"hi\n", b"", 0)), None, "");
        assert!(fine.error.is_none());
        let about = serde_json::to_value(fine.about).unwrap();
        assert_eq!(about["exitCode"], 0);
        assert_eq!(about["layers"], json!(["seccomp"]));
        assert_eq!(about["usage"]["peakKib"], 0);
    }

    #[test]
    fn a_cut_output_has_both_ends_and_a_note_and_no_half_characters() {
        let done = ran(Ended::Exited(0), b"a\xc3\xa9\xe2\x82", b"\xac\xc3\xa9z", 100);
        let answer = answer(Outcome::Ran(done), None, "");
        let text = String::from_utf8(answer.text).unwrap();
        assert_eq!(text, "aé\n[truncated: total=109 shown=6 strategy=both full=/c/outputs/1.log]\néz");
        let about = serde_json::to_value(answer.about).unwrap();
        assert_eq!(about["truncated"], json!({"total": 109, "shown": 6, "strategy": "both"}));
        assert_eq!(about["spill"], json!({"path": "/c/outputs/1.log", "bytes": 9, "whole": true}));
    }

    #[test]
    fn a_cut_file_says_how_large_it_is() {
        let read = Read {
            content: b"ab\xc3".to_vec(),
            first_line: 1,
            lines: 1,
            size: 2_000_000,
            truncated: Some(Truncated { total: Some(2_000_000), shown: 3 }),
            sha256: None,
        };
        let (text, about) = file(FileReply::Read(read), "a");
        assert_eq!(text, "ab\n[truncated: file is 2000000 bytes, showing first 2]");
        assert_eq!(about["path"], "/p/a");
        assert_eq!(about["size"], 2_000_000);
    }

    #[test]
    fn lists_are_plain_lines_and_no_name_makes_two() {
        let entry = |path: &str, kind| ListedEntry { path: path.into(), kind, size: 0 };
        let entries = vec![
            entry("a b", ListedKind::File),
            entry("d", ListedKind::Directory),
            entry("two\nlines", ListedKind::Link),
            entry("\u{202e}gpj.exe", ListedKind::File),
            entry("f", ListedKind::Other),
        ];
        let listed = Listed { entries, truncated: Some(Truncated { total: None, shown: 5 }) };
        let (text, about) = file(FileReply::Listed(listed), "");
        let want = "a b\nd/\n\"two\\nlines\"@\n\"\\u{202e}gpj.exe\"\nf|\n\
                    [truncated: total=unknown shown=5 strategy=head]";
        assert_eq!(text, want);
        assert_eq!(about["count"], 5);
        assert_eq!(about["truncated"], json!({"shown": 5, "strategy": "head"}));
    }

    #[test]
    fn matches_stand_as_path_line_text_with_their_zone() {
        let line = |number, matched, text: &str| MatchLine { number, matched, text: text.into() };
        let lines = vec![line(1, false, "x"), line(2, true, "needle")];
        let grepped =
            Grepped { matches: vec![Match { path: "n/a".into(), lines }], truncated: None, binary: 2 };
        let (text, about) = file(FileReply::Grepped(grepped), "central:n");
        assert_eq!(text, "central:n/a-1-x\ncentral:n/a:2:needle");
        assert_eq!((&about["count"], &about["binary"]), (&json!(1), &json!(2)));
        let (text, about) = file(FileReply::Walked(Walked { paths: vec![], truncated: None }), "");
        assert_eq!((text.as_str(), &about["count"]), ("no file matches", &json!(0)));
    }

    #[test]
    fn writes_and_edits_say_where() {
        let sha256 = Digest([0; 32]);
        let (text, about) =
            file(FileReply::Written(Written { bytes: 5, created: true, sha256, change: Some(3) }), "d/f");
        assert_eq!((text.as_str(), &about["path"]), ("wrote 5 bytes to d/f", &json!("/p/d/f")));
        let (text, about) =
            file(FileReply::Edited(Edited { replaced: vec![1, 2], bytes: 5, sha256, change: None }), "f");
        assert_eq!(
            (text.as_str(), &about["replaced"]),
            ("replaced 3 places in f (this cannot be undone)", &json!([1, 2]))
        );
    }

    #[test]
    fn refusals_and_failures_keep_their_kinds() {
        let refused = |violation| Outcome::Refused(Refused { rule: "r".into(), why: "w".into(), violation });
        let kind = |outcome, file| answer(outcome, file, "").error.unwrap().kind;
        assert_eq!(kind(refused(false), None), ErrorKind::DeniedPolicy);
        assert_eq!(kind(refused(true), None), ErrorKind::Violation);
        let failed = Failed { kind: ErrorKind::NotFound, message: "file not found".into() };
        assert_eq!(kind(Outcome::Answered, Some(Err(failed))), ErrorKind::NotFound);
        assert_eq!(kind(Outcome::Answered, None), ErrorKind::Internal);
    }
}
