//! OpenAI's Chat Completions, which most model servers imitate.

use crate::accumulate::{CALLS_MAX, INPUT_MAX};
use crate::chunk::{Chunk, Stop, TokenUsage};
use crate::error::{ProviderError, brief};
use crate::message::{Message, MessagePart, ToolAnswer, ToolCall, text_of};
use crate::provider::{Model, ModelRequest};
use crate::providers::openai_models;
use crate::wire::{AnswerDecoder, Framing, Wire, json};
use orchestrator_http::key::{Key, KeyNames};
use orchestrator_text::known::OPENAI_KEY;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Indices of text, thoughts and calls among the parts of an answer: this format has no common index.
const THOUGHTS: u32 = 0;
const TEXT: u32 = 1;
const CALLS: u32 = 2;

pub struct OpenAiChat;

impl Wire for OpenAiChat {
    type Decoder = OpenAiChatDecoder;

    fn name(&self) -> &'static str {
        "openai-chat"
    }

    fn base(&self) -> &'static str {
        "https://api.openai.com"
    }

    fn key_names(&self) -> Option<KeyNames> {
        Some(KeyNames {
            variable: OPENAI_KEY,
            issuer: "openai",
        })
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose())))
            .into_iter()
            .collect()
    }

    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn request(&self, prompt: &ModelRequest<'_>) -> (&'static str, Value) {
        let mut body = json!({
            "model": prompt.model,
            "stream": true,
            "messages": messages(prompt),
        });
        if !prompt.minimal {
            body["stream_options"] = json!({ "include_usage": true });
        }
        if let Some(tokens) = prompt.max_tokens {
            // The vendor has renamed the field, and servers that imitate it have not.
            let is_vendors = openai_models::is_known(prompt.model);
            let field = if is_vendors {
                "max_completion_tokens"
            } else {
                "max_tokens"
            };
            body[field] = tokens.into();
        }
        if !prompt.tools.is_empty() && prompt.may_call {
            body["tools"] = prompt.tools.iter().map(tool).collect();
        }
        ("/v1/chat/completions", body)
    }

    fn decoder(&self) -> OpenAiChatDecoder {
        OpenAiChatDecoder::default()
    }

    fn requests(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("POST", "/v1/chat/completions"),
            ("GET", openai_models::PATH),
        ]
    }

    fn models_path(&self) -> &'static str {
        openai_models::PATH
    }

    fn models(&self, list: &Value) -> Vec<Model> {
        openai_models::listed(list)
    }

    fn model(&self, id: &str) -> Model {
        openai_models::of_name(id)
    }
}

/// A tool in the form that Ollama accepts too.
pub(super) fn tool(tool: &crate::provider::ToolDefinition) -> Value {
    let function =
        json!({ "name": tool.name, "description": tool.description, "parameters": tool.schema });
    json!({ "type": "function", "function": function })
}

fn messages(prompt: &ModelRequest<'_>) -> Vec<Value> {
    let system =
        (!prompt.system.is_empty()).then(|| json!({ "role": "system", "content": prompt.system }));
    let mut all: Vec<Value> = system.into_iter().collect();
    for message in prompt.messages {
        match message {
            Message::User { text } => all.push(json!({ "role": "user", "content": text })),
            Message::Assistant { parts } => all.push(assistant(parts)),
            Message::Tools { answers } => {
                all.extend(answers.iter().map(
                    |answer| json!({ "role": "tool", "tool_call_id": answer.id, "content": answer.text }),
                ));
                all.extend(answers.iter().filter_map(image));
            }
        }
    }
    all
}

fn assistant(parts: &[MessagePart]) -> Value {
    let call = |part: &MessagePart| match part {
        MessagePart::ToolCall(ToolCall { id, name, input }) => {
            let function = json!({ "name": name, "arguments": input.to_string() });
            Some(json!({ "id": id, "type": "function", "function": function }))
        }
        MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::Sealed { .. } => {
            None
        }
    };
    let calls: Vec<Value> = parts.iter().filter_map(call).collect();
    let text = text_of(parts);
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = calls.into();
    }
    message
}

/// The answer of a tool cannot contain an image, so a user message shows it.
fn image(answer: &ToolAnswer) -> Option<Value> {
    let image = answer.image.as_ref()?;
    let url = format!("data:{};base64,{}", image.media_type, image.base64);
    Some(json!({ "role": "user", "content": [
        { "type": "text", "text": format!("The image of {}:", answer.name) },
        { "type": "image_url", "image_url": { "url": url } },
    ] }))
}

#[derive(Default)]
pub struct OpenAiChatDecoder {
    /// Calls by the vendor's index.
    calls: BTreeMap<u64, PartialCall>,
    /// Bytes of input that arrived before names.
    early_bytes: usize,
    stop: Option<Stop>,
}

#[derive(Default)]
struct PartialCall {
    id: String,
    name: String,
    /// Input that arrived before the name.
    early: String,
    started: bool,
}

impl AnswerDecoder for OpenAiChatDecoder {
    fn frame(&mut self, frame: &str, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        if frame.trim() == "[DONE]" {
            return self.finish(out);
        }
        let event = json(frame)?;
        if !event["error"].is_null() {
            return Err(error(&event["error"]));
        }
        if let Some(usage) = event["usage"].as_object().map(|_| usage(&event["usage"])) {
            out.push(Chunk::Usage(usage));
        }
        // We request one answer, so there is one choice, or none beside the usage.
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        let thoughts = delta["reasoning_content"]
            .as_str()
            .or(delta["reasoning"].as_str());
        if let Some(text) = thoughts.filter(|text| !text.is_empty()) {
            out.push(Chunk::Thinking {
                index: THOUGHTS,
                text: text.to_owned(),
            });
        }
        // A refusal is the model's text in place of an answer.
        for text in [&delta["content"], &delta["refusal"]]
            .into_iter()
            .filter_map(Value::as_str)
        {
            if !text.is_empty() {
                out.push(Chunk::Text {
                    index: TEXT,
                    text: text.to_owned(),
                });
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, out)?;
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.stop = Some(stop(reason));
        }
        Ok(())
    }

    /// Compatible servers may leave out the last frame.
    fn finish(&mut self, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        let Some(stop) = self.stop else {
            return Err(ProviderError::Cut);
        };
        for (index, call) in std::mem::take(&mut self.calls) {
            if !call.started {
                return Err(ProviderError::malformed("a call without a name"));
            }
            out.push(Chunk::ToolEnd {
                index: part(index)?,
            });
        }
        out.push(Chunk::End(stop));
        Ok(())
    }
}

impl OpenAiChatDecoder {
    /// A piece of a call: only the first has the ID, and some servers leave out the index.
    fn call(&mut self, piece: &Value, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, name) = (text(&piece["id"]), text(&piece["function"]["name"]));
        let last = self.calls.keys().next_back().copied();
        let index = match (piece["index"].as_u64(), last) {
            (Some(index), _) => index,
            (None, Some(last)) if id.is_empty() => last,
            (None, last) => last.map_or(0, |last| last + 1),
        };
        if !self.calls.contains_key(&index) && self.calls.len() >= CALLS_MAX {
            return Err(ProviderError::TooLarge {
                what: "calls",
                max: CALLS_MAX,
            });
        }
        let (part, call) = (part(index)?, self.calls.entry(index).or_default());
        if call.id.is_empty() {
            call.id = id;
        }
        if !call.started {
            call.name.push_str(&name);
        }
        let json = match &piece["function"]["arguments"] {
            // Some servers send the whole input, and as an object.
            input @ Value::Object(_) => input.to_string(),
            input => text(input),
        };
        if call.started {
            out.push(Chunk::ToolDelta { index: part, json });
        } else if call.name.is_empty() {
            // No chunk counts what is kept for a call that has no name yet.
            self.early_bytes += json.len();
            if self.early_bytes > INPUT_MAX {
                return Err(ProviderError::TooLarge {
                    what: "bytes in an input",
                    max: INPUT_MAX,
                });
            }
            call.early.push_str(&json);
        } else {
            call.started = true;
            out.push(Chunk::ToolStart {
                index: part,
                id: call.id.clone(),
                name: call.name.clone(),
            });
            let json = std::mem::take(&mut call.early) + &json;
            out.push(Chunk::ToolDelta { index: part, json });
        }
        Ok(())
    }
}

fn part(index: u64) -> Result<u32, ProviderError> {
    let part = u32::try_from(index)
        .ok()
        .and_then(|index| index.checked_add(CALLS));
    part.ok_or_else(|| ProviderError::malformed("a call with an index beyond all bounds"))
}

fn usage(usage: &Value) -> TokenUsage {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    TokenUsage {
        input_tokens: number(&usage["prompt_tokens"]),
        output_tokens: number(&usage["completion_tokens"]),
        cached_tokens: number(&usage["prompt_tokens_details"]["cached_tokens"]),
    }
}

/// Servers also send `stop` for answers with calls, so it means no more than `tool_calls`.
fn stop(reason: &str) -> Stop {
    match reason {
        "length" => Stop::Length,
        "content_filter" => Stop::Refused,
        _ => Stop::Done,
    }
}

/// An error in the middle of an answer.
pub(crate) fn error(error: &Value) -> ProviderError {
    let reason = brief(
        error["message"]
            .as_str()
            .or(error.as_str())
            .unwrap_or_default(),
    );
    let code = error["code"]
        .as_str()
        .or(error["type"].as_str())
        .unwrap_or_default();
    match code {
        "rate_limit_exceeded" => ProviderError::RateLimit {
            retry_after: None,
            reason,
        },
        "server_overloaded" | "overloaded_error" | "slow_down" => ProviderError::Overloaded {
            retry_after: None,
            reason,
        },
        "invalid_api_key" => ProviderError::Auth { reason },
        "model_not_found" => ProviderError::ModelNotFound {
            model: String::new(),
            reason,
        },
        "invalid_request_error"
        | "invalid_prompt"
        | "context_length_exceeded"
        | "insufficient_quota" => ProviderError::Invalid { reason },
        _ => ProviderError::Server {
            status: 200,
            retry_after: None,
            reason,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first error for calls without a name, `count` of them with `bytes` of input each.
    fn nameless(count: usize, bytes: usize) -> Option<ProviderError> {
        let mut decoder = OpenAiChatDecoder::default();
        let input = "x".repeat(bytes);
        (0..count).find_map(|index| {
            let call = json!({ "index": index, "function": { "arguments": input } });
            let frame = json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }).to_string();
            decoder.frame(&frame, &mut Vec::new()).err()
        })
    }

    #[test]
    fn calls_without_a_name_are_counted() {
        assert!(nameless(CALLS_MAX, 1).is_none());
        for (count, bytes) in [(CALLS_MAX + 1, 1), (20, INPUT_MAX / 10)] {
            let error = nameless(count, bytes);
            assert!(
                matches!(error, Some(ProviderError::TooLarge { .. })),
                "{count} {bytes}: {error:?}"
            );
        }
    }
}
