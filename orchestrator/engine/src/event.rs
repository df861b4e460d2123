//! The events of a session as front ends and records receive them. Nothing in an event has to be redacted or escaped any more.

use crate::context::BatchPlace;
use crate::hooks::HookRan;
use crate::pending::ApprovalAnswer;
use broker_protocol::{
    CallId, Challenge, ConnectionReport, Denial, Denials, Ended, Failed, FileAnswer, Findings,
    GrantFault, Opened,
};
use orchestrator_results::image::Image;
use orchestrator_results::metadata::{Changed, Details, LeftProcesses, Metadata};
use orchestrator_results::violation::SecurityEvent;
use orchestrator_text::escape;
use orchestrator_text::input_lines::input_lines;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Columns of a row of a question. In a longer row, blanks could push text beyond the edge of the display.
const COLUMNS: usize = 100;
/// Most rows of a question.
const ROWS_MAX: usize = 400;

#[derive(Clone, Debug)]
pub struct Event {
    /// The number of the call in its session; 0 for the session itself.
    pub call: u64,
    /// The call's place in its batch, if it is part of one.
    pub part: Option<BatchPlace>,
    pub body: Arc<Body>,
}

#[derive(Debug)]
pub enum Body {
    /// The executor has opened a session: the first one, or the replacement of a lost one.
    SessionOpened(Opened),
    /// A tool of a client or a server was registered.
    ToolRegistered {
        /// The name of the registration at the client.
        client_id: Value,
        /// The tool's name in this session.
        tool: String,
        description: String,
        /// The schema of its input, as text.
        schema: String,
        /// How much harm it can do, as its owner believes.
        risk: &'static str,
        /// How long a call may take.
        timeout_s: u32,
    },
    ToolUnregistered {
        /// The name of the request at the client.
        client_id: Value,
        tool: String,
    },
    /// A call was asked for; nothing of it is checked yet.
    Requested {
        /// The name of the call at the client.
        client_id: Option<Value>,
        /// The tool's canonical name, or the beginning of what was given where there is no such tool.
        tool: String,
        /// The input, each text in it brief.
        input: Value,
    },
    /// A request of the call was sent to the executor, which may still ask about it or refuse it.
    RequestSent {
        /// The number of the request in the audit.
        number: CallId,
    },
    /// The call's command was stopped from its terminal, and can be continued.
    Suspended,
    /// A hook of the user ran for the call.
    Hook(HookRan),
    /// A command printed something. No piece of a stream ends within a character.
    Output {
        /// True for standard error, false for standard output.
        stderr: bool,
        bytes: Vec<u8>,
    },
    /// The call waits for approval and has not started.
    ApprovalWanted(Box<ApprovalQuestion>),
    /// The question was answered by this front end. No event says so of an approver's answer.
    ApprovalGiven {
        challenge: Challenge,
        approval: ApprovalAnswer,
    },
    /// The call attempted something outside its permissions. Its result comes next.
    Violation(SecurityEvent),
    /// A program in a cell wanted a connection. The call is unknown, because all cells of a session share their network.
    Connection(ConnectionReport),
    /// The call has ended: the last event of each call.
    Result(Arc<CallResult>),
}

/// The question whether a call may run.
#[derive(Debug)]
pub struct ApprovalQuestion {
    pub challenge: Challenge,
    pub tool: String,
    /// The call's input, with unsafe characters as their numbers; `None` if it has more than 64 KiB.
    pub input: Option<Value>,
    /// Why the previous answer was rejected.
    pub rejected: Option<GrantFault>,
    /// The file that the call would change, without known secrets, for a front end that shows changes.
    pub before: Option<FileAnswer>,
}

impl ApprovalQuestion {
    /// The whole input, with each row marked as part of it, for a client whose display width is unknown. `None` if it is too long:
    /// nobody can approve what they have not seen.
    pub fn rows(&self) -> Option<Vec<String>> {
        rows(self.input.as_ref()?)
    }
}

fn rows(input: &Value) -> Option<Vec<String>> {
    let lines = input_lines(input);
    let rows = lines
        .iter()
        .flat_map(|line| escape::wrapped(line, COLUMNS))
        .map(|row| format!("| {row}"));
    let rows: Vec<String> = rows.take(ROWS_MAX + 1).collect();
    (rows.len() <= ROWS_MAX).then_some(rows)
}

/// The result of a call.
#[derive(Debug)]
pub struct CallResult {
    /// The tool's output or a command's: bytes, because it may not be text.
    pub text: Vec<u8>,
    /// The failure, if there was one.
    pub error: Option<Failed>,
    pub ended: Option<Ended>,
    /// An image for the model.
    pub image: Option<Image>,
    /// The violations of the call and of the calls in it.
    pub security: Vec<SecurityEvent>,
    /// Metadata of the call, which may contain secrets.
    metadata: Metadata,
    /// The metadata without secrets, if it may contain any.
    redacted: Option<Value>,
}

/// Metadata of a call as JSON, without secrets.
#[derive(Serialize)]
#[serde(untagged)]
pub enum MetadataJson<'a> {
    /// Metadata that cannot contain secrets.
    Typed(&'a Metadata),
    /// Metadata from which secrets were removed.
    Redacted(&'a Value),
}

impl CallResult {
    pub(crate) fn new(
        result: orchestrator_results::result::ToolResult,
        redacted: Option<Value>,
    ) -> Self {
        let orchestrator_results::result::ToolResult {
            text,
            error,
            ended,
            image,
            metadata,
            security,
            ..
        } = result;
        Self {
            text,
            error,
            ended,
            image,
            security,
            metadata,
            redacted,
        }
    }

    pub fn tool(&self) -> &str {
        &self.metadata.tool
    }

    /// The call ID of the last request in the audit.
    pub fn number(&self) -> Option<CallId> {
        self.metadata.call
    }

    /// The time limit of the command, in seconds.
    pub fn timeout_s(&self) -> Option<u32> {
        match self.metadata.details {
            Details::Command { timeout, .. } => timeout,
            _ => None,
        }
    }

    /// The processes that the command has left running.
    pub fn left_running(&self) -> Option<&LeftProcesses> {
        self.metadata.left_running.as_ref()
    }

    /// The policy profile that would show the program which the cell did not have.
    pub fn missing_profile(&self) -> Option<&str> {
        match &self.metadata.details {
            Details::Command { profile, .. } => profile.as_deref(),
            _ => None,
        }
    }

    /// Findings in the project, whichever call caused them: to be reported to every reader, before what was denied.
    pub fn findings(&self) -> &Findings {
        &self.metadata.found
    }

    /// Denials of the call, if it failed: a call that succeeded could do without it.
    pub fn denials(&self) -> impl Iterator<Item = &Denial> {
        let denied = self.error.as_ref().map(|_| self.metadata.denied.list());
        denied.into_iter().flatten()
    }

    /// Everything that the call was denied, as far as the executor knows.
    pub fn all_denials(&self) -> &Denials {
        &self.metadata.denied
    }

    /// The file that has the whole text, if it was saved.
    pub fn full_text(&self) -> Option<&str> {
        let cut = self
            .metadata
            .truncated
            .as_ref()
            .and_then(|cut| cut.full.as_deref());
        let spill = match &self.metadata.details {
            Details::Command { spill, .. } | Details::Tests { spill, .. } => spill.as_ref(),
            _ => None,
        };
        let saved = spill
            .or(self.metadata.saved.as_ref())
            .map(|saved| saved.path.as_str());
        cut.or(saved)
    }

    /// The changes of a history, as the executor sent them: their paths are not rendered for display.
    pub fn changes(&self) -> Option<&[Changed]> {
        match &self.metadata.details {
            Details::Changes { changes } => Some(changes),
            _ => None,
        }
    }

    /// The type of the tool-specific metadata, for records.
    pub fn metadata_type(&self) -> &'static str {
        self.metadata.details.type_name()
    }

    /// The metadata of the call.
    pub fn metadata(&self) -> MetadataJson<'_> {
        self.redacted
            .as_ref()
            .map_or(MetadataJson::Typed(&self.metadata), MetadataJson::Redacted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_shows_all_of_the_input_or_is_none() {
        let shown = |input: Value| rows(&input).unwrap();
        assert_eq!(
            shown(json!({"command": "make all", "cwd": "evil"})),
            ["| cwd: evil", "| command: make all"]
        );
        let write = json!({"content": "one\ntwo\n".repeat(20), "path": "a"});
        assert_eq!(
            shown(write)[..3],
            ["| path: a", "| content, 40 lines:", "|   one"]
        );
        let padded = format!("git status #{}\ntouch hidden", " ".repeat(2100));
        let padded = shown(json!({ "command": padded }));
        assert!(
            padded
                .iter()
                .all(|row| row.starts_with("| ") && row.len() <= COLUMNS + 2),
            "{padded:?}"
        );
        assert_eq!(padded.last().unwrap(), "|   touch hidden");
        let pairs = [
            (json!("a\nb"), json!("a\\nb")),
            (json!("a\u{202e}"), json!("a\\u{202e}")),
            (json!("\\\u{202e}"), json!("\\\\u{202e}")),
            (json!("a\\\t"), json!("a\\\\t")),
            (json!("a"), json!("a\n")),
            (json!("a\nb"), json!("a\nb\n")),
            (json!(""), json!("(empty)")),
            (json!(["ls"]), json!("[\"ls\"]")),
            (json!(5), json!("5")),
        ];
        let published = |command: &Value| {
            let redactor = Box::leak(Box::new(
                orchestrator_text::redact::Redactor::new(vec![]).unwrap(),
            ));
            let sanitizer = orchestrator_text::sanitize::Sanitizer::new(redactor);
            sanitizer.input(&json!({ "command": command }))
        };
        for (one, other) in pairs {
            let [one, other] = [published(&one), published(&other)];
            assert!(
                one != other && shown(one.clone()) != shown(other.clone()),
                "{one} {other}"
            );
        }
        assert_ne!(shown(json!({"a: b": "c"})), shown(json!({"a": "b: c"})));
        let lines = |count: usize| rows(&json!({ "content": "x\n".repeat(count) }));
        assert!(lines(ROWS_MAX - 1).is_some() && lines(ROWS_MAX).is_none());
    }
}
