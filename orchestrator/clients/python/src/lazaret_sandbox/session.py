"""A session, for programs without asyncio: the same surface, each method waits.

A thread of its own runs the event loop of an `AsyncSession`. Callbacks and tools run in other threads, so that one that waits holds up
nothing. Several threads may use a session at once.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Callable, Coroutine, Mapping, Sequence, TypeVar

from .async_session import OUTPUT_MAX, AsyncCall, AsyncSession
from ._files import FILE_MAX
from .types import Completed, Result, SessionInfo, Tool

T = TypeVar("T")

_CALLBACKS = 64
"""Threads for callbacks: as many as calls of tools can be under way."""


class Call:
    """A call that is under way."""

    def __init__(self, session: Session, call: AsyncCall) -> None:
        self._session = session
        self._call = call

    def write(self, data: bytes) -> None:
        """Feeds the command, as `AsyncCall.write` does."""
        self._session._wait(self._call.write(data))

    def end_input(self) -> None:
        """Ends the command's standard input."""
        self._session._wait(self._call.end_input())

    def cancel(self) -> None:
        """Ends the call and everything it has started."""
        self._session._loop.call_soon_threadsafe(self._call.cancel)

    def result(self) -> Result:
        """Waits for its result, as `AsyncCall.result` does."""
        return self._session._wait(self._call.result())


class Session:
    """A session of Lazaret: commands and tools in cells on one project. Use it as a context manager, or `open` and `close` it.

    The arguments and the methods are those of `AsyncSession`; callbacks are plain functions. An interrupt (Ctrl-C) while a method
    waits cancels its call."""

    def __init__(self, project: Any = None, **options: Any) -> None:
        self._callbacks = ThreadPoolExecutor(_CALLBACKS, "lazaret-callback")
        if options.get("on_approval") is not None:
            options["on_approval"] = self._in_thread(options["on_approval"])
        self._session = AsyncSession(project, **options)
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    def open(self) -> Session:
        """Starts `lazaret` and waits until the session is open, as `AsyncSession.open` does."""
        if self._thread is not None:
            raise RuntimeError("a session is opened once")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lazaret", daemon=True)
        self._thread.start()
        try:
            self._wait(self._session.open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Cancels the calls under way and ends the session, its processes and its thread."""
        if self._thread is None or self._loop.is_closed():
            return
        try:
            self._wait(self._session.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._callbacks.shutdown(wait=False)

    def __enter__(self) -> Session:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> SessionInfo:
        """What is in force: project, profile, tier, layers, version."""
        return self._session.info

    @property
    def pid(self) -> int:
        """The process `lazaret`."""
        return self._session.pid

    def run(self, command: Any, *, output_limit: int = OUTPUT_MAX, **options: Any) -> Completed:
        """Runs a command in a cell, as `AsyncSession.run` does. `on_output` is called in the session's thread."""
        return self._wait(self._session.run(command, output_limit=output_limit, **options))

    def read_file(self, path: Any, *, limit: int = FILE_MAX) -> bytes:
        """The content of a file of the session, as `AsyncSession.read_file` does it."""
        return self._wait(self._session.read_file(path, limit=limit))

    def write_file(self, path: Any, data: bytes | str) -> None:
        """Writes a file of the session, as `AsyncSession.write_file` does it."""
        self._wait(self._session.write_file(path, data))

    def call(self, tool: str, input: Mapping[str, Any] | None = None, **options: Any) -> Result:
        """Calls a tool by its name, as `AsyncSession.call` does."""
        return self._wait(self._session.call(tool, input, **options))

    def start(self, tool: str, input: Mapping[str, Any], **options: Any) -> Call:
        """Starts a call, to be fed, cancelled or waited for."""
        return Call(self, self._wait(self._session.start(tool, input, **options)))

    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools that a model is shown."""
        return self._wait(self._session.tools())

    def register(self, tool: Tool) -> None:
        """Adds a tool of the client's own; its handler runs in a thread. One whose call was cancelled runs to its end, unheard."""
        self._wait(self._session.register(replace(tool, handler=self._in_thread(tool.handler))))

    def unregister(self, name: str) -> None:
        """Takes a tool of the client's own out again."""
        self._wait(self._session.unregister(name))

    def grants(self) -> Sequence[Mapping[str, Any]]:
        """What was allowed for the session."""
        return self._wait(self._session.grants())

    def revoke(self, grant: int) -> Sequence[Mapping[str, Any]]:
        """Takes back what was allowed; what is left."""
        return self._wait(self._session.revoke(grant))

    def history(self, limit: int = 50) -> Result:
        """What the file tools have changed, newest first."""
        return self._wait(self._session.history(limit))

    def undo(self, change: int, path: str, *, force: bool = False) -> Result:
        """Brings back what a change of a file tool has replaced."""
        return self._wait(self._session.undo(change, path, force=force))

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread is None or self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("the session is not open")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a callback in the session's own thread cannot wait for it")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _in_thread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: Any) -> Any:
            given = await asyncio.get_running_loop().run_in_executor(self._callbacks, function, *arguments)
            return await given if inspect.isawaitable(given) else given

        return called
