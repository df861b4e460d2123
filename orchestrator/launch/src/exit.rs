//! Exit codes with the same meaning in every command.

use broker_protocol::ErrorKind;

pub const OK: u8 = 0;
/// The tool could not do what was requested; for `doctor`: no session can open.
pub const FAILED: u8 = 1;
/// The command line or a tool's input is wrong.
pub const USAGE: u8 = 2;
/// A call attempted something outside its permissions.
pub const VIOLATION: u8 = 3;
/// A time limit was reached.
pub const TIMEOUT: u8 = 124;
pub const LAZARET: u8 = 125;
/// The policy refused; for `run` also: the program cannot be executed.
pub const REFUSED: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;
/// A signal ended the command: this value plus the signal's number.
pub const SIGNAL: u8 = 128;

/// The exit code of a failed call.
pub fn of_error(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidInput | ErrorKind::UnknownTool => USAGE,
        ErrorKind::Violation => VIOLATION,
        ErrorKind::DeniedPolicy | ErrorKind::DeniedUser | ErrorKind::ApprovalTimeout => REFUSED,
        ErrorKind::Timeout | ErrorKind::IdleTimeout => TIMEOUT,
        ErrorKind::NotFound
        | ErrorKind::Io
        | ErrorKind::ExitNonzero
        | ErrorKind::ResourceLimit
        | ErrorKind::Cancelled => FAILED,
        ErrorKind::ExecutorLost | ErrorKind::Protocol | ErrorKind::Internal => LAZARET,
    }
}
