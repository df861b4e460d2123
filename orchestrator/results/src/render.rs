//! From the executor's report on a request to the result of a call. Secrets are removed before anything is inserted in front of
//! lines or between both ends of a text: afterwards a secret of several lines would not be found.

use crate::command_results;
use crate::file_results::FileRenderer;
use crate::metadata::Details;
use crate::profile::ModelProfile;
use crate::rendered::Rendered;
use crate::result::ToolResult;
use crate::subject::Subject;
use broker_protocol::{
    Edited, ErrorKind, Failed, FileAnswer, FileReply, LayerSet, Outcome, Ran, Roots, Usage,
    Written, Zone, ZonePath,
};
use orchestrator_text::clean;
use orchestrator_text::escape;
use orchestrator_text::numbered::LineForm;
use orchestrator_text::redact::{PageSide, RedactedPiece, Redactor};
use std::mem::take;

/// How a request ended, as the executor reports it.
#[derive(Debug)]
pub struct FinishedRequest {
    pub outcome: Outcome,
    /// A file tool's answer.
    pub answer: Option<FileAnswer>,
    pub usage: Usage,
    /// The layers that were in force around it.
    pub layers: LayerSet,
    /// What the request was denied.
    pub denied: broker_protocol::Denials,
}

/// The note on a file whose secrets are not shown.
const REDACTED: &[u8] = b"\n[secrets are replaced here by [redacted:NAME]: change this file with file_edit, because file_write would \
    lose them]";

/// Renders results for one model.
#[derive(Clone, Copy)]
pub struct Renderer<'a> {
    /// Locations of the two zones.
    pub roots: &'a Roots,
    /// How much is shown.
    pub profile: &'a ModelProfile,
    /// Knows the secrets to remove.
    pub redactor: &'a Redactor,
}

impl Renderer<'_> {
    /// The result of a request for `subject`.
    pub fn render(
        &self,
        subject: &Subject,
        finished: Result<FinishedRequest, Failed>,
    ) -> ToolResult {
        let FinishedRequest {
            outcome,
            answer,
            usage,
            layers,
            denied,
        } = match finished {
            Ok(finished) => finished,
            Err(failed) => return ToolResult::failed(subject.tool.clone(), failed),
        };
        let kind = outcome.error();
        let failed = |message: String| Failed {
            kind: kind.unwrap_or(ErrorKind::Internal),
            message,
        };
        let tool = subject.tool.clone();
        let mut result = match outcome {
            Outcome::Ran(ran) => self.ran(subject, ran),
            Outcome::Answered => self.answered(subject, answer),
            Outcome::Granted => ToolResult::success(tool, "", Details::None),
            Outcome::Refused(refused) => ToolResult::failed(tool, failed(refused.to_string())),
            Outcome::Failed(failed) => ToolResult::failed(tool, failed),
            Outcome::Broken(broken) => ToolResult::failed(tool, failed(broken.to_string())),
        };
        result.metadata.usage = usage.into();
        result.metadata.layers = layers.iter().map(|layer| layer.name()).collect();
        result.metadata.denied = denied;
        for denial in result.metadata.denied.list_mut() {
            denial.clean(escape::one_line);
        }
        result.tell_denials();
        result
    }

    fn ran(&self, subject: &Subject, ran: Ran) -> ToolResult {
        let ended = ran.ended;
        let (text, error, metadata) =
            command_results::ran(subject, ran, self.roots, self.profile, self.redactor);
        ToolResult {
            ended: Some(ended),
            ..ToolResult::new(text, error, metadata)
        }
    }

    fn answered(&self, subject: &Subject, answer: Option<FileAnswer>) -> ToolResult {
        let mut reply = match answer {
            Some(Ok(reply)) => reply,
            Some(Err(failed)) => return ToolResult::failed(subject.tool.clone(), failed),
            None => {
                let message = "the executor sent no answer".into();
                return ToolResult::failed(
                    subject.tool.clone(),
                    Failed {
                        kind: ErrorKind::Internal,
                        message,
                    },
                );
            }
        };
        let (stripped, mut redacted) = self.prepare(subject, &mut reply);
        let (known_before, known_behind) = match &mut reply {
            FileReply::Logged(logged) => (take(&mut logged.before), take(&mut logged.behind)),
            _ => (Vec::new(), Vec::new()),
        };
        let path = subject
            .path
            .clone()
            .unwrap_or_else(|| ZonePath::root(Zone::Project));
        let (absolute, profile) = (self.roots.absolute(&path), self.profile);
        let renderer = FileRenderer {
            path,
            absolute,
            profile,
            form: subject.form,
        };
        let Rendered {
            mut text,
            truncation,
            details,
        } = renderer.render(reply, self.roots);
        if redacted && subject.form == LineForm::Numbered {
            text.extend_from_slice(REDACTED);
        }
        if let Details::Logged {
            offset,
            next,
            total,
            alive,
        } = details
        {
            let [ahead, after] = [&known_before, &known_behind].map(|known| known.len() as u64);
            redacted |= self.redactor.redact(RedactedPiece::Page {
                bytes: &mut text,
                before: PageSide {
                    known: &known_before,
                    goes_on: offset > ahead,
                },
                behind: PageSide {
                    known: &known_behind,
                    goes_on: alive || next + after < total,
                },
            });
        }
        let mut result = ToolResult::success(subject.tool.clone(), text, details);
        (result.metadata.truncated, result.metadata.stripped) = (truncation, stripped);
        result.metadata.redacted = redacted;
        result
    }

    /// Removes secrets from a text that is going to be cut or prefixed by line, and unsafe characters from numbered lines; returns
    /// how many of these it removed, and whether a file that was read had secrets.
    fn prepare(&self, subject: &Subject, reply: &mut FileReply) -> (u64, bool) {
        match reply {
            FileReply::Written(Written {
                hunks: Some(hunks), ..
            })
            | FileReply::Edited(Edited {
                hunks: Some(hunks), ..
            }) => {
                for hunk in hunks {
                    self.redactor.redact(RedactedPiece::Lines(&mut hunk.old));
                    self.redactor.redact(RedactedPiece::Lines(&mut hunk.new));
                }
                (0, false)
            }
            FileReply::Read(read) => {
                let behind = PageSide {
                    known: &[],
                    goes_on: read.truncated.is_some(),
                };
                let redacted = self
                    .redactor
                    .redact(RedactedPiece::Lines(&mut read.content))
                    | self.redactor.redact(RedactedPiece::Page {
                        bytes: &mut read.content,
                        before: PageSide::default(),
                        behind,
                    });
                if subject.form == LineForm::Plain {
                    return (0, redacted);
                }
                let (clean, stripped) = clean::lines(&read.content);
                read.content = clean;
                (stripped, redacted)
            }
            _ => (0, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Truncation;
    use crate::profile::{COMPACT, STANDARD};
    use broker_protocol::{Captured, Denials, Ended, Spill};
    use broker_protocol::{
        Digest, Edited, FileReply, Grepped, InPart, Layer, Listed, ListedEntry, ListedKind, Match,
        MatchLine, Read, Refused, Truncated, Unsearched, Walked, Written,
    };
    use serde_json::{Value, json};

    fn rendered(
        subject: &Subject,
        finished: FinishedRequest,
        profile: &ModelProfile,
    ) -> ToolResult {
        let redactor = Redactor::new(vec![]).unwrap();
        Renderer {
            roots: &roots(),
            profile,
            redactor: &redactor,
        }
        .render(subject, Ok(finished))
    }

    fn roots() -> Roots {
        Roots {
            project: "/p".into(),
            central: "/c".into(),
        }
    }

    fn subject(path: Option<&str>) -> Subject {
        let path = path.map(|path| roots().parse(path).unwrap());
        Subject {
            tool: "t".into(),
            path,
            program: Some("prog".into()),
            idle_s: Some(3),
            form: LineForm::Plain,
        }
    }

    fn result(outcome: Outcome, file: Option<FileAnswer>, path: &str) -> ToolResult {
        let layers = LayerSet::default().with(Layer::Seccomp);
        let (usage, denied) = (Usage::default(), Denials::default());
        let finished = FinishedRequest {
            outcome,
            answer: file,
            usage,
            layers,
            denied,
        };
        rendered(&subject(Some(path)), finished, &STANDARD)
    }

    fn ran(ended: Ended, head: &[u8], tail: &[u8], omitted: u64) -> Ran {
        let spill = (omitted > 0).then(|| Spill {
            path: ZonePath::new(Zone::Central, "outputs/1.log").unwrap(),
            bytes: 9,
            whole: true,
        });
        let output = Captured {
            head: head.to_vec(),
            tail: tail.to_vec(),
            omitted,
        };
        Ran {
            ended,
            output,
            spill,
            stderr: None,
            timeout_s: Some(10),
            profile: None,
            leftover: broker_protocol::LeftRunning::default(),
        }
    }

    fn file(reply: FileReply, path: &str) -> (String, Value) {
        let result = result(Outcome::Answered, Some(Ok(reply)), path);
        assert!(result.error.is_none());
        (
            String::from_utf8(result.text).unwrap(),
            serde_json::to_value(result.metadata).unwrap(),
        )
    }

    #[test]
    fn each_end_of_a_command_has_its_error() {
        let cases = [
            (
                Ended::Exited(42),
                "the command exited with code 42",
                ErrorKind::ExitNonzero,
            ),
            (
                Ended::Signalled(9),
                "signal 9 ended the command",
                ErrorKind::ExitNonzero,
            ),
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
            (
                Ended::Cancelled,
                "the call was cancelled",
                ErrorKind::Cancelled,
            ),
            (
                Ended::NotStarted(2),
                "\"prog\" cannot be started: No such file or directory (os error 2)",
                ErrorKind::NotFound,
            ),
            (
                Ended::NotStarted(13),
                "\"prog\" cannot be started: Permission denied (os error 13)",
                ErrorKind::Io,
            ),
            (
                Ended::NoDirectory(20),
                "the directory /p/d cannot be entered: Not a directory (os error 20)",
                ErrorKind::NotFound,
            ),
        ];
        for (ended, message, kind) in cases {
            let result = result(Outcome::Ran(ran(ended, b"", b"", 0)), None, "d");
            assert_eq!(
                result.error,
                Some(Failed {
                    kind,
                    message: message.into()
                })
            );
            assert_eq!(result.ended, Some(ended));
        }
        let fine = result(
            Outcome::Ran(ran(Ended::Exited(0), b"hi\n", b"", 0)),
            None,
            "",
        );
        assert!(fine.error.is_none());
        let about = serde_json::to_value(fine.metadata).unwrap();
        assert_eq!(about["exitCode"], 0);
        assert_eq!(about["layers"], json!(["seccomp"]));
        assert_eq!(about["usage"]["peakKib"], 0);
    }

    #[test]
    fn a_cut_output_has_both_ends_and_a_note_and_no_half_characters() {
        let done = ran(
            Ended::Exited(0),
            b"a\xc3\xa9\xe2\x82",
            b"\xac\xc3\xa9z",
            100,
        );
        let result = result(Outcome::Ran(done), None, "");
        let text = String::from_utf8(result.text).unwrap();
        assert_eq!(
            text,
            "aé\n[truncated: total=109 shown=6 strategy=both full=/c/outputs/1.log]\néz"
        );
        let about = serde_json::to_value(result.metadata).unwrap();
        assert_eq!(
            about["truncated"],
            json!({"total": 109, "shown": 6, "strategy": "both", "full": "/c/outputs/1.log"})
        );
        assert_eq!(
            about["spill"],
            json!({"path": "/c/outputs/1.log", "bytes": 9, "whole": true})
        );
    }

    /// A command that printed `total` bytes in a session with this profile: the executor captures as much as the profile shows.
    fn printed(profile: &ModelProfile, total: usize) -> (String, Option<Truncation>) {
        let max = profile.output.max;
        let bytes: Vec<u8> = (0..total).map(|at| b'a' + (at % 26) as u8).collect();
        let (head, tail, omitted) = match total <= max {
            true => (bytes, vec![], 0),
            false => (
                bytes[..max / 2].to_vec(),
                bytes[total - max / 2..].to_vec(),
                (total - max) as u64,
            ),
        };
        let ran = Ran {
            output: Captured {
                head,
                tail,
                omitted,
            },
            ..ran(Ended::Exited(0), b"", b"", omitted)
        };
        let finished = FinishedRequest {
            outcome: Outcome::Ran(ran),
            answer: None,
            usage: Usage::default(),
            layers: LayerSet::default(),
            denied: Denials::default(),
        };
        let result = rendered(&subject(None), finished, profile);
        (
            String::from_utf8(result.text).unwrap(),
            result.metadata.truncated,
        )
    }

    #[test]
    fn output_is_cut_one_byte_over_the_profiles_bound_and_the_note_names_the_file() {
        let (text, cut) = printed(&COMPACT, 10_240);
        assert_eq!((text.len(), cut), (10_240, None));
        let (text, cut) = printed(&COMPACT, 10_241);
        let note = "[truncated: total=10241 shown=5120 strategy=tail full=/c/outputs/1.log]\n";
        assert_eq!(text.strip_prefix(note).map(str::len), Some(5120));
        assert_eq!(
            cut.map(|cut| (cut.strategy, cut.full)),
            Some(("tail", Some("/c/outputs/1.log".into())))
        );
        let (text, cut) = printed(&STANDARD, 102_400);
        assert_eq!((text.len(), cut), (102_400, None));
        let (text, _) = printed(&STANDARD, 102_401);
        assert!(text.contains(
            "\n[truncated: total=102401 shown=102400 strategy=both full=/c/outputs/1.log]\n"
        ));
    }

    /// A file tool's text under the small profile, with the numbers of the note.
    fn compact(reply: FileReply) -> (String, Option<(Option<u64>, u64)>) {
        let (outcome, answer) = (Outcome::Answered, Some(Ok(reply)));
        let (usage, layers, denied) = (Usage::default(), LayerSet::default(), Denials::default());
        let finished = FinishedRequest {
            outcome,
            answer,
            usage,
            layers,
            denied,
        };
        let result = rendered(&subject(Some("a")), finished, &COMPACT);
        (
            String::from_utf8(result.text).unwrap(),
            result.metadata.truncated.map(|cut| (cut.total, cut.shown)),
        )
    }

    #[test]
    fn files_lists_and_matches_are_cut_one_over_the_bound() {
        let read = |size: usize| {
            let content = vec![b'x'; size];
            compact(FileReply::Read(Read {
                content,
                first_line: 1,
                lines: 1,
                size: size as u64,
                truncated: None,
                sha256: None,
                total_lines: None,
            }))
        };
        assert_eq!((read(10_240).0.len(), read(10_240).1), (10_240, None));
        assert_eq!(read(10_241).1, Some((Some(10_241), 5120)));
        assert!(
            read(10_241)
                .0
                .ends_with("x\n[truncated: total=10241 shown=5120 strategy=head full=/p/a]")
        );
        let listed = |count: usize| {
            let entry = |n: usize| ListedEntry {
                path: format!("f{n}"),
                kind: ListedKind::File,
                size: 0,
                mode: 0,
                modified_ms: 0,
            };
            compact(FileReply::Listed(Listed {
                entries: (0..count).map(entry).collect(),
                truncated: None,
            }))
        };
        assert_eq!(
            (listed(1000).0.lines().count(), listed(1000).1),
            (1000, None)
        );
        assert_eq!(
            (listed(1001).0.lines().count(), listed(1001).1),
            (501, Some((Some(1001), 500)))
        );
        let walked = |count: usize| {
            let paths = (0..count).map(|n| format!("f{n}")).collect();
            compact(FileReply::Walked(Walked {
                paths,
                truncated: None,
            }))
        };
        assert_eq!(
            (walked(100).1, walked(101).1),
            (None, Some((Some(101), 50)))
        );
        let grepped = |count: u64| {
            let line = |number: u64| MatchLine {
                number,
                matched: true,
                text: "x".into(),
            };
            let file = |at: u64| Match {
                path: format!("f{at}"),
                lines: vec![
                    line(1),
                    MatchLine {
                        matched: false,
                        ..line(2)
                    },
                ],
            };
            compact(FileReply::Grepped(Grepped {
                matches: (0..count).map(file).collect(),
                truncated: None,
                binary: 0,
                in_part: vec![],
                in_part_count: 0,
            }))
        };
        assert_eq!(
            (grepped(100).1, grepped(101).1),
            (None, Some((Some(101), 50)))
        );
        assert_eq!(
            grepped(101)
                .0
                .lines()
                .filter(|line| line.contains(":1:"))
                .count(),
            50
        );
    }

    #[test]
    fn a_cut_file_says_how_large_it_is() {
        let read = Read {
            content: b"ab\xc3".to_vec(),
            first_line: 1,
            lines: 1,
            size: 2_000_000,
            truncated: Some(Truncated {
                total: Some(2_000_000),
                shown: 3,
            }),
            sha256: None,
            total_lines: None,
        };
        let (text, about) = file(FileReply::Read(read), "a");
        assert_eq!(
            text,
            "ab\n[truncated: total=2000000 shown=2 strategy=head full=/p/a]"
        );
        assert_eq!(about["path"], "/p/a");
        assert_eq!(about["size"], 2_000_000);
    }

    #[test]
    fn lists_are_plain_lines_and_no_name_makes_two() {
        let entry = |path: &str, kind| ListedEntry {
            path: path.into(),
            kind,
            size: 0,
            mode: 0,
            modified_ms: 0,
        };
        let entries = vec![
            entry("a b", ListedKind::File),
            entry("d", ListedKind::Directory),
            entry("two\nlines", ListedKind::Link),
            entry("\u{202e}gpj.exe", ListedKind::File),
            entry("f", ListedKind::Other),
        ];
        let listed = Listed {
            entries,
            truncated: Some(Truncated {
                total: None,
                shown: 5,
            }),
        };
        let (text, about) = file(FileReply::Listed(listed), "");
        let want = "a b\nd/\n\"two\\nlines\"@\n\"\\u{202e}gpj.exe\"\nf|\n\
                    [truncated: total=unknown shown=5 strategy=head why=not-read-to-the-end]";
        assert_eq!(text, want);
        assert_eq!(about["count"], 5);
        assert_eq!(about["truncated"], json!({"shown": 5, "strategy": "head"}));
    }

    #[test]
    fn matches_stand_as_path_line_text_with_their_zone() {
        let line = |number, matched, text: &str| MatchLine {
            number,
            matched,
            text: text.into(),
        };
        let lines = vec![line(1, false, "x"), line(2, true, "needle")];
        let in_part = |path: &str, why| InPart {
            path: path.into(),
            why,
        };
        let grepped = Grepped {
            matches: vec![Match {
                path: "n/a".into(),
                lines,
            }],
            truncated: None,
            binary: 2,
            in_part: vec![
                in_part("n/min.js", Unsearched::LongLine),
                in_part("n/x\ny", Unsearched::Unreadable),
            ],
            in_part_count: 5,
        };
        let (text, about) = file(FileReply::Grepped(grepped), "central:n");
        assert_eq!(
            text,
            "central:n/a-1-x\ncentral:n/a:2:needle\n[searched in part: central:n/min.js (a line is too long), \
             \"central:n/x\\ny\" (not all of it can be read) and 3 more]"
        );
        assert_eq!((&about["count"], &about["binary"]), (&json!(1), &json!(2)));
        assert_eq!(
            about["inPart"][0],
            json!({"path": "central:n/min.js", "why": "long_line"})
        );
        assert_eq!(about.get("truncated"), None);
        let (text, about) = file(
            FileReply::Walked(Walked {
                paths: vec![],
                truncated: None,
            }),
            "",
        );
        assert_eq!(
            (text.as_str(), &about["count"]),
            ("no file matches", &json!(0))
        );
    }

    #[test]
    fn writes_and_edits_say_where() {
        let sha256 = Digest([0; 32]);
        let (text, about) = file(
            FileReply::Written(Written {
                bytes: 5,
                created: true,
                sha256,
                change: Some(3),
                hunks: Some(vec![]),
            }),
            "d/f",
        );
        assert_eq!(
            (text.as_str(), &about["path"]),
            ("wrote 5 bytes to d/f", &json!("/p/d/f"))
        );
        let (text, about) = file(
            FileReply::Edited(Edited {
                replaced: vec![1, 2],
                bytes: 5,
                sha256,
                change: None,
                hunks: None,
            }),
            "f",
        );
        assert_eq!(
            (text.as_str(), &about["replaced"]),
            (
                "replaced 3 places in f (this cannot be undone)",
                &json!([1, 2])
            )
        );
    }

    #[test]
    fn refusals_and_failures_keep_their_kinds() {
        let refused = |violation| {
            Outcome::Refused(Refused {
                rule: "r".into(),
                why: "w".into(),
                violation,
            })
        };
        let kind = |outcome, file| result(outcome, file, "").error.unwrap().kind;
        assert_eq!(kind(refused(false), None), ErrorKind::DeniedPolicy);
        assert_eq!(kind(refused(true), None), ErrorKind::Violation);
        let failed = Failed {
            kind: ErrorKind::NotFound,
            message: "file not found".into(),
        };
        assert_eq!(
            kind(Outcome::Answered, Some(Err(failed))),
            ErrorKind::NotFound
        );
        assert_eq!(kind(Outcome::Answered, None), ErrorKind::Internal);
    }
}
