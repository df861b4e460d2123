"""A sandbox for Inspect (`inspect_ai`): each sample has a session, and its files in a project of its own.

    Task(..., sandbox="lazaret")                      # or ("lazaret", LazaretConfig(profile="python"))

Installed as `lazaret-sandbox[inspect-ai]`, the name is known to Inspect by an entry point; else import this module. It is for Inspect's default
event loop, asyncio. Another user than the session's cannot be asked for.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, Iterator, Literal, Union, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

from ._files import FileTooLarge
from .async_session import AsyncSession
from .errors import Denied, ExecutorLost, OutputTooLarge, SessionEnded, TimedOut

try:
    from inspect_ai.util import SandboxUnavailableError
except ImportError:  # It is public only in later versions.
    from inspect_ai.util._sandbox.environment import SandboxUnavailableError

# More than any policy allows: the policy's own maximum holds where Inspect names no limit.
_NO_TIMEOUT_S = 86_400


class LazaretConfig(BaseModel, frozen=True):
    """What a task may say of its sandbox."""

    profile: str | None = None
    """The policy profile."""
    scope: str | None = None
    """A file that narrows the session."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts that commands may reach."""
    allow_net: tuple[str, ...] = ()
    """Package registries that commands may reach: npm, pypi …"""


@sandboxenv(name="lazaret")
class LazaretSandboxEnvironment(SandboxEnvironment):
    """One sample's session."""

    def __init__(self, session: AsyncSession, folder: Path | None = None) -> None:
        super().__init__()
        self.session = session
        self._folder = folder

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if config is not None and not isinstance(config, LazaretConfig):
            raise ValueError("the sandbox `lazaret` is configured by a LazaretConfig")
        given = config or LazaretConfig()
        folder = Path(tempfile.mkdtemp(prefix="lazaret-inspect-")).resolve()
        project, central = folder / "project", folder / "central"
        project.mkdir()
        central.mkdir()
        session = AsyncSession(
            project,
            central=central,
            profile=given.profile,
            scope=given.scope,
            allow_hosts=given.allow_hosts,
            allow_net=given.allow_net,
        )
        try:
            await session.open()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return {"default": cls(session, folder)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            own = environment.as_type(LazaretSandboxEnvironment)
            await own.session.close()
            if own._folder is not None:
                shutil.rmtree(own._folder, ignore_errors=True)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return LazaretConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None:
            raise SandboxUserUnsupportedError("a cell of Lazaret has one user")
        limits = SandboxEnvironmentLimits
        with _unavailable():
            try:
                done = await self.session.run(
                    cmd,
                    stdin=input,
                    cwd=cwd,
                    env=env,
                    timeout=timeout if timeout else _NO_TIMEOUT_S,
                    output_limit=limits.MAX_EXEC_OUTPUT_SIZE,
                )
            except TimedOut as error:
                raise TimeoutError(str(error)) from error
            except Denied as error:
                raise PermissionError(str(error)) from error
            except OutputTooLarge as error:
                text = error.stdout.decode("utf-8", "replace")
                raise OutputLimitExceededError(limits.MAX_EXEC_OUTPUT_SIZE_STR, text) from error
        if done.exit_code == 126:
            raise PermissionError(done.error_text.strip())
        return ExecResult(done.ok, done.exit_code, done.text, done.error_text)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        with _unavailable():
            await self.session.write_file(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        limits = SandboxEnvironmentLimits
        with _unavailable():
            try:
                content = await self.session.read_file(file, limit=limits.MAX_READ_FILE_SIZE)
            except FileTooLarge as error:
                raise OutputLimitExceededError(limits.MAX_READ_FILE_SIZE_STR, None) from error
        return content.decode() if text else content


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """A session that is over is the sandbox's failure and not the command's."""
    try:
        yield
    except (SessionEnded, ExecutorLost) as error:
        raise SandboxUnavailableError(str(error)) from error
