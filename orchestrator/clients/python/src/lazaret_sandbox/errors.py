"""What can go wrong. Each kind of error that `lazaret` names is a class: decide by class, never by a message's text."""

from __future__ import annotations

from typing import Any, Mapping


class LazaretError(Exception):
    """The base of all errors of this package."""


class NotInstalled(LazaretError):
    """The program `lazaret` cannot be started."""


class SessionRefused(LazaretError):
    """No session opens: the policy, the project or the machine does not allow it. `kind` is Lazaret's name for the reason."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class SessionEnded(LazaretError):
    """The session is over, and with it every call that was under way.

    `exit_code` is that of `lazaret` (negative: the signal that ended it; None: it was closed here), `diagnostics` the end of what
    it wrote to standard error.
    """

    def __init__(self, message: str, exit_code: int | None = None, diagnostics: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.diagnostics = diagnostics


class TooManyViolations(SessionEnded):
    """The session was ended because its calls tried too often to leave what they may touch."""


class ProtocolError(LazaretError):
    """`lazaret` wrote what this package does not understand, or did not understand what this package wrote."""


class OutputTooLarge(LazaretError):
    """A command printed more than was asked for, and was ended. `stdout` and `stderr` hold what came before."""

    def __init__(self, limit: int, stdout: bytes, stderr: bytes) -> None:
        super().__init__(f"the command printed more than {limit} bytes")
        self.limit = limit
        self.stdout = stdout
        self.stderr = stderr


class CallError(LazaretError):
    """A call that did not do what it was asked for.

    `kind` and `layer` are Lazaret's names, `metadata` is what it knows of the call (`metadata["denied"]` says what was denied, by
    which rule or layer, and what would open it). `stdout` and `stderr` hold what a command had printed.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        layer: str = "",
        metadata: Mapping[str, Any] | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.layer = layer
        self.metadata: Mapping[str, Any] = metadata or {}
        self.stdout = stdout
        self.stderr = stderr


class InvalidInput(CallError):
    """The input is not what the tool takes."""


class UnknownTool(CallError):
    """There is no tool of this name."""


class Denied(CallError):
    """The call was not allowed, and nothing of it was done."""


class DeniedByPolicy(Denied):
    """A rule of the policy or the session's scope denies it."""


class DeniedByUser(Denied):
    """The user, or the callback that answers for the user, said no."""


class ApprovalExpired(Denied):
    """Nobody answered in time."""


class Violation(Denied):
    """The call tried to leave what it may touch. Enough of these end a session for which a trust is named."""


class NotFound(CallError):
    """A file, a directory or a number that the call names does not exist."""


class IoError(CallError):
    """The system refused: an input or output error, a missing right."""


class CommandFailed(CallError):
    """A command ended with another exit code than 0, or by a signal."""

    @property
    def exit_code(self) -> int:
        """The exit code; 128 and the signal's number where a signal ended it."""
        return exit_code(self.metadata)


class TimedOut(CallError, TimeoutError):
    """The call ran into its time limit and was ended."""


class IdleTimedOut(TimedOut):
    """The command printed nothing for its idle time and was ended."""


class Cancelled(CallError):
    """The call was cancelled."""


class ResourceLimit(CallError):
    """The command ran into a limit of the policy (memory, processes, output …) and was ended."""


class ExecutorLost(CallError):
    """The executor died while the call was under way. The next call opens a new session: background processes are gone."""


class InternalError(CallError):
    """Lazaret itself failed."""


CALL_ERRORS: Mapping[str, type[CallError]] = {
    "invalid_input": InvalidInput,
    "unknown_tool": UnknownTool,
    "denied_policy": DeniedByPolicy,
    "denied_user": DeniedByUser,
    "approval_timeout": ApprovalExpired,
    "violation": Violation,
    "not_found": NotFound,
    "io": IoError,
    "exit_nonzero": CommandFailed,
    "timeout": TimedOut,
    "idle_timeout": IdleTimedOut,
    "cancelled": Cancelled,
    "resource_limit": ResourceLimit,
    "executor_lost": ExecutorLost,
    "protocol": InternalError,
    "internal": InternalError,
}
"""The class for each kind; of a kind that is not listed it is `CallError`."""


class ToolError(LazaretError):
    """Raised by a tool of the client's own to report what went wrong.

    `kind` is one of io, invalid_input, not_found, exit_nonzero, timeout, cancelled and resource_limit. The message is for the
    model and has at most 4,096 bytes.
    """

    KINDS = frozenset(["io", "invalid_input", "not_found", "exit_nonzero", "timeout", "cancelled", "resource_limit"])

    def __init__(self, message: str, kind: str = "io") -> None:
        if kind not in self.KINDS:
            raise ValueError(f"a tool cannot report the kind {kind!r}")
        super().__init__(message)
        self.kind = kind


def exit_code(metadata: Mapping[str, Any]) -> int:
    """The exit code of a command, as a shell counts: 128 and the signal's number where a signal ended it."""
    if "signal" in metadata:
        return 128 + int(metadata["signal"])
    return int(metadata.get("exitCode", 0))
