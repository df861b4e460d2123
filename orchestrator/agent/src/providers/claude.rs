//! Claude's Messages API.

use crate::chunk::{Chunk, Stop, TokenUsage};
use crate::error::{ProviderError, brief};
use crate::message::{Message, MessagePart, ToolAnswer};
use crate::provider::{Model, ModelRequest};
use crate::settings::ANSWER_TOKENS;
use crate::wire::{AnswerDecoder, Framing, Wire, json};
use orchestrator_http::key::{Key, KeyNames};
use orchestrator_text::known::ANTHROPIC_KEY;
use serde_json::{Value, json};

const VERSION: &str = "2023-06-01";
/// The vendor's name in parts that only it can read.
const VENDOR: &str = "claude";
/// Context window of all models so far; some accounts can have larger ones.
const WINDOW: u64 = 200_000;

pub struct Claude;

impl Wire for Claude {
    type Decoder = ClaudeDecoder;

    fn name(&self) -> &'static str {
        "claude"
    }

    fn base(&self) -> &'static str {
        "https://api.anthropic.com"
    }

    fn key_names(&self) -> Option<KeyNames> {
        Some(KeyNames {
            variable: ANTHROPIC_KEY,
            issuer: "anthropic",
        })
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        let version = ("anthropic-version", VERSION.to_owned());
        std::iter::once(version)
            .chain(key.map(|key| ("x-api-key", key.expose().to_owned())))
            .collect()
    }

    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn request(&self, prompt: &ModelRequest<'_>) -> (&'static str, Value) {
        let max_tokens = prompt.max_tokens.unwrap_or(ANSWER_TOKENS);
        let mut body = json!({
            "model": prompt.model,
            "max_tokens": max_tokens,
            "stream": true,
            "messages": messages(prompt),
        });
        if !prompt.system.is_empty() && prompt.minimal {
            body["system"] = prompt.system.into();
        } else if !prompt.system.is_empty() {
            body["system"] = json!([{ "type": "text", "text": prompt.system, "cache_control": { "type": "ephemeral" } }]);
        }
        if !prompt.tools.is_empty() {
            body["tools"] = prompt
                .tools
                .iter()
                .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema }))
                .collect();
            // A conversation with calls in it is rejected without tools: they stay in the request, but may not be called.
            if !prompt.may_call {
                body["tool_choice"] = json!({ "type": "none" });
            }
        }
        if prompt.thinking_tokens > 0 && !prompt.minimal {
            body["thinking"] =
                json!({ "type": "enabled", "budget_tokens": prompt.thinking_tokens });
            body["max_tokens"] = (u64::from(max_tokens) + u64::from(prompt.thinking_tokens)).into();
        }
        ("/v1/messages", body)
    }

    fn decoder(&self) -> ClaudeDecoder {
        ClaudeDecoder::default()
    }

    fn requests(&self) -> &'static [(&'static str, &'static str)] {
        &[("POST", "/v1/messages"), ("GET", "/v1/models?limit=1000")]
    }

    fn models_path(&self) -> &'static str {
        "/v1/models?limit=1000"
    }

    fn models(&self, list: &Value) -> Vec<Model> {
        let ids = list["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|model| model["id"].as_str());
        ids.map(|id| self.model(id)).collect()
    }

    fn model(&self, id: &str) -> Model {
        let price_class = [("haiku", "low"), ("sonnet", "medium"), ("opus", "high")]
            .into_iter()
            .find_map(|(family, class)| id.contains(family).then_some(class));
        Model {
            supports_tools: Some(true),
            context_window: Some(WINDOW),
            price_class,
            ..Model::named(id)
        }
    }
}

/// Converts the messages. User messages and answers to calls both have the role of the user, so neighbours are merged.
fn messages(prompt: &ModelRequest<'_>) -> Vec<Value> {
    let mut all: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in prompt.messages {
        let (role, blocks) = match message {
            Message::User { text } => (
                "user",
                vec![json!({ "type": "text", "text": text_of_block(text) })],
            ),
            Message::Tools { answers } => ("user", answers.iter().map(answer).collect()),
            Message::Assistant { parts } => ("assistant", parts.iter().filter_map(block).collect()),
        };
        match all.last_mut() {
            Some((last, of_last)) if *last == role => of_last.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => all.push((role, blocks)),
        }
    }
    // The next request begins with the same messages, so the vendor caches them up to here.
    if let Some(last) = all.last_mut().and_then(|(_, blocks)| blocks.last_mut())
        && !prompt.minimal
    {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
    all.into_iter()
        .map(|(role, content)| json!({ "role": role, "content": content }))
        .collect()
}

/// A text block may not be empty.
fn text_of_block(text: &str) -> &str {
    if text.trim().is_empty() {
        "(nothing)"
    } else {
        text
    }
}

fn block(part: &MessagePart) -> Option<Value> {
    match part {
        MessagePart::Text { text } if text.trim().is_empty() => None,
        MessagePart::Text { text } => Some(json!({ "type": "text", "text": text })),
        MessagePart::Thinking {
            text,
            signature: Some(signature),
        } => Some(json!({ "type": "thinking", "thinking": text, "signature": signature })),
        MessagePart::Sealed { vendor, data } if vendor == VENDOR => Some(data.clone()),
        // This vendor does not know the signature of another one's thoughts.
        MessagePart::Thinking {
            signature: None, ..
        }
        | MessagePart::Sealed { .. } => None,
        MessagePart::ToolCall(call) => Some(
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.input }),
        ),
    }
}

fn answer(answer: &ToolAnswer) -> Value {
    let mut content = vec![json!({ "type": "text", "text": text_of_block(&answer.text) })];
    if let Some(image) = &answer.image {
        let source =
            json!({ "type": "base64", "media_type": image.media_type, "data": image.base64 });
        content.push(json!({ "type": "image", "source": source }));
    }
    let mut block = json!({ "type": "tool_result", "tool_use_id": answer.id, "content": content });
    if answer.is_error {
        block["is_error"] = true.into();
    }
    block
}

#[derive(Default)]
pub struct ClaudeDecoder {
    /// The call in progress: its index, the input in its start, and whether a piece of input has come.
    call: Option<(u32, Value, bool)>,
    stop: Option<Stop>,
}

impl AnswerDecoder for ClaudeDecoder {
    fn frame(&mut self, frame: &str, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        let event = json(frame)?;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => out.push(Chunk::Usage(usage(&event["message"]["usage"]))),
            "content_block_start" => self.start(index(&event)?, &event["content_block"], out),
            "content_block_delta" => self.delta(index(&event)?, &event["delta"], out),
            "content_block_stop" => self.end_of_call(index(&event)?, out),
            "message_delta" => {
                out.push(Chunk::Usage(usage(&event["usage"])));
                self.stop = event["delta"]["stop_reason"]
                    .as_str()
                    .map(stop)
                    .or(self.stop);
            }
            "message_stop" => out.push(Chunk::End(self.stop.unwrap_or(Stop::Done))),
            "error" => return Err(error(&event["error"])),
            // Pings, and events that may be added later.
            _ => {}
        }
        Ok(())
    }
}

impl ClaudeDecoder {
    fn start(&mut self, index: u32, block: &Value, out: &mut Vec<Chunk>) {
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str().unwrap_or_default() {
            "text" if !text("text").is_empty() => out.push(Chunk::Text {
                index,
                text: text("text"),
            }),
            "thinking" => {
                out.push(Chunk::Thinking {
                    index,
                    text: text("thinking"),
                });
                if !text("signature").is_empty() {
                    out.push(Chunk::Signature {
                        index,
                        signature: text("signature"),
                    });
                }
            }
            "redacted_thinking" => {
                out.push(Chunk::Sealed {
                    index,
                    vendor: VENDOR,
                    data: block.clone(),
                });
            }
            "tool_use" => {
                out.push(Chunk::ToolStart {
                    index,
                    id: text("id"),
                    name: text("name"),
                });
                self.call = Some((index, block["input"].clone(), false));
            }
            // Empty texts, and blocks of tools run by the vendor, none of which we requested.
            _ => {}
        }
    }

    fn delta(&mut self, index: u32, delta: &Value, out: &mut Vec<Chunk>) {
        let text = |name: &str| delta[name].as_str().unwrap_or_default().to_owned();
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => out.push(Chunk::Text {
                index,
                text: text("text"),
            }),
            "thinking_delta" => out.push(Chunk::Thinking {
                index,
                text: text("thinking"),
            }),
            "signature_delta" => out.push(Chunk::Signature {
                index,
                signature: text("signature"),
            }),
            "input_json_delta" => {
                if let Some((of, _, came)) = &mut self.call
                    && *of == index
                {
                    *came |= !text("partial_json").is_empty();
                    out.push(Chunk::ToolDelta {
                        index,
                        json: text("partial_json"),
                    });
                }
            }
            _ => {}
        }
    }

    fn end_of_call(&mut self, index: u32, out: &mut Vec<Chunk>) {
        let Some((_, input, came)) = self.call.take_if(|(of, ..)| *of == index) else {
            return;
        };
        // Compatible servers may send the whole input in the start.
        if !came && input.as_object().is_some_and(|input| !input.is_empty()) {
            out.push(Chunk::ToolDelta {
                index,
                json: input.to_string(),
            });
        }
        out.push(Chunk::ToolEnd { index });
    }
}

fn index(event: &Value) -> Result<u32, ProviderError> {
    let index = event["index"]
        .as_u64()
        .and_then(|index| u32::try_from(index).ok());
    index.ok_or_else(|| ProviderError::malformed("a block without an index"))
}

fn usage(usage: &Value) -> TokenUsage {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let cached = number("cache_read_input_tokens");
    let input = number("input_tokens")
        .saturating_add(cached)
        .saturating_add(number("cache_creation_input_tokens"));
    TokenUsage {
        input_tokens: input,
        output_tokens: number("output_tokens"),
        cached_tokens: cached,
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "refusal" => Stop::Refused,
        _ => Stop::Done,
    }
}

/// An error in the middle of an answer.
fn error(error: &Value) -> ProviderError {
    let reason = brief(error["message"].as_str().unwrap_or_default());
    match error["type"].as_str().unwrap_or_default() {
        "overloaded_error" => ProviderError::Overloaded {
            retry_after: None,
            reason,
        },
        "rate_limit_error" => ProviderError::RateLimit {
            retry_after: None,
            reason,
        },
        "authentication_error" | "permission_error" => ProviderError::Auth { reason },
        "invalid_request_error" => ProviderError::Invalid { reason },
        "not_found_error" => ProviderError::ModelNotFound {
            model: String::new(),
            reason,
        },
        _ => ProviderError::Server {
            status: 200,
            retry_after: None,
            reason,
        },
    }
}
