"""Inspect's own checks of a provider, and a task that runs through it."""

from __future__ import annotations

from pathlib import Path
from typing import AsyncIterator

import pytest
import pytest_asyncio
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironment, sandbox
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from lazaret_sandbox.inspect_ai import LazaretConfig, LazaretSandboxEnvironment

@pytest_asyncio.fixture
async def sandbox_env() -> AsyncIterator[SandboxEnvironment]:
    environments = await LazaretSandboxEnvironment.sample_init("check", None, {})
    yield environments["default"]
    await LazaretSandboxEnvironment.sample_cleanup("check", None, environments, False)


@solver
def look() -> Solver:
    """Runs commands in the sample's sandbox."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        seen = await sandbox().exec(["grep", "^Seccomp:", "/proc/self/status"])
        given = await sandbox().read_file("given.txt")
        secret = await sandbox().exec(["cat", "/etc/shadow"])
        state.output = ModelOutput.from_content("none", f"{seen.stdout.split()} {given} {secret.success}")
        return state

    return solve


def test_a_task_runs_in_a_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name is found by its entry point; a sample's files and commands are in a cell."""
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    task = Task(
        dataset=[Sample(input="go", target="['Seccomp:', '2'] x False", files={"given.txt": "x"})],
        solver=look(),
        scorer=match("exact"),
        sandbox=("lazaret", LazaretConfig()),
    )
    log = eval(task, model="none/none", display="none")[0]
    assert log.status == "success", log.error
    assert log.results is not None and log.results.scores[0].metrics["accuracy"].value == 1, log.samples[0].output
