// Runs the tool calls of AI agents in cells that the kernel keeps closed: a client of `lazaret session` and `lazaret serve`.

export { Chat, ChatError } from "./chat.js";
export { Call, Session } from "./session.js";
export {
  ApprovalExpired,
  CallError,
  Cancelled,
  CommandFailed,
  Denied,
  DeniedByPolicy,
  DeniedByUser,
  ExecutorLost,
  FileError,
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
  ToolError,
  TooManyViolations,
  UnknownTool,
  Violation,
} from "./errors.js";
