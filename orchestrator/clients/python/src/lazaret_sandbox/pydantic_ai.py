"""A workspace for Pydantic AI (`pydantic-ai`): commands in cells, and files by commands.

    agent = Agent(model, capabilities=[Workspace(LazaretWorkspace("/path/to/project"))])

The reference of a workspace is its project: what is attached to it later is a new session on the same files. What a command leaves
running is ended with it, and a time limit is at most the policy's.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Mapping

from pydantic_ai.workspaces import (
    CommandResult,
    WorkspaceCommand,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

from .async_session import AsyncSession
from .errors import CallError, ExecutorLost, OutputTooLarge, SessionEnded, SessionRefused, TimedOut

_PROVIDER = "lazaret"
# More than any policy allows: the policy's own maximum holds where none is named.
_NO_TIMEOUT_S = 86_400


class LazaretWorkspace:
    """A session on a project, opened with the first command. Who makes it closes it."""

    def __init__(
        self, project: str | os.PathLike[str] | None = None, *, ref: WorkspaceRef | None = None, **options: Any
    ) -> None:
        """`options` are those of `AsyncSession`."""
        if ref is not None and (ref.provider != _PROVIDER or project is not None):
            raise ValueError("a workspace of Lazaret has a project, or a reference of its own")
        if ref is None and project is None:
            raise ValueError("a workspace needs a project")
        self._ref = ref
        self._project = ref.id if ref is not None else os.fspath(project or "")
        self._options = options
        self._session: AsyncSession | None = None
        self._closed = False
        self._opening = asyncio.Lock()

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def working_dir(self) -> str:
        session = await self._opened()
        return session.info.project

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if shell != isinstance(command, str):
            raise TypeError("a string is for the shell, and a list of words is not")
        validate_timeout(timeout)
        session = await self._opened()
        try:
            done = await session.run(
                command,
                stdin=b"",
                cwd=session.info.project,
                env=env,
                timeout=_NO_TIMEOUT_S if timeout is None else timeout,
            )
        except TimedOut as error:
            raise WorkspaceTimeoutError(str(error), stdout=_text(error.stdout), stderr=_text(error.stderr)) from error
        except OutputTooLarge as error:
            streams = {"stdout": _text(error.stdout), "stderr": _text(error.stderr)}
            raise WorkspaceOutputLimitError(str(error), limit=error.limit, **streams) from error
        except (SessionEnded, ExecutorLost) as error:
            raise WorkspaceUnavailableError(str(error)) from error
        except CallError as error:
            if self._closed:
                raise WorkspaceUnavailableError("the workspace was closed") from error
            raise WorkspaceError(str(error)) from error
        return CommandResult(exit_code=done.exit_code, stdout=done.text, stderr=done.error_text)

    async def close(self) -> None:
        """Ends the session. The project stays; a new workspace may be attached to its reference."""
        async with self._opening:
            self._closed = True
            if self._session is not None:
                await self._session.close()

    async def _opened(self) -> AsyncSession:
        async with self._opening:
            if self._closed:
                raise WorkspaceUnavailableError("the workspace is closed")
            if self._session is None:
                if not os.path.isdir(self._project):
                    raise WorkspaceUnavailableError(f"the project {self._project} is gone")
                session = AsyncSession(self._project, **self._options)
                try:
                    await session.open()
                except SessionRefused as error:
                    raise WorkspaceUnavailableError(str(error)) from error
                self._session = session
                self._ref = self._ref or WorkspaceRef(provider=_PROVIDER, id=session.info.project)
            return self._session


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
