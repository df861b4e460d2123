"""A session, for programs that use asyncio."""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
import math
import os
import signal
from typing import Any, Coroutine, Mapping, Sequence

from . import _command, _files
from ._command import Command
from ._program import Program, encode, program_name
from .errors import (
    CALL_ERRORS,
    CallError,
    Cancelled,
    IoError,
    NotFound,
    OutputTooLarge,
    ProtocolError,
    SessionEnded,
    SessionRefused,
    TimedOut,
    ToolError,
    TooManyViolations,
    exit_code,
)
from .types import (
    Approval,
    ApprovalHandler,
    Completed,
    HookHandler,
    Minutes,
    OutputHandler,
    Result,
    SecurityEvent,
    SecurityHandler,
    SessionInfo,
    Stream,
    Tool,
    ToolReply,
    Trust,
)

PROTOCOL = 1
"""The version of the lines that this package speaks."""
OUTPUT_MAX = 100 << 20
"""Bytes of output that `run` collects of each stream, where no other limit is given."""

_log = logging.getLogger("lazaret_sandbox")


class AsyncCall:
    """A call that is under way."""

    def __init__(self, session: AsyncSession, number: int, on_output: OutputHandler | None) -> None:
        self._session = session
        self._number = number
        self._on_output = on_output
        self._line: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._tools: dict[int | None, asyncio.Task[None]] = {}

    async def write(self, data: bytes) -> None:
        """Feeds the command; the call's input must have `"stdin": True`. What a command has not read is kept for it, 8 MiB for all
        calls of a session together; beyond that the session waits."""
        for start in range(0, len(data), _command.STDIN_PART):
            part = base64.b64encode(data[start : start + _command.STDIN_PART]).decode()
            await self._session._write({"op": "stdin", "id": self._number, "stdinBase64": part})

    async def end_input(self) -> None:
        """Ends the command's standard input."""
        await self._session._write({"op": "stdin", "id": self._number, "stdinEnd": True})

    def cancel(self) -> None:
        """Ends the call and everything it has started. Its result is then `Cancelled`, if it had not ended before."""
        if not self._line.done():
            self._session._program.write({"op": "cancel", "id": self._number})

    async def result(self) -> Result:
        """Waits for its result.

        Raises a `CallError` of its kind where it did not succeed, and `SessionEnded` where the session is over. A task that is
        cancelled while it waits here cancels the call."""
        line = await self._wait()
        error = line.get("error")
        if error is not None:
            raise _call_error(line, b"", b"")
        return _result(line)

    async def _wait(self) -> Mapping[str, Any]:
        try:
            return await asyncio.shield(self._line)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _finish(self, line: Mapping[str, Any]) -> None:
        for task in self._tools.values():
            task.cancel()
        if not self._line.done():
            self._line.set_result(line)

    def _fail(self, error: SessionEnded) -> None:
        for task in self._tools.values():
            task.cancel()
        if not self._line.done():
            self._line.set_exception(error)
            # Nobody may wait for it any more.
            self._line.exception()


class AsyncSession:
    """A session of Lazaret: commands and tools in cells on one project. Use it as a context manager, or `open` and `close` it.

    Without `trust` no call is asked about. With one, `on_approval` answers; without that callback the answer is no. Names that look
    like secrets in `environment` (by default this process's) are what Lazaret takes out of results.
    """

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        central: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        trust: Trust | None = None,
        scope: str | os.PathLike[str] | None = None,
        allow_hosts: Sequence[str] = (),
        allow_net: Sequence[str] = (),
        disable: Sequence[str] = (),
        max_violations: int | None = None,
        socket: str | os.PathLike[str] | None = None,
        log: bool = True,
        on_approval: ApprovalHandler | None = None,
        on_security_event: SecurityHandler | None = None,
        on_hook: HookHandler | None = None,
        environment: Mapping[str, str] | None = None,
        program: str | os.PathLike[str] | Sequence[str] | None = None,
    ) -> None:
        named = {
            "--project": project,
            "--central": central,
            "--cwd": cwd,
            "--profile": profile,
            "--trust": trust,
            "--scope": scope,
            "--max-violations": max_violations,
            "--socket": socket,
        }
        arguments = ["session", "--raw-output"]
        for name, value in named.items():
            if value is not None:
                arguments += [name, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
        for name, values in {"--allow-host": allow_hosts, "--allow-net": allow_net, "--disable": disable}.items():
            for value in values:
                arguments += [name, value]
        if not log:
            arguments.append("--no-log")
        # A list is a command before which something stands, such as another launcher.
        start = list(program) if isinstance(program, (list, tuple)) else [program_name(program)]  # type: ignore[arg-type]
        self._arguments = [*start, *arguments]
        self._environment = environment
        self._on_approval = on_approval
        self._on_security_event = on_security_event
        self._on_hook = on_hook
        self._program: Program
        self._opened: asyncio.Future[SessionInfo] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ended: SessionEnded | None = None
        self._closing = False
        self._info: SessionInfo | None = None
        self._number = 0
        self._calls: dict[int, AsyncCall] = {}
        self._replies: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._handlers: dict[str, Tool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # Opening and ending.

    async def open(self) -> AsyncSession:
        """Starts `lazaret` and waits until the session is open.

        Raises `NotInstalled`, `SessionRefused`, or `SessionEnded` where the program ends without a word."""
        if self._reader is not None:
            raise RuntimeError("a session is opened once")
        self._opened = asyncio.get_running_loop().create_future()
        self._program = await Program.start(self._arguments, self._environment)
        self._reader = asyncio.create_task(self._read())
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Cancels the calls under way and ends the session and its processes."""
        if self._reader is None:
            return
        self._closing = True
        for call in list(self._calls.values()):
            call.cancel()
        await self._program.end()
        await self._reader

    async def __aenter__(self) -> AsyncSession:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def info(self) -> SessionInfo:
        """What is in force: project, profile, tier, layers, version."""
        if self._info is None:
            raise RuntimeError("the session is not open")
        return self._info

    @property
    def pid(self) -> int:
        """The process `lazaret`."""
        return self._program.pid

    # Commands.

    async def run(
        self,
        command: Command,
        *,
        stdin: bytes | str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        output_limit: int = OUTPUT_MAX,
        on_output: OutputHandler | None = None,
        check: bool = False,
    ) -> Completed:
        """Runs a command in a cell: a list is a program with its arguments, without a shell; a string is for bash.

        - `cwd` is relative to the project root, or absolute.
        - `env` is added to the cell's own environment. It is part of the command, and so in the run log and in questions.
        - `timeout` is in seconds; without one the policy's default holds, and never more than its maximum.
        - `output_limit` bounds each stream in bytes; `on_output` gets both while they come, and the whole session waits for it.

        Returns whatever the exit code is; with `check` another than 0 raises `CommandFailed`. Raises `TimedOut`, `Denied`,
        `ResourceLimit`, `OutputTooLarge` and other errors. A task that is cancelled ends its command.
        """
        roots = (self.info.project, self.info.central)
        planned = _command.plan(
            command, stdin=stdin, cwd=cwd, env=env, timeout=timeout, idle_timeout=idle_timeout, roots=roots
        )
        if planned.staged is not None:
            planned = planned.with_file(await self._stage(planned.staged))
        exact = timeout if timeout is not None and timeout != math.floor(timeout) else None
        completed = await self._run(planned, output_limit, on_output, exact)
        return completed.check() if check else completed

    async def _stage(self, data: bytes) -> str:
        plan = _command.plan(["bash", "-c", _command.STAGE], stdin=b"")
        plan = _command.Plan(plan.input, data)
        staged = await self._run(plan, OUTPUT_MAX, None, None)
        if not staged.ok or not staged.stdout:
            raise IoError(
                f"there is no room for the command's input: {staged.error_text.strip()}",
                kind="io",
                metadata=staged.metadata,
            )
        return os.fsdecode(staged.stdout)

    async def _run(
        self, plan: _command.Plan, limit: int, on_output: OutputHandler | None, exact: float | None
    ) -> Completed:
        collected = _Collected(limit, on_output)
        call = await self.start("bash", plan.input, on_output=collected.take)
        collected.call = call
        timer = asyncio.get_running_loop().call_later(exact, collected.expire) if exact is not None else None
        try:
            if plan.stdin is not None:
                for part in _command.stdin_lines(call._number, plan.stdin):
                    await self._write(part)
            line = await call._wait()
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return collected.completed(line)

    # Files.

    async def read_file(self, path: str | os.PathLike[str], *, limit: int = _files.FILE_MAX) -> bytes:
        """The content of a file of the session, as a command would read it. A relative path starts at the project root.

        Raises `FileNotFoundError`, `IsADirectoryError`, `PermissionError`, and `FileTooLarge` above `limit` bytes."""
        name = os.fspath(path)
        read = await self._file_command(_files.READ, name, str(limit + 1), output_limit=limit + 1)
        if len(read.stdout) > limit:
            raise _files.FileTooLarge(name, limit)
        return read.stdout

    async def write_file(self, path: str | os.PathLike[str], data: bytes | str) -> None:
        """Writes a file of the session, as a command would, and makes its directories.

        Raises `IsADirectoryError`, `PermissionError`, and `ValueError` above 100 MiB."""
        content = data.encode() if isinstance(data, str) else data
        if len(content) > _files.FILE_MAX:
            raise ValueError(f"a file has at most {_files.FILE_MAX} bytes")
        await self._file_command(_files.WRITE, os.fspath(path), stdin=content)

    async def _file_command(
        self, script: str, path: str, *more: str, stdin: bytes | None = None, output_limit: int = OUTPUT_MAX
    ) -> Completed:
        if not path or "\0" in path:
            raise ValueError("a file needs a name without NUL")
        # Not an option, and `-` is not standard input.
        name = path if path.startswith("/") else f"./{path}"
        plan = _command.plan(
            ["bash", "-c", script, "lazaret", name, *more], stdin=None if stdin is None else b"", cwd=self.info.project
        )
        # Of the long input nothing waits: the script reads all of it.
        completed = await self._run(_command.Plan(plan.input, stdin), output_limit, None, None)
        await self._forget_copy(completed)
        if (error := _files.error(completed.exit_code, path)) is not None:
            raise error
        completed.check()
        return completed

    async def _forget_copy(self, completed: Completed) -> None:
        """Removes the copy of a long output that the executor keeps of each command: this one is a file's content."""
        kept = completed.metadata.get("spill")
        if isinstance(kept, Mapping) and isinstance(kept.get("path"), str):
            remove = _command.plan(["rm", "-f", "--", kept["path"]])
            await self._run(remove, OUTPUT_MAX, None, None)

    # Tools.

    async def call(
        self, tool: str, input: Mapping[str, Any] | None = None, *, on_output: OutputHandler | None = None
    ) -> Result:
        """Calls a tool by its name: `file_read`, `grep`, `batch` … (`lazaret tools` lists them).

        Raises a `CallError` of its kind where it does not succeed."""
        started = await self.start(tool, input or {}, on_output=on_output)
        return await started.result()

    async def start(
        self, tool: str, input: Mapping[str, Any], *, on_output: OutputHandler | None = None
    ) -> AsyncCall:
        """Starts a call, to be fed, cancelled or waited for."""
        number = self._next()
        line = encode({"op": "call", "id": number, "tool": tool, "input": dict(input)})
        call = AsyncCall(self, number, on_output)
        self._calls[number] = call
        self._program.write_encoded(line)
        await self._program.drain()
        return call

    async def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools that a model is shown: `name`, `description`, `inputSchema`, `risk`."""
        reply = await self._ask({"op": "tools"})
        return list(reply["tools"])

    async def register(self, tool: Tool) -> None:
        """Adds a tool of the client's own. Calls of it go the way of all others: validated, decided, recorded."""
        registration = {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.input_schema,
            "risk": tool.risk,
            "timeout": tool.timeout,
        }
        self._handlers[tool.name] = tool
        try:
            await self._ask({"op": "register", "register": registration})
        except BaseException:
            self._handlers.pop(tool.name, None)
            raise

    async def unregister(self, name: str) -> None:
        """Takes a tool of the client's own out again."""
        await self._ask({"op": "unregister", "unregister": name})
        self._handlers.pop(name, None)

    async def grants(self) -> Sequence[Mapping[str, Any]]:
        """What was allowed for the session: `grant` (a number), `rule`, `tool`, `calls`."""
        reply = await self._ask({"op": "grants"})
        return list(reply["grants"])

    async def revoke(self, grant: int) -> Sequence[Mapping[str, Any]]:
        """Takes back what was allowed; what is left."""
        reply = await self._ask({"op": "revoke", "revoke": grant})
        return list(reply["grants"])

    async def history(self, limit: int = 50) -> Result:
        """What the file tools have changed, newest first."""
        return _result(await self._ask({"op": "history", "limit": limit}))

    async def undo(self, change: int, path: str, *, force: bool = False) -> Result:
        """Brings back what a change of a file tool has replaced; `path` as `history` names it."""
        return _result(await self._ask({"op": "undo", "undo": change, "path": path, "force": force}))

    # Lines.

    def _next(self) -> int:
        if self._ended is not None:
            raise self._ended
        if self._reader is None or self._closing:
            raise SessionEnded("the session is not open")
        self._number += 1
        return self._number

    async def _write(self, line: Mapping[str, Any]) -> None:
        self._program.write(line)
        await self._program.drain()

    async def _ask(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        number = self._next()
        encoded = encode({**line, "id": number})
        reply: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self._program.write_encoded(encoded)
        try:
            answer = await reply
        finally:
            self._replies.pop(number, None)
        if answer.get("error") is not None:
            raise _call_error(answer, b"", b"")
        return answer

    async def _read(self) -> None:
        try:
            async for line in self._program.lines():
                await self._take(line)
            code: int | None = await self._program.wait()
            ended = _ended(code, self._program.diagnostics, self._closing)
        except Exception as error:  # What cannot be understood ends the session: nobody knows what else would be lost.
            _log.error("a session of lazaret is ended: %s", error)
            ended = SessionEnded(f"the session was ended: {error}")
            ended.__cause__ = error
            self._end(ended)
            self._program.end_input()
            self._program.signal(signal.SIGTERM)
            await self._program.discard()
        else:
            self._end(ended)

    def _end(self, ended: SessionEnded) -> None:
        self._ended = self._ended or ended
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(ended)
        for call in self._calls.values():
            call._fail(ended)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ended)
        for task in self._tasks:
            task.cancel()
        self._calls.clear()
        self._replies.clear()

    async def _take(self, line: Mapping[str, Any]) -> None:
        event, number = line["event"], line.get("id")
        call = self._calls.get(number) if isinstance(number, int) else None
        if event == "output" and call is not None:
            await _give_output(call, line)
        elif event == "result":
            self._take_result(number, line)
        elif event in ("grants", "registered", "unregistered", "tools"):
            self._take_reply(number, line)
        elif event == "approval" and call is not None:
            if line["approval"]["channel"] != "separate":
                self._spawn(self._approve(call, line))
        elif event == "execute" and call is not None:
            self._execute(call, line)
        elif event == "security_event":
            self._take_security_event(line["securityEvent"])
        elif event == "hook":
            self._take_hook(line["hook"])
        elif event == "ready":
            self._take_ready(line)
        elif event == "fault":
            error = line["error"]
            if self._opened is not None and not self._opened.done():
                self._opened.set_exception(SessionRefused(error["message"], error["code"]))
        elif event == "notice":
            self._take_notice(number, line)

    def _take_ready(self, line: Mapping[str, Any]) -> None:
        if line.get("protocol") != PROTOCOL:
            raise ProtocolError(f"lazaret speaks version {line.get('protocol')} of its lines, and not {PROTOCOL}")
        self._info = SessionInfo.of(line)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(self._info)

    def _take_result(self, number: Any, line: Mapping[str, Any]) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            call._finish(line)
        elif number in self._replies:
            self._take_reply(number, line)
        elif line.get("error") is not None:
            raise ProtocolError(f"lazaret refused a line: {line['error']['message']}")

    def _take_reply(self, number: Any, line: Mapping[str, Any]) -> None:
        reply = self._replies.pop(number, None)
        if reply is not None and not reply.done():
            reply.set_result(line)

    def _take_notice(self, number: Any, line: Mapping[str, Any]) -> None:
        if number in self._replies:
            self._take_reply(number, line)
        else:
            _log.warning("lazaret: %s", line["error"]["message"])

    def _take_security_event(self, event: Mapping[str, Any]) -> None:
        most = event.get("maxViolations")
        if most is not None and event["violations"] >= most:
            # `lazaret` makes no call any more; those under way have their results still.
            self._ended = TooManyViolations(
                f"the session ended after {event['violations']} violations; it makes no more calls"
            )
        if self._on_security_event is None:
            return
        try:
            self._on_security_event(
                SecurityEvent(
                    type=event["type"],
                    tool=event["tool"],
                    message=event["message"],
                    violations=event["violations"],
                    max_violations=event.get("maxViolations"),
                )
            )
        except Exception:
            _log.exception("the callback for security events failed")

    # Callbacks.

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _take_hook(self, ran: Mapping[str, Any]) -> None:
        if self._on_hook is None:
            return
        try:
            self._on_hook(ran)
        except Exception:
            _log.exception("the callback for hooks failed")

    async def _approve(self, call: AsyncCall, line: Mapping[str, Any]) -> None:
        asked = line["approval"]
        approval = Approval(
            tool=line["tool"],
            input=line.get("input"),
            rule=asked["rule"],
            why=asked["why"],
            risk=asked["risk"],
            digest=asked["digest"],
            expires_s=asked["expiresS"],
            session=asked["session"],
            for_session=asked.get("forSession"),
            wants=asked.get("wants"),
            part=line.get("part"),
            rejected=asked.get("notTaken"),
        )
        answer: Any = "no"
        if self._on_approval is not None:
            try:
                given = self._on_approval(approval)
                given = await given if inspect.isawaitable(given) else given
                answer = _spelled(given)
                if answer is None:
                    answer = "no"
                    _log.error(
                        "an approval is answered with once, session, Minutes(1 to 1440), no or no_and_stop, and not with %r", given
                    )
            except Exception:
                _log.exception("the callback for approvals failed: the answer is no")
        await self._write({"op": "approve", "id": call._number, "approve": answer, **_part(line)})

    def _execute(self, call: AsyncCall, line: Mapping[str, Any]) -> None:
        call._tools[line.get("part")] = self._spawn(self._carry_out(call, line))

    async def _carry_out(self, call: AsyncCall, line: Mapping[str, Any]) -> None:
        """Carries out a call of a tool of the client's own. It is cancelled when the call has ended."""
        answer = {"id": call._number, **_part(line)}
        tool = self._handlers.get(line["tool"])
        try:
            if tool is None:
                raise ToolError("the client has no such tool any more", "not_found")
            given = tool.handler(line["input"])
            given = await given if inspect.isawaitable(given) else given
            reply = given if isinstance(given, ToolReply) else ToolReply(given)
            done: dict[str, Any] = {"op": "result", "result": reply.text}
            if reply.structured is not None:
                done["structured"] = dict(reply.structured)
            encoded = encode({**done, **answer})
        except ToolError as error:
            encoded = encode({"op": "error", "error": {"code": error.kind, "message": _cut(str(error))}, **answer})
        except Exception as error:
            # Its text may hold anything; the model needs to know no more than this.
            _log.exception("the tool %s failed", line["tool"])
            message = f"the tool failed: {type(error).__name__}"
            encoded = encode({"op": "error", "error": {"code": "io", "message": message}, **answer})
        self._program.write_encoded(encoded)
        await self._program.drain()


def _part(line: Mapping[str, Any]) -> dict[str, Any]:
    return {"part": line["part"]} if line.get("part") is not None else {}


def _spelled(answer: Any) -> Any:
    """An answer on the wire; None for what is no answer."""
    if isinstance(answer, Minutes):
        minutes = answer.minutes
        return {"minutes": minutes} if type(minutes) is int and 1 <= minutes <= 1440 else None
    return answer if answer in ("once", "session", "no", "no_and_stop") else None


def _cut(message: str) -> str:
    return message.encode("utf-8", "replace")[:4096].decode("utf-8", "ignore")


async def _give_output(call: AsyncCall, line: Mapping[str, Any]) -> None:
    text = line.get("chunk")
    chunk = text.encode() if text is not None else base64.b64decode(line["chunkBase64"], validate=True)
    if call._on_output is None:
        return
    try:
        given = call._on_output(line["stream"], chunk)
        if inspect.isawaitable(given):
            await given
    except Exception:
        _log.exception("the callback for output failed: the call is cancelled")
        call._on_output = None
        call.cancel()


def _ended(code: int | None, diagnostics: str, closed: bool) -> SessionEnded:
    if code == 3:
        return TooManyViolations("the session ended after too many violations", code, diagnostics)
    if closed:
        return SessionEnded("the session is closed", code, diagnostics)
    last = diagnostics.rsplit("\n", 1)[-1]
    return SessionEnded(f"lazaret ended with code {code}" + (f": {last}" if last else ""), code, diagnostics)


def _result(line: Mapping[str, Any]) -> Result:
    text = line["result"]
    encoded = line.get("resultBase64")
    data = base64.b64decode(encoded, validate=True) if encoded is not None else text.encode()
    return Result(text=text, data=data, metadata=line["metadata"], image=line.get("image"))


def _call_error(line: Mapping[str, Any], stdout: bytes, stderr: bytes) -> CallError:
    error = line["error"]
    make = CALL_ERRORS.get(error["code"], CallError)
    return make(
        error["message"],
        kind=error["code"],
        layer=error["layer"],
        metadata=line.get("metadata", {}),
        stdout=stdout,
        stderr=stderr,
    )


class _Collected:
    """The output of one command, up to a limit."""

    def __init__(self, limit: int, on_output: OutputHandler | None) -> None:
        self.call: AsyncCall | None = None
        self._limit = limit
        self._on_output = on_output
        self._streams: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._too_large = False
        self._expired = False

    def take(self, stream: Stream, chunk: bytes) -> Any:
        collected = self._streams[stream]
        room = self._limit - len(collected)
        collected += chunk[:room]
        if len(chunk) > room and not self._too_large:
            self._too_large = True
            if self.call is not None:
                self.call.cancel()
        return self._on_output(stream, chunk) if self._on_output is not None else None

    def expire(self) -> None:
        """Its time is over, to the fraction of a second; the executor counts whole ones."""
        self._expired = True
        if self.call is not None:
            self.call.cancel()

    def completed(self, line: Mapping[str, Any]) -> Completed:
        """What became of it."""
        stdout, stderr = bytes(self._streams["stdout"]), bytes(self._streams["stderr"])
        metadata = line["metadata"]
        if self._too_large:
            raise OutputTooLarge(self._limit, stdout, stderr)
        if line.get("error") is None or "exitCode" in metadata or "signal" in metadata:
            return Completed(exit_code(metadata), stdout, stderr, metadata)
        error = _call_error(line, stdout, stderr)
        if isinstance(error, (NotFound, IoError)):
            # A command that could not be started ends as a shell would say it.
            code = 127 if isinstance(error, NotFound) else 126
            return Completed(code, stdout, stderr + f"{error}\n".encode(), metadata)
        if self._expired and isinstance(error, Cancelled):
            message = "the command ran into its time limit and was ended"
            raise TimedOut(message, kind="timeout", layer="execution", metadata=metadata, stdout=stdout, stderr=stderr)
        raise error
