"""The names that this package uses on the wire are those of `lazaret schema`."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import typing
import unittest
from typing import Any, Mapping

from lazaret_sandbox import async_session, chat, errors, types

from support import COMMAND


def schema() -> Mapping[str, Any]:
    printed = subprocess.run([*COMMAND, "schema"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(printed)["$defs"]


class Wire(unittest.TestCase):
    def setUp(self) -> None:
        self.schema = schema()

    def test_each_event_of_a_session_is_taken(self) -> None:
        written = set(names(self.schema, self.schema["SessionEvent"], "event"))
        self.assertIn("output", written)
        source = inspect.getsource(async_session.AsyncSession._take)
        compared = " ".join(re.findall(r"event (?:==|in) (.*?)(?: and|:)", source))
        self.assertEqual(written, set(re.findall(r'"(\w+)"', compared)))

    def test_each_operation_is_sent_by_its_name(self) -> None:
        understood = set(names(self.schema, self.schema["SessionCommand"], "op"))
        self.assertEqual(understood, set(re.findall(r'"op": "(\w+)"', inspect.getsource(async_session))))

    def test_answers_and_risks_are_those_of_the_wire(self) -> None:
        words = next(set(one["enum"]) for one in self.schema["Answer"]["anyOf"] if "enum" in one)
        minutes = next(one["properties"]["minutes"] for one in self.schema["Answer"]["anyOf"] if "properties" in one)
        literal, _ = typing.get_args(types.Answer)
        self.assertEqual(words, set(typing.get_args(literal)))
        for word in words:
            self.assertEqual(async_session._spelled(word), word)
        for number in (minutes["minimum"], minutes["maximum"]):
            self.assertEqual(async_session._spelled(types.Minutes(number)), {"minutes": number})
        self.assertIsNone(async_session._spelled(types.Minutes(minutes["maximum"] + 1)))
        risks = self.schema["Registration"]["properties"]["risk"]["enum"]
        self.assertEqual(set(risks), set(typing.get_args(types.Risk)))

    def test_codes_of_errors_exist(self) -> None:
        codes = set(self.schema["ErrorCode"]["enum"])
        self.assertEqual(set(errors.CALL_ERRORS) - codes, set())
        self.assertEqual(errors.ToolError.KINDS - codes, set())

    def test_events_of_a_chat_exist(self) -> None:
        written = set(names(self.schema, self.schema["ChatEvent"], "type"))
        self.assertIn("chat:stream-end", written)
        self.assertEqual(set(re.findall(r"chat:[a-z-]+", inspect.getsource(chat))) - written, set())


def names(definitions: Mapping[str, Any], schema: Mapping[str, Any], key: str) -> list[str]:
    """The constants that a property of one of the alternatives may have."""
    found = names(definitions, definitions[schema["$ref"].rsplit("/", 1)[1]], key) if "$ref" in schema else []
    found += [schema["properties"][key]["const"]] if "const" in schema.get("properties", {}).get(key, {}) else []
    for way in ("oneOf", "anyOf", "allOf"):
        for one in schema.get(way, ()):
            found += names(definitions, one, key)
    return found


if __name__ == "__main__":
    unittest.main()
