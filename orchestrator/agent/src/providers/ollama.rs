//! Ollama's `/api/chat`: local models, with its own format of tools.

use crate::chunk::{Chunk, Stop, TokenUsage};
use crate::error::{ProviderError, brief};
use crate::message::{Message, MessagePart, ToolAnswer, text_of};
use crate::provider::{Model, ModelRequest};
use crate::providers::openai_chat;
use crate::wire::{AnswerDecoder, Framing, Wire, json};
use orchestrator_http::key::{Key, KeyNames};
use serde_json::{Value, json};

/// Indices of text, thoughts and calls among the parts of an answer.
const THOUGHTS: u32 = 0;
const TEXT: u32 = 1;
const CALLS: u32 = 2;
/// Model families that call tools, for servers that do not report it.
const WITH_TOOLS: [&str; 10] = [
    "llama3.1",
    "llama3.2",
    "llama3.3",
    "llama4",
    "mistral",
    "qwen2.5",
    "qwen3",
    "granite3",
    "gpt-oss",
    "command-r",
];
/// Largest window to request, in tokens. Ollama allocates its memory at once; its default is 4,096, and it silently cuts off the
/// beginning of anything longer.
const WINDOW_MAX: u64 = 32_768;
/// The window of a model that does not report one.
const WINDOW: u64 = 8_192;

pub struct Ollama;

impl Wire for Ollama {
    type Decoder = OllamaDecoder;

    fn name(&self) -> &'static str {
        "ollama"
    }

    fn base(&self) -> &'static str {
        "http://127.0.0.1:11434"
    }

    fn key_names(&self) -> Option<KeyNames> {
        None
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        openai_chat::OpenAiChat.headers(key)
    }

    fn hint(&self) -> Option<&'static str> {
        // Without a key and an option it is the provider, also for those who have never heard of it.
        Some(
            "start it with `ollama serve`; for another provider set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name it with \
             --provider and its key with --key-file",
        )
    }

    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn request(&self, prompt: &ModelRequest<'_>) -> (&'static str, Value) {
        let mut body = json!({
            "model": prompt.model,
            "stream": true,
            "messages": messages(prompt),
            "options": { "num_ctx": prompt.context_window.unwrap_or(WINDOW).min(WINDOW_MAX) },
        });
        if let Some(tokens) = prompt.max_tokens {
            body["options"]["num_predict"] = tokens.into();
        }
        if !prompt.tools.is_empty() && prompt.may_call {
            body["tools"] = prompt.tools.iter().map(openai_chat::tool).collect();
        }
        if prompt.thinking_tokens > 0 && !prompt.minimal {
            body["think"] = true.into();
        }
        ("/api/chat", body)
    }

    fn decoder(&self) -> OllamaDecoder {
        OllamaDecoder::default()
    }

    // Not those that fetch, copy or remove models: a person does that with Ollama's own command.
    fn requests(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("POST", "/api/chat"),
            ("GET", "/api/tags"),
            ("POST", "/api/show"),
        ]
    }

    fn models_path(&self) -> &'static str {
        "/api/tags"
    }

    fn models(&self, list: &Value) -> Vec<Model> {
        let models = list["models"].as_array().into_iter().flatten();
        models
            .filter_map(|listed| {
                let id = listed["model"].as_str().or(listed["name"].as_str())?;
                Some(Model {
                    size_b: size(&listed["details"]["parameter_size"]),
                    ..self.model(id)
                })
            })
            .collect()
    }

    fn model(&self, id: &str) -> Model {
        // A name may begin with its owner.
        let name = id.rsplit('/').next().unwrap_or(id);
        Model {
            supports_tools: Some(WITH_TOOLS.iter().any(|family| name.starts_with(family))),
            chat: !name.contains("embed"),
            context_window: Some(WINDOW),
            price_class: Some("local"),
            ..Model::named(id)
        }
    }

    fn inquiry(&self, id: &str) -> Option<(&'static str, Value)> {
        Some(("/api/show", json!({ "model": id })))
    }

    fn inquired(&self, id: &str, answer: &Value) -> Model {
        let by_name = self.model(id);
        let capabilities = answer["capabilities"].as_array();
        let has = |name: &str| capabilities.map(|all| all.iter().any(|one| one == name));
        let facts = answer["model_info"].as_object().into_iter().flatten();
        let window = facts
            .filter(|(name, _)| name.ends_with(".context_length"))
            .find_map(|(_, value)| value.as_u64());
        Model {
            supports_tools: has("tools").or(by_name.supports_tools),
            chat: has("completion").unwrap_or(by_name.chat),
            context_window: Some(window.unwrap_or(WINDOW).min(WINDOW_MAX)),
            size_b: size(&answer["details"]["parameter_size"]),
            ..by_name
        }
    }
}

/// `8.0B` is 8.0, and `270M` 0.27.
fn size(text: &Value) -> Option<f64> {
    let text = text.as_str()?.trim().to_ascii_uppercase();
    let number = |suffix: char| text.strip_suffix(suffix)?.trim().parse::<f64>().ok();
    let size = number('B').or_else(|| number('M').map(|millions| millions / 1000.0))?;
    (size.is_finite() && size >= 0.0).then_some(size)
}

fn messages(prompt: &ModelRequest<'_>) -> Vec<Value> {
    let system =
        (!prompt.system.is_empty()).then(|| json!({ "role": "system", "content": prompt.system }));
    let mut all: Vec<Value> = system.into_iter().collect();
    for message in prompt.messages {
        match message {
            Message::User { text } => all.push(json!({ "role": "user", "content": text })),
            Message::Assistant { parts } => all.push(assistant(parts)),
            Message::Tools { answers } => all.extend(answers.iter().map(answer)),
        }
    }
    all
}

fn assistant(parts: &[MessagePart]) -> Value {
    let mut message = json!({ "role": "assistant", "content": text_of(parts) });
    let call = |part: &MessagePart| match part {
        MessagePart::ToolCall(call) => {
            Some(json!({ "function": { "name": call.name, "arguments": call.input } }))
        }
        MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::Sealed { .. } => {
            None
        }
    };
    let calls: Vec<Value> = parts.iter().filter_map(call).collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Answers have no IDs: they are matched by the order of the calls.
fn answer(answer: &ToolAnswer) -> Value {
    let mut message = json!({ "role": "tool", "tool_name": answer.name, "content": answer.text });
    if let Some(image) = &answer.image {
        message["images"] = json!([image.base64]);
    }
    message
}

#[derive(Default)]
pub struct OllamaDecoder {
    /// How many calls there were.
    calls: u32,
}

impl AnswerDecoder for OllamaDecoder {
    fn frame(&mut self, frame: &str, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        let line = json(frame)?;
        if let Some(why) = line["error"].as_str() {
            return Err(ProviderError::Server {
                status: 200,
                retry_after: None,
                reason: brief(why),
            });
        }
        let message = &line["message"];
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        if !text("thinking").is_empty() {
            out.push(Chunk::Thinking {
                index: THOUGHTS,
                text: text("thinking"),
            });
        }
        if !text("content").is_empty() {
            out.push(Chunk::Text {
                index: TEXT,
                text: text("content"),
            });
        }
        // Calls may also be in the last line.
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, out)?;
        }
        if line["done"] == true {
            let number = |name: &str| line[name].as_u64().unwrap_or(0);
            let (input_tokens, output_tokens) = (number("prompt_eval_count"), number("eval_count"));
            out.push(Chunk::Usage(TokenUsage {
                input_tokens,
                output_tokens,
                cached_tokens: 0,
            }));
            out.push(Chunk::End(if line["done_reason"] == "length" {
                Stop::Length
            } else {
                Stop::Done
            }));
        }
        Ok(())
    }
}

impl OllamaDecoder {
    /// A call arrives complete, usually without an ID.
    fn call(&mut self, call: &Value, out: &mut Vec<Chunk>) -> Result<(), ProviderError> {
        let function = &call["function"];
        let name = function["name"].as_str().filter(|name| !name.is_empty());
        let name = name
            .ok_or_else(|| ProviderError::malformed("a call without a name"))?
            .to_owned();
        let index = CALLS + self.calls;
        self.calls += 1;
        let id = call["id"]
            .as_str()
            .map_or_else(|| format!("call_{}", self.calls), str::to_owned);
        let json = match &function["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            input => input.to_string(),
        };
        out.push(Chunk::ToolStart { index, id, name });
        out.push(Chunk::ToolDelta { index, json });
        out.push(Chunk::ToolEnd { index });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orchestrator_text::known::{ANTHROPIC_KEY, OPENAI_KEY};

    #[test]
    fn hint_without_a_server_names_every_way_to_give_a_key() {
        let hint = Ollama.hint().unwrap();
        assert!(
            [ANTHROPIC_KEY, OPENAI_KEY, "--provider", "--key-file"]
                .iter()
                .all(|way| hint.contains(way))
        );
    }

    #[test]
    fn a_size_is_a_number() {
        let cases = [("8.0B", 8.0), ("270M", 0.27), ("1.5b", 1.5), ("70B", 70.0)];
        for (text, want) in cases {
            assert_eq!(size(&json!(text)), Some(want), "{text}");
        }
        for none in [json!("x"), json!("NaNB"), json!(8), json!("")] {
            assert_eq!(size(&none), None, "{none}");
        }
    }

    #[test]
    fn model_capabilities_come_from_the_server_before_the_list_of_families() {
        let shown = json!({"capabilities": ["completion", "tools"], "model_info": {"llama.context_length": 131_072}});
        let model = Ollama.inquired("mine", &shown);
        assert_eq!(
            (model.supports_tools, model.context_window),
            (Some(true), Some(WINDOW_MAX))
        );
        let without = json!({"capabilities": ["completion"]});
        assert_eq!(
            Ollama.inquired("qwen3:8b", &without).supports_tools,
            Some(false)
        );
        for (id, want) in [
            ("qwen3:8b", true),
            ("me/mistral-nemo", true),
            ("gemma:2b", false),
        ] {
            assert_eq!(
                Ollama.inquired(id, &json!({})).supports_tools,
                Some(want),
                "{id}"
            );
        }
        assert!(
            !Ollama
                .inquired("x", &json!({"capabilities": ["embedding"]}))
                .chat
        );
    }
}
