//! A provider that plays a script: for a first try without a key, for demonstrations and for tests.

use crate::chunk::{Chunk, Chunks, Stop, TokenUsage};
use crate::error::ProviderError;
use crate::message::Message;
use crate::provider::{Model, ModelRequest, Provider};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;
use thiserror::Error;

/// Maximum bytes of a script.
pub const SCRIPT_MAX: usize = 4 << 20;
/// Characters in a piece of text.
const PIECE: usize = 24;
/// Longest pause between pieces, in milliseconds.
const PAUSE_MAX: u64 = 10_000;

/// The script that is played by default.
const TOUR: &str = include_str!("../../scripts/tour.json");

/// A script: the model's answers, turn by turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// The answers, in order. A conversation with N answers gets the one at index N.
    turns: Vec<Scripted>,
    /// Whether to repeat the last turn for ever.
    #[serde(default)]
    repeat: bool,
    /// Milliseconds between two pieces of an answer.
    #[serde(default)]
    pause_ms: u64,
    /// Size of the context window in tokens.
    #[serde(default)]
    context_window: Option<u64>,
    /// Whether the model calls tools.
    #[serde(default = "yes")]
    supports_tools: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Scripted {
    thinking: String,
    text: String,
    tool_calls: Vec<ScriptedCall>,
    usage: TokenUsage,
    /// Ends the answer here with an error, without its normal end.
    error: Option<Fault>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScriptedCall {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    input: Map<String, Value>,
}

/// How an answer fails.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    Overloaded,
    RateLimit,
    Cut,
    Malformed,
}

/// Why a script cannot be played.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// It is no script.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Its pause is too long.
    #[error("pauseMs is at most {PAUSE_MAX}")]
    Pause,
}

impl Script {
    /// The script that shows what a model can do in a cell.
    ///
    /// # Errors
    /// None, as a test shows.
    pub fn tour() -> Result<Self, ScriptError> {
        Self::parse(TOUR)
    }

    /// A script from JSON.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = serde_json::from_str(text)?;
        if script.pause_ms > PAUSE_MAX {
            Err(ScriptError::Pause)
        } else {
            Ok(script)
        }
    }

    /// The answer in a conversation that already has `before` answers.
    fn turn(&self, before: usize) -> Result<&Scripted, ProviderError> {
        let last = self.turns.last().filter(|_| self.repeat);
        let end = ProviderError::ScriptEnd {
            turn: before + 1,
            turns: self.turns.len(),
        };
        self.turns.get(before).or(last).ok_or(end)
    }
}

pub struct Mock(pub Script);

impl Mock {
    async fn play(&self, prompt: &ModelRequest<'_>, chunks: &Chunks) -> Result<(), ProviderError> {
        let before = prompt
            .messages
            .iter()
            .filter(|message| matches!(message, Message::Assistant { .. }))
            .count();
        let turn = self.0.turn(before)?;
        let mut play: Vec<Chunk> = Vec::new();
        play.extend(pieces(&turn.thinking).map(|text| Chunk::Thinking { index: 0, text }));
        play.extend(pieces(&turn.text).map(|text| Chunk::Text { index: 1, text }));
        // Like a model that has no tools.
        let calls = if prompt.may_call {
            turn.tool_calls.as_slice()
        } else {
            &[]
        };
        for (index, call) in (2..).zip(calls) {
            let id = if call.id.is_empty() {
                format!("call_{}_{index}", before + 1)
            } else {
                call.id.clone()
            };
            play.push(Chunk::ToolStart {
                index,
                id,
                name: call.name.clone(),
            });
            let json = Value::Object(call.input.clone()).to_string();
            play.extend(pieces(&json).map(|json| Chunk::ToolDelta { index, json }));
            play.push(Chunk::ToolEnd { index });
        }
        play.push(Chunk::Usage(turn.usage));
        for chunk in play {
            if self.0.pause_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.0.pause_ms)).await;
            }
            chunks.send(chunk).await?;
        }
        match turn.error {
            None => chunks.send(Chunk::End(Stop::Done)).await,
            Some(fault) => Err(fault.error()),
        }
    }

    fn the_model(&self) -> Model {
        Model {
            supports_tools: Some(self.0.supports_tools),
            context_window: Some(self.0.context_window.unwrap_or(200_000)),
            price_class: Some("local"),
            ..Model::named("script")
        }
    }
}

impl Fault {
    fn error(self) -> ProviderError {
        let reason = "the script says so".to_owned();
        match self {
            Fault::Overloaded => ProviderError::Overloaded {
                retry_after: None,
                reason,
            },
            Fault::RateLimit => ProviderError::RateLimit {
                retry_after: None,
                reason,
            },
            Fault::Cut => ProviderError::Cut,
            Fault::Malformed => ProviderError::malformed(reason),
        }
    }
}

/// A text in pieces, as a model would send it.
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters
        .chunks(PIECE)
        .map(|piece| piece.iter().collect())
        .collect();
    pieces.into_iter()
}

impl Provider for Mock {
    fn name(&self) -> &str {
        "mock"
    }

    fn models(&self) -> LocalBoxFuture<'_, Result<Vec<Model>, ProviderError>> {
        async { Ok(vec![self.the_model()]) }.boxed_local()
    }

    fn model<'a>(&'a self, _id: &'a str) -> LocalBoxFuture<'a, Result<Model, ProviderError>> {
        async { Ok(self.the_model()) }.boxed_local()
    }

    fn answer<'a>(
        &'a self,
        prompt: &'a ModelRequest<'a>,
        chunks: Chunks,
    ) -> LocalBoxFuture<'a, Result<(), ProviderError>> {
        async move { self.play(prompt, &chunks).await }.boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tour_is_a_script_and_a_script_ends() {
        let tour = Script::tour().unwrap();
        assert!(tour.turn(0).is_ok());
        assert!(matches!(
            tour.turn(tour.turns.len()),
            Err(ProviderError::ScriptEnd { .. })
        ));
        let again = Script::parse(r#"{"repeat":true,"turns":[{"text":"x"}]}"#).unwrap();
        assert_eq!(again.turn(300).unwrap().text, "x");
        for wrong in [
            "",
            "{}",
            r#"{"turns":[{"txt":"x"}]}"#,
            r#"{"turns":[],"pauseMs":10001}"#,
        ] {
            assert!(Script::parse(wrong).is_err(), "{wrong}");
        }
    }
}
