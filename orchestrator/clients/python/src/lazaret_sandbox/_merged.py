"""A shell command whose two streams are one, for frameworks that show a model both in the order they came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from .errors import CallError, Denied, OutputTooLarge, TimedOut
from .session import Session

# On the command's own line, so that bash counts its lines as they are.
_MERGE = "exec 2>&1; "
OUTPUT_MAX = 10 << 20
"""Bytes of output that are collected."""


@dataclass(frozen=True)
class Merged:
    """What a command printed, and how it ended."""

    output: str
    exit_code: int
    """124 where it ran into its time limit, 126 where it was not allowed, 137 where a limit ended it; then the output says so."""
    truncated: bool = False
    error: Exception | None = None


def run(
    session: Session,
    command: str,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Merged:
    """Runs a shell command. What ends it otherwise than by itself is part of the answer; a session that is over is an error."""
    try:
        done = session.run(_MERGE + command, cwd=cwd, env=env, timeout=timeout, output_limit=OUTPUT_MAX)
    except OutputTooLarge as error:
        return Merged(_text(error.stdout, error.stderr), 137, True, error)
    except CallError as error:
        code = 124 if isinstance(error, TimedOut) else 126 if isinstance(error, Denied) else 137
        said = _text(error.stdout, error.stderr)
        return Merged(f"{said}\n{error}".lstrip("\n"), code, False, error)
    # Standard error has only what bash could not read as a command.
    return Merged(_text(done.stdout, done.stderr), done.exit_code)


def _text(stdout: bytes, stderr: bytes) -> str:
    return (stdout + stderr).decode("utf-8", "replace")
