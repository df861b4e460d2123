//! A model that follows a script, in the words of each vendor: the call that comes next is told by the results that a conversation
//! has so far, so that requests beside it (titles, summaries, tries to connect) do not put it out of step.

use lazaret_tests::model_server::{Reply, SeenRequest};
use serde_json::{Value, json};

/// A tool that the model calls.
#[derive(Clone, Copy, Debug)]
pub enum Tool {
    /// The agent's own, by its name.
    Own(&'static str),
    /// `bash` of our server, whatever the agent puts before its name.
    Served,
}

impl Tool {
    /// Whether this is what the agent offers as `name`.
    pub fn is(self, name: &str) -> bool {
        match self {
            Tool::Own(own) => name == own,
            Tool::Served => is_served(name) && name.ends_with("bash"),
        }
    }
}

pub fn is_served(name: &str) -> bool {
    name.contains("lazaret")
}

struct Call<'s> {
    /// As the agent offers it, `NAMESPACE/NAME` where it is in one.
    tool: String,
    id: String,
    input: &'s Value,
}

/// The answer to a request of any vendor's.
pub fn reply(request: &SeenRequest, tool: Tool, inputs: &[Value]) -> Reply {
    let body = &request.body;
    let path = request.line.split_whitespace().nth(1).unwrap_or_default();
    let done = results(body).len();
    let tool = offered(body).into_iter().find(|name| tool.is(name));
    let call = |(tool, input)| Call {
        tool,
        id: format!("call_{done}"),
        input,
    };
    let next = tool.zip(inputs.get(done)).map(call);
    let next = next.as_ref();
    if path.contains("/messages") && !path.contains("count_tokens") {
        anthropic(next, body["stream"] == true)
    } else if path.contains("/responses") && request.line.starts_with("GET") {
        // No WebSocket here: Codex then goes on without.
        Reply::status(426, &json!({}))
    } else if path.contains("/responses") {
        responses(next)
    } else if path.contains("/chat/completions") {
        chat(next, body["stream"] == true)
    } else if path.contains("enerateContent") {
        gemini(next, path.contains("alt=sse"))
    } else {
        Reply::status(
            200,
            &json!({ "data": [], "input_tokens": 1, "totalTokens": 1 }),
        )
    }
}

/// The tools that a request offers, those of namespaces as `NAMESPACE/NAME`.
pub fn offered(body: &Value) -> Vec<String> {
    let more = body["input"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| &item["tools"]);
    let lists = std::iter::once(&body["tools"]).chain(more);
    lists
        .flat_map(|list| list.as_array().into_iter().flatten())
        .flat_map(names)
        .collect()
}

fn names(tool: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if let Some(name) = text(&tool["function"]["name"]) {
        return vec![name];
    }
    let declared = list(&tool["functionDeclarations"]);
    if !declared.is_empty() {
        return declared
            .iter()
            .filter_map(|one| text(&one["name"]))
            .collect();
    }
    let name = text(&tool["name"])
        .or_else(|| text(&tool["type"]))
        .unwrap_or_default();
    match list(&tool["tools"]) {
        within if within.is_empty() => vec![name],
        within => within
            .iter()
            .filter_map(|one| text(&one["name"]))
            .map(|one| format!("{name}/{one}"))
            .collect(),
    }
}

/// The results of calls in a conversation, as JSON.
pub fn results(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for list in [&body["messages"], &body["input"], &body["contents"]] {
        for message in list.as_array().into_iter().flatten() {
            let parts = [&message["content"], &message["parts"]];
            let parts = parts.into_iter().filter_map(Value::as_array).flatten();
            let is_result = |part: &&Value| {
                let kind = part["type"].as_str().unwrap_or_default();
                kind == "tool_result"
                    || kind.ends_with("_call_output")
                    || part.get("functionResponse").is_some()
            };
            let whole = is_result(&message) || message["role"] == "tool";
            found.extend(whole.then(|| message.to_string()));
            found.extend(parts.filter(is_result).map(Value::to_string));
        }
    }
    found
}

fn events(events: &[Value]) -> Reply {
    let line = |event: &Value| match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    let body: String = events.iter().map(line).collect();
    Reply {
        head: "Content-Type: text/event-stream\r\n".to_owned(),
        ..Reply::stream(body)
    }
}

const DONE: &str = "That is done.";

fn anthropic(next: Option<&Call>, streams: bool) -> Reply {
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let content = match next {
        Some(call) => {
            json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": call.input })
        }
        None => json!({ "type": "text", "text": DONE }),
    };
    let reason = if next.is_some() {
        "tool_use"
    } else {
        "end_turn"
    };
    let mut message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [content],
        "stop_reason": reason, "stop_sequence": null, "usage": usage });
    if !streams {
        return Reply::status(200, &message);
    }
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let (block, delta) = match next {
        Some(call) => (
            json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": call.input.to_string() }),
        ),
        None => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": DONE }),
        ),
    };
    events(&[
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": usage }),
        json!({ "type": "message_stop" }),
    ])
}

fn responses(next: Option<&Call>) -> Reply {
    let item = match next {
        Some(call) => {
            let (namespace, name) = call
                .tool
                .rsplit_once('/')
                .map_or((None, call.tool.as_str()), |(space, name)| {
                    (Some(space), name)
                });
            let mut item = json!({ "type": "function_call", "id": call.id, "call_id": call.id, "name": name,
                "arguments": call.input.to_string() });
            if let Some(namespace) = namespace {
                item["namespace"] = json!(namespace);
            }
            item
        }
        None => json!({ "type": "message", "id": "m1", "role": "assistant",
            "content": [{ "type": "output_text", "text": DONE }] }),
    };
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    events(&[
        json!({ "type": "response.created", "response": { "id": "r1" } }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": { "id": "r1", "usage": usage } }),
    ])
}

fn chat(next: Option<&Call>, streams: bool) -> Reply {
    let (message, reason) = match next {
        Some(call) => {
            let function = json!({ "name": call.tool, "arguments": call.input.to_string() });
            let call =
                json!({ "index": 0, "id": call.id, "type": "function", "function": function });
            (
                json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
                "tool_calls",
            )
        }
        None => (json!({ "role": "assistant", "content": DONE }), "stop"),
    };
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    let whole = |kind: &str, choices: Value| json!({ "id": "c1", "object": kind, "created": 1, "model": "m", "choices": choices, "usage": usage });
    if !streams {
        let choice = json!([{ "index": 0, "message": message, "finish_reason": reason }]);
        return Reply::status(200, &whole("chat.completion", choice));
    }
    let piece = |delta: &Value, reason: Value| {
        whole(
            "chat.completion.chunk",
            json!([{ "index": 0, "delta": delta, "finish_reason": reason }]),
        )
    };
    let mut reply = events(&[
        piece(&message, Value::Null),
        piece(&json!({}), json!(reason)),
    ]);
    reply.body.push_str("data: [DONE]\n\n");
    reply
}

fn gemini(next: Option<&Call>, streams: bool) -> Reply {
    let part = match next {
        Some(call) => json!({ "functionCall": { "name": call.tool, "args": call.input } }),
        None => json!({ "text": DONE }),
    };
    let answer = json!({ "candidates": [{ "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 } });
    if streams {
        events(&[answer])
    } else {
        Reply::status(200, &answer)
    }
}
