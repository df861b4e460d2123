"""An environment for mini-SWE-agent (`mini-swe-agent`): its commands in cells.

    environment:
      environment_class: lazaret_sandbox.mini_swe_agent.LazaretEnvironment
      project: /path/to/project
"""

from __future__ import annotations

import platform
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel, Field

from . import _merged
from .session import Session

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class LazaretEnvironmentConfig(BaseModel):
    """What a configuration may say of the environment."""

    project: str = "."
    """The project: what commands may change."""
    cwd: str = ""
    """Where commands start, relative to the project; its root if empty."""
    profile: str | None = None
    allow_hosts: list[str] = Field(default_factory=list)
    allow_net: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    timeout: int = 30
    """Seconds that a command has."""


class LazaretEnvironment:
    """One session, opened with the first command."""

    def __init__(self, *, config_class: type[LazaretEnvironmentConfig] = LazaretEnvironmentConfig, **given: Any) -> None:
        self.config = config_class(**given)
        self._session: Session | None = None

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs a command; what it printed, its exit code, and why it was ended if it was."""
        done = _merged.run(
            self._opened(),
            action.get("command", ""),
            cwd=cwd or self.config.cwd or None,
            env=self.config.env,
            timeout=timeout or self.config.timeout,
        )
        output: dict[str, Any] = {"output": done.output, "returncode": done.exit_code, "exception_info": ""}
        if done.error is not None:
            output["returncode"] = -1
            output["exception_info"] = f"An error occurred while executing the command: {done.error}"
            output["extra"] = {"exception_type": type(done.error).__name__, "exception": str(done.error)}
        self._check_finished(output)
        return output

    def _check_finished(self, output: dict[str, Any]) -> None:
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _SUBMIT and output["returncode"] == 0:
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def cleanup(self) -> None:
        """Ends the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _opened(self) -> Session:
        if self._session is None:
            config = self.config
            session = Session(
                config.project, profile=config.profile, allow_hosts=config.allow_hosts, allow_net=config.allow_net
            )
            self._session = session.open()
        return self._session
