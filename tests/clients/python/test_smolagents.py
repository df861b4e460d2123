"""The Python executor of smolagents, by itself and under an agent."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from smolagents import CodeAgent, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentExecutionError

import lazaret_sandbox
from lazaret_sandbox.smolagents import LazaretPythonExecutor


@pytest.fixture
def executor(session: lazaret_sandbox.Session) -> Iterator[LazaretPythonExecutor]:
    made = LazaretPythonExecutor(session, timeout=30)
    yield made
    made.cleanup()


def test_variables_live_on(executor: LazaretPythonExecutor) -> None:
    executor.send_variables({"given": [1, 2, {"a": "é"}]})
    assert executor("x = len(given)\nprint('said')").logs == "said\n"
    done = executor("x + 1")
    assert (done.output, done.is_final_answer) == (4, False)
    assert executor("object").output == "<class 'object'>"
    assert executor("float('nan')").output == "nan"


def test_errors_are_the_agents_to_see(executor: LazaretPythonExecutor) -> None:
    with pytest.raises(AgentExecutionError, match="ZeroDivisionError"):
        executor("print('before')\n1 / 0")
    with pytest.raises(AgentExecutionError, match="SyntaxError"):
        executor("def")
    with pytest.raises(AgentExecutionError, match="SystemExit"):
        executor("raise SystemExit(3)")
    assert executor("1 + 1").output == 2


def test_the_machine_is_closed(executor: LazaretPythonExecutor) -> None:
    with pytest.raises(AgentExecutionError, match="FileNotFoundError|PermissionError"):
        executor("open('/etc/shadow').read()")
    with pytest.raises(AgentExecutionError, match="OSError|PermissionError"):
        executor("import socket\nsocket.create_connection(('192.0.2.1', 80), 5)")


def test_code_that_takes_too_long_loses_its_variables(session: lazaret_sandbox.Session) -> None:
    executor = LazaretPythonExecutor(session, timeout=2)
    executor("x = 1")
    for code in ("while True: pass", "import os\nos._exit(0)"):
        with pytest.raises(AgentExecutionError, match="all variables are gone"):
            executor(code)
        with pytest.raises(AgentExecutionError, match="NameError"):
            executor("x")
    executor.cleanup()


class Scripted(Model):
    """Says one piece of code after the other."""

    def __init__(self, *steps: str) -> None:
        super().__init__(model_id="scripted")
        self._steps = list(steps)

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go\n<code>\n{self._steps.pop(0)}\n</code>")


def test_an_agent_works_with_its_tools_in_a_cell(session: lazaret_sandbox.Session) -> None:
    @tool
    def double(number: int) -> int:
        """Doubles a number.

        Args:
            number: The number.
        """
        return 2 * number

    model = Scripted("x = double(number=21)\nimport os\nopen('made', 'w').write(os.getcwd())", "final_answer(x)")
    executor = LazaretPythonExecutor(session, timeout=30)
    agent = CodeAgent(tools=[double], model=model, executor=executor, additional_authorized_imports=["os"], verbosity_level=0)
    assert agent.run("go") == 42
    assert session.read_file("made").decode() == session.info.project
    executor.cleanup()
