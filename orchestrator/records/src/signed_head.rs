//! Ends of the audit's chain, signed by a key of the user's on this machine, and exports that are verified by them elsewhere.
//!
//! A chain alone shows that nothing in an export was changed, but not that it is this machine's and not one made anew. A signed head
//! shows both, for all records up to it, to whoever has the public key.

use crate::audit_chain::check_record;
use broker_protocol::Digest;
use broker_protocol::chain::{self, Head};
use orchestrator_signature::{AUDIT, AuditKey, SignatureError, TrustedKey, verify};
use serde_json::{Value, json};
use thiserror::Error;

/// Maximum bytes of a line of an export. As OCSF, a record is there as a string, in which most bytes may be escaped.
pub const LINE_MAX: usize = 4 * chain::RECORD_MAX;
const KIND: &str = "head";

/// A line of an export that signs all records before it.
pub fn signed_line(head: &Head, time: u64, key: &AuditKey) -> Value {
    let signature = key.sign(AUDIT, message(head.seq, head.hash, time).as_bytes());
    json!({
        "kind": KIND,
        "seq": head.seq,
        "hash": head.hash.to_string(),
        "ts": time,
        "key": key.public().to_string(),
        "signature": signature,
    })
}

/// The bytes that are signed: short, so that people can verify them by `ssh-keygen -Y verify`.
fn message(seq: u64, hash: Digest, time: u64) -> String {
    format!("{seq} {hash} {time}\n")
}

/// Why an export is not as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    #[error("it is longer than {LINE_MAX} bytes")]
    Long,
    #[error("it is neither a record of the audit nor a signed head")]
    Form,
    #[error("{0}")]
    Record(String),
    /// What comes before is in another export, or was removed.
    #[error(
        "it is record {0}: give --after with the hash of the record before it, which you have from the export before this one"
    )]
    Start(u64),
    #[error(
        "the head is of record {seq}, and the record before it is {last}: something was removed or moved"
    )]
    Place { seq: u64, last: u64 },
    #[error("the signature of a head: {0}")]
    Signature(#[from] SignatureError),
}

/// An export, as far as it was read.
pub struct ReadExport<'k> {
    keys: &'k [TrustedKey],
    last: Head,
    /// Whether the number of the last record is known.
    begun: bool,
    records: u64,
    signed: Option<SignedHead>,
}

/// The last head that was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedHead {
    pub seq: u64,
    pub time: u64,
    pub by: TrustedKey,
}

impl<'k> ReadExport<'k> {
    /// Of an export that begins after the record with the hash `after`.
    pub fn new(keys: &'k [TrustedKey], after: Option<Digest>) -> Self {
        let hash = after.unwrap_or(Head::EMPTY.hash);
        let last = Head {
            hash,
            ..Head::EMPTY
        };
        Self {
            keys,
            last,
            begun: after.is_none(),
            records: 0,
            signed: None,
        }
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// [`ExportError`]. Nothing after such a line is as it was made.
    pub fn take(&mut self, line: &[u8]) -> Result<(), ExportError> {
        if line.len() > LINE_MAX {
            return Err(ExportError::Long);
        }
        let parsed: Value = serde_json::from_slice(line).map_err(|_| ExportError::Form)?;
        match parsed["raw_data"].as_str() {
            Some(raw) => {
                let inner = serde_json::from_str(raw).map_err(|_| ExportError::Form)?;
                self.take_parsed(raw.as_bytes(), &inner)
            }
            None => self.take_parsed(line, &parsed),
        }
    }

    fn take_parsed(&mut self, line: &[u8], parsed: &Value) -> Result<(), ExportError> {
        let seq = parsed["seq"].as_u64().ok_or(ExportError::Form)?;
        if parsed["kind"] == KIND {
            return self.take_head(seq, parsed);
        }
        if !self.begun {
            self.last.seq = seq.saturating_sub(1);
        } else if self.records == 0 && self.last.seq == 0 && seq > 1 {
            return Err(ExportError::Start(seq));
        }
        let (hash, _) = check_record(&self.last, line).map_err(ExportError::Record)?;
        (self.last.seq, self.last.hash) = (seq, hash);
        self.begun = true;
        self.records += 1;
        Ok(())
    }

    fn take_head(&mut self, seq: u64, parsed: &Value) -> Result<(), ExportError> {
        let text = |name: &str| parsed[name].as_str().ok_or(ExportError::Form);
        let hash: Digest = text("hash")?.parse().map_err(|_| ExportError::Form)?;
        let time = parsed["ts"].as_u64().ok_or(ExportError::Form)?;
        let signed = message(seq, hash, time);
        let by = verify(text("signature")?, AUDIT, signed.as_bytes(), self.keys)?;
        if !self.begun && hash == self.last.hash {
            self.last.seq = seq;
            self.begun = true;
        }
        let last = self.last.seq;
        if (seq, hash) != (last, self.last.hash) {
            return Err(ExportError::Place { seq, last });
        }
        self.signed = Some(SignedHead { seq, time, by });
        Ok(())
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    pub fn signed(&self) -> Option<SignedHead> {
        self.signed
    }

    /// Records after the last signed head, or all: nobody vouches for these.
    pub fn unsigned(&self) -> u64 {
        match self.signed {
            Some(signed) => self.last.seq - signed.seq,
            None => self.records,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> AuditKey {
        let mut seed = [5; orchestrator_signature::SEED_BYTES];
        seed[0] = first;
        AuditKey::of_seed(seed).unwrap()
    }

    /// Lines of an export: records, with signed heads after the second and the last.
    fn export(records: u64) -> Vec<String> {
        let (mut last, mut lines) = (Head::EMPTY, Vec::new());
        for seq in 1..=records {
            let mut record = format!("{{\"seq\":{seq},\"ts\":1.5,\"kind\":\"call\"}}").into_bytes();
            let hash = chain::seal(last.hash, &mut record);
            last = Head { seq, hash, ..last };
            lines.push(String::from_utf8(record).unwrap().trim_end().to_owned());
            if seq == 2 || seq == records {
                lines.push(signed_line(&last, 100 + seq, &key(1)).to_string());
            }
        }
        lines
    }

    fn read(lines: &[String], after: Option<Digest>) -> Result<(u64, u64), ExportError> {
        let keys = [key(1).public()];
        let mut read = ReadExport::new(&keys, after);
        lines
            .iter()
            .try_for_each(|line| read.take(line.as_bytes()))?;
        Ok((read.records(), read.unsigned()))
    }

    #[test]
    fn a_whole_export_is_vouched_for() {
        let lines = export(4);
        assert_eq!(read(&lines, None), Ok((4, 0)));
        // Without the last head, the records after the one before it are not.
        assert_eq!(read(&lines[..5], None), Ok((4, 2)));
        assert_eq!(read(&lines[..2], None), Ok((2, 2)));
        let as_ocsf = |line: &String| {
            let record = serde_json::from_str(line).unwrap();
            crate::ocsf::event(line, &record, "0").to_string()
        };
        let events: Vec<String> = lines.iter().map(as_ocsf).collect();
        assert_eq!(read(&events, None), Ok((4, 0)));
    }

    #[test]
    fn an_export_that_was_resumed_needs_the_hash_before_it() {
        let lines = export(4);
        let second: Value = serde_json::from_str(&lines[1]).unwrap();
        let hash: Digest = second["hash"].as_str().unwrap().parse().unwrap();
        assert_eq!(read(&lines[3..], Some(hash)), Ok((2, 0)));
        // A head alone says that there was no more.
        assert_eq!(read(&lines[2..3], Some(hash)), Ok((0, 0)));
        assert_eq!(read(&lines[3..], None), Err(ExportError::Start(3)));
        let other = Digest([1; 32]);
        assert!(matches!(
            read(&lines[3..], Some(other)),
            Err(ExportError::Record(_))
        ));
        assert!(matches!(
            read(&lines[2..3], Some(other)),
            Err(ExportError::Place { .. })
        ));
    }

    #[test]
    fn no_change_goes_unnoticed() {
        let lines = export(4);
        let changed = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines = lines.clone();
            change(&mut lines);
            assert!(read(&lines, None).is_err(), "{lines:#?}");
        };
        for at in 0..lines.len() {
            if at < 5 {
                changed(&|lines| {
                    lines[at] = lines[at].replacen("call", "fall", 1).replace("102", "103")
                });
            }
        }
        changed(&|lines| drop(lines.remove(0)));
        changed(&|lines| drop(lines.remove(3)));
        changed(&|lines| lines.swap(0, 1));
        changed(&|lines| lines.swap(2, 3));
        changed(&|lines| lines[5] = lines[2].clone());
        // A chain that was made anew, by whoever has another key.
        changed(&|lines| {
            let made: Value = serde_json::from_str(&lines[5]).unwrap();
            let hash = made["hash"].as_str().unwrap().parse().unwrap();
            let head = Head {
                seq: 4,
                hash,
                ..Head::EMPTY
            };
            lines[5] = signed_line(&head, 104, &key(2)).to_string();
        });
    }

    #[test]
    fn a_line_has_a_limit() {
        let lines = |length: usize| {
            let line = &export(1)[1];
            vec![
                export(1)[0].clone(),
                format!("{line}{}", " ".repeat(length - line.len())),
            ]
        };
        assert_eq!(read(&lines(LINE_MAX), None), Ok((1, 0)));
        assert_eq!(read(&lines(LINE_MAX + 1), None), Err(ExportError::Long));
    }
}
