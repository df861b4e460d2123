"""The environment of mini-SWE-agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted


@pytest.fixture
def environment(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_DATA_HOME", str(folders["central"]))
    config = {
        "environment_class": "lazaret_sandbox.mini_swe_agent.LazaretEnvironment",
        "project": str(folders["project"]),
        "env": {"PAGER": "cat"},
        "timeout": 20,
    }
    made = get_environment(config)
    yield made
    made.cleanup()


def test_commands_run_in_the_project(environment: Any, folders: dict[str, Path]) -> None:
    done = environment.execute({"command": "echo $PAGER; echo e >&2; pwd; exit 3"})
    assert done == {"output": f"cat\ne\n{folders['project']}\n", "returncode": 3, "exception_info": ""}
    (folders["project"] / "sub").mkdir()
    assert environment.execute({"command": "pwd"}, cwd="sub")["output"] == f"{folders['project']}/sub\n"
    assert environment.execute({"command": "cat /etc/shadow"})["returncode"] != 0


def test_a_time_limit_is_an_exception_of_its_own(environment: Any) -> None:
    done = environment.execute({"command": "echo begun; sleep 100"}, timeout=1)
    assert done["returncode"] == -1 and done["output"].startswith("begun\n")
    assert done["extra"]["exception_type"] == "TimedOut"


def test_the_end_of_a_task_is_seen(environment: Any) -> None:
    with pytest.raises(Submitted):
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo patch"})


def test_what_it_says_of_itself(environment: Any) -> None:
    assert environment.get_template_vars(extra=1)["extra"] == 1
    kind = environment.serialize()["info"]["config"]["environment_type"]
    assert kind == "lazaret_sandbox.mini_swe_agent.LazaretEnvironment"
