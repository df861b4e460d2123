"""A conversation with a model whose tools work in cells: a client of `lazaret serve`.

    with lazaret_sandbox.Chat("/path/to/project", provider="claude") as chat:
        print(chat.send("Why does the build fail?").text)
"""

from __future__ import annotations

import collections
import http.client
import json
import os
import subprocess
import threading
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence

from ._program import program_name
from .errors import LazaretError, NotInstalled, ProtocolError
from .types import Answer, Minutes, Trust

_LINE_MAX = 64 << 20
"""Bytes of an event that are taken of `lazaret`."""
_FIRST_LINE_MAX = 64 << 10
_DIAGNOSTICS = 64
"""Lines of standard error that are kept."""
_END_S = 12.0
"""How long the server may take to end, in seconds: it gives its runs five."""


class ChatError(LazaretError):
    """The server does not begin, or refuses a request. `code` is Lazaret's name for the reason, where it gave one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class ChatEvent:
    """What happened in a run, by the names of `chat --json`: `chat:text-delta`, `chat:tool-start`, `chat:hook` …"""

    type: str
    payload: Mapping[str, Any]


@dataclass(frozen=True)
class ChatReply:
    """The end of a run."""

    text: str
    """The model's last answer."""
    reason: str
    """Why it ended: `done`, `finished`, `turn_limit`, `error` …"""
    error: Mapping[str, Any] | None
    """What ended it, where something failed: `code`, `message`, `advice`."""
    result: Any = None
    """What the task ended with, where its pack gives it a form."""


ChatApproval = Callable[[Mapping[str, Any]], Answer]
"""Answers a question: it gets the payload of `chat:tool-confirm`. It is called where events are read, so the run waits for it."""


class Chat:
    """A server of conversations with one conversation. Use it as a context manager, or `open` and `close` it.

    `arguments` are further options of `lazaret serve`. Without `on_approval` each call that needs an approval is denied."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        central: str | os.PathLike[str] | None = None,
        provider: str | None = None,
        model: str | None = None,
        profile: str | None = None,
        trust: Trust | None = None,
        arguments: Sequence[str] = (),
        on_approval: ChatApproval | None = None,
        environment: Mapping[str, str] | None = None,
        program: str | os.PathLike[str] | Sequence[str] | None = None,
    ) -> None:
        named = {
            "--project": project,
            "--central": central,
            "--provider": provider,
            "--model": model,
            "--profile": profile,
            "--trust": trust,
        }
        words = list(program) if isinstance(program, (list, tuple)) else [program_name(program)]  # type: ignore[arg-type]
        words += ["serve", "--listen", "127.0.0.1:0"]
        for name, value in named.items():
            if value is not None:
                words += [name, os.fspath(value)]
        self._words = [*words, *arguments]
        self._environment = environment
        self._on_approval = on_approval
        self._process: subprocess.Popen[bytes] | None = None
        self._diagnostics: collections.deque[str] = collections.deque(maxlen=_DIAGNOSTICS)
        self.conversation_id = uuid.uuid4().hex
        """The ID of the conversation in events, records and transcripts."""

    def open(self) -> Chat:
        """Starts the server, which ends with this process."""
        if self._process is not None:
            raise RuntimeError("a chat is opened once")
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                self._words, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment, start_new_session=True
            )
        except OSError as error:
            raise NotInstalled(
                f"{self._words[0]} cannot be started: {error.strerror}; LAZARET names the program"
            ) from error
        reading = threading.Thread(target=self._read_errors, name="lazaret-errors", daemon=True)
        reading.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline(_FIRST_LINE_MAX)
        if not line.endswith(b"\n"):
            self.close()
            reading.join(1.0)
            raise ChatError(f"lazaret serve has ended: {self.diagnostics}")
        ready = _object(line)
        try:
            self._address, self._token = str(ready["address"]), str(ready["token"])
        except KeyError as error:
            self.close()
            raise ProtocolError(f"the first line of lazaret serve has no {error}") from error
        return self

    def close(self) -> None:
        """Ends the runs under way, the sessions and the server."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def __enter__(self) -> Chat:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process `lazaret`."""
        assert self._process is not None
        return self._process.pid

    @property
    def diagnostics(self) -> str:
        """The end of what it wrote to standard error."""
        return "\n".join(self._diagnostics)

    def send(self, prompt: str, *, on_event: Callable[[ChatEvent], None] | None = None, **fields: Any) -> ChatReply:
        """Says something, and waits for the end of the run. `fields` are those of `POST /run`, such as `pack` and `systemPrompt`."""
        for event in self.stream(prompt, **fields):
            if isinstance(event, ChatReply):
                return event
            if on_event is not None:
                on_event(event)
        raise ProtocolError("the run has no end")

    def stream(self, prompt: str, **fields: Any) -> Iterator[ChatEvent | ChatReply]:
        """The events of a run as they come; the last is the reply. To stop reading ends the run."""
        asks = self._on_approval is not None
        body = {"prompt": prompt, "conversationId": self.conversation_id, "approvals": asks, **fields}
        connection = http.client.HTTPConnection(self._address)
        try:
            response = self._post(connection, "/run/stream", body)
            for line in iter(lambda: response.readline(_LINE_MAX), b""):
                if line.startswith(b"data: "):
                    event = self._take(_object(line[len(b"data: ") :]))
                    yield event
                    if isinstance(event, ChatReply):
                        return
        finally:
            connection.close()

    def _take(self, line: Mapping[str, Any]) -> ChatEvent | ChatReply:
        kind, data = line.get("kind"), line.get("data")
        if kind in ("_run_done_", "_run_error_"):
            return _reply(data)
        if not isinstance(kind, str) or not isinstance(data, dict):
            raise ProtocolError("lazaret wrote an event without a kind")
        if kind == "chat:tool-confirm" and self._on_approval is not None:
            self._answer(data, self._on_approval)
        return ChatEvent(kind, data)

    def _answer(self, asked: Mapping[str, Any], on_approval: ChatApproval) -> None:
        answer: Any = "no"
        try:
            answer = on_approval(asked)
        finally:
            given = {"minutes": answer.minutes} if isinstance(answer, Minutes) else answer
            body = {"toolId": asked["toolId"], "answer": given, "digest": asked["digest"]}
            if "part" in asked:
                body["part"] = asked["part"]
            connection = http.client.HTTPConnection(self._address)
            try:
                self._post(connection, f"/runs/{asked['messageId']}/approve", body).read(_FIRST_LINE_MAX)
            finally:
                connection.close()

    def _post(
        self, connection: http.client.HTTPConnection, path: str, body: Mapping[str, Any]
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status >= 300:
            said = _object(response.read(_FIRST_LINE_MAX)).get("error")
            error = said if isinstance(said, dict) else {}
            raise ChatError(str(error.get("message", response.reason)), error.get("code"))
        return response

    def _read_errors(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        for line in iter(lambda: self._process.stderr.readline(4096), b""):  # type: ignore[union-attr]
            self._diagnostics.append(line.decode("utf-8", "replace").rstrip("\n"))
        self._process.stderr.close()


def _reply(data: Any) -> ChatReply:
    if not isinstance(data, dict) or not isinstance(data.get("_meta"), dict):
        raise ChatError("the run did not begin, or its server has ended")
    meta = data["_meta"]
    return ChatReply(data.get("text", ""), meta.get("reason") or "error", meta.get("error"), data.get("result"))


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        decoded = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"lazaret wrote what is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ProtocolError("lazaret wrote what is no object")
    return decoded
