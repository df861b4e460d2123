//! What a file tool found or did, in words: plain lines for the model, with a note where they stop.

use super::answer::{Cut, Details};
use super::text::{name, unfinished};
use super::{background, changes};
use broker_protocol::{
    Edited, FileReply, Grepped, Listed, ListedKind, Match, MatchLine, Read, Roots, Truncated, Walked,
    Written, ZonePath,
};

/// Where a file tool worked.
pub struct Place {
    /// The file or directory.
    pub path: ZonePath,
    /// Where it lies on this machine.
    pub absolute: String,
}

/// Text for the model, what was left out of it, and what else is known.
pub type Told = (Vec<u8>, Option<Cut>, Details);

impl Place {
    /// Puts `reply` into words.
    pub fn tell(self, reply: FileReply, roots: &Roots) -> Told {
        match reply {
            FileReply::Read(read) => self.read(read),
            FileReply::Written(written) => self.written(&written),
            FileReply::Edited(edited) => self.edited(edited),
            FileReply::Listed(listed) => self.listed(&listed),
            FileReply::Walked(walked) => self.walked(&walked),
            FileReply::Grepped(grepped) => self.grepped(&grepped),
            FileReply::Started(started) => background::started(&started, roots),
            FileReply::Background(processes) => background::listed(&processes, roots),
            FileReply::Logged(logged) => background::logged(logged),
            FileReply::Killed(process) => background::killed(&process, roots),
            FileReply::History(changes) => changes::listed(&changes),
            FileReply::Undone(undone) => changes::undone(&undone, &self),
        }
    }

    fn read(self, read: Read) -> Told {
        let mut text = read.content;
        let cut = read.truncated.map(head);
        if cut.is_some() {
            let kept = text.len() - unfinished(&text);
            text.truncate(kept);
            let note = format!("\n[truncated: file is {} bytes, showing first {kept}]", read.size);
            text.extend_from_slice(note.as_bytes());
        }
        let sha256 = read.sha256.map(|digest| digest.to_string());
        let (first_line, lines, size) = (read.first_line, read.lines, read.size);
        (text, cut, Details::Read { path: self.absolute, first_line, lines, size, sha256 })
    }

    fn written(self, written: &Written) -> Told {
        let kept = changes::note(written.change);
        let text = format!("wrote {} bytes to {}{kept}", written.bytes, name(&self.path.to_string()));
        let Written { bytes, created, sha256, change } = *written;
        let sha256 = sha256.to_string();
        (text.into_bytes(), None, Details::Written { path: self.absolute, bytes, created, sha256, change })
    }

    fn edited(self, edited: Edited) -> Told {
        let places: u32 = edited.replaced.iter().fold(0, |sum, count| sum.saturating_add(*count));
        let noun = if places == 1 { "place" } else { "places" };
        let kept = changes::note(edited.change);
        let text = format!("replaced {places} {noun} in {}{kept}", name(&self.path.to_string()));
        let Edited { replaced, bytes, sha256, change } = edited;
        let sha256 = sha256.to_string();
        (text.into_bytes(), None, Details::Edited { path: self.absolute, replaced, bytes, sha256, change })
    }

    fn listed(self, listed: &Listed) -> Told {
        let mark = |kind| match kind {
            ListedKind::File => "",
            ListedKind::Directory => "/",
            ListedKind::Link => "@",
            ListedKind::Other => "|",
        };
        let lines = listed.entries.iter().map(|entry| format!("{}{}", name(&entry.path), mark(entry.kind)));
        self.found(lines.collect(), listed.entries.len(), listed.truncated, "the directory is empty", None)
    }

    fn walked(self, walked: &Walked) -> Told {
        let lines = walked.paths.iter().map(|path| self.shown(path)).collect();
        self.found(lines, walked.paths.len(), walked.truncated, "no file matches", None)
    }

    fn grepped(self, grepped: &Grepped) -> Told {
        let lines = grepped.matches.iter().flat_map(|file| self.matched(file)).collect();
        let count = grepped.matches.iter().flat_map(|file| &file.lines).filter(|line| line.matched).count();
        self.found(lines, count, grepped.truncated, "no line matches", Some(grepped.binary))
    }

    fn matched(&self, file: &Match) -> Vec<String> {
        let path = self.shown(&file.path);
        let line = |line: &MatchLine| {
            let mark = if line.matched { ':' } else { '-' };
            format!("{path}{mark}{}{mark}{}", line.number, line.text)
        };
        file.lines.iter().map(line).collect()
    }

    /// A path below this place's zone, as one may write it in the next call.
    fn shown(&self, relative: &str) -> String {
        match ZonePath::new(self.path.zone(), relative) {
            Ok(path) => name(&path.to_string()),
            Err(_) => name(relative),
        }
    }

    fn found(
        self,
        lines: Vec<String>,
        count: usize,
        truncated: Option<Truncated>,
        none: &str,
        binary: Option<u64>,
    ) -> Told {
        let mut text = if lines.is_empty() { none.to_owned() } else { lines.join("\n") };
        let cut = truncated.map(head);
        if let Some(cut) = cut {
            let total = cut.total.map_or("unknown".to_owned(), |total| total.to_string());
            text.push_str(&format!("\n[truncated: total={total} shown={} strategy=head]", cut.shown));
        }
        (text.into_bytes(), cut, Details::Found { path: self.absolute, count: count as u64, binary })
    }
}

/// A list that stops before its end.
pub(super) fn head(truncated: Truncated) -> Cut {
    Cut { total: truncated.total, shown: truncated.shown, strategy: "head" }
}
