//! Answers of the vendors: one with text and two calls, and one that ends the run.

use lazaret_tests::model_server::Reply;
use serde_json::{Value, json};

/// A vendor, by its name on the command line.
#[derive(Clone, Copy, Debug)]
pub enum Vendor {
    Claude,
    OpenAi,
    OpenAiChat,
    Ollama,
}

/// A call: its id, the tool and the input.
pub type Call<'a> = (&'a str, &'a str, Value);

impl Vendor {
    pub const ALL: [Vendor; 4] = [
        Vendor::Claude,
        Vendor::OpenAi,
        Vendor::OpenAiChat,
        Vendor::Ollama,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Vendor::Claude => "claude",
            Vendor::OpenAi => "openai",
            Vendor::OpenAiChat => "openai-chat",
            Vendor::Ollama => "ollama",
        }
    }

    /// An answer with `text` and `calls`.
    pub fn answer(self, text: &str, calls: &[Call]) -> Reply {
        Reply::stream(match self {
            Vendor::Claude => claude(text, calls),
            Vendor::OpenAi => openai(text, calls),
            Vendor::OpenAiChat => openai_chat(text, calls),
            Vendor::Ollama => ollama(text, calls),
        })
    }

    /// Answers before the first prompt, if anything is asked.
    pub fn inquiry(self) -> Option<Reply> {
        let shown = json!({"capabilities": ["completion", "tools"], "model_info": {"x.context_length": 8192}});
        matches!(self, Vendor::Ollama).then(|| Reply::status(200, &shown))
    }

    /// The result of the call `id` in a request, and whether that is an error.
    pub fn result_of(self, body: &Value, id: &str) -> Option<(String, bool)> {
        let items = |name: &str| body[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self {
            Vendor::Claude => {
                let blocks = items("messages")
                    .into_iter()
                    .flat_map(|one| one["content"].as_array().cloned().unwrap_or_default());
                let mut results = blocks.filter(|block| block["tool_use_id"] == id);
                results.next().map(|block| {
                    (
                        text(&block["content"][0]["text"]),
                        block["is_error"] == true,
                    )
                })
            }
            Vendor::OpenAi => {
                let mut outputs = items("input")
                    .into_iter()
                    .filter(|item| item["type"] == "function_call_output");
                outputs
                    .find(|item| item["call_id"] == id)
                    .map(|item| (text(&item["output"]), false))
            }
            Vendor::OpenAiChat => {
                let mut messages = items("messages").into_iter();
                messages
                    .find(|one| one["tool_call_id"] == id)
                    .map(|one| (text(&one["content"]), false))
            }
            Vendor::Ollama => {
                // By their order.
                let number: usize = id.strip_prefix("call_")?.parse().ok()?;
                let mut messages = items("messages")
                    .into_iter()
                    .filter(|one| one["role"] == "tool");
                messages
                    .nth(number - 1)
                    .map(|one| (text(&one["content"]), false))
            }
        }
    }
}

fn events(events: &[Value]) -> String {
    let named = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        )
    };
    events.iter().map(named).collect()
}

/// A text in two halves.
fn halves(text: &str) -> [String; 2] {
    let middle = (0..=text.len() / 2)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    [text[..middle].to_owned(), text[middle..].to_owned()]
}

fn claude(text: &str, calls: &[Call]) -> String {
    let mut all = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 100, "output_tokens": 1}}}),
    ];
    all.push(
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    );
    all.extend(halves(text).map(|text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})));
    all.push(json!({"type": "content_block_stop", "index": 0}));
    for (index, (id, name, input)) in (1..).zip(calls) {
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        all.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        all.extend(halves(&input.to_string()).map(|json| {
            let delta = json!({"type": "input_json_delta", "partial_json": json});
            json!({"type": "content_block_delta", "index": index, "delta": delta})
        }));
        all.push(json!({"type": "content_block_stop", "index": index}));
    }
    let reason = if calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    all.push(
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 10}}),
    );
    all.push(json!({"type": "message_stop"}));
    events(&all)
}

fn openai(text: &str, calls: &[Call]) -> String {
    let mut all = vec![json!({"type": "response.created", "response": {}})];
    all.push(json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}));
    all.extend(halves(text).map(
        |text| json!({"type": "response.output_text.delta", "output_index": 0, "delta": text}),
    ));
    for (index, (id, name, input)) in (1..).zip(calls) {
        let item = |arguments: String| json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
        all.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": item(String::new())}),
        );
        all.extend(halves(&input.to_string()).map(
            |json| json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": json}),
        ));
        all.push(json!({"type": "response.output_item.done", "output_index": index, "item": item(input.to_string())}));
    }
    let usage = json!({"input_tokens": 100, "output_tokens": 10});
    all.push(json!({"type": "response.completed", "response": {"usage": usage}}));
    events(&all)
}

/// Two calls come interleaved, each id only in the first piece.
fn openai_chat(text: &str, calls: &[Call]) -> String {
    let frame = |delta: Value, reason: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let mut all: Vec<Value> = halves(text)
        .map(|text| frame(json!({"content": text}), Value::Null))
        .into();
    for (index, (id, name, _)) in calls.iter().enumerate() {
        let call = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        all.push(frame(json!({"tool_calls": [call]}), Value::Null));
    }
    for half in 0..2 {
        for (index, (_, _, input)) in calls.iter().enumerate() {
            let call = json!({"index": index, "function": {"arguments": halves(&input.to_string())[half]}});
            all.push(frame(json!({"tool_calls": [call]}), Value::Null));
        }
    }
    all.push(frame(json!({}), "stop".into()));
    all.push(json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}));
    let frames = all.iter().map(|frame| format!("data: {frame}\n\n"));
    frames.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// Calls come in the last line, without ids.
fn ollama(text: &str, calls: &[Call]) -> String {
    let mut all: Vec<Value> = halves(text)
        .map(|text| json!({"message": {"role": "assistant", "content": text}, "done": false}))
        .into();
    let calls: Vec<Value> = calls
        .iter()
        .map(|(_, name, input)| json!({"function": {"name": name, "arguments": input}}))
        .collect();
    let message = json!({"role": "assistant", "content": "", "tool_calls": calls});
    all.push(json!({"message": message, "done": true, "done_reason": "stop", "prompt_eval_count": 100, "eval_count": 10}));
    all.iter().map(|line| format!("{line}\n")).collect()
}
