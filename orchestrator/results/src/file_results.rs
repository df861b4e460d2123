//! Renders the results of file tools as lines for the model, with a note where they are cut.

use crate::background;
use crate::changes;
use crate::metadata::{Details, PartFile, Truncation};
use crate::profile::ModelProfile;
use crate::rendered::Rendered;
use broker_protocol::{
    Edited, FileReply, Grepped, InPart, Listed, ListedKind, Match, MatchLine, Read, Roots,
    Truncated, Unsearched, Walked, Written, ZonePath,
};
use orchestrator_text::diff::FileDiff;
use orchestrator_text::escape::file_name;
use orchestrator_text::numbered::{Excerpt, LineForm, goes_on, lines_shown};
use orchestrator_text::truncate::{Bound, counted};
use orchestrator_text::utf8::unfinished;

/// Renders the reply of a file tool that worked at a path.
pub(crate) struct FileRenderer<'a> {
    pub path: ZonePath,
    /// The absolute path on this machine.
    pub absolute: String,
    pub profile: &'a ModelProfile,
    pub form: LineForm,
}

impl FileRenderer<'_> {
    pub(crate) fn render(self, reply: FileReply, roots: &Roots) -> Rendered {
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
            FileReply::Undone(undone) => changes::undone(&undone, &self.path, self.absolute),
            FileReply::Bytes(bytes) => Rendered::new(bytes.content, Details::None),
        }
    }

    fn read(self, read: Read) -> Rendered {
        let Read {
            content,
            first_line,
            lines,
            size,
            truncated,
            sha256,
            total_lines,
        } = read;
        let Excerpt {
            mut text,
            bytes,
            cut,
            cut_lines,
        } = self.form.apply(content, first_line, self.profile.file);
        let stopped = cut || truncated.is_some();
        let next = first_line.saturating_add(lines_shown(&text, stopped));
        let remaining = total_lines.map(|total| total.saturating_add(1).saturating_sub(next));
        let next = (remaining != Some(0)).then_some(next);
        let cut = stopped.then(|| {
            let half = unfinished(&text);
            text.truncate(text.len() - half);
            let (total, shown) = (Some(size), bytes - half as u64);
            Truncation {
                total,
                shown,
                strategy: "head",
                full: Some(self.absolute.clone()),
            }
        });
        let goes_on = next
            .filter(|_| self.form == LineForm::Numbered)
            .map(|next| goes_on(remaining, next));
        for note in cut.iter().map(Truncation::note).chain(goes_on) {
            if self.form == LineForm::Plain || text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            text.extend_from_slice(note.as_bytes());
        }
        let (path, sha256) = (self.absolute, sha256.map(|digest| digest.to_string()));
        let details = Details::Read {
            path,
            first_line,
            lines,
            size,
            sha256,
            total_lines,
            next,
            cut_lines,
        };
        Rendered {
            text,
            truncation: cut,
            details,
        }
    }

    fn written(self, written: &Written) -> Rendered {
        let undo = changes::undo_note(written.change);
        let text = format!(
            "wrote {} to {}{undo}",
            counted(written.bytes, "byte"),
            file_name(&self.path.to_string())
        );
        let Written {
            bytes,
            created,
            sha256,
            change,
            ref hunks,
        } = *written;
        let sha256 = sha256.to_string();
        let diff = match created {
            true => FileDiff::default(),
            false => FileDiff::of(&self.path, hunks.as_deref()),
        };
        let path = self.absolute;
        Rendered::new(
            text,
            Details::Written {
                path,
                bytes,
                created,
                sha256,
                change,
                diff,
            },
        )
    }

    fn edited(self, edited: Edited) -> Rendered {
        let places = edited
            .replaced
            .iter()
            .fold(0, |sum: u32, count| sum.saturating_add(*count));
        let places = counted(places.into(), "place");
        let undo = changes::undo_note(edited.change);
        let text = format!(
            "replaced {places} in {}{undo}",
            file_name(&self.path.to_string())
        );
        let Edited {
            replaced,
            bytes,
            sha256,
            change,
            hunks,
        } = edited;
        let sha256 = sha256.to_string();
        let diff = FileDiff::of(&self.path, hunks.as_deref());
        let path = self.absolute;
        Rendered::new(
            text,
            Details::Edited {
                path,
                replaced,
                bytes,
                sha256,
                change,
                diff,
            },
        )
    }

    fn listed(self, listed: &Listed) -> Rendered {
        let mark = |kind| match kind {
            ListedKind::File => "",
            ListedKind::Directory => "/",
            ListedKind::Link => "@",
            ListedKind::Other => "|",
        };
        let bound = self.profile.entries;
        let lines = listed
            .entries
            .iter()
            .map(|entry| format!("{}{}", file_name(&entry.path), mark(entry.kind)));
        let found = ShownItems::new(listed.entries.len(), listed.truncated, bound);
        self.list(
            lines.take(found.shown).collect(),
            found,
            "the directory is empty",
            None,
            Vec::new(),
        )
    }

    fn walked(self, walked: &Walked) -> Rendered {
        let found = ShownItems::new(walked.paths.len(), walked.truncated, self.profile.matches);
        let lines = walked
            .paths
            .iter()
            .take(found.shown)
            .map(|path| self.name_below(path))
            .collect();
        self.list(lines, found, "no file matches", None, Vec::new())
    }

    fn grepped(self, mut grepped: Grepped) -> Rendered {
        let is_match = |line: &&MatchLine| line.matched;
        let count = grepped
            .matches
            .iter()
            .flat_map(|file| &file.lines)
            .filter(is_match)
            .count();
        let found = ShownItems::new(count, grepped.truncated, self.profile.matches);
        cut_matches(&mut grepped.matches, found.shown);
        let lines = grepped
            .matches
            .iter()
            .flat_map(|file| self.matched(file))
            .collect();
        let part = |file: &InPart| PartFile {
            path: self.name_below(&file.path),
            why: file.why.name(),
        };
        let in_part = grepped.in_part.iter().map(part).collect();
        let note = self.searched_in_part(&grepped);
        let mut rendered = self.list(
            lines,
            found,
            "no line matches",
            Some(grepped.binary),
            in_part,
        );
        rendered.text.extend_from_slice(note.as_bytes());
        rendered
    }

    /// The note about files that were searched only in part.
    fn searched_in_part(&self, grepped: &Grepped) -> String {
        if grepped.in_part_count == 0 {
            return String::new();
        }
        let why = |why| match why {
            Unsearched::LongLine => "a line is too long",
            Unsearched::Unreadable => "not all of it can be read",
        };
        let named = grepped
            .in_part
            .iter()
            .map(|file| format!("{} ({})", self.name_below(&file.path), why(file.why)));
        let more = match grepped
            .in_part_count
            .saturating_sub(grepped.in_part.len() as u64)
        {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "\n[searched in part: {}{more}]",
            named.collect::<Vec<_>>().join(", ")
        )
    }

    fn matched(&self, file: &Match) -> Vec<String> {
        let path = self.name_below(&file.path);
        let line = |line: &MatchLine| {
            let mark = if line.matched { ':' } else { '-' };
            format!("{path}{mark}{}{mark}{}", line.number, line.text)
        };
        file.lines.iter().map(line).collect()
    }

    /// A path below the zone, written so that the next call can use it.
    fn name_below(&self, relative: &str) -> String {
        match ZonePath::new(self.path.zone(), relative) {
            Ok(path) => file_name(&path.to_string()),
            Err(_) => file_name(relative),
        }
    }

    fn list(
        self,
        lines: Vec<String>,
        found: ShownItems,
        none: &str,
        binary: Option<u64>,
        in_part: Vec<PartFile>,
    ) -> Rendered {
        let mut text = if lines.is_empty() {
            none.to_owned()
        } else {
            lines.join("\n")
        };
        if let Some(truncation) = &found.truncation {
            text.push('\n');
            text.push_str(&truncation.note());
        }
        let details = Details::Found {
            path: self.absolute,
            count: found.shown as u64,
            binary,
            in_part,
        };
        Rendered {
            truncation: found.truncation,
            ..Rendered::new(text, details)
        }
    }
}

/// How many of the items found are shown.
struct ShownItems {
    shown: usize,
    truncation: Option<Truncation>,
}

impl ShownItems {
    /// For `count` items in a reply, which may itself be incomplete.
    fn new(count: usize, truncated: Option<Truncated>, bound: Bound) -> Self {
        let more = truncated.is_some() && count >= bound.max;
        let shown = if more {
            bound.keep.min(count)
        } else {
            bound.cut(count).unwrap_or(count)
        };
        let total = truncated.map_or(Some(count as u64), |truncated| truncated.total);
        let truncation = (truncated.is_some() || shown < count).then_some(Truncation {
            total,
            shown: shown as u64,
            strategy: "head",
            full: None,
        });
        Self { shown, truncation }
    }
}

/// Keeps the first `max` matching lines and their context.
fn cut_matches(files: &mut Vec<Match>, max: usize) {
    let mut left = max;
    for file in files.iter_mut() {
        file.lines.retain(|line| {
            let keep = left > 0;
            left -= usize::from(keep && line.matched);
            keep
        });
    }
    files.retain(|file| !file.lines.is_empty());
}
