//! Escapes text for a person who has to decide on it: each character that hides, moves or imitates something is shown by its number.
//!
//! The result has no control characters and nothing that changes the direction or position of adjacent text. Backslashes that could
//! begin such a number are doubled, so that no text can imitate an escape.

use crate::characters::{
    columns_max, is_ascii_variant, is_deceptive, is_reordering, is_unsafe, resembles_latin,
};
use std::borrow::Cow;

/// One line of text. A tab becomes `\t`: the text does not determine how wide it is. A line break is escaped too, so that a name
/// begins no row of its own.
pub fn line(text: &str) -> String {
    if text.contains('\n') {
        return one_line(text);
    }
    escaped(text, &["t", "u{"])
}

/// One row for a terminal: as [`for_terminal`], with line breaks and tabs as `\n` and `\t`.
pub fn row(text: &str) -> String {
    for_terminal(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// `text` with doubled backslashes before anything that could look like an escape, which begins with one of `ambiguous`, and before
/// what becomes an escape itself.
fn escaped(text: &str, ambiguous: &[&str]) -> String {
    let is_one_line = ambiguous.contains(&"n");
    let mut out = String::with_capacity(text.len());
    let (mut slashes, mut word) = (0, ScannedWord::default());
    for (at, c) in text.char_indices() {
        if c == '\\' {
            slashes += 1;
            continue;
        }
        let escape = match c {
            '\t' => Some("\\t".to_owned()),
            '\n' if is_one_line => Some("\\n".to_owned()),
            c if is_deceptive(c) || is_reordering(c) || word.is_confusable(text, at, c) => {
                Some(c.escape_unicode().collect())
            }
            _ => None,
        };
        let could_pass = ambiguous.iter().any(|start| text[at..].starts_with(start));
        let times = if escape.is_some() || could_pass { 2 } else { 1 };
        out.push_str(&"\\".repeat(slashes * times));
        slashes = 0;
        match escape {
            Some(escape) => out.push_str(&escape),
            None => out.push(c),
        }
    }
    out + &"\\".repeat(slashes)
}

/// Text as escaped lines. A final line break begins no further line.
pub fn lines(text: &str) -> Vec<String> {
    split(text, line)
}

/// The lines of a text from [`input`], without escaping its numbers again.
pub(crate) fn lines_of_input(shown: &str) -> Vec<String> {
    split(shown, |line| escaped(line, &["t"]))
}

fn split(text: &str, escape: impl Fn(&str) -> String) -> Vec<String> {
    let mut lines: Vec<String> = text.split('\n').map(escape).collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Text on one line; line breaks are escaped too.
pub fn one_line(text: &str) -> String {
    escaped(text, &["n", "t", "u{"])
}

/// The text of an input for a person, as JSON: like for a terminal, but no text can imitate the number of a character. Visible text
/// is changed only where it would.
pub fn input(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at(at);
        let behind = from.trim_start_matches('\\');
        let slashes = &from[..from.len() - behind.len()];
        let next = behind.chars().next();
        let could_pass = behind.starts_with("u{") || next.is_some_and(is_hostile);
        out.push_str(&for_terminal(before));
        out.push_str(&slashes.repeat(if could_pass { 2 } else { 1 }));
        rest = behind;
    }
    out + &for_terminal(rest)
}

/// Appends `text` to a text from [`input`], with its first character shown by number.
pub(crate) fn push_by_number(shown: &mut String, text: &str) {
    let slashes = shown.len() - shown.trim_end_matches('\\').len();
    shown.push_str(&"\\".repeat(slashes));
    let mut chars = text.chars();
    shown.extend(chars.next().into_iter().flat_map(char::escape_unicode));
    shown.push_str(chars.as_str());
}

/// JSON that a terminal can print: the same value, with these characters as `\u202e`. A serializer leaves all but the lowest as they
/// are.
pub fn json(line: &str) -> Cow<'_, str> {
    let is_plain = line.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n'));
    if is_plain || !line.contains(is_hostile) {
        return line.into();
    }
    let mut out = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        if !is_hostile(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out.into()
}

/// Whether a terminal must not print it.
fn is_hostile(c: char) -> bool {
    (is_unsafe(c) || is_reordering(c)) && c != '\n' && c != '\t'
}

/// Text that a terminal can print: line breaks and tabs stay; other characters that are unsafe or move their neighbours are shown
/// by number.
pub fn for_terminal(text: &str) -> String {
    // Most texts are plain, which is quick to see.
    if text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
    {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            out.extend(c.escape_unicode())
        } else {
            out.push(c)
        }
    }
    out
}

/// One escaped line of at most `columns` terminal columns. A cut is marked.
pub fn fitted(text: &str, columns: usize) -> String {
    const MARK: &str = "...";
    let text = one_line(text);
    let room = columns.saturating_sub(MARK.len());
    let (mut used, mut fits) = (0, 0);
    for (at, c) in text.char_indices() {
        used += columns_max(c);
        if used <= room {
            fits = at + c.len_utf8();
        }
    }
    if used <= columns {
        text
    } else {
        format!("{}{}", &text[..fits], &MARK[..MARK.len().min(columns)])
    }
}

/// Prefix of a row that continues the row above.
const MARK: &str = "> ";

/// An escaped line in rows of at most `columns` columns, but at least ten; continued rows are marked.
pub fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(10);
    let mut rows = vec![String::new()];
    let mut used = 0;
    for c in line.chars() {
        used += columns_max(c);
        if used > columns {
            rows.push(MARK.to_owned());
            used = MARK.len() + columns_max(c);
        }
        rows.last_mut().into_iter().for_each(|row| row.push(c));
    }
    rows
}

/// A file's name within a line of text: quoted if it could look like something else, such as two lines.
pub fn file_name(name: &str) -> String {
    if name.contains(is_unsafe) || name.starts_with('"') {
        format!("{name:?}")
    } else {
        name.to_owned()
    }
}

/// The word around the character examined last, and whether it contains Latin letters.
#[derive(Default)]
struct ScannedWord {
    end: usize,
    latin: bool,
}

impl ScannedWord {
    /// Whether `c`, at byte `at`, resembles a Latin letter without being one, in a word with Latin letters: `pаypal`.
    fn is_confusable(&mut self, text: &str, at: usize, c: char) -> bool {
        // No command needs variant forms of letters.
        if c.is_ascii() || !resembles_latin(c) {
            return is_ascii_variant(c);
        }
        if at >= self.end {
            let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            let start = text[..at].rfind(|c| !inside(c)).map_or(0, |before| {
                before + text[before..].chars().next().map_or(1, char::len_utf8)
            });
            self.end = text[at..]
                .find(|c| !inside(c))
                .map_or(text.len(), |length| at + length);
            self.latin = text[start..self.end]
                .bytes()
                .any(|byte| byte.is_ascii_alphabetic());
        }
        self.latin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_begins_a_row_of_its_own() {
        let name = "a\nlazaret: all is well\r\n\u{85}\u{2028}b\tc";
        for shown in [line(name), one_line(name), row(name)] {
            let breaks = ['\n', '\r', '\t', '\u{85}', '\u{2028}'];
            assert!(!shown.contains(breaks), "{shown:?}");
        }
        assert_eq!(row("a\\nb é"), "a\\nb é");
    }

    #[test]
    fn escaped_json_is_the_same_value() {
        for (text, want) in [
            ("plain é", r#""plain é""#),
            ("a\u{1b}[2J\u{7f}\u{202e}b", r#""a\u001b[2J\u007f\u202eb""#),
            ("\\\u{e0041}\\u202e\n", r#""\\\udb40\udc41\\u202e\n""#),
        ] {
            let line = serde_json::to_string(text).unwrap();
            assert_eq!(json(&line), want);
            assert_eq!(serde_json::from_str::<String>(want).unwrap(), text);
        }
    }

    #[test]
    fn deceptive_characters_are_shown_by_their_number() {
        for (text, want) in [
            ("ls -l é 日本", "ls -l é 日本"),
            ("a\x1b[2Jb\r", "a\\u{1b}[2Jb\\u{d}"),
            ("x\u{202e}gpj.exe", "x\\u{202e}gpj.exe"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("rm\u{a0}-rf", "rm\\u{a0}-rf"),
            ("a\u{e0041}b", "a\\u{e0041}b"),
            ("e\u{301}", "e\\u{301}"),
            ("a\tb", "a\\tb"),
            ("a \u{5d0}\u{5d1} b", "a \\u{5d0}\\u{5d1} b"),
            ("\u{600}1 \u{661}", "\\u{600}1 \\u{661}"),
        ] {
            assert_eq!(line(text), want, "{text:?}");
        }
        for c in (0..=0x10_ffff_u32)
            .filter_map(char::from_u32)
            .filter(|c| is_deceptive(*c))
        {
            assert!(!line(&format!("a{c}b")).contains(c), "{:x}", u32::from(c));
        }
    }

    #[test]
    fn no_text_passes_for_an_escape() {
        assert_eq!(line("\\u{1b}"), "\\\\u{1b}");
        assert_eq!(line("\\\\u{1b}"), "\\\\\\\\u{1b}");
        assert_eq!(line("\\t"), "\\\\t");
        assert_eq!(line("a\\d"), "a\\d");
        assert_ne!(line("\\\u{1b}"), line("\\\\u{1b}"));
    }

    #[test]
    fn letters_that_resemble_latin_ones_are_shown_within_latin_words_only() {
        assert_eq!(line("p\u{430}ypal.com"), "p\\u{430}ypal.com");
        assert_eq!(
            line("c\u{3bf}py, привет ελλάδα"),
            "c\\u{3bf}py, привет ελλάδα"
        );
        assert_eq!(line("\u{ff52}\u{ff4d}"), "\\u{ff52}\\u{ff4d}");
        assert_eq!(line("π = 3"), "π = 3");
    }

    #[test]
    fn different_texts_are_escaped_differently() {
        let parts = [
            "\\", "u{202e}", "\u{202e}", "\t", "t", "\n", "n", "é", "a", "\u{430}",
        ];
        let mut seen = [(); 4].map(|()| std::collections::HashMap::new());
        for at in 0..10_usize.pow(4) {
            let text: String = (0..4)
                .map(|place| parts[at / 10_usize.pow(place) % 10])
                .collect();
            let by_lines = |text: &str, escape: fn(&str) -> String| -> String {
                text.split('\n').map(escape).collect::<Vec<_>>().join("\n")
            };
            let of_input = |line: &str| escaped(line, &["t"]);
            let forms = [
                one_line(&text),
                input(&text),
                by_lines(&text, line),
                by_lines(&input(&text), of_input),
            ];
            for (seen, form) in seen.iter_mut().zip(forms) {
                let other = seen
                    .insert(form, text.clone())
                    .unwrap_or_else(|| text.clone());
                assert_eq!(other, text);
            }
        }
        let ordinary = r"grep 'a\.b' \\x; printf '\u00e9\n' 'a\\b' \\\\ \";
        assert_eq!(
            (input(ordinary), line(ordinary)),
            (ordinary.to_owned(), ordinary.to_owned())
        );
        assert_eq!(
            lines_of_input(&input("\u{1b}\\u{1b}\\x")),
            [r"\u{1b}\\u{1b}\x"]
        );
    }

    #[test]
    fn lines_are_cut_at_line_ends_only() {
        assert_eq!(lines("a\nb\n"), ["a", "b"]);
        assert_eq!(lines("a\n\nb"), ["a", "", "b"]);
        assert_eq!(lines(""), Vec::<String>::new());
    }

    #[test]
    fn nothing_in_it_can_steer_a_terminal() {
        assert_eq!(
            for_terminal("a\x1b[2Jb\r\nc\td\u{202e}"),
            "a\\u{1b}[2Jb\\u{d}\nc\td\\u{202e}"
        );
        assert_eq!(for_terminal("é 日本"), "é 日本");
    }

    #[test]
    fn nothing_moves_what_stands_beside_it() {
        for c in (0..=0x10_ffff_u32)
            .filter_map(char::from_u32)
            .filter(|c| is_reordering(*c))
        {
            assert!(
                !for_terminal(&format!("a{c}b")).contains(c),
                "{:x}",
                u32::from(c)
            );
        }
        assert_eq!(for_terminal("rm \u{5d0}"), "rm \\u{5d0}");
    }

    #[test]
    fn a_line_is_cut_to_its_columns_whatever_it_is_made_of() {
        let columns = |text: &str| text.chars().map(columns_max).sum::<usize>();
        for text in [
            "",
            "abc",
            "日本語日本語日本語",
            "a\u{1b}b\nc",
            "हिन्दीहिन्दी",
            "0123456789",
            "01234567890",
        ] {
            for room in 0..40 {
                let cut = fitted(text, room);
                assert!(columns(&cut) <= room, "{text} in {room}: {cut}");
                assert!(
                    cut == one_line(text) || room < 3 || cut.ends_with("..."),
                    "{cut}"
                );
            }
        }
        assert_eq!(fitted("0123456789", 10), "0123456789");
        assert_eq!(fitted("01234567890", 10), "0123456...");
    }

    #[test]
    fn a_name_that_could_pass_for_something_else_is_quoted() {
        for plain in ["a b", "é", "back\\slash", "a\"b", "日本"] {
            assert_eq!(file_name(plain), plain);
        }
        for (odd, want) in [
            ("a\nb", r#""a\nb""#),
            ("\u{1b}[2J", r#""\u{1b}[2J""#),
            ("\"x\"", r#""\"x\"""#),
        ] {
            assert_eq!(file_name(odd), want);
        }
    }
}
