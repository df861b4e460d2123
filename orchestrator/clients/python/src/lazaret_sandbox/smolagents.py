"""A Python executor for smolagents: the agent's code in a cell, in an interpreter that lives as long as the session.

    with lazaret_sandbox.Session(project) as session:
        agent = CodeAgent(tools=[], model=model, executor=LazaretPythonExecutor(session))

The interpreter is a background process; each piece of code reaches it through two pipes of the session's own. Code that runs into its
time limit ends the interpreter, and with it all variables. The code of tools is sent along and runs in the cell too.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

from smolagents.default_tools import FinalAnswerTool
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.tools import Tool, get_tools_definition_code
from smolagents.utils import AgentExecutionError

from .errors import LazaretError, TimedOut
from .session import Session

_OUTPUT_MAX = 10 << 20

# Takes one piece of code after the other from one pipe and answers each in the other, as a line of JSON.
_INTERPRETER = """
import ast, contextlib, io, json, sys, traceback

def run(code, names):
    logs = io.StringIO()
    answer = {}
    with contextlib.redirect_stdout(logs), contextlib.redirect_stderr(logs):
        try:
            body = ast.parse(code, "<code>").body
            last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "<code>", "exec"), names)
            value = eval(compile(last, "<code>", "eval"), names) if last is not None else None
            try:
                json.dumps(value, allow_nan=False)
                answer["output"] = value
            except (TypeError, ValueError, RecursionError):
                answer["output"] = repr(value)
        except BaseException as error:
            answer["error"] = type(error).__name__
            if answer["error"] == "FinalAnswerException":
                answer["value"] = str(error.value)
            else:
                answer["traceback"] = traceback.format_exc()
    answer["logs"] = logs.getvalue()
    return answer

names = {"__name__": "__main__"}
while True:
    with open(sys.argv[1], encoding="utf-8") as pipe:
        code = pipe.read()
    answer = json.dumps(run(code, names))
    with open(sys.argv[2], "w", encoding="utf-8") as pipe:
        pipe.write(answer)
"""

# With the name and the prefix by which the framework knows a final answer.
_FINAL_ANSWER = """

class FinalAnswerException(BaseException):
    def __init__(self, value):
        self.value = value

def final_answer(answer):
    import json
    raise FinalAnswerException("safe:" + json.dumps(answer))
"""

_MAKE = 'd=$(mktemp -d) && mkfifo "$d/in" "$d/out" && cat >"$d/interpreter.py" && printf %s "$d"'
_ASK = 'cat >"$1/in" && cat "$1/out"'


class LazaretPythonExecutor(RemotePythonExecutor):
    """An interpreter in a cell. Who opened the session closes it; `cleanup` ends the interpreter."""

    def __init__(
        self,
        session: Session,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        *,
        timeout: float = 60,
        python: str = "python3",
    ) -> None:
        """`timeout` in seconds is for each piece of code; `python` is the interpreter, in the cell."""
        self._session = session
        self._timeout = timeout
        self._python = python
        self._process: int | None = None
        self._folder = ""
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR))
        self.installed_packages = self.install_packages(list(additional_imports))

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        answer = self._ask(code)
        logs = answer["logs"]
        if "error" not in answer:
            return CodeOutput(output=answer.get("output"), logs=logs, is_final_answer=False)
        if answer["error"] == self.FINAL_ANSWER_EXCEPTION:
            value = self._deserialize_final_answer(answer["value"], self.allow_pickle)
            return CodeOutput(output=value, logs=logs, is_final_answer=True)
        raise AgentExecutionError(f"{logs}\n{answer['traceback']}".lstrip("\n"), self.logger)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Sends the code of tools. What they import has to be in the cell; the framework's own `final_answer` would need packages
        that it uses for pictures alone, so another one stands in for it, which takes what JSON can say."""
        own = {name: tool for name, tool in tools.items() if type(tool) is not FinalAnswerTool}
        if "final_answer" in own:
            self._patch_final_answer_with_exception(own["final_answer"])
        code = get_tools_definition_code(own)
        if len(own) < len(tools):
            code += _FINAL_ANSWER
        self.logger.log(self.run_code_raise_errors(code).logs)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs packages in the cell's home, as far as the session has a network (`allow_net=["pypi"]`)."""
        if additional_imports:
            # The home is the cell's own: what a distribution keeps to itself there is nobody's.
            pip = [self._python, "-m", "pip", "install", "--user", *additional_imports]
            done = self._session.run(pip, env={"PIP_BREAK_SYSTEM_PACKAGES": "1"}, timeout=600)
            if not done.ok:
                raise AgentExecutionError(f"pip failed in the cell: {done.error_text.strip()}", self.logger)
        return additional_imports

    def cleanup(self) -> None:
        """Ends the interpreter."""
        if self._process is not None:
            process, self._process = self._process, None
            try:
                self._session.call("background_kill", {"id": process})
            except LazaretError as error:
                self.logger.log(f"the interpreter had ended before: {error}")

    def _ask(self, code: str) -> dict[str, Any]:
        if self._process is None:
            self._start()
        try:
            done = self._session.run(
                ["bash", "-c", _ASK, "bash", self._folder],
                stdin=code,
                timeout=self._timeout,
                output_limit=_OUTPUT_MAX,
                check=True,
            )
            answer = json.loads(done.stdout)
        except TimedOut as error:
            self.cleanup()
            raise AgentExecutionError(f"{error}; all variables are gone", self.logger) from error
        except (LazaretError, ValueError) as error:
            self.cleanup()
            raise AgentExecutionError(f"the interpreter was lost: {error}", self.logger) from error
        if not isinstance(answer, dict) or not isinstance(answer.get("logs"), str):
            # What answers may be the agent's own code.
            self.cleanup()
            raise AgentExecutionError("the interpreter answered what is no answer", self.logger)
        return answer

    def _start(self) -> None:
        made = self._session.run(["bash", "-c", _MAKE], stdin=_INTERPRETER, check=True)
        self._folder = made.text
        words = [self._python, "-B", f"{self._folder}/interpreter.py", f"{self._folder}/in", f"{self._folder}/out"]
        started = self._session.call("bash", {"command": words, "background": True})
        self._process = int(started.metadata["background"])
