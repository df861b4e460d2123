"""The program `lazaret session` as a child: starting it, its lines, its end."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import signal
from importlib import metadata
from typing import Any, AsyncIterator, Mapping, Sequence

from .errors import NotInstalled, ProtocolError

LINE_MAX = 32 << 20
"""Bytes that `lazaret` takes as one line."""
_LINE_READ_MAX = 64 << 20
"""Bytes of a line that are taken of `lazaret`: more than its largest result."""
_READ = 256 << 10
_DIAGNOSTICS = 64
"""Lines of standard error that are kept."""

# How long each stage of the end may take, in seconds: the end of the input, then SIGTERM, after which `lazaret` takes up to five.
_END_S = 5.0
_TERMINATE_S = 7.0


class Program:
    """A running `lazaret session`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        # Before Python 3.11 only one may wait for a pipe.
        self._draining = asyncio.Lock()
        self._diagnostics: collections.deque[str] = collections.deque(maxlen=_DIAGNOSTICS)
        self._errors = asyncio.create_task(self._read_errors())

    @classmethod
    async def start(cls, arguments: Sequence[str], environment: Mapping[str, str] | None) -> Program:
        """Starts it. It ends with this process, also if nobody closes it.

        A process session of its own keeps a Ctrl-C at the terminal from ending it under the calls of a program that handles one."""
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise NotInstalled(
                f"{arguments[0]} cannot be started: {error.strerror}; LAZARET names the program"
            ) from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, line: Mapping[str, Any]) -> None:
        """Queues a line. What cannot be written any more is dropped: the end is seen where lines are read."""
        self.write_encoded(encode(line))

    def write_encoded(self, line: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def drain(self) -> None:
        """Waits until there is room for more lines."""
        assert self._process.stdin is not None
        try:
            async with self._draining:
                await self._process.stdin.drain()
        except ConnectionError:
            pass

    async def lines(self) -> AsyncIterator[Mapping[str, Any]]:
        """What it writes, up to its end."""
        assert self._process.stdout is not None
        rest = bytearray()
        searched = 0
        while chunk := await self._process.stdout.read(_READ):
            rest += chunk
            while (end := rest.find(b"\n", searched)) >= 0:
                line = bytes(rest[:end])
                del rest[: end + 1]
                searched = 0
                yield _decode(line)
            searched = len(rest)
            if searched > _LINE_READ_MAX:
                raise ProtocolError(f"lazaret wrote a line of more than {_LINE_READ_MAX} bytes")

    async def discard(self) -> None:
        """Reads on without understanding, up to its end: a pipe that nobody reads would keep its end from being seen."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(_READ):
            pass

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(4096):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-4096:]
            self._diagnostics.extend(line.decode("utf-8", "replace") for line in lines)
        if rest:
            self._diagnostics.append(rest.decode("utf-8", "replace"))

    async def wait(self) -> int:
        """Waits for its end; the exit code, negative where a signal ended it."""
        code = await self._process.wait()
        # A process that it left behind may hold standard error open. Not `wait_for`, which ends the task for others who wait.
        await asyncio.wait({self._errors}, timeout=1.0)
        return code

    @property
    def diagnostics(self) -> str:
        """The end of what it wrote to standard error."""
        return "\n".join(self._diagnostics)

    def end_input(self) -> None:
        """Closes its input, which is a request to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def end(self) -> int:
        """Ends it, by force where it does not end by itself; the exit code."""
        self.end_input()
        for seconds, number in ((_END_S, signal.SIGTERM), (_TERMINATE_S, signal.SIGKILL)):
            try:
                return await asyncio.wait_for(self.wait(), seconds)
            except asyncio.TimeoutError:
                self.signal(number)
        return await self.wait()

    def signal(self, number: int) -> None:
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            pass


def encode(line: Mapping[str, Any]) -> bytes:
    """A line in bytes.

    Raises `ValueError` where it is longer than `lazaret` takes, or holds half a character."""
    try:
        encoded = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError as error:
        raise ValueError(f"text that is not Unicode: {error.reason}") from error
    if len(encoded) > LINE_MAX:
        raise ValueError(f"a call has at most {LINE_MAX} bytes of JSON, this one {len(encoded)}")
    return encoded


def _decode(line: bytes) -> Mapping[str, Any]:
    try:
        decoded = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"lazaret wrote what is not JSON: {error}") from error
    if not isinstance(decoded, dict) or not isinstance(decoded.get("event"), str):
        raise ProtocolError("lazaret wrote a line without an event")
    return decoded


def program_name(given: str | os.PathLike[str] | None) -> str:
    """What is started: what is given, else the value of LAZARET, else the program in this package's wheel, else `lazaret` of PATH."""
    if given is not None:
        return os.fspath(given)
    named = os.environ.get("LAZARET")
    # In a cell it is 1, which tells programs where they are and names none.
    return named if named and named != "1" else _packaged() or "lazaret"


def _packaged() -> str | None:
    """The program that was installed with this package, where that came with programs."""
    # Only beside this package: the search path may begin with a project.
    beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for package in metadata.distributions(name="lazaret-sandbox", path=[beside]):
        for file in package.files or ():
            if file.parts[-2:] == ("bin", "lazaret") and os.path.isfile(file.locate()):
                return os.fspath(file.locate())
    return None
