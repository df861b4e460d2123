"""Answers of models as the vendors stream them: bytes that are replayed to our client and to the vendors' own."""

from __future__ import annotations

import json

TEXT = "Grüße, 日本 \U0001f680: let me look."
LONG = "x" * 70_000
BASH = ("bash", {"command": "echo 日本"})
READ = ("file_read", {"path": "a.txt"})
# A tool without arguments.
LIST = ("file_list", {})


def pieces(text: str, count: int = 3) -> list[str]:
    size = max(1, -(-len(text) // count))
    return [text[at : at + size] for at in range(0, len(text), size)]


def sse(events: list[dict], named: bool = True, end: str = "") -> bytes:
    lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return ("".join(lines) + end).encode()


def claude(text: str = "", calls=(), thinking: str = "", pings: bool = False) -> bytes:
    usage = {"input_tokens": 100, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    events, index = [{"type": "message_start", "message": message}], 0

    def block(start: dict, deltas: list[dict]) -> None:
        nonlocal index
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            events.extend([{"type": "ping"}] if pings else [])
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
        index += 1

    if thinking:
        signed = [{"type": "signature_delta", "signature": "c2lnbmVk"}]
        block({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": part} for part in pieces(thinking)] + signed)
    if text:
        block({"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in pieces(text)])
    for number, (name, given) in enumerate(calls):
        parts = pieces(json.dumps(given, ensure_ascii=False)) if given else [""]
        start = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        block(start, [{"type": "input_json_delta", "partial_json": part} for part in parts])
    reason = "tool_use" if calls else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}})
    return sse([*events, {"type": "message_stop"}])


def openai_chat(text: str = "", calls=(), finish: str | None = None) -> bytes:
    def chunk(delta: dict, finish: str | None = None) -> dict:
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    events = [chunk({"role": "assistant", "content": ""})] + [chunk({"content": part}) for part in pieces(text) if part]
    # The id and the name are in the first piece of a call only, and the pieces of several calls take turns.
    for number, (name, _) in enumerate(calls):
        events.append(chunk({"tool_calls": [{"index": number, "id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": ""}}]}))
    parts = [pieces(json.dumps(given, ensure_ascii=False)) for _, given in calls]
    for turn in range(max(map(len, parts), default=0)):
        for number, part in enumerate(parts):
            if turn < len(part):
                events.append(chunk({"tool_calls": [{"index": number, "function": {"arguments": part[turn]}}]}))
    events.append(chunk({}, finish or ("tool_calls" if calls else "stop")))
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return sse([*events, {**chunk({}), "choices": [], "usage": usage}], named=False, end="data: [DONE]\n\n")


def openai(text: str = "", calls=()) -> bytes:
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110}
    whole = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": "in_progress", "output": [], "error": None}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "instructions": None, "metadata": {}, "incomplete_details": None, "temperature": 1, "top_p": 1}
    events, output = [{"type": "response.created", "response": whole}], []
    if text:
        part = {"type": "output_text", "text": "", "annotations": []}
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
        at = {"item_id": "m1", "output_index": 0, "content_index": 0}
        events += [{"type": "response.output_item.added", "output_index": 0, "item": item}, {"type": "response.content_part.added", **at, "part": part}]
        events += [{"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []} for piece in pieces(text)]
        output.append({**item, "status": "completed", "content": [{**part, "text": text}]})
        events += [{"type": "response.output_text.done", **at, "text": text, "logprobs": []}, {"type": "response.output_item.done", "output_index": 0, "item": output[-1]}]
    for number, (name, given) in enumerate(calls):
        place, arguments = len(output), json.dumps(given, ensure_ascii=False)
        item = {"type": "function_call", "id": f"f{number}", "call_id": f"call_{number}", "name": name, "arguments": "", "status": "in_progress"}
        at = {"item_id": f"f{number}", "output_index": place}
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        events += [{"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in pieces(arguments)]
        events.append({"type": "response.function_call_arguments.done", **at, "name": name, "arguments": arguments})
        output.append({**item, "arguments": arguments, "status": "completed"})
        events.append({"type": "response.output_item.done", "output_index": place, "item": output[-1]})
    events.append({"type": "response.completed", "response": {**whole, "status": "completed", "output": output, "usage": usage}})
    return sse([{**event, "sequence_number": number} for number, event in enumerate(events)])


def ollama(text: str = "", calls=(), thinking: str = "", in_last: bool = False) -> bytes:
    def line(message: dict, **more) -> dict:
        return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": "", **message}, "done": False, **more}

    lines = [line({"thinking": part}) for part in pieces(thinking) if part] + [line({"content": part}) for part in pieces(text) if part]
    # They have no ids.
    called = {"tool_calls": [{"function": {"name": name, "arguments": given}} for name, given in calls]} if calls else {}
    lines += [line(called)] if calls and not in_last else []
    lines.append(line(called if in_last else {}) | {"done": True, "done_reason": "stop", "prompt_eval_count": 100, "eval_count": 10})
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines).encode()


# What each vendor streams, and what a last answer is.
REPLAYED = {
    "claude": {
        "text": claude(TEXT),
        "two calls": claude(TEXT, [BASH, READ]),
        "a call without arguments": claude(calls=[LIST]),
        "thinking, signed": claude(TEXT, [READ], thinking="Where is 日本?"),
        "pings between": claude(TEXT, [BASH], pings=True),
        "a long input": claude(calls=[("bash", {"command": f"true {LONG}"})]),
    },
    "openai": {
        "text": openai(TEXT),
        "two calls": openai(TEXT, [BASH, READ]),
        "a call without arguments": openai(calls=[LIST]),
        "a long input": openai(calls=[("bash", {"command": f"true {LONG}"})]),
    },
    "openai-chat": {
        "text": openai_chat(TEXT),
        "two calls in turns": openai_chat(TEXT, [BASH, READ]),
        "a call without arguments": openai_chat(calls=[LIST]),
        "stop, with calls": openai_chat(TEXT, [READ], finish="stop"),
        "a long input": openai_chat(calls=[("bash", {"command": f"true {LONG}"})]),
    },
    "ollama": {
        "text": ollama(TEXT),
        "two calls": ollama(TEXT, [BASH, READ]),
        "calls in the last line": ollama(TEXT, [BASH, LIST], in_last=True),
        "thinking": ollama(TEXT, [READ], thinking="Where is 日本?"),
        "a line of more than 64 KiB": ollama(calls=[("bash", {"command": f"true {LONG}"})]),
    },
}
LAST = {"claude": claude("Done."), "openai": openai("Done."), "openai-chat": openai_chat("Done."), "ollama": ollama("Done.")}
