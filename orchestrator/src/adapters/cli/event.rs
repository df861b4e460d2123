//! The JSON that `session`, `run --json` and `call --json` write: one object a line.

use crate::adapters::confine::{self, Confinement};
use crate::adapters::secrets::known;
use crate::domain::answer::{About, Answer, both};
use crate::domain::text::unfinished;
use crate::domain::violation::SecurityEvent as Violation;
use crate::ports;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{Challenge, Failed, GrantFault, Opened, Standing};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// First line of a session, and of each session after a lost one.
#[derive(Serialize)]
pub struct Ready<'a> {
    event: &'static str,
    session: Session<'a>,
}

#[derive(Serialize)]
struct Session<'a> {
    id: &'a str,
    project: &'a str,
    central: &'a str,
    profile: &'a str,
    policy: String,
    tier: &'static str,
    layers: Vec<&'static str>,
}

impl<'a> Ready<'a> {
    /// Says what was opened.
    pub fn new(opened: &'a Opened) -> Self {
        let in_force = |report: &&broker_protocol::LayerReport| {
            matches!(report.state, broker_protocol::LayerState::InForce(_))
        };
        let session = Session {
            id: &opened.session,
            project: &opened.project,
            central: &opened.central,
            profile: &opened.profile,
            policy: opened.policy.to_string(),
            tier: opened.tier.name(),
            layers: opened.layers.iter().filter(in_force).map(|report| report.layer.name()).collect(),
        };
        Self { event: "ready", session }
    }
}

/// The last word on a call.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    event: &'static str,
    status: &'static str,
    /// UTF-8 in any case.
    result: Cow<'a, str>,
    /// The same bytes as they were, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody<'a>>,
    /// For the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<ImageBody>,
    metadata: Metadata<'a>,
}

/// What is known of a call, and what is not in force.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(flatten)]
    about: Clear<'a>,
    /// What this program should keep itself to and does not, for want of a kernel's help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    orchestrator_missing: Vec<String>,
}

/// What is known of a call: without secrets, where there are any.
#[derive(Serialize)]
#[serde(untagged)]
enum Clear<'a> {
    Plain(&'a About),
    Redacted(Value),
}

impl<'a> Metadata<'a> {
    fn new(about: &'a About) -> Self {
        let about = if known().is_idle() {
            Clear::Plain(about)
        } else {
            Clear::Redacted(known().whole(&json!(about)).into_owned())
        };
        let orchestrator_missing = confine::in_force().map(Confinement::missing).unwrap_or_default();
        Self { about, orchestrator_missing }
    }
}

/// An image in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageBody {
    media_type: &'static str,
    data_base64: String,
}

/// A call tried to leave what it may touch; its result comes next.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityLine<'a> {
    id: &'a Value,
    event: &'static str,
    security_event: Value,
}

impl<'a> SecurityLine<'a> {
    /// Puts `event` into JSON.
    pub fn new(id: &'a Value, event: &'a Violation) -> Self {
        Self { id, event: "security_event", security_event: known().value(&json!(event)) }
    }
}

/// An error in JSON.
#[derive(Serialize)]
pub struct ErrorBody<'a> {
    kind: &'static str,
    layer: &'static str,
    message: Cow<'a, str>,
}

impl<'a> ErrorBody<'a> {
    /// Puts `failed` into JSON.
    pub fn new(failed: &'a Failed) -> Self {
        Self {
            kind: failed.kind.name(),
            layer: failed.kind.layer().name(),
            message: known().text(&failed.message),
        }
    }
}

impl<'a> ResultEvent<'a> {
    /// Puts `answer` into JSON, for a model: where something went wrong, that stands before what there is to show.
    pub fn new(id: Option<&'a Value>, answer: &'a Answer) -> Self {
        let mut event = Self { id, ..Self::plain(answer) };
        if let Some(error) = event.error.as_ref().filter(|_| !answer.text.is_empty()) {
            event.result = both(&error.message, &event.result).into();
        }
        event
    }

    /// Puts `answer` into JSON, its text by itself. One with nothing to show shows its error: nobody is told nothing.
    pub fn plain(answer: &'a Answer) -> Self {
        let bytes = known().bytes(&answer.text);
        let error = answer.error.as_ref().map(ErrorBody::new);
        let is_text = std::str::from_utf8(&bytes).is_ok();
        let result = match &error {
            Some(error) if bytes.is_empty() => error.message.clone(),
            _ => lossy(bytes.clone()),
        };
        Self {
            id: None,
            event: "result",
            status: if answer.error.is_some() { "error" } else { "success" },
            result,
            result_base64: (!is_text).then(|| STANDARD.encode(&bytes)),
            error,
            image: answer.image.as_ref().map(|image| ImageBody {
                media_type: image.media_type,
                data_base64: STANDARD.encode(&image.data),
            }),
            metadata: Metadata::new(&answer.about),
        }
    }
}

/// Bytes as text, whatever they are.
fn lossy(bytes: Cow<[u8]>) -> Cow<str> {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Something that is wrong, and that is not the end of a call.
#[derive(Serialize)]
pub struct Notice<'a> {
    /// The call it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a Value>,
    /// `notice`, or `fault` where there is no session.
    pub event: &'static str,
    /// What is wrong.
    pub error: ErrorBody<'a>,
}

/// A call waits for an answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalEvent<'a> {
    id: &'a Value,
    event: &'static str,
    /// The place of the call in its batch; tool and input are its own then.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<usize>,
    approval: Question<'a>,
    tool: &'a str,
    /// Absent where it is too long to be said twice; without known secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Cow<'a, Value>>,
    /// Why the answer before was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_taken: Option<&'static str>,
}

/// A [`Challenge`] in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Question<'a> {
    digest: String,
    rule: &'a str,
    why: &'a str,
    risk: &'static str,
    expires_s: u32,
    channel: &'static str,
    /// What "session" allows: the calls of the `rule`, or this `call` again.
    session: &'static str,
}

impl<'a> From<&'a Challenge> for Question<'a> {
    fn from(challenge: &'a Challenge) -> Self {
        Self {
            digest: challenge.digest.to_string(),
            rule: &challenge.rule,
            why: &challenge.why,
            risk: challenge.risk.name(),
            expires_s: challenge.expires_s,
            channel: challenge.channel.name(),
            session: if challenge.only { "call" } else { "rule" },
        }
    }
}

impl<'a> ApprovalEvent<'a> {
    /// Puts a question into JSON.
    pub fn new(id: &'a Value, asked: &ports::Question<'a>, tool: &'a str, input: Option<&'a Value>) -> Self {
        let (approval, part) = (asked.challenge.into(), asked.part.map(|part| part.index));
        let (input, not_taken) =
            (input.map(|input| known().whole(input)), asked.not_taken.map(GrantFault::name));
        Self { id, event: "approval", part, approval, tool, input, not_taken }
    }
}

/// The grants that last for a session.
#[derive(Serialize)]
pub struct GrantsEvent<'a> {
    id: &'a Value,
    event: &'static str,
    grants: Vec<Lasting<'a>>,
}

/// A [`Standing`] in JSON.
#[derive(Serialize)]
pub struct Lasting<'a> {
    grant: u64,
    rule: &'a str,
    tool: &'a str,
    calls: u64,
    /// The digest of the one call that it is for, where it is for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl<'a> From<&'a Standing> for Lasting<'a> {
    fn from(standing: &'a Standing) -> Self {
        let Standing { grant, rule, tool, calls, only } = standing;
        Self { grant: *grant, rule, tool, calls: *calls, digest: only.map(|digest| digest.to_string()) }
    }
}

impl<'a> GrantsEvent<'a> {
    /// Puts `standing` into JSON.
    pub fn new(id: &'a Value, standing: &'a [Standing]) -> Self {
        Self { id, event: "grants", grants: standing.iter().map(Lasting::from).collect() }
    }
}

/// A tool of the application's has come or gone.
#[derive(Serialize)]
pub struct ToolEvent<'a> {
    /// The line that asked for it.
    pub id: &'a Value,
    /// `registered` or `unregistered`.
    pub event: &'static str,
    /// Its name.
    pub tool: &'a str,
}

/// The tools that there are.
#[derive(Serialize)]
pub struct ToolsEvent<'a> {
    /// The line that asked for them.
    pub id: &'a Value,
    /// `tools`.
    pub event: &'static str,
    /// As `lazaret tools --json` has them.
    pub tools: Vec<Value>,
}

/// The application is to carry out a call. Its input is whole: it is the application's own.
#[derive(Serialize)]
pub struct ExecuteEvent<'a> {
    id: &'a Value,
    event: &'static str,
    /// The place of the call in its batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<usize>,
    tool: &'a str,
    input: &'a Value,
}

impl<'a> ExecuteEvent<'a> {
    /// Puts a call into JSON.
    pub fn new(id: &'a Value, part: Option<usize>, tool: &'a str, input: &'a Value) -> Self {
        Self { id, event: "execute", part, tool, input }
    }
}

/// A piece of live output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputEvent<'a> {
    id: &'a Value,
    event: &'static str,
    stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_base64: Option<String>,
}

impl<'a> OutputEvent<'a> {
    /// Puts `bytes` into JSON: as text where they are text.
    pub fn new(id: &'a Value, stderr: bool, bytes: &'a [u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok();
        Self {
            id,
            event: "output",
            stream: if stderr { "stderr" } else { "stdout" },
            chunk: text,
            chunk_base64: text.is_none().then(|| STANDARD.encode(bytes)),
        }
    }
}

/// Decodes what a client sent as base64.
pub fn decode(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(text)
}

/// One stream of output, cut anywhere, becomes chunks that cut no character.
#[derive(Default)]
pub struct Whole {
    /// The beginning of a character whose end has not come: at most three bytes.
    held: Vec<u8>,
}

impl Whole {
    /// Adds `bytes`; gives what can be shown now.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut joined = Cow::Borrowed(bytes);
        if !self.held.is_empty() {
            self.held.extend_from_slice(bytes);
            joined = Cow::Owned(std::mem::take(&mut self.held));
        }
        let split = joined.len() - unfinished(&joined);
        self.held.extend_from_slice(&joined[split..]);
        match joined {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..split]),
            Cow::Owned(mut bytes) => {
                bytes.truncate(split);
                Cow::Owned(bytes)
            }
        }
    }

    /// What is left at the end: the beginning of a character that never ended.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::answer::Asked;
    use broker_protocol::ErrorKind;

    #[test]
    fn characters_are_joined_however_they_are_cut() {
        let text = "aé€😀z";
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut whole = Whole::default();
                let mut got = Vec::new();
                for piece in
                    [&text.as_bytes()[..first], &text.as_bytes()[first..second], &text.as_bytes()[second..]]
                {
                    let chunk = whole.push(piece);
                    assert!(std::str::from_utf8(&chunk).is_ok(), "cut at {first} and {second}");
                    got.extend_from_slice(&chunk);
                }
                assert!(whole.rest().is_empty());
                assert_eq!(got, text.as_bytes());
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64_and_none_is_lost() {
        let id = json!(1);
        let mut whole = Whole::default();
        let first = whole.push(b"a\xe2").into_owned();
        let second = whole.push(b"\xff").into_owned();
        assert_eq!(first, b"a");
        let event = serde_json::to_value(OutputEvent::new(&id, true, &second)).unwrap();
        assert_eq!(event, json!({"id": 1, "event": "output", "stream": "stderr", "chunkBase64": "4v8="}));
        assert_eq!(whole.push(b"b\xf0\x9f").into_owned(), b"b");
        assert_eq!(whole.rest(), b"\xf0\x9f");
    }

    #[test]
    fn a_result_is_text_in_any_case() {
        let mut answer =
            Answer::failed(&Asked::only("bash"), Failed { kind: ErrorKind::Io, message: "why".into() });
        let event = serde_json::to_value(ResultEvent::new(None, &answer)).unwrap();
        assert_eq!((&event["result"], &event["status"]), (&json!("why"), &json!("error")));
        assert_eq!(event["error"], json!({"kind": "io", "layer": "result", "message": "why"}));
        assert_eq!(event["metadata"]["layers"], json!([]));
        answer.text = b"a\xff".to_vec();
        let event = serde_json::to_value(ResultEvent::new(None, &answer)).unwrap();
        assert_eq!(event["result"], "<error>why</error>\n<result>a\u{fffd}</result>");
        assert_eq!(event["resultBase64"], "Yf8=");
        let event = serde_json::to_value(ResultEvent::plain(&answer)).unwrap();
        assert_eq!((&event["result"], &event["status"]), (&json!("a\u{fffd}"), &json!("error")));
        answer.error = None;
        let event = serde_json::to_value(ResultEvent::new(Some(&json!("x")), &answer)).unwrap();
        assert_eq!((&event["result"], &event["resultBase64"]), (&json!("a\u{fffd}"), &json!("Yf8=")));
        assert_eq!((&event["id"], event.get("error")), (&json!("x"), None));
    }
}
