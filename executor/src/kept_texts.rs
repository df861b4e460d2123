//! Texts that effects have returned to the client, saved where `file_read` can open them. The client has no right to a zone: it
//! may have one text saved for each granted effect, as a new file with a name of ours, like a command's output.

use crate::fault::check_chunk;
use crate::plan::spill_name;
use broker_protocol::{CallId, Digest, Failed, FromBroker, Spill, limit};
use executor_audit::audit::AuditWriter;
use executor_audit::record::Record;
use executor_project::capture::Capture;
use executor_spec::sandbox::SandboxSpec;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::path::Path;

#[derive(Debug)]
pub(crate) struct KeptTexts {
    permits: VecDeque<SavePermit>,
    /// Bytes that this session may still save.
    left: u64,
}

/// Permission to save one text for an effect.
#[derive(Debug)]
struct SavePermit {
    call: CallId,
    tool: String,
    text: Option<ReceivedText>,
}

/// The part of a text received so far.
#[derive(Debug)]
struct ReceivedText {
    file: Capture,
    hash: Sha256,
    /// Bytes by which its file may still grow under the policy.
    room: u64,
    /// Whether part of it did not fit.
    over: bool,
}

/// A text saved to a file.
#[derive(Debug)]
pub(crate) struct KeptText {
    call: CallId,
    tool: String,
    sha256: Digest,
    spill: Spill,
}

impl Default for KeptTexts {
    fn default() -> Self {
        Self {
            permits: VecDeque::new(),
            left: limit::KEPT,
        }
    }
}

impl KeptTexts {
    /// Permits a text for an effect. Returns the unfinished text of a permit that this replaces.
    pub(crate) fn permit(&mut self, call: CallId, tool: &str) -> Option<KeptText> {
        let before = self.take(call);
        let oldest = if self.permits.len() >= limit::KEEPS {
            self.permits.pop_front()
        } else {
            None
        };
        self.permits.push_back(SavePermit {
            call,
            tool: tool.to_owned(),
            text: None,
        });
        before.or_else(|| oldest.and_then(SavePermit::finish))
    }

    /// Receives a piece of a text from the client. Its end is in the audit before it is answered.
    pub(crate) fn receive(
        &mut self,
        (call, bytes, last): (CallId, &[u8], bool),
        spec: &SandboxSpec,
        audit: &mut AuditWriter,
    ) -> Result<Option<FromBroker>, Failed> {
        check_chunk(bytes, "a text to keep")?;
        self.push(call, bytes, spec.policy.limits.spill, &spec.central);
        if !last {
            return Ok(None);
        }
        let kept = self.take(call);
        kept.as_ref()
            .map_or(Ok(()), |kept| audit.append(&kept.record()))?;
        Ok(Some(FromBroker::Kept {
            call,
            spill: kept.map(|kept| kept.spill),
        }))
    }

    /// Appends a piece to a text, in a new file of at most `max` bytes. A piece for an effect without a permit is dropped.
    fn push(&mut self, call: CallId, bytes: &[u8], max: u64, central: &Path) {
        let Some(permit) = self.permits.iter_mut().find(|permit| permit.call == call) else {
            return;
        };
        if bytes.is_empty() || max == 0 {
            return;
        }
        if permit.text.is_none() {
            let left = self
                .left
                .checked_sub(limit::KEPT_BLOCK)
                .filter(|left| *left > 0);
            let Some(left) = left else { return };
            self.left = left;
            let file = Capture::new(0, max, central, spill_name(call, ""));
            permit.text = Some(ReceivedText {
                file,
                hash: Sha256::new(),
                room: max,
                over: false,
            });
        }
        let Some(text) = &mut permit.text else { return };
        let taken = bytes
            .len()
            .min(usize::try_from(text.room.min(self.left)).unwrap_or(usize::MAX));
        text.over |= taken < bytes.len();
        let bytes = &bytes[..taken];
        self.left -= taken as u64;
        text.room -= taken as u64;
        text.hash.update(bytes);
        text.file.push(bytes);
    }

    /// Ends a text; `None` if nothing was saved.
    fn take(&mut self, call: CallId) -> Option<KeptText> {
        let at = self.permits.iter().position(|permit| permit.call == call)?;
        self.permits.remove(at)?.finish()
    }

    /// Ends all unfinished texts.
    pub(crate) fn end(&mut self) -> Vec<KeptText> {
        self.permits
            .drain(..)
            .filter_map(SavePermit::finish)
            .collect()
    }
}

impl SavePermit {
    fn finish(self) -> Option<KeptText> {
        let text = self.text?;
        let spill = text.file.finish().1?;
        let spill = Spill {
            whole: spill.whole && !text.over,
            ..spill
        };
        Some(KeptText {
            call: self.call,
            tool: self.tool,
            sha256: Digest(text.hash.finalize().into()),
            spill,
        })
    }
}

impl KeptText {
    /// The audit record of this text.
    pub(crate) fn record(&self) -> Record {
        Record::kept(self.call, &self.tool, &self.spill, &self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session's texts, and the central root where they are saved.
    fn texts(left: u64) -> (KeptTexts, tempfile::TempDir) {
        (
            KeptTexts {
                permits: VecDeque::new(),
                left,
            },
            tempfile::tempdir().unwrap(),
        )
    }

    /// Saves `text` for a new effect in a file of at most 10 bytes: returns its bytes, and whether that is all.
    fn kept(
        texts: &mut KeptTexts,
        central: &Path,
        call: CallId,
        text: &[u8],
    ) -> Option<(Vec<u8>, bool)> {
        assert!(texts.permit(call, "web_fetch").is_none());
        text.chunks(4)
            .for_each(|piece| texts.push(call, piece, 10, central));
        let kept = texts.take(call)?;
        let bytes = std::fs::read(central.join(kept.spill.path.relative())).unwrap();
        assert_eq!(kept.spill.bytes, bytes.len() as u64);
        assert_eq!(kept.sha256, Digest(Sha256::digest(&bytes).into()));
        Some((bytes, kept.spill.whole))
    }

    #[test]
    fn a_text_is_kept_up_to_its_cap_and_a_session_up_to_its_budget() {
        let (mut texts, central) = texts(3 * limit::KEPT_BLOCK + 24);
        let mut keep = |call, text: &[u8]| kept(&mut texts, central.path(), call, text);
        assert_eq!(keep(1, b""), None);
        assert_eq!(keep(2, b"0123456789"), Some((b"0123456789".into(), true)));
        assert_eq!(keep(3, b"0123456789a"), Some((b"0123456789".into(), false)));
        assert_eq!(keep(4, b"0123456"), Some((b"0123".into(), false)));
        assert_eq!(keep(5, b"0"), None);
        assert_eq!(
            std::fs::read_dir(central.path().join("outputs"))
                .unwrap()
                .count(),
            3
        );
        let (mut texts, central) = self::texts(limit::KEPT_BLOCK);
        assert_eq!(kept(&mut texts, central.path(), 1, b"0"), None);
        assert!(!central.path().join("outputs").exists());
    }

    #[test]
    fn a_text_needs_a_permit_and_has_it_once() {
        let (mut texts, central) = texts(1 << 20);
        let push = |texts: &mut KeptTexts, call| texts.push(call, b"x", 10, central.path());
        push(&mut texts, 1);
        assert!(texts.take(1).is_none());
        texts.permit(1, "web_fetch");
        push(&mut texts, 1);
        assert!(texts.take(1).is_some());
        push(&mut texts, 1);
        assert!(texts.take(1).is_none());
        // When there are too many permits, the oldest is removed; its unfinished text is returned.
        (2..2 + limit::KEEPS as u64)
            .for_each(|call| assert!(texts.permit(call, "web_fetch").is_none()));
        push(&mut texts, 2);
        assert!(
            texts
                .permit(1000, "web_fetch")
                .is_some_and(|kept| kept.call == 2)
        );
        push(&mut texts, 2);
        assert!(texts.take(2).is_none());
        // So is what a session leaves unfinished.
        push(&mut texts, 3);
        assert_eq!(
            texts.end().iter().map(|kept| kept.call).collect::<Vec<_>>(),
            [3]
        );
    }

    #[test]
    fn text_whose_file_cannot_be_made_is_not_saved() {
        let (mut texts, central) = texts(1 << 20);
        std::fs::write(central.path().join("outputs"), "in the way").unwrap();
        assert_eq!(kept(&mut texts, central.path(), 1, b"0123"), None);
        // A policy that saves no output saves none of these.
        let (mut texts, central) = self::texts(1 << 20);
        texts.permit(1, "web_fetch");
        texts.push(1, b"x", 0, central.path());
        assert!(texts.take(1).is_none() && !central.path().join("outputs").exists());
    }
}
