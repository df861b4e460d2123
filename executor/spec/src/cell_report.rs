//! Reports of a cell's first process to the broker when a call is over: a message of fixed size,
//! and before it one for each refusal, and one about what was left running.

use crate::error::SetupPart;
use crate::leftover::Leftover;
use crate::refusals::Refusal;
use executor_sys::process::CpuAndMemory;

/// A message from a cell to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellMessage {
    /// Something that was refused.
    Refused(Refusal),
    /// Processes that the program has left running; at most one for each call.
    Leftover(Leftover),
    /// The last message of a call.
    Report(Report),
}

/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = crate::refusals::MESSAGE_MAX;
/// First byte of a refusal; those of a report are smaller.
const REFUSED: u8 = b'r';
/// First byte of a message about leftover processes.
const LEFTOVER: u8 = b'l';

const _: () = assert!(crate::leftover::LEFTOVER_MAX < MESSAGE_MAX);

impl CellMessage {
    /// Decodes a message; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [REFUSED, refusal @ ..] => Refusal::decode(refusal).map(Self::Refused),
            [LEFTOVER, leftover @ ..] => Leftover::decode(leftover).map(Self::Leftover),
            _ => Report::decode(bytes).map(Self::Report),
        }
    }

    /// Encodes a refusal as a message.
    pub fn refused(refusal: &Refusal) -> Vec<u8> {
        [&[REFUSED], &*refusal.encode()].concat()
    }

    /// Encodes leftover processes as a message.
    pub fn leftover(leftover: &Leftover) -> Vec<u8> {
        [&[LEFTOVER], &*leftover.encode()].concat()
    }
}

/// The report on one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the program ended.
    pub end: End,
    /// Whether the next order may be sent: otherwise the first process exits.
    pub reusable: bool,
    /// Whether a program that failed has left no space in the session's private storage.
    pub scratch_full: bool,
    /// Number of refusals beyond those that were sent; 255 means that many or more.
    pub unnamed: u8,
    /// Resource usage of all reaped processes.
    pub used: CpuAndMemory,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// The program did not start; the error number.
    NotStarted(i32),
    /// The cell could not be confined: nothing was started.
    Unconfined { part: SetupPart, errno: i32 },
    /// Its working directory could not be entered; the error number.
    NoDirectory(i32),
}

/// Bytes of an encoded [`Report`].
pub(crate) const REPORT_LEN: usize = 32;

impl Report {
    pub fn encode(&self) -> [u8; REPORT_LEN] {
        let (tag, detail, value) = match self.end {
            End::Exited(code) => (0, 0, code),
            End::Signalled(signal) => (1, 0, signal),
            End::NotStarted(errno) => (2, 0, errno),
            End::Unconfined { part, errno } => (3, part.number(), errno),
            End::NoDirectory(errno) => (4, 0, errno),
        };
        let mut bytes = [0; REPORT_LEN];
        bytes[0] = tag;
        bytes[1] = detail;
        bytes[2] = u8::from(self.reusable) | u8::from(self.scratch_full) << 1;
        bytes[3] = self.unnamed;
        bytes[4..8].copy_from_slice(&value.to_le_bytes());
        let CpuAndMemory {
            user_us,
            system_us,
            peak_kib,
        } = self.used;
        for (i, number) in [user_us, system_us, peak_kib].into_iter().enumerate() {
            bytes[8 + 8 * i..16 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a report; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPORT_LEN] = bytes.try_into().ok()?;
        let value = i32::from_le_bytes(*bytes[4..].first_chunk()?);
        let number = |i: usize| Some(u64::from_le_bytes(*bytes[8 + 8 * i..].first_chunk()?));
        let end = match bytes[0] {
            0 => End::Exited(value),
            1 => End::Signalled(value),
            2 => End::NotStarted(value),
            3 => End::Unconfined {
                part: SetupPart::of_number(bytes[1])?,
                errno: value,
            },
            4 => End::NoDirectory(value),
            _ => return None,
        };
        let used = CpuAndMemory {
            user_us: number(0)?,
            system_us: number(1)?,
            peak_kib: number(2)?,
        };
        let (reusable, scratch_full) = (bytes[2] & 1 != 0, bytes[2] & 2 != 0);
        (bytes[2] < 4).then_some(Self {
            end,
            reusable,
            scratch_full,
            unnamed: bytes[3],
            used,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Layer;

    #[test]
    fn reports_read_back_and_nothing_else_does() {
        let ends = [
            End::Exited(7),
            End::Signalled(9),
            End::NotStarted(2),
            End::NoDirectory(20),
            End::Unconfined {
                part: SetupPart::Layer(Layer::Seccomp),
                errno: 1,
            },
            End::Unconfined {
                part: SetupPart::Processes,
                errno: 1,
            },
        ];
        for end in ends {
            for (reusable, scratch_full) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                let used = CpuAndMemory {
                    user_us: 1,
                    system_us: u64::MAX,
                    peak_kib: 3,
                };
                let report = Report {
                    end,
                    reusable,
                    scratch_full,
                    unnamed: 200,
                    used,
                };
                let mut bytes = report.encode();
                assert_eq!(Report::decode(&bytes), Some(report));
                bytes[2] |= 4;
                assert_eq!(Report::decode(&bytes), None);
            }
        }
        let kind = broker_protocol::AttemptKind::Write;
        let refusal = |length| {
            let (cause, target) = (crate::refusals::Cause::Protected, vec![b'x'; length]);
            Refusal {
                kind,
                cause,
                object: None,
                target,
                count: 1,
            }
        };
        for length in [0, REPORT_LEN - 8, 400] {
            let bytes = CellMessage::refused(&refusal(length));
            assert!(bytes.len() <= MESSAGE_MAX);
            assert_eq!(
                CellMessage::decode(&bytes),
                Some(CellMessage::Refused(refusal(length)))
            );
        }
        assert_eq!(
            CellMessage::decode(&CellMessage::refused(&refusal(401))),
            None
        );
        assert_eq!(CellMessage::decode(b""), None);
        assert_eq!(Report::decode(&[9; REPORT_LEN]), None);
        assert_eq!(Report::decode(&[0; REPORT_LEN - 1]), None);
    }
}
