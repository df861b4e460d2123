//! Lines of a file with numbers, in the format of `cat -n`: the number right-aligned in six columns, a tab, the line with its own
//! line break.

use crate::truncate::{Bound, note};
use crate::utf8::unfinished;

/// Characters of a line that are shown; a note after them gives the total.
pub const LINE: usize = 2000;

/// How to show the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineForm {
    #[default]
    Plain,
    /// With numbers, and with long lines cut.
    Numbered,
}

/// Some lines of a file, for the model.
#[derive(Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// As many lines as the bound permits.
    pub text: Vec<u8>,
    /// The number of the file's bytes that it covers; a line that was cut counts completely.
    pub bytes: u64,
    /// Whether there was more than the bound permits.
    pub cut: bool,
    /// How many lines were cut.
    pub cut_lines: u64,
}

impl LineForm {
    /// As much of `content` as `bound` permits; its first line has the number `first`.
    pub fn apply(self, content: Vec<u8>, first: u64, bound: Bound) -> Excerpt {
        match self {
            LineForm::Plain => plain(content, bound),
            LineForm::Numbered => numbered(&content, first, bound),
        }
    }
}

fn plain(mut text: Vec<u8>, bound: Bound) -> Excerpt {
    let keep = bound.cut(text.len());
    text.truncate(keep.unwrap_or(text.len()));
    Excerpt {
        bytes: text.len() as u64,
        text,
        cut: keep.is_some(),
        cut_lines: 0,
    }
}

/// Shows only whole lines, unless the first alone exceeds the bound.
fn numbered(content: &[u8], first: u64, bound: Bound) -> Excerpt {
    let number = |at: usize| first.saturating_add(at as u64);
    let lines = || content.split_inclusive(|byte| *byte == b'\n').enumerate();
    let size: usize = lines()
        .map(|(at, line)| numbered_line(line, number(at)).0.len())
        .sum();
    let keep = bound.cut(size);
    let room = keep.unwrap_or(size);
    let mut shown = Excerpt {
        text: Vec::with_capacity(room),
        bytes: 0,
        cut: keep.is_some(),
        cut_lines: 0,
    };
    for (at, line) in lines() {
        let (mut text, mut cut) = numbered_line(line, number(at));
        if shown.text.len() + text.len() > room {
            if !shown.text.is_empty() {
                break;
            }
            text.truncate(room);
            text.truncate(room - unfinished(&text));
            cut = true;
        }
        shown.text.append(&mut text);
        shown.bytes += line.len() as u64;
        shown.cut_lines += u64::from(cut);
    }
    shown
}

/// A line with its number, and whether it was cut.
fn numbered_line(line: &[u8], number: u64) -> (Vec<u8>, bool) {
    let mut text = format!("{number:>6}\t").into_bytes();
    let body = line.strip_suffix(b"\n").unwrap_or(line);
    let body = body.strip_suffix(b"\r").unwrap_or(body);
    let (shown, total) = beginning(body);
    text.extend_from_slice(&body[..shown]);
    if shown < body.len() {
        text.push(b' ');
        text.extend_from_slice(note(Some(total), LINE as u64, "head", None).as_bytes());
    }
    text.extend_from_slice(&line[body.len()..]);
    (text, shown < body.len())
}

/// The length of the first [`LINE`] characters in bytes, and the number of all characters. An invalid byte counts as one.
fn beginning(line: &[u8]) -> (usize, u64) {
    if line.len() <= LINE {
        return (line.len(), line.len() as u64);
    }
    let pieces = line.utf8_chunks().flat_map(|chunk| {
        let odd = chunk.invalid().len();
        chunk
            .valid()
            .chars()
            .map(char::len_utf8)
            .chain((odd > 0).then_some(odd))
    });
    pieces.fold((0, 0), |(bytes, count), piece| match count < LINE as u64 {
        true => (bytes + piece, count + 1),
        false => (bytes, count + 1),
    })
}

/// How many lines of a file a text shows. A final line without a line break counts only if the file ends there, or if nothing else
/// is shown: then asking again would return no more of it.
pub fn lines_shown(text: &[u8], stopped: bool) -> u64 {
    let ends = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    let open = text.last().is_some_and(|last| *last != b'\n');
    ends + u64::from(open && (!stopped || ends == 0))
}

/// The note that a file goes on: `remaining` lines, if they were counted, from line `next` on.
pub fn goes_on(remaining: Option<u64>, next: u64) -> String {
    let remaining = remaining.map_or("more".into(), |count| count.to_string());
    format!("[{remaining} lines remaining - use offset={next}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Bound = Bound {
        max: usize::MAX,
        keep: usize::MAX,
    };

    fn numbered(content: impl AsRef<[u8]>, first: u64, bound: Bound) -> (String, Excerpt) {
        let shown = LineForm::Numbered.apply(content.as_ref().to_vec(), first, bound);
        (String::from_utf8_lossy(&shown.text).into_owned(), shown)
    }

    #[test]
    fn a_number_stands_before_each_line_and_line_ends_stay() {
        for (content, first, want) in [
            ("", 1, ""),
            ("a", 1, "     1\ta"),
            ("a\nb\n", 9, "     9\ta\n    10\tb\n"),
            (
                "a\r\n\r\n\nb",
                1,
                "     1\ta\r\n     2\t\r\n     3\t\n     4\tb",
            ),
            ("x\n", 1_234_567, "1234567\tx\n"),
            (
                "x\ny",
                u64::MAX,
                "18446744073709551615\tx\n18446744073709551615\ty",
            ),
        ] {
            let (text, shown) = numbered(content, first, ALL);
            assert_eq!((text.as_str(), shown.bytes), (want, content.len() as u64));
            assert!(!shown.cut && shown.cut_lines == 0);
        }
    }

    #[test]
    fn a_line_is_cut_after_2000_characters_whatever_they_are() {
        for piece in [&b"x"[..], "é".as_bytes(), "😀".as_bytes(), b"\xff"] {
            let line = |count: usize| [&piece.repeat(count), &b"\r\n"[..]].concat();
            let exact = LineForm::Numbered.apply(line(LINE), 1, ALL);
            assert_eq!(
                (exact.text, exact.cut_lines),
                ([b"     1\t", &line(LINE)[..]].concat(), 0)
            );
            let mark = b" [truncated: total=2001 shown=2000 strategy=head]\r\n";
            let more = LineForm::Numbered.apply(line(LINE + 1), 1, ALL);
            let want = [b"     1\t", &piece.repeat(LINE)[..], mark].concat();
            assert_eq!((more.text, more.cut_lines, more.cut), (want, 1, false));
            assert_eq!(more.bytes, line(LINE + 1).len() as u64);
        }
    }

    #[test]
    fn the_bound_is_that_of_the_numbered_text_and_holds_at_its_edge() {
        // A line with its number has 11 bytes.
        let content = "abc\n".repeat(10);
        let bound = |max, keep| numbered(&content, 1, Bound { max, keep }).1;
        let (whole, cut) = (bound(110, 50), bound(109, 50));
        assert_eq!((whole.text.len(), whole.cut, whole.bytes), (110, false, 40));
        assert_eq!((cut.text.len(), cut.cut, cut.bytes), (44, true, 16));
        assert_eq!((bound(109, 55).bytes, bound(109, 54).bytes), (20, 16));
        // A first line for which there is no room at all, and no cut within a character.
        for keep in 7..20 {
            let (text, shown) = numbered("é".repeat(50), 1, Bound { max: 100, keep });
            assert!(
                shown.text.len() <= keep && !text.contains('\u{fffd}'),
                "{keep}: {text}"
            );
            assert_eq!((shown.cut, shown.cut_lines), (true, 1));
        }
    }

    #[test]
    fn the_next_line_is_the_first_that_is_not_shown() {
        for (text, stopped, want) in [
            ("", false, 0),
            ("a\n", false, 1),
            ("a\nb", false, 2),
            ("a\nb", true, 1),
            ("b", true, 1),
            ("a\nb\n", true, 2),
        ] {
            assert_eq!(lines_shown(text.as_bytes(), stopped), want, "{text:?}");
        }
        assert_eq!(goes_on(Some(7), 4), "[7 lines remaining - use offset=4]");
        assert_eq!(goes_on(None, 4), "[more lines remaining - use offset=4]");
    }
}
