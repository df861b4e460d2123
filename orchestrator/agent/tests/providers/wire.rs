//! What each vendor sends, as it was recorded or as its documentation has it, and what becomes of it; however it is cut on the way.

use orchestrator_agent::accumulate::{Accumulator, ModelAnswer};
use orchestrator_agent::chunk::{Chunk, Stop, TokenUsage};
use orchestrator_agent::conversation::CallIds;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::message::{ImageData, Message, MessagePart, ToolAnswer, ToolCall};
use orchestrator_agent::provider::{ModelRequest, ToolDefinition};
use orchestrator_agent::providers::claude::Claude;
use orchestrator_agent::providers::ollama::Ollama;
use orchestrator_agent::providers::openai_chat::OpenAiChat;
use orchestrator_agent::providers::openai_responses::OpenAiResponses;
use orchestrator_agent::wire::{AnswerReader, Wire};
use orchestrator_text::redact::Redactor;
use serde_json::{Value, json};

/// What becomes of an answer that comes in pieces of `size` bytes.
fn read<W: Wire>(wire: &W, answer: &[u8], size: usize) -> (Vec<Chunk>, Result<(), ProviderError>) {
    let mut reader = AnswerReader::new(wire.framing(), wire.decoder());
    let mut chunks = Vec::new();
    for piece in answer.chunks(size) {
        if let Err(error) = reader.push(piece, &mut chunks) {
            return (chunks, Err(error));
        }
        if chunks.iter().any(|chunk| matches!(chunk, Chunk::End(_))) {
            return (chunks, Ok(()));
        }
    }
    let finished = reader.finish(&mut chunks);
    (chunks, finished)
}

/// The same, whichever way it is cut.
fn chunks<W: Wire>(wire: &W, answer: &str) -> (Vec<Chunk>, Result<(), ProviderError>) {
    let whole = read(wire, answer.as_bytes(), answer.len().max(1));
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(
            read(wire, answer.as_bytes(), size),
            whole,
            "in pieces of {size}"
        );
    }
    whole
}

fn answer<W: Wire>(wire: &W, text: &str) -> ModelAnswer {
    let (chunks, ended) = chunks(wire, text);
    assert_eq!(ended, Ok(()));
    let mut accumulator = Accumulator::default();
    chunks
        .iter()
        .for_each(|chunk| accumulator.push(chunk).unwrap());
    accumulator.finish(&CallIds::default(), &Redactor::new(vec![]).unwrap())
}

fn text(text: &str) -> MessagePart {
    MessagePart::Text { text: text.into() }
}

fn call(id: &str, name: &str, input: Value) -> MessagePart {
    MessagePart::ToolCall(ToolCall {
        id: id.into(),
        name: name.into(),
        input,
    })
}

/// Server-sent events, each named by its type.
fn events(events: &[Value]) -> String {
    let named = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or("x")
        )
    };
    events.iter().map(named).collect()
}

fn data(frames: &[Value]) -> String {
    frames
        .iter()
        .map(|frame| format!("data: {frame}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect()
}

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

mod claude {
    use super::*;

    fn block(index: u32, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn delta(index: u32, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn stop(index: u32) -> Value {
        json!({"type": "content_block_stop", "index": index})
    }

    fn end(reason: &str) -> [Value; 2] {
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        [
            json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}),
            json!({"type": "message_stop"}),
        ]
    }

    #[test]
    fn thoughts_text_and_two_calls_with_their_signature() {
        let start = json!({"type": "message_start", "message": {"usage":
            {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}});
        let mut all = vec![
            start,
            block(0, json!({"type": "thinking", "thinking": ""})),
            json!({"type": "ping"}),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm €"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig=="})),
            stop(0),
            block(1, json!({"type": "redacted_thinking", "data": "enc"})),
            stop(1),
            block(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "I will 😀"})),
            stop(2),
            block(
                3,
                json!({"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}),
            ),
            delta(
                3,
                json!({"type": "input_json_delta", "partial_json": "{\"command\": \"l"}),
            ),
            delta(
                3,
                json!({"type": "input_json_delta", "partial_json": "s\"}"}),
            ),
            stop(3),
            block(
                4,
                json!({"type": "tool_use", "id": "toolu_2", "name": "file_list", "input": {}}),
            ),
            delta(4, json!({"type": "input_json_delta", "partial_json": ""})),
            stop(4),
        ];
        all.extend(end("tool_use"));
        let got = answer(&Claude, &events(&all));
        let want = [
            MessagePart::Thinking {
                text: "hm €".into(),
                signature: Some("sig==".into()),
            },
            MessagePart::Sealed {
                vendor: "claude".into(),
                data: json!({"type": "redacted_thinking", "data": "enc"}),
            },
            text("I will 😀"),
            call("toolu_1", "bash", json!({"command": "ls"})),
            call("toolu_2", "file_list", json!({})),
        ];
        assert_eq!(got.parts, want);
        assert_eq!(
            got.usage,
            TokenUsage {
                input_tokens: 17,
                output_tokens: 20,
                cached_tokens: 5
            }
        );
        assert_eq!(got.stop, Some(Stop::Done));
    }

    #[test]
    fn a_call_starts_has_its_input_and_ends() {
        let mut all = vec![
            block(
                0,
                json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}}),
            ),
            delta(0, json!({"type": "input_json_delta", "partial_json": "{}"})),
            stop(0),
        ];
        all.extend(end("tool_use"));
        let (got, _) = chunks(&Claude, &events(&all));
        let (start, json) = (
            Chunk::ToolStart {
                index: 0,
                id: "t".into(),
                name: "bash".into(),
            },
            "{}".into(),
        );
        assert_eq!(
            got[..3],
            [
                start,
                Chunk::ToolDelta { index: 0, json },
                Chunk::ToolEnd { index: 0 }
            ]
        );
    }

    #[test]
    fn a_text_only_answer_has_no_call_and_unknown_blocks_are_left_out() {
        let mut all = vec![
            block(
                0,
                json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}}),
            ),
            delta(0, json!({"type": "input_json_delta", "partial_json": "{}"})),
            stop(0),
            block(1, json!({"type": "text", "text": "hi"})),
            json!({"type": "something_new"}),
            stop(1),
        ];
        all.extend(end("end_turn"));
        assert_eq!(answer(&Claude, &events(&all)).parts, [text("hi")]);
    }

    #[test]
    fn error_in_mid_answer_keeps_earlier_text_and_is_typed() {
        let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        let all = [
            block(0, json!({"type": "text", "text": "so far"})),
            overloaded,
        ];
        let (got, ended) = chunks(&Claude, &events(&all));
        assert_eq!(
            got,
            [Chunk::Text {
                index: 0,
                text: "so far".into()
            }]
        );
        assert_eq!(
            ended,
            Err(ProviderError::Overloaded {
                retry_after: None,
                reason: "Overloaded".into()
            })
        );
    }

    #[test]
    fn a_cut_stream_and_malformed_json_are_errors() {
        let all = [block(0, json!({"type": "text", "text": "so far"}))];
        assert_eq!(chunks(&Claude, &events(&all)).1, Err(ProviderError::Cut));
        assert_eq!(chunks(&Claude, "").1, Err(ProviderError::Cut));
        assert!(matches!(
            chunks(&Claude, "data: {\"type\": \"mess\n\n").1,
            Err(ProviderError::Malformed(_))
        ));
        assert!(matches!(
            chunks(&Claude, "data: {\"type\":\"content_block_stop\"}\n\n").1,
            Err(ProviderError::Malformed(_))
        ));
    }

    #[test]
    fn length_limits_and_refusals_are_distinguished() {
        for (reason, want) in [
            ("max_tokens", Stop::Length),
            ("refusal", Stop::Refused),
            ("stop_sequence", Stop::Done),
        ] {
            assert_eq!(
                answer(&Claude, &events(&end(reason))).stop,
                Some(want),
                "{reason}"
            );
        }
    }
}

mod openai_chat {
    use super::*;

    fn delta(delta: Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    fn end(reason: &str) -> [Value; 2] {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}});
        [
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
            json!({"choices": [], "usage": usage}),
        ]
    }

    fn piece(index: u32, more: Value) -> Value {
        let mut piece = more;
        piece["index"] = index.into();
        delta(json!({"tool_calls": [piece]}))
    }

    #[test]
    fn two_calls_interleaved_by_index_with_the_id_only_in_the_first_piece() {
        let mut all = vec![
            delta(json!({"role": "assistant", "content": "I will"})),
            piece(
                0,
                json!({"id": "call_a", "type": "function", "function": {"name": "bash", "arguments": ""}}),
            ),
            piece(
                1,
                json!({"id": "call_b", "type": "function", "function": {"name": "file_list", "arguments": ""}}),
            ),
            piece(0, json!({"function": {"arguments": "{\"command\""}})),
            piece(1, json!({"function": {"arguments": "{\"path\":"}})),
            piece(0, json!({"function": {"arguments": ": \"ls\"}"}})),
            piece(1, json!({"function": {"arguments": "\"src\"}"}})),
        ];
        // `stop` instead of `tool_calls`, as some servers have it.
        all.extend(end("stop"));
        let got = answer(&OpenAiChat, &data(&all));
        let want = [
            text("I will"),
            call("call_a", "bash", json!({"command": "ls"})),
            call("call_b", "file_list", json!({"path": "src"})),
        ];
        assert_eq!(
            (got.parts.as_slice(), got.stop),
            (want.as_slice(), Some(Stop::Done))
        );
        assert_eq!(
            got.usage,
            TokenUsage {
                input_tokens: 9,
                output_tokens: 4,
                cached_tokens: 3
            }
        );
    }

    #[test]
    fn servers_that_imitate_it_leave_out_index_id_arguments_and_the_last_frame() {
        let call_of = |name: &str| json!({"tool_calls": [{"id": "", "function": {"name": name}}]});
        let without_index = |id: &str, name: &str| json!({"tool_calls": [{"id": id, "function": {"name": name, "arguments": {"a": 1}}}]});
        let mut all = vec![
            delta(without_index("x", "bash")),
            delta(without_index("y", "glob")),
        ];
        all.extend(end("tool_calls"));
        let text = data(&all).replace("data: [DONE]\n\n", "");
        let got = answer(&OpenAiChat, &text).parts;
        assert_eq!(
            got,
            [
                call("x", "bash", json!({"a": 1})),
                call("y", "glob", json!({"a": 1}))
            ]
        );
        let mut all = vec![delta(call_of("todo_read"))];
        all.extend(end("tool_calls"));
        assert_eq!(
            answer(&OpenAiChat, &data(&all)).parts,
            [call("call", "todo_read", json!({}))]
        );
    }

    #[test]
    fn thoughts_errors_and_cut_streams() {
        let mut all = vec![
            delta(json!({"reasoning_content": "hm"})),
            delta(json!({"content": "yes"})),
        ];
        all.extend(end("length"));
        let got = answer(&OpenAiChat, &data(&all));
        assert_eq!(
            got.parts,
            [
                MessagePart::Thinking {
                    text: "hm".into(),
                    signature: None
                },
                text("yes")
            ]
        );
        assert_eq!(got.stop, Some(Stop::Length));
        let cut = format!("data: {}\n\n", delta(json!({"content": "so"})));
        assert_eq!(chunks(&OpenAiChat, &cut).1, Err(ProviderError::Cut));
        // An end that only claims to be one.
        assert_eq!(
            chunks(&OpenAiChat, "data: [DONE]\n\n").1,
            Err(ProviderError::Cut)
        );
        let error = json!({"error": {"message": "slow", "type": "requests", "code": "rate_limit_exceeded"}});
        let ended = chunks(&OpenAiChat, &format!("data: {error}\n\n")).1;
        assert_eq!(
            ended,
            Err(ProviderError::RateLimit {
                retry_after: None,
                reason: "slow".into()
            })
        );
        let hostile = piece(u32::MAX, json!({"id": "x", "function": {"name": "bash"}}));
        assert!(matches!(
            chunks(&OpenAiChat, &data(&[hostile])).1,
            Err(ProviderError::Malformed(_))
        ));
    }
}

mod openai_responses {
    use super::*;

    #[test]
    fn thoughts_are_kept_sealed_and_two_calls_have_their_inputs() {
        let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc", "status": "completed"});
        let function = |id: &str, name: &str, arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": arguments});
        let all = [
            json!({"type": "response.created", "response": {}}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning"}}),
            json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}}),
            json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "I will"}),
            json!({"type": "response.output_item.added", "output_index": 2, "item": function("call_a", "bash", "")}),
            json!({"type": "response.output_item.added", "output_index": 3, "item": function("call_b", "glob", "")}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"command\":"}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "\"ls\"}"}),
            json!({"type": "response.output_item.done", "output_index": 2, "item": function("call_a", "bash", "{\"command\":\"ls\"}")}),
            // All of it only at the end.
            json!({"type": "response.output_item.done", "output_index": 3, "item": function("call_b", "glob", "{\"pattern\":\"*\"}")}),
            json!({"type": "response.completed", "response": {"usage": {"input_tokens": 8, "output_tokens": 3}}}),
        ];
        let got = answer(&OpenAiResponses, &events(&all));
        let mut sealed = reasoning;
        sealed.as_object_mut().unwrap().remove("status");
        let want = [
            MessagePart::Thinking {
                text: "hm".into(),
                signature: None,
            },
            MessagePart::Sealed {
                vendor: "openai".into(),
                data: sealed,
            },
            text("I will"),
            call("call_a", "bash", json!({"command": "ls"})),
            call("call_b", "glob", json!({"pattern": "*"})),
        ];
        assert_eq!(got.parts, want);
        assert_eq!(got.usage.input_tokens, 8);
    }

    #[test]
    fn failures_are_typed_and_an_incomplete_answer_is_one_that_was_too_long() {
        let incomplete = json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}});
        assert_eq!(
            answer(&OpenAiResponses, &events(&[incomplete])).stop,
            Some(Stop::Length)
        );
        let failed = json!({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}});
        let ended = |event: Value| chunks(&OpenAiResponses, &events(&[event])).1;
        assert!(matches!(
            ended(failed),
            Err(ProviderError::RateLimit { .. })
        ));
        let error = json!({"type": "error", "code": "server_error", "message": "m", "param": null});
        assert!(matches!(ended(error), Err(ProviderError::Server { .. })));
        assert_eq!(
            ended(json!({"type": "response.created"})),
            Err(ProviderError::Cut)
        );
    }
}

mod ollama {
    use super::*;

    fn line(message: Value, done: bool) -> Value {
        json!({"model": "m", "message": message, "done": done, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 2})
    }

    #[test]
    fn calls_without_ids_in_the_last_line_and_a_line_of_more_than_64_kib() {
        let long = "x".repeat(100_000);
        let calls = json!([
            {"function": {"name": "bash", "arguments": {"command": long}}},
            {"function": {"name": "todo_read", "arguments": {}}},
        ]);
        let all = [
            line(
                json!({"role": "assistant", "content": "", "thinking": "hm"}),
                false,
            ),
            line(json!({"role": "assistant", "content": "I will"}), false),
            line(
                json!({"role": "assistant", "content": "", "tool_calls": calls}),
                true,
            ),
        ];
        // Not in pieces of one byte: it is long.
        let (got, ended) = read(&Ollama, lines(&all).as_bytes(), 1000);
        assert_eq!(ended, Ok(()));
        let mut accumulator = Accumulator::default();
        got.iter()
            .for_each(|chunk| accumulator.push(chunk).unwrap());
        let got = accumulator.finish(&CallIds::default(), &Redactor::new(vec![]).unwrap());
        let want = [
            MessagePart::Thinking {
                text: "hm".into(),
                signature: None,
            },
            text("I will"),
            call("call_1", "bash", json!({"command": long})),
            call("call_2", "todo_read", json!({})),
        ];
        assert_eq!(got.parts, want);
        assert_eq!(
            got.usage,
            TokenUsage {
                input_tokens: 7,
                output_tokens: 2,
                cached_tokens: 0
            }
        );
    }

    #[test]
    fn a_call_starts_has_one_delta_and_ends() {
        let calls = json!([{"function": {"name": "glob", "arguments": {"pattern": "*"}}}]);
        let all = [line(json!({"content": "", "tool_calls": calls}), true)];
        let (got, _) = chunks(&Ollama, &lines(&all));
        let json = json!({"pattern": "*"}).to_string();
        let want = [
            Chunk::ToolStart {
                index: 2,
                id: "call_1".into(),
                name: "glob".into(),
            },
            Chunk::ToolDelta { index: 2, json },
            Chunk::ToolEnd { index: 2 },
        ];
        assert_eq!(got[..3], want);
    }

    #[test]
    fn errors_and_cut_streams() {
        let error = json!({"error": "model runner has stopped"});
        assert!(matches!(
            chunks(&Ollama, &lines(&[error])).1,
            Err(ProviderError::Server { .. })
        ));
        assert_eq!(
            chunks(&Ollama, &lines(&[line(json!({"content": "so"}), false)])).1,
            Err(ProviderError::Cut)
        );
        // The last line may lack its end.
        let whole = lines(&[line(json!({"content": "so"}), true)]);
        assert_eq!(answer(&Ollama, whole.trim_end()).parts, [text("so")]);
    }
}

/// A conversation with everything in it.
fn conversation() -> Vec<Message> {
    let image = ImageData {
        media_type: "image/png".into(),
        base64: "aW1n".into(),
    };
    let answered = |id: &str, is_error, image| ToolAnswer {
        full: None,
        found_bytes: 0,
        id: id.into(),
        name: "bash".into(),
        text: format!("of {id}"),
        is_error,
        image,
    };
    vec![
        Message::user("go"),
        Message::Assistant {
            parts: vec![
                MessagePart::Thinking {
                    text: "hm".into(),
                    signature: Some("sig".into()),
                },
                MessagePart::Sealed {
                    vendor: "claude".into(),
                    data: json!({"type": "redacted_thinking", "data": "enc"}),
                },
                MessagePart::Sealed {
                    vendor: "openai".into(),
                    data: json!({"type": "reasoning", "encrypted_content": "enc"}),
                },
                text("I will"),
                call("a", "bash", json!({"command": "ls"})),
                call("b", "bash", json!({})),
            ],
        },
        Message::Tools {
            answers: vec![answered("a", false, Some(image)), answered("b", true, None)],
        },
        Message::user("and?"),
    ]
}

fn request<W: Wire>(wire: &W, may_call: bool) -> Value {
    let messages = conversation();
    let schema = json!({"type": "object"});
    let tools = [ToolDefinition {
        name: "bash".into(),
        description: "runs".into(),
        schema,
        runs_in_parallel: false,
    }];
    let prompt = ModelRequest {
        model: "m",
        system: "be",
        messages: &messages,
        tools: &tools,
        may_call,
        max_tokens: Some(100),
        thinking_tokens: 0,
        context_window: Some(9000),
        minimal: false,
    };
    wire.request(&prompt).1
}

#[test]
fn claude_is_sent_one_message_with_all_results_and_its_own_thoughts_back() {
    let body = request(&Claude, true);
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(
        messages
            .iter()
            .map(|one| one["role"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["user", "assistant", "user"]
    );
    let kinds = |message: &Value| -> Vec<String> {
        message["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        kinds(&messages[1]),
        [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use"
        ]
    );
    assert_eq!(messages[1]["content"][0]["signature"], "sig");
    assert_eq!(kinds(&messages[2]), ["tool_result", "tool_result", "text"]);
    let results = &messages[2]["content"];
    assert_eq!(
        (&results[0]["tool_use_id"], &results[0]["is_error"]),
        (&json!("a"), &Value::Null)
    );
    assert_eq!(
        (&results[1]["tool_use_id"], &results[1]["is_error"]),
        (&json!("b"), &json!(true))
    );
    assert_eq!(
        results[0]["content"][1]["source"],
        json!({"type": "base64", "media_type": "image/png", "data": "aW1n"})
    );
    assert_eq!(
        body["tools"],
        json!([{"name": "bash", "description": "runs", "input_schema": {"type": "object"}}])
    );
    assert_eq!(
        (&body["tool_choice"], &body["max_tokens"], &body["stream"]),
        (&Value::Null, &json!(100), &json!(true))
    );
    // Calls in a conversation need tools beside it: they are there, and may not be called.
    let last = request(&Claude, false);
    assert_eq!(
        (&last["tool_choice"], &last["tools"]),
        (&json!({"type": "none"}), &body["tools"])
    );
}

#[test]
fn openai_is_sent_a_message_for_each_result() {
    let body = request(&OpenAiChat, true);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|one| one["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "user"
        ]
    );
    assert_eq!(
        messages[2]["tool_calls"][0]["function"],
        json!({"name": "bash", "arguments": "{\"command\":\"ls\"}"})
    );
    assert_eq!(
        (&messages[3]["tool_call_id"], &messages[4]["content"]),
        (&json!("a"), &json!("of b"))
    );
    assert_eq!(
        messages[5]["content"][1]["image_url"]["url"],
        "data:image/png;base64,aW1n"
    );
    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({"type": "object"})
    );
    assert_eq!(request(&OpenAiChat, false)["tools"], Value::Null);
    let body = request(&OpenAiResponses, true);
    let kinds: Vec<_> = body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["type"].as_str().or(one["role"].as_str()).unwrap())
        .collect();
    let want = [
        "user",
        "reasoning",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "user",
    ];
    assert_eq!(kinds, want);
    assert_eq!(
        (&body["store"], &body["instructions"], &body["include"]),
        (&json!(false), &json!("be"), &Value::Null)
    );
    assert_eq!(body["tools"][0]["name"], "bash");
    assert_eq!(request(&OpenAiResponses, false)["tools"], Value::Null);
}

#[test]
fn ollama_is_sent_inputs_as_objects_and_a_window() {
    let body = request(&Ollama, true);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages
        .iter()
        .map(|one| one["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "tool", "tool", "user"]
    );
    assert_eq!(
        messages[2]["tool_calls"][0]["function"]["arguments"],
        json!({"command": "ls"})
    );
    assert_eq!(
        (&messages[3]["tool_name"], &messages[3]["images"]),
        (&json!("bash"), &json!(["aW1n"]))
    );
    assert_eq!(body["options"]["num_ctx"], 9000);
    assert_eq!(request(&Ollama, false)["tools"], Value::Null);
}
