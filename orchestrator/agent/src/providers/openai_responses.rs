//! OpenAI's Responses API. The vendor stores nothing: thoughts are returned to it encrypted.

use crate::chunk::{Chunk, Stop, TokenUsage};
use crate::error::{ProviderError, brief};
use crate::message::{Message, MessagePart, ToolAnswer};
use crate::provider::{Model, ModelRequest, ToolDefinition};
use crate::providers::openai_chat::{OpenAiChat, error};
use crate::providers::openai_models;
use crate::wire::{AnswerDecoder, Framing, Wire, json};
use orchestrator_http::key::{Key, KeyNames};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The vendor's name in parts that only it can read.
const VENDOR: &str = "openai";

pub struct OpenAiResponses;

impl Wire for OpenAiResponses {
    type Decoder = OpenAiResponsesDecoder;

    fn name(&self) -> &'static str {
        "openai"
    }

    fn base(&self) -> &'static str {
        OpenAiChat.base()
    }

    fn key_names(&self) -> Option<KeyNames> {
        OpenAiChat.key_names()
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        OpenAiChat.headers(key)
    }

    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn request(&self, prompt: &ModelRequest<'_>) -> (&'static str, Value) {
        let mut body = json!({
            "model": prompt.model,
            "stream": true,
            "store": false,
            "instructions": prompt.system,
            "input": prompt.messages.iter().flat_map(items).collect::<Vec<_>>(),
        });
        if !prompt.tools.is_empty() && prompt.may_call {
            body["tools"] = prompt.tools.iter().map(tool).collect();
        }
        if let Some(tokens) = prompt.max_tokens {
            body["max_output_tokens"] = tokens.into();
        }
        if openai_models::thinks(prompt.model) && !prompt.minimal {
            body["include"] = json!(["reasoning.encrypted_content"]);
            if prompt.thinking_tokens > 0 {
                body["reasoning"] = json!({ "summary": "auto" });
            }
        }
        ("/v1/responses", body)
    }

    fn decoder(&self) -> OpenAiResponsesDecoder {
        OpenAiResponsesDecoder::default()
    }

    fn requests(&self) -> &'static [(&'static str, &'static str)] {
        &[("POST", "/v1/responses"), ("GET", openai_models::PATH)]
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

fn tool(tool: &ToolDefinition) -> Value {
    let ToolDefinition {
        name,
        description,
        schema,
        ..
    } = tool;
    json!({ "type": "function", "name": name, "description": description, "parameters": schema, "strict": false })
}

fn items(message: &Message) -> Vec<Value> {
    match message {
        Message::User { text } => {
            vec![json!({ "role": "user", "content": [{ "type": "input_text", "text": text }] })]
        }
        Message::Assistant { parts } => parts.iter().filter_map(item).collect(),
        Message::Tools { answers } => answers.iter().map(output).collect(),
    }
}

fn item(part: &MessagePart) -> Option<Value> {
    match part {
        MessagePart::Text { text } => Some(
            json!({ "role": "assistant", "content": [{ "type": "output_text", "text": text }] }),
        ),
        MessagePart::Sealed { vendor, data } if vendor == VENDOR => Some(data.clone()),
        // Thoughts in clear text are only a summary, and this vendor cannot read another's.
        MessagePart::Thinking { .. } | MessagePart::Sealed { .. } => None,
        MessagePart::ToolCall(call) => {
            let (name, arguments) = (&call.name, call.input.to_string());
            Some(
                json!({ "type": "function_call", "call_id": call.id, "name": name, "arguments": arguments }),
            )
        }
    }
}

fn output(answer: &ToolAnswer) -> Value {
    let output = match &answer.image {
        None => json!(answer.text),
        Some(image) => {
            let url = format!("data:{};base64,{}", image.media_type, image.base64);
            json!([{ "type": "input_text", "text": answer.text }, { "type": "input_image", "image_url": url }])
        }
    };
    json!({ "type": "function_call_output", "call_id": answer.id, "output": output })
}

#[derive(Default)]
pub struct OpenAiResponsesDecoder {
    /// By the item's index: whether a piece of the call's input has arrived.
    calls: BTreeMap<u32, bool>,
}

impl AnswerDecoder for OpenAiResponsesDecoder {
    fn frame(&mut self, frame: &str, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        if frame.trim() == "[DONE]" {
            return Ok(());
        }
        let event = json(frame)?;
        let delta = || event["delta"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => self.added(part(&event)?, &event["item"], out),
            "response.output_text.delta" | "response.refusal.delta" => {
                out.push(Chunk::Text {
                    index: part(&event)?,
                    text: delta(),
                });
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                out.push(Chunk::Thinking {
                    index: part(&event)?,
                    text: delta(),
                });
            }
            "response.function_call_arguments.delta" => {
                let index = part(&event)?;
                if let Some(came) = self.calls.get_mut(&index) {
                    *came |= !delta().is_empty();
                    out.push(Chunk::ToolDelta {
                        index,
                        json: delta(),
                    });
                }
            }
            "response.output_item.done" => self.done(part(&event)?, &event["item"], out),
            "response.completed" => end(&event["response"], Stop::Done, out),
            "response.incomplete" => {
                let filtered =
                    event["response"]["incomplete_details"]["reason"] == "content_filter";
                end(
                    &event["response"],
                    if filtered {
                        Stop::Refused
                    } else {
                        Stop::Length
                    },
                    out,
                );
            }
            "response.failed" => return Err(error(&event["response"]["error"])),
            // Its fields are beside its type, or in an object of their own.
            "error" if event["error"].is_object() => return Err(error(&event["error"])),
            "error" => return Err(error(&event)),
            "response.cancelled" => {
                return Err(ProviderError::Server {
                    status: 200,
                    retry_after: None,
                    reason: brief(""),
                });
            }
            _ => {}
        }
        Ok(())
    }
}

impl OpenAiResponsesDecoder {
    fn added(&mut self, index: u32, item: &Value, out: &mut Vec<Chunk>) {
        if item["type"] == "function_call" {
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            out.push(Chunk::ToolStart {
                index,
                id: text("call_id"),
                name: text("name"),
            });
            self.calls.insert(index, false);
        }
    }

    fn done(&mut self, index: u32, item: &Value, out: &mut Vec<Chunk>) {
        match item["type"].as_str().unwrap_or_default() {
            "function_call" => {
                if !self.calls.contains_key(&index) {
                    self.added(index, item, out);
                }
                // If no piece arrived, the whole input is here.
                if self.calls.insert(index, true) == Some(false) {
                    let json = item["arguments"].as_str().unwrap_or_default().to_owned();
                    out.push(Chunk::ToolDelta { index, json });
                }
                out.push(Chunk::ToolEnd { index });
            }
            "reasoning" if item["encrypted_content"].is_string() => {
                let mut data = item.clone();
                // An item that the vendor does not store has no status either.
                data.as_object_mut().map(|fields| fields.remove("status"));
                out.push(Chunk::Sealed {
                    index: index.saturating_add(1),
                    vendor: VENDOR,
                    data,
                });
            }
            _ => {}
        }
    }
}

fn end(response: &Value, stop: Stop, out: &mut Vec<Chunk>) {
    let usage = &response["usage"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    out.push(Chunk::Usage(TokenUsage {
        input_tokens: number(&usage["input_tokens"]),
        output_tokens: number(&usage["output_tokens"]),
        cached_tokens: number(&usage["input_tokens_details"]["cached_tokens"]),
    }));
    out.push(Chunk::End(stop));
}

/// The index of an item's part: an item of thoughts has two, the summary and the encrypted thoughts.
fn part(event: &Value) -> Result<u32, ProviderError> {
    let index = event["output_index"]
        .as_u64()
        .and_then(|index| u32::try_from(index).ok());
    index
        .and_then(|index| index.checked_mul(2))
        .ok_or_else(|| ProviderError::malformed("an item without an index"))
}
