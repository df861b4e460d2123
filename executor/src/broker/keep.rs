//! Texts that effects have brought the client, kept where `file_read` opens them. The client has no right to a zone: it may
//! have one text kept for each effect that it had leave for, as a new file whose name is ours, like a command's output.

use super::capture::Capture;
use super::record::Event;
use broker_protocol::{CallId, Digest, Spill, limit};
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::path::Path;

/// What may be kept, and what is being kept.
#[derive(Debug)]
pub struct Keeps {
    leaves: VecDeque<Leave>,
    /// Bytes that this session may still keep.
    left: u64,
}

/// That a text may be kept for an effect.
#[derive(Debug)]
struct Leave {
    call: CallId,
    tool: String,
    text: Option<Text>,
}

/// As much of a text as has come.
#[derive(Debug)]
struct Text {
    file: Capture,
    hash: Sha256,
    /// Bytes that the policy still lets its file hold.
    room: u64,
    /// Whether some of it found no room.
    over: bool,
}

/// A text that stands in a file.
#[derive(Debug)]
pub struct Kept {
    call: CallId,
    tool: String,
    sha256: Digest,
    /// Where.
    pub spill: Spill,
}

impl Default for Keeps {
    fn default() -> Self {
        Self { leaves: VecDeque::new(), left: limit::KEPT }
    }
}

impl Keeps {
    /// Lets a text be kept for an effect. What this ends that was begun and not finished is returned.
    pub fn permit(&mut self, call: CallId, tool: &str) -> Option<Kept> {
        let before = self.take(call);
        let oldest = if self.leaves.len() >= limit::KEEPS { self.leaves.pop_front() } else { None };
        self.leaves.push_back(Leave { call, tool: tool.to_owned(), text: None });
        before.or_else(|| oldest.and_then(Leave::finish))
    }

    /// Adds a piece to a text, in a new file called `name` of at most `most` bytes. For an effect that has none it is dropped.
    pub fn push(
        &mut self,
        call: CallId,
        bytes: &[u8],
        most: u64,
        name: impl FnOnce() -> String,
        central: &Path,
    ) {
        let Some(leave) = self.leaves.iter_mut().find(|leave| leave.call == call) else { return };
        if bytes.is_empty() || most == 0 {
            return;
        }
        if leave.text.is_none() {
            let left = self.left.checked_sub(limit::KEPT_BLOCK).filter(|left| *left > 0);
            let Some(left) = left else { return };
            self.left = left;
            let file = Capture::new(0, most, name());
            leave.text = Some(Text { file, hash: Sha256::new(), room: most, over: false });
        }
        let Some(text) = &mut leave.text else { return };
        let taken = bytes.len().min(usize::try_from(text.room.min(self.left)).unwrap_or(usize::MAX));
        text.over |= taken < bytes.len();
        let bytes = &bytes[..taken];
        self.left -= taken as u64;
        text.room -= taken as u64;
        text.hash.update(bytes);
        text.file.push(bytes, central);
    }

    /// Ends a text; `None` where nothing was kept.
    pub fn take(&mut self, call: CallId) -> Option<Kept> {
        let at = self.leaves.iter().position(|leave| leave.call == call)?;
        self.leaves.remove(at)?.finish()
    }

    /// Ends all of them.
    pub fn end(&mut self) -> Vec<Kept> {
        self.leaves.drain(..).filter_map(Leave::finish).collect()
    }
}

impl Leave {
    fn finish(self) -> Option<Kept> {
        let text = self.text?;
        let spill = text.file.finish().1?;
        let spill = Spill { whole: spill.whole && !text.over, ..spill };
        Some(Kept { call: self.call, tool: self.tool, sha256: Digest(text.hash.finalize().into()), spill })
    }
}

impl Kept {
    /// What the audit says of it.
    pub fn event(&self) -> Event<'_> {
        let (path, sha256) = (self.spill.path.to_string(), self.sha256.to_string());
        let Spill { bytes, whole, .. } = self.spill;
        Event::Kept { call: self.call, tool: &self.tool, path, bytes, sha256, whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a session has, and the central root it keeps in.
    fn keeps(left: u64) -> (Keeps, tempfile::TempDir) {
        (Keeps { leaves: VecDeque::new(), left }, tempfile::tempdir().unwrap())
    }

    /// Keeps `text` for an effect of its own, in a file of at most 10 bytes: its bytes, and whether that is all.
    fn kept(keeps: &mut Keeps, central: &Path, call: CallId, text: &[u8]) -> Option<(Vec<u8>, bool)> {
        assert!(keeps.permit(call, "web_fetch").is_none());
        text.chunks(4).for_each(|piece| keeps.push(call, piece, 10, || format!("{call}.log"), central));
        let kept = keeps.take(call)?;
        let bytes = std::fs::read(central.join(kept.spill.path.relative())).unwrap();
        assert_eq!(kept.spill.bytes, bytes.len() as u64);
        assert_eq!(kept.sha256, Digest(Sha256::digest(&bytes).into()));
        Some((bytes, kept.spill.whole))
    }

    #[test]
    fn a_text_is_kept_up_to_its_cap_and_a_session_up_to_its_budget() {
        let (mut keeps, central) = keeps(3 * limit::KEPT_BLOCK + 24);
        let mut keep = |call, text: &[u8]| kept(&mut keeps, central.path(), call, text);
        assert_eq!(keep(1, b""), None);
        assert_eq!(keep(2, b"0123456789"), Some((b"0123456789".into(), true)));
        assert_eq!(keep(3, b"0123456789a"), Some((b"0123456789".into(), false)));
        assert_eq!(keep(4, b"0123456"), Some((b"0123".into(), false)));
        assert_eq!(keep(5, b"0"), None);
        assert_eq!(std::fs::read_dir(central.path().join("outputs")).unwrap().count(), 3);
        let (mut keeps, central) = self::keeps(limit::KEPT_BLOCK);
        assert_eq!(kept(&mut keeps, central.path(), 1, b"0"), None);
        assert!(!central.path().join("outputs").exists());
    }

    #[test]
    fn what_is_kept_needs_leave_and_has_it_once() {
        let (mut keeps, central) = keeps(1 << 20);
        let push =
            |keeps: &mut Keeps, call| keeps.push(call, b"x", 10, || format!("{call}.log"), central.path());
        push(&mut keeps, 1);
        assert!(keeps.take(1).is_none());
        keeps.permit(1, "web_fetch");
        push(&mut keeps, 1);
        assert!(keeps.take(1).is_some());
        push(&mut keeps, 1);
        assert!(keeps.take(1).is_none());
        // Of more than there may be, the oldest has leave no longer; what it has begun is said.
        (2..2 + limit::KEEPS as u64).for_each(|call| assert!(keeps.permit(call, "web_fetch").is_none()));
        push(&mut keeps, 2);
        assert!(keeps.permit(1000, "web_fetch").is_some_and(|kept| kept.call == 2));
        push(&mut keeps, 2);
        assert!(keeps.take(2).is_none());
        // And so is what a session leaves unfinished.
        push(&mut keeps, 3);
        assert_eq!(keeps.end().iter().map(|kept| kept.call).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_none() {
        let (mut keeps, central) = keeps(1 << 20);
        std::fs::write(central.path().join("outputs"), "in the way").unwrap();
        assert_eq!(kept(&mut keeps, central.path(), 1, b"0123"), None);
        // A policy that keeps no output keeps none of these.
        let (mut keeps, central) = self::keeps(1 << 20);
        keeps.permit(1, "web_fetch");
        keeps.push(1, b"x", 0, || "1.log".into(), central.path());
        assert!(keeps.take(1).is_none() && !central.path().join("outputs").exists());
    }
}
