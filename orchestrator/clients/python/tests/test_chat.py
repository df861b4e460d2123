"""Chats: a script is the model, and its tools work in cells."""

from __future__ import annotations

import json
from typing import Any, Mapping

import lazaret_sandbox
from support import COMMAND, Folders, is_alive


def call(command: str) -> dict[str, Any]:
    return {"name": "bash", "input": {"command": command}}


class Chats(Folders):
    def open(self, turns: list[Any], **options: Any) -> lazaret_sandbox.Chat:
        script = self.outside / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        named = {"provider": "mock", "arguments": ["--script", str(script)], **options}
        chat = lazaret_sandbox.Chat(**self.options(**named)).open()
        self.addCleanup(chat.close)
        return chat

    def test_a_models_calls_run_in_cells_and_its_words_come_as_events(self) -> None:
        turns = [{"text": "", "toolCalls": [call("touch made")]}, {"text": "Done."}, {"text": "Again."}]
        chat = self.open(turns, trust="autonomous")
        seen: list[str] = []
        reply = chat.send("begin", on_event=lambda event: seen.append(event.type))
        self.assertEqual((reply.text, reply.reason, reply.error), ("Done.", "done", None))
        self.assertTrue((self.project / "made").exists())
        self.assertEqual((seen[0], seen[-1]), ("chat:stream-start", "chat:stream-end"))
        self.assertIn("chat:tool-result", seen)
        self.assertEqual(chat.send("go on").text, "Again.")

    def test_an_answer_counts_for_what_was_asked_and_without_one_the_call_is_denied(self) -> None:
        turns = [
            {"text": "", "toolCalls": [call("touch one")]},
            {"text": "", "toolCalls": [call("touch two")]},
            {"text": "Done."},
        ]
        asked: list[str] = []

        def answer(question: Mapping[str, Any]) -> lazaret_sandbox.types.Answer:
            asked.append(question["input"]["command"])
            return "no" if asked == ["touch one"] else "once"

        self.open(turns, trust="supervised", on_approval=answer).send("begin")
        self.assertEqual(asked, ["touch one", "touch two"])
        self.assertEqual([(self.project / name).exists() for name in ("one", "two")], [False, True])
        (self.project / "two").unlink()
        self.open(turns, trust="supervised").send("begin")
        self.assertFalse((self.project / "two").exists())

    def test_what_goes_wrong_has_a_name_and_nothing_is_left(self) -> None:
        chat = self.open([{"text": "Done."}], trust="autonomous")
        with self.assertRaises(lazaret_sandbox.ChatError) as refused:
            chat.send("x", trust="nonsense")
        self.assertEqual(refused.exception.code, "invalid_request")
        pid = chat.pid
        chat.close()
        self.assertFalse(is_alive(pid))
        with self.assertRaises(lazaret_sandbox.ChatError):
            self.open([], provider="nobody")
        with self.assertRaises(lazaret_sandbox.NotInstalled):
            lazaret_sandbox.Chat(program="no-such-program").open()
