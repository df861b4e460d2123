//! The one place that every event passes. It removes secrets and unsafe characters, then sends the event to the records and to the
//! front end that made the call. So everything shown is recorded, and everything recorded is shown.

use crate::context::{BatchPlace, CallContext, LiveOutput};
use crate::event::{ApprovalQuestion, Body, CallResult, Event};
use crate::hooks::HookRan;
use crate::pending::ApprovalAnswer;
use broker_protocol::{
    CallId, Challenge, ConnectionReport, Denial, Failed, FileAnswer, FileReply, Finding,
    GrantFault, Opened,
};
use orchestrator_results::metadata::Details;
use orchestrator_results::result::ToolResult;
use orchestrator_results::violation::SecurityEvent;
use orchestrator_text::redact::{change_texts, changed};
use orchestrator_text::sanitize::{Sanitized, SanitizedStream, Sanitizer, Unsafe};
use orchestrator_text::truncate::brief;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Most events that wait for a front end. Output also waits until it has been consumed.
pub(crate) const EVENTS: usize = 64;
/// Largest input that a question repeats, in bytes of JSON.
const REPEATED_INPUT: usize = 64 * 1024;

/// Receives every event of a session, in order. It must not block.
pub trait Subscriber {
    fn hear(&self, event: &Event);
}

/// The front end no longer receives events.
#[derive(Debug)]
pub(crate) struct FrontEndGone;

/// State that the publishers of all calls of a session share.
pub(crate) struct Hub {
    pub sanitizer: Sanitizer,
    pub subscribers: Vec<Rc<dyn Subscriber>>,
}

/// Publishes the events of one call.
pub(crate) struct Publisher {
    hub: Rc<Hub>,
    number: u64,
    part: Option<BatchPlace>,
    raw: bool,
    live: LiveOutput,
    client: Option<mpsc::Sender<Event>>,
    /// Standard output and standard error.
    streams: RefCell<[SanitizedStream; 2]>,
}

/// An event as a tool, the executor or the engine produces it, before anything is removed.
pub(crate) enum RawEvent<'a> {
    SessionOpened(&'a Opened),
    ToolRegistered {
        client_id: &'a Value,
        tool: &'a str,
        description: &'a str,
        schema: String,
        risk: &'static str,
        timeout_s: u32,
    },
    ToolUnregistered {
        client_id: &'a Value,
        tool: &'a str,
    },
    Requested {
        client_id: Option<&'a Value>,
        tool: &'a str,
        input: &'a Value,
    },
    RequestSent(CallId),
    Hook(&'a HookRan),
    Suspended,
    Output {
        stderr: bool,
        bytes: &'a [u8],
    },
    ApprovalWanted {
        challenge: &'a Challenge,
        tool: &'a str,
        input: &'a Value,
        rejected: Option<GrantFault>,
        before: Option<&'a FileAnswer>,
    },
    ApprovalGiven {
        challenge: &'a Challenge,
        approval: ApprovalAnswer,
    },
    Violation(&'a SecurityEvent),
    Connection(&'a ConnectionReport),
    Result(Box<ToolResult>),
}

/// A file as a question shows it. Its unsafe characters stay: who shows the change escapes them.
fn without_secrets(before: &FileAnswer, sanitizer: Sanitizer) -> FileAnswer {
    let mut before = before.clone();
    if let Ok(FileReply::Read(read)) = &mut before {
        read.content = sanitizer.redactor().bytes(&read.content).into_owned();
    }
    before
}

fn sanitized_report(report: &ConnectionReport, sanitizer: Sanitizer) -> ConnectionReport {
    let text = |text: &String| sanitizer.text(text);
    ConnectionReport {
        host: sanitizer.text(&report.host),
        why: report.why.as_ref().map(text),
        private: report.private.as_ref().map(text),
        ..report.clone()
    }
}

impl Hub {
    /// A publisher of the session's own events.
    pub(crate) fn of_session(self: &Rc<Self>) -> Publisher {
        Publisher::new(self.clone(), 0, None, &CallContext::new("".into()))
    }
}

impl Publisher {
    pub(crate) fn new(
        hub: Rc<Hub>,
        number: u64,
        client: Option<mpsc::Sender<Event>>,
        context: &CallContext,
    ) -> Self {
        let characters = if context.raw {
            Unsafe::Keep
        } else {
            Unsafe::Remove
        };
        let streams = RefCell::new([false, true].map(|_| hub.sanitizer.stream(characters)));
        Self {
            hub,
            number,
            part: context.part,
            raw: context.raw,
            live: context.live,
            client,
            streams,
        }
    }

    /// Sanitizes `raw` and passes the event on. Returns when the front end has room; for output, when it has been consumed.
    pub(crate) async fn publish(&self, raw: RawEvent<'_>) -> Result<(), FrontEndGone> {
        let is_output = matches!(raw, RawEvent::Output { .. });
        let exact = self.for_client(&raw);
        let Some(body) = self.sanitize(raw) else {
            return Ok(());
        };
        let mut event = self.event(body);
        let Some(client) = &self.client else {
            return Ok(());
        };
        if let Some(body) = exact {
            event.body = Arc::new(body);
        }
        client.send(event).await.map_err(|_| FrontEndGone)?;
        if is_output {
            client
                .reserve_many(client.max_capacity())
                .await
                .map(drop)
                .map_err(|_| FrontEndGone)?;
        }
        Ok(())
    }

    /// Sanitizes and passes on an event that is recorded as the session's.
    pub(crate) async fn show(&self, raw: RawEvent<'_>) -> Result<(), FrontEndGone> {
        let (Some(body), Some(client)) = (self.sanitize(raw), &self.client) else {
            return Ok(());
        };
        let event = Event {
            call: self.number,
            part: self.part,
            body: Arc::new(body),
        };
        client.send(event).await.map_err(|_| FrontEndGone)
    }

    /// Sanitizes and records an event for which no front end waits.
    pub(crate) fn record(&self, raw: RawEvent<'_>) {
        if let Some(body) = self.sanitize(raw) {
            drop(self.event(body));
        }
    }

    /// Publishes what both streams still hold back.
    pub(crate) async fn finish_output(&self) {
        self.show_held(SanitizedStream::finish).await;
    }

    /// Whether a word of a stream waits for what follows it.
    pub(crate) fn holds_a_word(&self) -> bool {
        self.streams
            .borrow()
            .iter()
            .any(SanitizedStream::holds_a_word)
    }

    /// Publishes what `take` gives of both streams.
    pub(crate) async fn show_held(&self, take: fn(&mut SanitizedStream) -> Vec<u8>) {
        for stderr in [false, true] {
            let bytes = take(&mut self.streams.borrow_mut()[usize::from(stderr)]);
            if bytes.is_empty() {
                continue;
            }
            let event = self.event(Body::Output { stderr, bytes });
            if let (Some(client), LiveOutput::Sanitized) = (&self.client, self.live) {
                // A front end that is gone misses nothing.
                let _ = client.send(event).await;
            }
        }
    }

    fn event(&self, body: Body) -> Event {
        let (call, part) = match body {
            // A call may have caused the opening, but the event belongs to the session.
            Body::SessionOpened(_) => (0, None),
            _ => (self.number, self.part),
        };
        let event = Event {
            call,
            part,
            body: Arc::new(body),
        };
        self.hub
            .subscribers
            .iter()
            .for_each(|subscriber| subscriber.hear(&event));
        event
    }

    /// A different form of the event, for a front end that wants all characters or a command's exact bytes.
    fn for_client(&self, raw: &RawEvent<'_>) -> Option<Body> {
        match raw {
            RawEvent::Output { stderr, bytes } if self.live == LiveOutput::Bytes => {
                Some(Body::Output {
                    stderr: *stderr,
                    bytes: bytes.to_vec(),
                })
            }
            RawEvent::Result(result) if self.raw => {
                Some(self.result(result.as_ref().clone(), Unsafe::Keep))
            }
            _ => None,
        }
    }

    /// `None` if nothing is left of it.
    fn sanitize(&self, raw: RawEvent<'_>) -> Option<Body> {
        let sanitizer = self.hub.sanitizer;
        let secrets = |value: &Value| sanitizer.redactor().value(value).into_owned();
        Some(match raw {
            RawEvent::SessionOpened(opened) => Body::SessionOpened(opened.clone()),
            RawEvent::ToolRegistered {
                client_id,
                tool,
                description,
                schema,
                risk,
                timeout_s,
            } => Body::ToolRegistered {
                client_id: secrets(client_id),
                tool: sanitizer.text(tool),
                description: sanitizer.text(description),
                schema: sanitizer.text(&schema),
                risk,
                timeout_s,
            },
            RawEvent::ToolUnregistered { client_id, tool } => Body::ToolUnregistered {
                client_id: secrets(client_id),
                tool: sanitizer.text(tool),
            },
            RawEvent::Requested {
                client_id,
                tool,
                input,
            } => {
                let mut input = sanitizer.input(input);
                change_texts(&mut input, &|text| changed(brief(text)));
                Body::Requested {
                    client_id: client_id.map(secrets),
                    tool: sanitizer.text(tool),
                    input,
                }
            }
            RawEvent::RequestSent(number) => Body::RequestSent { number },
            RawEvent::Hook(ran) => Body::Hook(hook_ran(ran, sanitizer)),
            RawEvent::Suspended => Body::Suspended,
            RawEvent::Output { stderr, bytes } => {
                let bytes = self.streams.borrow_mut()[usize::from(stderr)].push(bytes);
                if bytes.is_empty() && self.live != LiveOutput::Bytes {
                    return None;
                }
                Body::Output { stderr, bytes }
            }
            RawEvent::ApprovalWanted {
                challenge,
                tool,
                input,
                rejected,
                before,
            } => {
                let input = (size(input) <= REPEATED_INPUT).then(|| sanitizer.input(input));
                Body::ApprovalWanted(Box::new(ApprovalQuestion {
                    challenge: sanitized(challenge, sanitizer),
                    tool: sanitizer.text(tool),
                    input,
                    rejected,
                    before: before.map(|before| without_secrets(before, sanitizer)),
                }))
            }
            RawEvent::ApprovalGiven {
                challenge,
                approval,
            } => Body::ApprovalGiven {
                challenge: sanitized(challenge, sanitizer),
                approval,
            },
            RawEvent::Violation(event) => Body::Violation(SecurityEvent {
                tool: sanitizer.text(&event.tool),
                message: sanitizer.text(&event.message),
                ..event.clone()
            }),
            RawEvent::Connection(report) => Body::Connection(sanitized_report(report, sanitizer)),
            RawEvent::Result(result) => {
                let characters = if result.is_content() {
                    Unsafe::RemoveInFile
                } else {
                    Unsafe::Remove
                };
                self.result(*result, characters)
            }
        })
    }

    fn result(&self, mut result: ToolResult, characters: Unsafe) -> Body {
        let sanitizer = self.hub.sanitizer;
        let Sanitized {
            bytes,
            stripped,
            redacted,
        } = sanitizer.bytes(&result.text, characters);
        result.metadata.stripped += stripped;
        result.metadata.redacted |= redacted;
        if let std::borrow::Cow::Owned(text) = bytes {
            result.text = text;
        }
        if let Some(stderr) = &mut result.metadata.stderr {
            let Sanitized {
                bytes,
                stripped,
                redacted,
            } = sanitizer.bytes(&stderr.text, characters);
            result.metadata.stripped += stripped;
            result.metadata.redacted |= redacted;
            stderr.text = bytes.into_owned();
        }
        for structure in structures(&mut result.metadata.details) {
            result.metadata.stripped += sanitize_structure(structure, sanitizer, characters);
        }
        if let Some(Failed { message, .. }) = &mut result.error {
            *message = match characters {
                Unsafe::Keep => sanitizer.redactor().text(message).into_owned(),
                Unsafe::Remove | Unsafe::RemoveInFile => sanitizer.text(message),
            };
        }
        for event in &mut result.security {
            event.message = sanitizer.text(&event.message);
        }
        for text in result
            .metadata
            .found
            .list_mut()
            .iter_mut()
            .flat_map(Finding::texts_mut)
        {
            *text = sanitizer.text(text);
        }
        for text in result
            .metadata
            .denied
            .list_mut()
            .iter_mut()
            .flat_map(Denial::texts_mut)
        {
            *text = sanitizer.text(text);
        }
        let redacted = (!sanitizer.redactor().is_idle()).then(|| {
            sanitizer
                .redactor()
                .value(&json!(result.metadata))
                .into_owned()
        });
        Body::Result(Arc::new(CallResult::new(result, redacted)))
    }
}

/// Structures that tools of clients and servers added to their texts for programs, also within a batch.
fn structures(details: &mut Details) -> Vec<&mut Value> {
    if let Details::Batch { invocations, .. } = details {
        let of = |one| Value::get_mut(one, "metadata")?.get_mut("structured");
        return invocations.iter_mut().filter_map(of).collect();
    }
    if let Details::Other { structured } = details {
        vec![structured]
    } else {
        Vec::new()
    }
}

/// Sanitizes all texts and names of a structure like a text; returns how much was removed for being unsafe.
fn sanitize_structure(structure: &mut Value, sanitizer: Sanitizer, characters: Unsafe) -> u64 {
    let removed = Cell::new(0);
    change_texts(structure, &|text| {
        let Sanitized {
            bytes, stripped, ..
        } = sanitizer.bytes(text.as_bytes(), characters);
        removed.set(removed.get() + stripped);
        (*bytes != *text.as_bytes()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    });
    removed.get()
}

/// Its texts are those of a program, and its input may be any size.
fn hook_ran(ran: &HookRan, sanitizer: Sanitizer) -> HookRan {
    let text = |text: &Option<String>| text.as_deref().map(|text| sanitizer.text(text));
    let input = ran.input.as_ref().map(|input| {
        let mut input = sanitizer.input(input);
        change_texts(&mut input, &|text| changed(brief(text)));
        input
    });
    HookRan {
        tool_name: text(&ran.tool_name),
        tool_id: text(&ran.tool_id),
        message: text(&ran.message),
        ask_agent: text(&ran.ask_agent),
        input,
        ..ran.clone()
    }
}

/// A question as all front ends show it. In the words of a program, a character that nobody sees could be the difference.
fn sanitized(challenge: &Challenge, sanitizer: Sanitizer) -> Challenge {
    Challenge {
        rule: sanitizer.text(&challenge.rule),
        why: sanitizer.question(&challenge.why),
        ..challenge.clone()
    }
}

/// Approximate length of a value in JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(|value| size(value) + 1).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| name.len() + size(value) + 4)
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Channel, Coverage, Digest, Nonce, Risk, Wants};
    use orchestrator_text::redact::Redactor;

    #[test]
    fn all_front_ends_get_a_question_with_its_unseen_characters() {
        let redactor: &Redactor = Box::leak(Box::new(Redactor::new(vec![]).unwrap()));
        let challenge = Challenge {
            digest: Digest([1; 32]),
            nonce: Nonce([2; 16]),
            rule: "p:1".into(),
            why: "refs/heads/ma\u{200b}in".into(),
            risk: Risk::High,
            expires_s: 1,
            channel: Channel::Relay,
            covers: Coverage::Request,
            programs: Vec::new(),
            wants: Wants::default(),
        };
        let shown = sanitized(&challenge, Sanitizer::new(redactor));
        assert_eq!(shown.why, "refs/heads/ma\\u{200b}in");
    }
}
