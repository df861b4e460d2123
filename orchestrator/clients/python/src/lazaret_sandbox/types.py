"""What a session says and is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Literal, Mapping, Union

from .errors import CommandFailed


@dataclass(frozen=True)
class Minutes:
    """The answer that opens what a call wants to every call, for 1 to 1440 minutes. For a call that wants nothing it is `once`."""

    minutes: int


Answer = Union[Literal["once", "session", "no", "no_and_stop"], Minutes]
"""An answer to an approval: this call, what the question's `session` names from now on, what it wants for some minutes, or neither.
`no_and_stop` also cancels the session's other calls."""

Risk = Literal["low", "medium", "high"]
Trust = Literal["guided", "supervised", "autonomous"]
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class SessionInfo:
    """What is in force in a session, as its first line says it."""

    protocol: int
    """Version of the lines."""
    version: str | None
    """Version of `lazaret`; None where it does not say so."""
    id: str
    project: str
    """The project root: what commands and tools may work on."""
    cwd: str
    """Where commands start that name no directory, below the project root."""
    central: str
    """The central root, for long outputs and notes."""
    profile: str
    policy: str
    """SHA-256 of the policy in force."""
    tier: str
    """`namespaced` or `flat`."""
    layers: tuple[str, ...]
    """Names of the kernel's mechanisms that are in force."""
    hosts: tuple[str, ...]
    """What commands may reach over the network."""
    trust: str | None
    channel: str | None
    max_violations: int | None
    also_closed: tuple[str, ...]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> SessionInfo:
        """From the line `ready`."""
        session = line["session"]
        return cls(
            protocol=line["protocol"],
            version=line.get("version"),
            id=session["id"],
            project=session["project"],
            cwd=session["cwd"],
            central=session["central"],
            profile=session["profile"],
            policy=session["policy"],
            tier=session["tier"],
            layers=tuple(session["layers"]),
            hosts=tuple(session.get("hosts", ())),
            trust=session.get("trust"),
            channel=session.get("channel"),
            max_violations=session.get("maxViolations"),
            also_closed=tuple(session.get("alsoClosed", ())),
        )


@dataclass(frozen=True)
class Result:
    """The result of a call that succeeded."""

    text: str
    """For the model. Bytes that are not UTF-8 are replaced; `data` has them."""
    data: bytes
    metadata: Mapping[str, Any]
    """What is known of the call: usage, layers, exit code, what was denied …"""
    image: Mapping[str, str] | None = None
    """`mediaType` and `dataBase64`, where the result is a picture."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that were in force around the call."""
        return tuple(self.metadata.get("layers", ()))


@dataclass(frozen=True)
class Completed:
    """A command that has ended by itself."""

    exit_code: int
    """As a shell counts: 128 and the signal's number where a signal ended it, 127 where the program or the directory is not there,
    126 where it may not be started; then `stderr` says why."""
    stdout: bytes
    stderr: bytes
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as text; what is not UTF-8 is replaced."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that were in force around the command."""
        return tuple(self.metadata.get("layers", ()))

    @property
    def found(self) -> tuple[Mapping[str, Any], ...]:
        """What was found in the project since the last result, one a kind: `kind`, `count`, `objects`, `why`, `advice`."""
        return tuple(self.metadata.get("found", ()))

    @property
    def denied(self) -> tuple[Mapping[str, Any], ...]:
        """What the command was denied, as far as that is known: `what`, `by`, `why`, `remedy`, `count`."""
        return tuple(self.metadata.get("denied", ()))

    def check(self) -> Completed:
        """Itself.

        Raises `CommandFailed` where the exit code is not 0."""
        if self.ok:
            return self
        metadata = {**self.metadata, "exitCode": self.exit_code}
        metadata.pop("signal", None)
        raise CommandFailed(
            f"the command exited with code {self.exit_code}",
            kind="exit_nonzero",
            layer="result",
            metadata=metadata,
            stdout=self.stdout,
            stderr=self.stderr,
        )


@dataclass(frozen=True)
class Approval:
    """A call that waits for an answer."""

    tool: str
    input: Mapping[str, Any] | None
    """None where it has more than 64 KiB."""
    rule: str
    """The rule that asks."""
    why: str
    risk: str
    digest: str
    """SHA-256 of the call: what an answer is for."""
    expires_s: int
    session: str
    """What the answer `session` allows: the calls of the `rule`, this `call` again, what it `wants`, or only `once`."""
    for_session: str | None = None
    """That in words; None for `once`."""
    wants: Mapping[str, Any] | None = None
    """What a yes additionally opens: `hosts`, `read`, `write`."""
    part: int | None = None
    """The call's place in a batch."""
    rejected: str | None = None
    """Why the answer before was not taken."""


@dataclass(frozen=True)
class SecurityEvent:
    """A call tried to leave what it may touch."""

    type: str
    tool: str
    message: str
    violations: int
    max_violations: int | None


@dataclass(frozen=True)
class ToolReply:
    """What a tool of the client's own answers: text for the model, and data for records."""

    text: str
    structured: Mapping[str, Any] | None = None


ToolHandler = Callable[[Mapping[str, Any]], Union[str, ToolReply, Awaitable[Union[str, ToolReply]]]]
"""Carries out a call of a tool of the client's own, from its input."""

ApprovalHandler = Callable[[Approval], Union[Answer, Awaitable[Answer]]]
OutputHandler = Callable[[Stream, bytes], Union[None, Awaitable[None]]]
SecurityHandler = Callable[[SecurityEvent], None]
HookHandler = Callable[[Mapping[str, Any]], None]
"""Hears that a hook of the user ran for a call: `hook`, `event`, `outcome`, `message` … as `lazaret session` writes it."""


@dataclass(frozen=True)
class Tool:
    """A tool of the client's own."""

    name: str
    description: str
    """For the model: what it does. At most 4 KiB."""
    input_schema: Mapping[str, Any]
    """JSON Schema of its input, at most 64 KiB."""
    handler: ToolHandler
    risk: Risk = "high"
    timeout: int = 60
    """How long a call may take, in seconds; at most 600."""
