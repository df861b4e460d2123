//! What a file tool found or did, in words: plain lines for the model, with a note where they stop.

use super::answer::{Cut, Details, PartFile};
use super::difference::Difference;
use super::numbered::{Form, Shown, goes_on, lines_shown};
use super::profile::{Bound, Profile, note};
use super::text::{counted, name, unfinished};
use super::{background, changes};
use broker_protocol::{
    Edited, FileReply, Grepped, InPart, Listed, ListedKind, Match, MatchLine, Read, Roots, Truncated,
    Unsearched, Walked, Written, ZonePath,
};

/// Where a file tool worked.
pub struct Place<'a> {
    /// The file or directory.
    pub path: ZonePath,
    /// Where it lies on this machine.
    pub absolute: String,
    /// How much is shown.
    pub profile: &'a Profile,
    /// How the lines of a file are shown.
    pub form: Form,
}

/// Text for the model, what was left out of it, and what else is known.
pub type Told = (Vec<u8>, Option<Cut>, Details);

impl Place<'_> {
    /// Puts `reply` into words.
    pub fn tell(self, reply: FileReply, roots: &Roots) -> Told {
        match reply {
            FileReply::Read(read) => self.read(read),
            FileReply::Written(written) => self.written(&written),
            FileReply::Edited(edited) => self.edited(edited),
            FileReply::Listed(listed) => self.listed(&listed),
            FileReply::Walked(walked) => self.walked(&walked),
            FileReply::Grepped(grepped) => self.grepped(grepped),
            FileReply::Started(started) => background::started(&started, roots),
            FileReply::Background(processes) => background::listed(&processes, roots),
            FileReply::Logged(logged) => background::logged(logged),
            FileReply::Killed(process) => background::killed(&process, roots),
            FileReply::History(changes) => changes::listed(&changes),
            FileReply::Undone(undone) => changes::undone(&undone, &self),
            FileReply::Bytes(bytes) => (bytes.content, None, Details::None),
        }
    }

    fn read(self, read: Read) -> Told {
        let Read { content, first_line, lines, size, truncated, sha256, total_lines } = read;
        let Shown { mut text, bytes, cut, cut_lines } =
            self.form.show(content, first_line, self.profile.file);
        let stopped = cut || truncated.is_some();
        let next = first_line.saturating_add(lines_shown(&text, stopped));
        let remaining = total_lines.map(|total| total.saturating_add(1).saturating_sub(next));
        let next = (remaining != Some(0)).then_some(next);
        let cut = stopped.then(|| {
            let half = unfinished(&text);
            text.truncate(text.len() - half);
            let (total, shown) = (Some(size), bytes - half as u64);
            Cut { total, shown, strategy: "head", full: Some(self.absolute.clone()) }
        });
        let goes_on = next.filter(|_| self.form == Form::Numbered).map(|next| goes_on(remaining, next));
        for note in cut.iter().map(Cut::note).chain(goes_on) {
            if self.form == Form::Raw || text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            text.extend_from_slice(note.as_bytes());
        }
        let (path, sha256) = (self.absolute, sha256.map(|digest| digest.to_string()));
        (text, cut, Details::Read { path, first_line, lines, size, sha256, total_lines, next, cut_lines })
    }

    fn written(self, written: &Written) -> Told {
        let kept = changes::note(written.change);
        let text =
            format!("wrote {} to {}{kept}", counted(written.bytes, "byte"), name(&self.path.to_string()));
        let Written { bytes, created, sha256, change, ref hunks } = *written;
        let sha256 = sha256.to_string();
        let difference = match created {
            true => Difference::default(),
            false => Difference::of(&self.path, hunks.as_deref()),
        };
        let path = self.absolute;
        (text.into_bytes(), None, Details::Written { path, bytes, created, sha256, change, difference })
    }

    fn edited(self, edited: Edited) -> Told {
        let places = edited.replaced.iter().fold(0, |sum: u32, count| sum.saturating_add(*count));
        let places = counted(places.into(), "place");
        let kept = changes::note(edited.change);
        let text = format!("replaced {places} in {}{kept}", name(&self.path.to_string()));
        let Edited { replaced, bytes, sha256, change, hunks } = edited;
        let sha256 = sha256.to_string();
        let difference = Difference::of(&self.path, hunks.as_deref());
        let path = self.absolute;
        (text.into_bytes(), None, Details::Edited { path, replaced, bytes, sha256, change, difference })
    }

    fn listed(self, listed: &Listed) -> Told {
        let mark = |kind| match kind {
            ListedKind::File => "",
            ListedKind::Directory => "/",
            ListedKind::Link => "@",
            ListedKind::Other => "|",
        };
        let bound = self.profile.entries;
        let lines = listed.entries.iter().map(|entry| format!("{}{}", name(&entry.path), mark(entry.kind)));
        let found = Found::new(listed.entries.len(), listed.truncated, bound);
        self.found(lines.take(found.shown).collect(), found, "the directory is empty", None, Vec::new())
    }

    fn walked(self, walked: &Walked) -> Told {
        let found = Found::new(walked.paths.len(), walked.truncated, self.profile.matches);
        let lines = walked.paths.iter().take(found.shown).map(|path| self.shown(path)).collect();
        self.found(lines, found, "no file matches", None, Vec::new())
    }

    fn grepped(self, mut grepped: Grepped) -> Told {
        let is_match = |line: &&MatchLine| line.matched;
        let count = grepped.matches.iter().flat_map(|file| &file.lines).filter(is_match).count();
        let found = Found::new(count, grepped.truncated, self.profile.matches);
        keep_matches(&mut grepped.matches, found.shown);
        let lines = grepped.matches.iter().flat_map(|file| self.matched(file)).collect();
        let part = |file: &InPart| PartFile { path: self.shown(&file.path), why: file.why.name() };
        let in_part = grepped.in_part.iter().map(part).collect();
        let note = self.searched_in_part(&grepped);
        let (mut text, cut, details) =
            self.found(lines, found, "no line matches", Some(grepped.binary), in_part);
        text.extend_from_slice(note.as_bytes());
        (text, cut, details)
    }

    /// What is said of files of which not all was searched.
    fn searched_in_part(&self, grepped: &Grepped) -> String {
        if grepped.in_part_count == 0 {
            return String::new();
        }
        let why = |why| match why {
            Unsearched::LongLine => "a line is too long",
            Unsearched::Unreadable => "not all of it can be read",
        };
        let named =
            grepped.in_part.iter().map(|file| format!("{} ({})", self.shown(&file.path), why(file.why)));
        let more = match grepped.in_part_count.saturating_sub(grepped.in_part.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("\n[searched in part: {}{more}]", named.collect::<Vec<_>>().join(", "))
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
        found: Found,
        none: &str,
        binary: Option<u64>,
        in_part: Vec<PartFile>,
    ) -> Told {
        let mut text = if lines.is_empty() { none.to_owned() } else { lines.join("\n") };
        if let Some(cut) = &found.cut {
            text.push('\n');
            text.push_str(&cut.note());
        }
        let details = Details::Found { path: self.absolute, count: found.shown as u64, binary, in_part };
        (text.into_bytes(), found.cut, details)
    }
}

/// A list that stops before its end.
pub(super) fn head(truncated: Truncated) -> Cut {
    Cut { total: truncated.total, shown: truncated.shown, strategy: "head", full: None }
}

/// How many of the things that were found are shown.
struct Found {
    shown: usize,
    cut: Option<Cut>,
}

impl Found {
    /// Of `count` things in an answer, which may itself stop before the end.
    fn new(count: usize, truncated: Option<Truncated>, bound: Bound) -> Self {
        let more = truncated.is_some() && count >= bound.most;
        let shown = if more { bound.keep.min(count) } else { bound.cut(count).unwrap_or(count) };
        let total = truncated.map_or(Some(count as u64), |truncated| truncated.total);
        let cut = (truncated.is_some() || shown < count).then_some(Cut {
            total,
            shown: shown as u64,
            strategy: "head",
            full: None,
        });
        Self { shown, cut }
    }
}

/// Keeps the first `most` matching lines and what stands around them.
fn keep_matches(files: &mut Vec<Match>, most: usize) {
    let mut left = most;
    for file in files.iter_mut() {
        file.lines.retain(|line| {
            let keep = left > 0;
            left -= usize::from(keep && line.matched);
            keep
        });
    }
    files.retain(|file| !file.lines.is_empty());
}

impl Cut {
    /// The note in the text.
    fn note(&self) -> String {
        note(self.total, self.shown, self.strategy, self.full.as_deref())
    }
}
