//! Replaces exact texts in a file: one edit after another in memory, then written like any file, or not at all.
//!
//! A text is searched for as bytes; what else is in the file does not matter. Occurrences are
//! counted from the left and do not overlap.
//!
//! **Line ends.** Texts mostly come from programs that write `\n`, whatever the file has. So an `old` without
//! any `\r` means line ends, not bytes, in two cases: every line of the file ends in `\r\n`; or some do, and
//! `old` spans lines and does not occur in the file unchanged. Then each lone `\n` of `old` and `new` is
//! taken as `\r\n`, and the file keeps its line ends. To change line ends, `old` must contain `\r`.

use crate::beneath::regular;
use crate::bounds::EDITED;
use crate::content::{digest, read_up_to};
use crate::error::{EditError, SystemError, WorkError};
use crate::hunks::Regions;
use crate::root::READING;
use crate::worker::FileCall;
use crate::write::CurrentFile;
use crate::zone_names::Intent;
use broker_protocol::{Edit, Edited, FileEdit, Occurrence};
use memchr::memchr_iter;
use memchr::memmem;
use std::borrow::Cow;
use std::fs::File;

impl FileCall<'_> {
    /// Answers `file_edit`.
    pub(crate) fn edit(&self, request: &FileEdit) -> Result<Edited, WorkError> {
        let path = &request.path;
        let found = self.open(path, READING, Intent::Write)?;
        let stat = regular(path, &found.file)?;
        let content = read_up_to(File::from(found.file), stat.st_size as u64, EDITED)
            .map_err(|error| SystemError::new("read", path, error))?;
        if content.len() > EDITED {
            return Err(EditError::TooLarge {
                path: path.to_string(),
            }
            .into());
        }
        let before = CurrentFile::of(stat, content);
        self.admit(path, &found.location, &before, request.expected_sha256)?;
        let old = before.content.as_deref().unwrap_or_default();
        let Applied {
            content,
            replaced,
            regions,
        } = apply(old, request)?;
        let sha256 = digest(&content);
        let change = self.replace(path, found.location, Some(&before), &content, sha256)?;
        let hunks = regions.hunks(old, &content);
        Ok(Edited {
            replaced,
            bytes: content.len() as u64,
            sha256,
            change,
            hunks,
        })
    }
}

/// A file with all edits applied.
struct Applied {
    content: Vec<u8>,
    /// Number of occurrences that each edit replaced.
    replaced: Vec<u32>,
    /// The regions in which it now differs.
    regions: Regions,
}

fn apply(content: &[u8], request: &FileEdit) -> Result<Applied, EditError> {
    let mut regions = Regions::none();
    let mut content = Cow::Borrowed(content);
    let mut replaced = Vec::with_capacity(request.edits.len());
    for (at, edit) in request.edits.iter().enumerate() {
        let (old, new) = texts(&content, edit);
        let near = match edit.occurrence {
            Occurrence::Near(line) => {
                Occurrence::nearest(&content, memmem::find_iter(&content, &*old), line)
            }
            Occurrence::Only | Occurrence::All | Occurrence::Exactly(_) => None,
        };
        let found = || {
            memmem::find_iter(&content, &*old)
                .filter(move |place| near.is_none_or(|near| near == *place))
        };
        let places = found().count();
        check(places, edit.occurrence, at + 1, || request.path.to_string())?;
        let size = content.len() - places * old.len() + places * new.len();
        if size > EDITED {
            return Err(EditError::TooLarge {
                path: request.path.to_string(),
            });
        }
        regions = regions.then(found(), old.len(), new.len());
        let result = replace(&content, found(), (old.len(), &new), size);
        content = Cow::Owned(result);
        replaced.push(places as u32);
    }
    Ok(Applied {
        content: content.into_owned(),
        replaced,
        regions,
    })
}

fn check(
    found: usize,
    occurrence: Occurrence,
    edit: usize,
    path: impl Fn() -> String,
) -> Result<(), EditError> {
    match (occurrence, found) {
        (Occurrence::Exactly(wanted), found) if found == wanted as usize => Ok(()),
        (_, 0) => Err(EditError::Missing { edit, path: path() }),
        (Occurrence::Exactly(wanted), found) => Err(EditError::Count {
            edit,
            path: path(),
            found,
            wanted,
        }),
        (Occurrence::Only | Occurrence::Near(_), 1) | (Occurrence::All, _) => Ok(()),
        (Occurrence::Only | Occurrence::Near(_), found) => Err(EditError::Ambiguous {
            edit,
            path: path(),
            found,
        }),
    }
}

/// `content` with `new` for the `old` bytes at each of `places`; the result has `size` bytes.
fn replace(
    content: &[u8],
    places: impl Iterator<Item = usize>,
    (old, new): (usize, &[u8]),
    size: usize,
) -> Vec<u8> {
    let mut result = Vec::with_capacity(size);
    let mut copied = 0;
    for offset in places {
        result.extend_from_slice(&content[copied..offset]);
        result.extend_from_slice(new);
        copied = offset + old;
    }
    result.extend_from_slice(&content[copied..]);
    result
}

/// The old and new text of `edit`, with the line ends of `content` if it means line ends.
fn texts<'e>(content: &[u8], edit: &'e Edit) -> (Cow<'e, [u8]>, Cow<'e, [u8]>) {
    let (old, new) = (edit.old.as_bytes(), edit.new.as_bytes());
    let spans = || old.contains(&b'\n') && memmem::find(content, old).is_none();
    let means_lines = !old.contains(&b'\r')
        && match line_ends(content) {
            LineEnds::Lf => false,
            LineEnds::CrLf => true,
            LineEnds::Mixed => spans(),
        };
    match means_lines {
        true => (crlf(old).into(), crlf(new).into()),
        false => (old.into(), new.into()),
    }
}

/// How the lines of a file end.
enum LineEnds {
    /// No line ends in `\r\n`.
    Lf,
    /// Every line ends in `\r\n`.
    CrLf,
    /// Some lines end in `\r\n`.
    Mixed,
}

fn line_ends(content: &[u8]) -> LineEnds {
    let (mut lf, mut crlf) = (false, false);
    for at in memchr_iter(b'\n', content) {
        match at.checked_sub(1).map(|before| content[before]) {
            Some(b'\r') => crlf = true,
            _ => lf = true,
        }
        if lf && crlf {
            return LineEnds::Mixed;
        }
    }
    if crlf { LineEnds::CrLf } else { LineEnds::Lf }
}

/// `text` with each lone `\n` as `\r\n`.
fn crlf(text: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    for (at, &byte) in text.iter().enumerate() {
        if byte == b'\n' && (at == 0 || text[at - 1] != b'\r') {
            result.push(b'\r');
        }
        result.push(byte);
    }
    result
}
