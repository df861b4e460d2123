"""The shell and the patch tool of the OpenAI Agents SDK (`openai-agents`) in cells.

    async with lazaret_sandbox.AsyncSession(project) as session:
        agent = Agent(name="coder", tools=[shell_tool(session), ApplyPatchTool(editor=LazaretEditor(session))])
"""

from __future__ import annotations

from typing import Awaitable

from agents import apply_diff
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult, ShellTool

from .async_session import AsyncSession
from .errors import CallError, OutputTooLarge, TimedOut

_OUTPUT_MAX = 10 << 20


def shell_tool(session: AsyncSession) -> ShellTool:
    """The shell tool, whose commands run in cells of `session`."""

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        timeout = action.timeout_ms / 1000 if action.timeout_ms else None
        outputs = []
        for command in action.commands:
            outputs.append(await _run(session, command, timeout))
            if outputs[-1].outcome.type == "timeout":
                break
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    return ShellTool(executor=execute)


async def _run(session: AsyncSession, command: str, timeout: float | None) -> ShellCommandOutput:
    exited = ShellCallOutcome(type="exit", exit_code=1)
    try:
        done = await session.run(command, timeout=timeout, output_limit=_OUTPUT_MAX)
    except TimedOut as error:
        return _output(command, error.stdout, error.stderr, ShellCallOutcome(type="timeout"))
    except CallError as error:
        return _output(command, error.stdout, error.stderr + f"{error}\n".encode(), exited)
    except OutputTooLarge as error:
        return _output(command, error.stdout, error.stderr + f"{error}\n".encode(), exited)
    return _output(command, done.stdout, done.stderr, ShellCallOutcome(type="exit", exit_code=done.exit_code))


def _output(command: str, stdout: bytes, stderr: bytes, outcome: ShellCallOutcome) -> ShellCommandOutput:
    return ShellCommandOutput(
        command=command,
        stdout=stdout.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
        outcome=outcome,
    )


class LazaretEditor:
    """Carries out the patches of `ApplyPatchTool`. The SDK makes the new text; the session reads and writes the files."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._done(self._create(operation))

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._done(self._update(operation))

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._done(self._remove(operation.path))

    async def _create(self, operation: ApplyPatchOperation) -> None:
        await self._session.write_file(operation.path, apply_diff("", operation.diff or "", mode="create"))

    async def _update(self, operation: ApplyPatchOperation) -> None:
        before = (await self._session.read_file(operation.path)).decode()
        target = operation.move_to or operation.path
        await self._session.write_file(target, apply_diff(before, operation.diff or ""))
        if target != operation.path:
            await self._remove(operation.path)

    async def _remove(self, path: str) -> None:
        name = path if path.startswith("/") else f"./{path}"
        done = await self._session.run(["rm", "--", name], cwd=self._session.info.project)
        if not done.ok:
            raise OSError(done.error_text.strip())

    async def _done(self, work: Awaitable[None]) -> ApplyPatchResult:
        try:
            await work
        except (OSError, ValueError, CallError) as error:
            return ApplyPatchResult(status="failed", output=str(error))
        return ApplyPatchResult(status="completed")
