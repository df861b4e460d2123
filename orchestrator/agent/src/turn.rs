//! One answer of the model: its chunks become events and a message. If a request fails before any part of the answer arrived, it is
//! repeated.

use crate::accumulate::{Accumulator, ModelAnswer};
use crate::chunk::{Chunk, Chunks};
use crate::control::RunControl;
use crate::conversation::CallIds;
use crate::error::ProviderError;
use crate::event::ChatEventBody;
use crate::exchange::Side;
use crate::message::{MessagePart, text_of};
use crate::provider::{ModelRequest, Provider};
use crate::publish::RunPublisher;
use crate::spans;
use futures_util::future::join;
use orchestrator_text::sanitize::SanitizedStream;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;

/// How often the model is asked again.
const RETRIES: u32 = 3;
/// The first pause before a retry; each later one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// If a provider asks for a longer pause, there is no retry.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How to get one answer.
pub(crate) struct ModelTurn<'a> {
    pub provider: &'a dyn Provider,
    pub(crate) publisher: &'a RunPublisher,
    pub control: &'a RunControl,
    /// How long it may take, including pauses.
    pub limit: Duration,
    /// Whether to publish pieces of inputs.
    pub input_deltas: bool,
    /// Whether to publish texts: those of a subagent are only for the model that called it.
    pub(crate) texts: bool,
}

/// The outcome of a turn.
pub(crate) struct TurnEnd {
    /// The answer, as far as it arrived.
    pub answer: ModelAnswer,
    pub error: Option<ProviderError>,
}

impl ModelTurn<'_> {
    /// Requests the answer to `prompt`. IDs of its calls are added to `taken`.
    pub(crate) async fn run(&self, prompt: &ModelRequest<'_>, taken: &CallIds) -> TurnEnd {
        let deadline = Instant::now() + self.limit;
        let mut attempt = 1;
        let mut prompt = *prompt;
        let mut rejected = None;
        loop {
            let span = spans::model_request(self.provider.name(), prompt.model, attempt);
            let asked = Instant::now();
            self.record_request(&prompt, attempt);
            let (accumulator, begun, result) = self
                .attempt(&prompt, deadline)
                .instrument(span.clone())
                .await;
            span.in_scope(|| spans::end_request(&result, accumulator.usage(), asked.elapsed()));
            let error = match result {
                Ok(()) => None,
                // Nothing of the answer has arrived, so it may be requested again, with less in the request.
                Err(error @ ProviderError::BadRequest { .. }) if !prompt.minimal && !begun => {
                    self.record_answer(&prompt, attempt, None, Some(&error), asked);
                    self.announce(&error, attempt, Duration::ZERO).await;
                    rejected = Some(error);
                    prompt.minimal = true;
                    attempt += 1;
                    continue;
                }
                // The first reason is about what the user has set.
                Err(ProviderError::BadRequest { .. }) if rejected.is_some() => rejected,
                // Text that was shown cannot be withdrawn, and a second answer would differ from it.
                Err(error) if begun => Some(error),
                Err(error) => match self.pause(&error, attempt, deadline) {
                    Some(pause) => {
                        self.record_answer(&prompt, attempt, None, Some(&error), asked);
                        self.announce(&error, attempt, pause).await;
                        tokio::select! {
                            () = sleep(pause) => {}
                            () = self.control.cancelled() => {}
                        }
                        attempt += 1;
                        continue;
                    }
                    None => Some(error),
                },
            };
            let answer = accumulator.finish(taken, self.publisher.redactor());
            self.record_answer(&prompt, attempt, Some(&answer), error.as_ref(), asked);
            return TurnEnd { answer, error };
        }
    }

    fn record_request(&self, prompt: &ModelRequest<'_>, attempt: u32) {
        let side = Side::Request {
            messages: prompt.messages.len(),
            tools: prompt.tools.len(),
            may_call: prompt.may_call,
            minimal: prompt.minimal,
        };
        self.publisher
            .record(self.provider.name(), prompt.model, attempt, side);
    }

    fn record_answer(
        &self,
        prompt: &ModelRequest<'_>,
        attempt: u32,
        answer: Option<&ModelAnswer>,
        error: Option<&ProviderError>,
        asked: Instant,
    ) {
        let parts = answer.map_or(&[][..], |answer| &answer.parts);
        let call = |part: &MessagePart| match part {
            MessagePart::ToolCall(call) => Some(self.publisher.sanitizer.text(&call.name)),
            MessagePart::Text { .. }
            | MessagePart::Thinking { .. }
            | MessagePart::Sealed { .. } => None,
        };
        let side = Side::Answer {
            text: self.publisher.sanitizer.text(&text_of(parts)),
            calls: parts.iter().filter_map(call).collect(),
            stop: answer.and_then(|answer| answer.stop),
            usage: answer.map(|answer| answer.usage).unwrap_or_default(),
            wall_ms: u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX),
            error: error.map(|error| error.code().name()),
        };
        self.publisher
            .record(self.provider.name(), prompt.model, attempt, side);
    }

    /// How long to wait before the next attempt; `None` if there is to be none.
    fn pause(&self, error: &ProviderError, attempt: u32, deadline: Instant) -> Option<Duration> {
        if attempt > RETRIES || !error.is_transient() || self.control.is_cancelled() {
            return None;
        }
        let pause = error.retry_after().unwrap_or(PAUSE * 2u32.pow(attempt - 1));
        (pause <= PAUSE_MAX && Instant::now() + pause < deadline).then_some(pause)
    }

    async fn announce(&self, error: &ProviderError, attempt: u32, pause: Duration) {
        let (code, message) = (error.code(), error.to_string());
        let delay_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.publisher
            .publish(ChatEventBody::Retry {
                code,
                message,
                attempt,
                delay_ms,
            })
            .await;
    }

    /// One request; returns the answer, whether any of it arrived, and how it ended.
    async fn attempt(
        &self,
        prompt: &ModelRequest<'_>,
        deadline: Instant,
    ) -> (Accumulator, bool, Result<(), ProviderError>) {
        let (chunks, mut received) = Chunks::channel();
        let mut accumulator = Accumulator::default();
        let mut begun = false;
        let mut streams = TextStreams::new(self);
        let result = {
            let answer = self.provider.answer(prompt, chunks);
            let take = async {
                // Dropped with this block, which tells a provider with invalid chunks to stop.
                let received = &mut received;
                while let Some(chunk) = received.recv().await {
                    if let Err(error) = accumulator.push(&chunk) {
                        received.close();
                        return Err(error);
                    }
                    begun |= !matches!(chunk, Chunk::Usage(_));
                    streams.push(&chunk).await;
                }
                Ok(())
            };
            let both = async {
                let (answered, taken) = join(answer, take).await;
                taken.and(answered)
            };
            tokio::select! {
                ended = timeout_at(deadline, both) => {
                    ended.unwrap_or(Err(ProviderError::Timeout { seconds: self.limit.as_secs() }))
                }
                () = self.control.cancelled() => Err(ProviderError::Cancelled),
            }
        };
        streams.finish().await;
        (accumulator, begun, result)
    }
}

/// Passes the texts of an answer to the front end. No piece ends within a secret or a character.
struct TextStreams<'a> {
    turn: &'a ModelTurn<'a>,
    /// The text or thought in progress.
    current: Option<(StreamKind, u32, SanitizedStream)>,
    /// Inputs in progress, by index, with the tool's name.
    inputs: BTreeMap<u32, (String, SanitizedStream)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Text,
    Thinking,
}

impl<'a> TextStreams<'a> {
    fn new(turn: &'a ModelTurn<'a>) -> Self {
        Self {
            turn,
            current: None,
            inputs: BTreeMap::new(),
        }
    }

    async fn push(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::Text { index, text } => self.text(StreamKind::Text, *index, text).await,
            Chunk::Thinking { index, text } => self.text(StreamKind::Thinking, *index, text).await,
            Chunk::ToolStart { index, name, .. } => {
                self.finish().await;
                self.inputs
                    .insert(*index, (name.clone(), self.turn.publisher.stream()));
            }
            Chunk::ToolDelta { index, json } => self.input(*index, json).await,
            Chunk::ToolEnd { index } => {
                if let Some((name, mut stream)) = self.inputs.remove(index) {
                    self.publish_input(*index, name, stream.finish()).await;
                }
            }
            Chunk::Signature { .. } | Chunk::Sealed { .. } | Chunk::Usage(_) | Chunk::End(_) => {}
        }
    }

    async fn text(&mut self, kind: StreamKind, index: u32, text: &str) {
        if self
            .current
            .as_ref()
            .is_none_or(|(of, at, _)| (*of, *at) != (kind, index))
        {
            self.finish().await;
            self.current = Some((kind, index, self.turn.publisher.stream()));
        }
        let Some((_, _, stream)) = &mut self.current else {
            return;
        };
        let bytes = stream.push(text.as_bytes());
        self.publish_text(kind, index, bytes).await;
    }

    /// Publishes what is still held back of the text in progress.
    async fn finish(&mut self) {
        if let Some((kind, index, mut stream)) = self.current.take() {
            self.publish_text(kind, index, stream.finish()).await;
        }
    }

    async fn publish_text(&self, kind: StreamKind, index: u32, bytes: Vec<u8>) {
        if bytes.is_empty() || !self.turn.texts {
            return;
        }
        let content = String::from_utf8_lossy(&bytes).into_owned();
        let body = match kind {
            StreamKind::Text => ChatEventBody::TextDelta { content, index },
            StreamKind::Thinking => ChatEventBody::ThinkingDelta { content, index },
        };
        self.turn.publisher.publish(body).await;
    }

    async fn input(&mut self, index: u32, json: &str) {
        let Some((name, stream)) = self.inputs.get_mut(&index) else {
            return;
        };
        let (name, bytes) = (name.clone(), stream.push(json.as_bytes()));
        self.publish_input(index, name, bytes).await;
    }

    async fn publish_input(&self, index: u32, tool_name: String, bytes: Vec<u8>) {
        if !bytes.is_empty() && self.turn.input_deltas {
            let chunk = String::from_utf8_lossy(&bytes).into_owned();
            self.turn
                .publisher
                .publish(ChatEventBody::ToolInputDelta {
                    index,
                    tool_name,
                    chunk,
                })
                .await;
        }
    }
}
