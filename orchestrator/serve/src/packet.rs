//! A message to a client: an event of a run, or an answer. It is serialized once, however many clients receive it.

use crate::case::WireCase;
use orchestrator_agent::event::{ChatEvent, now};
use orchestrator_wire::server_message::ServerMessage;
use serde_json::{Value, json};
use std::rc::Rc;

/// A message to a client.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The type on the wire.
    pub kind: String,
    /// Its payload, as JSON text.
    pub(crate) payload: String,
    /// When it was created, in milliseconds since 1970.
    pub(crate) timestamp: u64,
    /// Its number among the events of its conversation, from 1.
    pub sequence: Option<u64>,
}

impl Packet {
    /// The packet of an event, in `case`.
    pub(crate) fn event(event: &ChatEvent, case: WireCase, sequence: u64) -> Rc<Self> {
        Rc::new(Self::of(
            event.to_json(),
            case,
            event.timestamp,
            Some(sequence),
        ))
    }

    /// The packet of an event for one client, which is none of a run's numbered ones.
    pub(crate) fn outside_run(event: &ChatEvent, case: WireCase) -> Rc<Self> {
        Rc::new(Self::of(event.to_json(), case, event.timestamp, None))
    }

    /// The packet of an answer, in `case`.
    pub(crate) fn answer(answer: &ServerMessage, case: WireCase) -> Rc<Self> {
        Rc::new(Self::of(json!(answer), case, now(), None))
    }

    fn of(mut json: Value, case: WireCase, timestamp: u64, sequence: Option<u64>) -> Self {
        let kind = json["type"].as_str().unwrap_or_default().to_owned();
        let payload = case.write(json["payload"].take()).to_string();
        Self {
            kind,
            payload,
            timestamp,
            sequence,
        }
    }

    /// The text of the WebSocket message.
    pub(crate) fn text(&self) -> String {
        let Self {
            kind,
            payload,
            timestamp,
            sequence,
        } = self;
        let sequence = sequence.map_or(String::new(), |sequence| {
            format!(r#","sequence":{sequence}"#)
        });
        format!(
            r#"{{"type":{},"payload":{payload},"timestamp":{timestamp}{sequence}}}"#,
            json!(kind)
        )
    }

    /// Its approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.payload.len() + self.kind.len() + 64
    }
}
