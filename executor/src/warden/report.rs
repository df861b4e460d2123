//! What a cell's first process says to the broker when a call is over: a message of fixed size. What comes up is not parsed,
//! only taken apart.

use crate::sys::Used;
use broker_protocol::Layer;

/// How a program ended, as a cell reports it: a message of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Whether the next order may come: else the first process leaves.
    pub again: bool,
    /// What was used by everything that was reaped.
    pub used: Used,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It did not start; the error number.
    NotStarted(i32),
    /// The cell could not be closed: nothing was started.
    Unconfined {
        /// The layer that failed.
        layer: Layer,
        /// The error number.
        errno: i32,
    },
    /// Its working directory could not be entered; the error number.
    NoDirectory(i32),
}

/// Bytes of an encoded [`Report`].
pub const REPORT_LEN: usize = 32;

impl Report {
    /// Its bytes.
    pub fn encode(&self) -> [u8; REPORT_LEN] {
        let (tag, detail, value) = match self.end {
            End::Exited(code) => (0, 0, code),
            End::Signalled(signal) => (1, 0, signal),
            End::NotStarted(errno) => (2, 0, errno),
            End::Unconfined { layer, errno } => (3, layer as u8, errno),
            End::NoDirectory(errno) => (4, 0, errno),
        };
        let mut bytes = [0; REPORT_LEN];
        bytes[0] = tag;
        bytes[1] = detail;
        bytes[2] = u8::from(self.again);
        bytes[4..8].copy_from_slice(&value.to_le_bytes());
        let Used { user_us, system_us, peak_kib } = self.used;
        for (i, number) in [user_us, system_us, peak_kib].into_iter().enumerate() {
            bytes[8 + 8 * i..16 + 8 * i].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads a report; `None` if it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPORT_LEN] = bytes.try_into().ok()?;
        let value = i32::from_le_bytes(*bytes[4..].first_chunk()?);
        let number = |i: usize| Some(u64::from_le_bytes(*bytes[8 + 8 * i..].first_chunk()?));
        let end = match bytes[0] {
            0 => End::Exited(value),
            1 => End::Signalled(value),
            2 => End::NotStarted(value),
            3 => End::Unconfined { layer: *Layer::ALL.get(usize::from(bytes[1]))?, errno: value },
            4 => End::NoDirectory(value),
            _ => return None,
        };
        let used = Used { user_us: number(0)?, system_us: number(1)?, peak_kib: number(2)? };
        Some(Self { end, again: bytes[2] == 1, used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_back_and_nothing_else_does() {
        let ends = [
            End::Exited(7),
            End::Signalled(9),
            End::NotStarted(2),
            End::NoDirectory(20),
            End::Unconfined { layer: Layer::Seccomp, errno: 1 },
        ];
        for end in ends {
            for again in [false, true] {
                let used = Used { user_us: 1, system_us: u64::MAX, peak_kib: 3 };
                let report = Report { end, again, used };
                assert_eq!(Report::decode(&report.encode()), Some(report));
            }
        }
        assert_eq!(Report::decode(&[9; REPORT_LEN]), None);
        assert_eq!(Report::decode(&[0; REPORT_LEN - 1]), None);
    }
}
