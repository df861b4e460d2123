"""The shell and the patch tool of the OpenAI Agents SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any, AsyncIterator

import pytest
import pytest_asyncio
from agents import ApplyPatchTool, RunContextWrapper
from agents.editor import ApplyPatchOperation
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest, ShellResult

import lazaret_sandbox
from lazaret_sandbox.openai_agents import LazaretEditor, shell_tool

@pytest_asyncio.fixture
async def opened(folders: dict[str, Path]) -> AsyncIterator[lazaret_sandbox.AsyncSession]:
    async with lazaret_sandbox.AsyncSession(folders["project"], central=folders["central"]) as session:
        yield session


async def shell(session: lazaret_sandbox.AsyncSession, *commands: str, **more: Any) -> ShellResult:
    tool = shell_tool(session)
    action = ShellActionRequest(commands=list(commands), **more)
    request = ShellCommandRequest(RunContextWrapper(None), ShellCallData(call_id="1", action=action))
    assert tool.executor is not None
    return await tool.executor(request)  # type: ignore[misc, return-value]


async def test_commands_run_in_turn(opened: lazaret_sandbox.AsyncSession) -> None:
    result = await shell(opened, "echo a; echo b >&2; exit 3", "echo c", "cat /etc/shadow")
    assert [(o.stdout, o.stderr, o.exit_code) for o in result.output[:2]] == [("a\n", "b\n", 3), ("c\n", "", 0)]
    assert result.output[2].exit_code != 0 and result.output[2].stdout == ""


async def test_a_time_limit_ends_the_call(opened: lazaret_sandbox.AsyncSession) -> None:
    result = await shell(opened, "echo begun; sleep 100", "echo never", timeout_ms=1000)
    assert [(o.stdout, o.status) for o in result.output] == [("begun\n", "timeout")]


async def test_patches_are_carried_out(opened: lazaret_sandbox.AsyncSession, folders: dict[str, Path]) -> None:
    editor, project = LazaretEditor(opened), folders["project"]
    assert ApplyPatchTool(editor=editor).editor is editor
    done = await editor.create_file(ApplyPatchOperation("create_file", "src/a.txt", "+one\n+two\n"))
    assert done.status == "completed" and (project / "src/a.txt").read_text().split() == ["one", "two"]
    done = await editor.update_file(ApplyPatchOperation("update_file", "src/a.txt", "@@\n one\n-two\n+three\n"))
    assert done.status == "completed" and (project / "src/a.txt").read_text().split() == ["one", "three"]
    move = ApplyPatchOperation("update_file", "src/a.txt", "@@\n one\n-three\n+four\n", move_to="b.txt")
    assert (await editor.update_file(move)).status == "completed"
    assert not (project / "src/a.txt").exists() and "four" in (project / "b.txt").read_text()
    assert (await editor.delete_file(ApplyPatchOperation("delete_file", "b.txt"))).status == "completed"
    assert not (project / "b.txt").exists()


async def test_a_patch_that_fails_says_so(opened: lazaret_sandbox.AsyncSession, folders: dict[str, Path]) -> None:
    outside = folders["project"].parent / "outside"
    outside.mkdir()
    editor = LazaretEditor(opened)
    for operation in (
        ApplyPatchOperation("update_file", "absent", "@@\n-a\n+b\n"),
        ApplyPatchOperation("delete_file", "absent"),
        ApplyPatchOperation("create_file", "/usr/made", "+x\n"),
    ):
        done = await getattr(editor, operation.type)(operation)
        assert done.status == "failed" and done.output, operation
    await editor.create_file(ApplyPatchOperation("create_file", str(outside / "made"), "+x\n"))
    assert list(outside.iterdir()) == []
