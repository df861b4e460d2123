"""Runs the tool calls of AI agents in cells that the kernel keeps closed: a client of `lazaret session` and `lazaret serve`.

    with lazaret_sandbox.Session("/path/to/project") as session:
        print(session.run(["make", "test"], timeout=300).text)

`Session` waits, `AsyncSession` is for asyncio; both have the same methods. `Chat` talks with a model.
Adapters for frameworks are modules of their own:
`lazaret_sandbox.inspect_ai`, `lazaret_sandbox.deepagents`, `lazaret_sandbox.openai_agents`,
`lazaret_sandbox.pydantic_ai`, `lazaret_sandbox.smolagents`, `lazaret_sandbox.mini_swe_agent`.
"""

from ._files import FileTooLarge
from .async_session import AsyncCall, AsyncSession
from .chat import Chat, ChatError, ChatEvent, ChatReply
from .errors import (
    ApprovalExpired,
    CallError,
    Cancelled,
    CommandFailed,
    Denied,
    DeniedByPolicy,
    DeniedByUser,
    ExecutorLost,
    IdleTimedOut,
    InternalError,
    InvalidInput,
    IoError,
    LazaretError,
    NotFound,
    NotInstalled,
    OutputTooLarge,
    ProtocolError,
    ResourceLimit,
    SessionEnded,
    SessionRefused,
    TimedOut,
    TooManyViolations,
    ToolError,
    UnknownTool,
    Violation,
)
from .session import Call, Session
from .types import Approval, Completed, Minutes, Result, SecurityEvent, SessionInfo, Tool, ToolReply

__all__ = [
    "Approval",
    "ApprovalExpired",
    "AsyncCall",
    "AsyncSession",
    "Call",
    "CallError",
    "Cancelled",
    "Chat",
    "ChatError",
    "ChatEvent",
    "ChatReply",
    "CommandFailed",
    "Completed",
    "Denied",
    "DeniedByPolicy",
    "DeniedByUser",
    "ExecutorLost",
    "FileTooLarge",
    "IdleTimedOut",
    "InternalError",
    "InvalidInput",
    "IoError",
    "LazaretError",
    "Minutes",
    "NotFound",
    "NotInstalled",
    "OutputTooLarge",
    "ProtocolError",
    "ResourceLimit",
    "Result",
    "SecurityEvent",
    "Session",
    "SessionEnded",
    "SessionInfo",
    "SessionRefused",
    "TimedOut",
    "Tool",
    "ToolError",
    "ToolReply",
    "TooManyViolations",
    "UnknownTool",
    "Violation",
]
