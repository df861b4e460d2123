//! The audit's hash chain: how each record depends on the one before it. The executor writes it, `lazaret audit` reads it.
//!
//! A record is one line of JSON that ends with its hash: SHA-256 over the hash of the record before it and
//! its own bytes up to the hash. So an edit, a gap and a change of order break the chain at that place. The
//! [`Head`] records separately where the chain ends: if the tail was cut, the chain ends too early.

use crate::digest::Digest;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use thiserror::Error;

/// The hash that precedes the first record.
pub const START: Digest = Digest([0; 32]);
/// Maximum bytes of a record, including its line end.
pub const RECORD_MAX: usize = 64 * 1024;
/// Name of the file that contains the [`Head`]; to append to the chain, its lock (`flock`) must be held.
pub const HEAD: &str = "head";

const BEFORE_HASH: &[u8] = b",\"hash\":\"";
const AFTER_HASH: &[u8] = b"\"}";
const HASH_DIGITS: usize = 64;

/// Name of the file with this number, counted from 1. The chain continues from file to file.
pub fn file_name(number: u64) -> String {
    format!("audit-{number:06}.jsonl")
}

/// The number of a file with this name.
pub fn file_number(name: &str) -> Option<u64> {
    let number = name
        .strip_prefix("audit-")?
        .strip_suffix(".jsonl")?
        .parse()
        .ok()?;
    (file_name(number) == name).then_some(number)
}

/// Ends `record`, the JSON of an object with at least one field, with its hash and a line end; returns the hash.
pub fn seal(previous: Digest, record: &mut Vec<u8>) -> Digest {
    record.pop();
    let hash = link(previous, record);
    record.extend_from_slice(BEFORE_HASH);
    record.extend_from_slice(hash.to_string().as_bytes());
    record.extend_from_slice(AFTER_HASH);
    record.push(b'\n');
    hash
}

/// Why a line is not the record that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChainError {
    /// The record has no proper end.
    #[error("it is not a whole record")]
    Form,
    /// Its hash does not match.
    #[error("its hash does not follow from the record before it and its own bytes")]
    Hash,
}

/// The number that a record, without its line end, says it has.
pub fn number(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// The seconds since 1970 at which a record says that it was written.
pub fn time(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, rest) = text.split_once(",\"ts\":")?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Checks that `line`, without its line end, follows the record whose hash is `previous`; returns its hash.
pub fn check(previous: Digest, line: &[u8]) -> Result<Digest, ChainError> {
    let rest = line.strip_suffix(AFTER_HASH).ok_or(ChainError::Form)?;
    let (rest, digits) = rest
        .split_at_checked(rest.len().wrapping_sub(HASH_DIGITS))
        .ok_or(ChainError::Form)?;
    let record = rest.strip_suffix(BEFORE_HASH).ok_or(ChainError::Form)?;
    let hash = link(previous, record);
    // Compared as bytes: there is only one way to write the digits.
    if digits == hash.to_string().as_bytes() {
        Ok(hash)
    } else {
        Err(ChainError::Hash)
    }
}

fn link(previous: Digest, record: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(previous.0);
    hasher.update(record);
    Digest(hasher.finalize().into())
}

/// Where the chain ends. Its file always has [`Head::BYTES`] bytes, so that one write replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the last record, counted from 1; 0 if there is none.
    pub seq: u64,
    /// Number of the file that contains it.
    pub file: u64,
    /// Bytes of that file.
    pub bytes: u64,
    pub hash: Digest,
}

impl Head {
    /// Length of its text.
    pub const BYTES: usize = 128;
    /// Of a chain without a record.
    pub const EMPTY: Head = Head {
        seq: 0,
        file: 1,
        bytes: 0,
        hash: START,
    };

    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(Self::BYTES);
        let Self {
            seq,
            file,
            bytes,
            hash,
        } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{seq:020} {file:020} {bytes:020} {hash}");
        text
    }

    /// Decodes what [`encode`](Self::encode) wrote, and nothing else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok();
        let (seq, file, bytes) = (number()?, number()?, number()?);
        let head = Self {
            seq,
            file,
            bytes,
            hash: words.next()?.parse().ok()?,
        };
        (head.encode() == text).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of `count` records as one text, and its head.
    fn chain(count: u64) -> (Vec<u8>, Head) {
        let mut head = Head::EMPTY;
        let mut text = Vec::new();
        for seq in 1..=count {
            let mut record = format!("{{\"seq\":{seq},\"tool\":\"bash\"}}").into_bytes();
            head = Head {
                seq,
                hash: seal(head.hash, &mut record),
                ..head
            };
            text.extend_from_slice(&record);
        }
        (
            text,
            Head {
                bytes: count,
                ..head
            },
        )
    }

    /// Counts the valid records from the start of `text`, and returns the last hash.
    fn whole(text: &[u8]) -> (u64, Digest) {
        let mut hash = START;
        let mut count = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            let Ok(next) = check(hash, line) else { break };
            hash = next;
            count += 1;
        }
        (count, hash)
    }

    #[test]
    fn a_sealed_record_is_json_and_follows_only_the_one_before_it() {
        let (text, head) = chain(3);
        assert_eq!(whole(&text), (3, head.hash));
        let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        assert!(
            lines[0].starts_with(b"{\"seq\":1,\"tool\":\"bash\",\"hash\":\"")
                && lines[0].ends_with(b"\"}")
        );
        assert_eq!(check(START, lines[1]), Err(ChainError::Hash));
        for short in ["", "}", "\"}", "{\"hash\":\"\"}"] {
            assert_eq!(
                check(START, short.as_bytes()),
                Err(ChainError::Form),
                "{short}"
            );
        }
    }

    #[test]
    fn no_byte_of_a_chain_can_be_another() {
        let (text, _) = chain(3);
        for at in 0..text.len() {
            for mask in [1, 0x20, 0x80, 0xff] {
                let mut changed = text.clone();
                changed[at] ^= mask;
                assert!(whole(&changed).0 < 3, "byte {at} ^ {mask:#x}");
            }
        }
    }

    #[test]
    fn head_has_one_encoding_of_fixed_length() {
        let (_, head) = chain(2);
        let text = head.encode();
        assert_eq!(text.len(), Head::BYTES);
        assert_eq!(Head::decode(text.as_bytes()), Some(head));
        let largest = Head {
            seq: u64::MAX,
            file: u64::MAX,
            bytes: u64::MAX,
            hash: Digest([0xff; 32]),
        };
        assert_eq!(Head::decode(largest.encode().as_bytes()), Some(largest));
        assert_eq!(largest.encode().len(), Head::BYTES);
        for at in 0..text.len() {
            for mask in [1, 0x10, 0x20, 0x80] {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= mask;
                assert_ne!(Head::decode(&changed), Some(head), "byte {at} ^ {mask:#x}");
            }
        }
        assert_eq!(Head::decode(text.trim_end().as_bytes()), None);
        assert_eq!(Head::decode(b""), None);
    }

    #[test]
    fn audit_files_are_recognised_by_name() {
        assert_eq!(file_number(&file_name(7)), Some(7));
        assert_eq!(file_number(&file_name(u64::MAX)), Some(u64::MAX));
        for other in [
            "audit-7.jsonl",
            "audit-+00007.jsonl",
            "audit-000007.json",
            "head",
            "audit-.jsonl",
        ] {
            assert_eq!(file_number(other), None, "{other}");
        }
    }
}
