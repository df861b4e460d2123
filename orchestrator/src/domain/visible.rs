//! Text for a person who has to decide on it: every character that hides, moves or pretends is shown by its number.
//!
//! What comes out has no control characters and nothing that changes the direction or the place of what stands beside it.
//! A backslash that could begin such a number is doubled, so that no text can pass for an escape.

/// One line of text as it can be shown. Tabs become `\t`: how wide they are is not the text's to say.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.char_indices().peekable();
    let mut foreign = Foreign::default();
    while let Some((at, c)) = chars.next() {
        match c {
            '\t' => out.push_str("\\t"),
            '\\' if matches!(chars.peek(), Some((_, 'u' | 't' | '\\'))) => out.push_str("\\\\"),
            c if hides(c) || foreign.pretends(text, at, c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Text as lines that can be shown. A last line without its end says so.
pub fn lines(text: &str) -> Vec<String> {
    let mut shown: Vec<String> = text.split('\n').map(line).collect();
    match shown.last() {
        Some(last) if last.is_empty() => drop(shown.pop()),
        _ => {}
    }
    shown
}

/// Whether a character is not seen as what it is: controls, marks of direction, what has no width or is drawn over its
/// neighbours, odd spaces.
pub fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{a0}' | '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}'
            | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}' | '\u{20d0}'..='\u{20ff}' | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
}

/// The word that was looked at last, and whether it has Latin letters.
#[derive(Default)]
struct Foreign {
    end: usize,
    latin: bool,
}

impl Foreign {
    /// Whether `c`, at byte `at`, looks like a Latin letter, is none, and stands in a word with some: `pаypal`.
    fn pretends(&mut self, text: &str, at: usize, c: char) -> bool {
        if !looks_latin(c) {
            return false;
        }
        if at >= self.end {
            let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            let start = text[..at]
                .rfind(|c| !inside(c))
                .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
            self.end = text[at..].find(|c| !inside(c)).map_or(text.len(), |length| at + length);
            self.latin = text[start..self.end].bytes().any(|byte| byte.is_ascii_alphabetic());
        }
        // Letters in another shape are never needed to write a command.
        self.latin || matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}')
    }
}

/// Scripts with letters that look like Latin ones.
fn looks_latin(c: char) -> bool {
    matches!(c,
        '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{530}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}'
        | '\u{2c80}'..='\u{2cff}' | '\u{a4d0}'..='\u{a4ff}' | '\u{ff01}'..='\u{ff5e}'
        | '\u{1d400}'..='\u{1d7ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_is_shown_by_its_number() {
        for (text, want) in [
            ("ls -l é 日本", "ls -l é 日本"),
            ("a\x1b[2Jb\r", "a\\u{1b}[2Jb\\u{d}"),
            ("x\u{202e}gpj.exe", "x\\u{202e}gpj.exe"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("rm\u{a0}-rf", "rm\\u{a0}-rf"),
            ("a\u{e0041}b", "a\\u{e0041}b"),
            ("e\u{301}", "e\\u{301}"),
            ("a\tb", "a\\tb"),
        ] {
            assert_eq!(line(text), want, "{text:?}");
        }
        for c in (0..=0x10_ffff_u32).filter_map(char::from_u32).filter(|c| hides(*c)) {
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
    fn letters_that_pretend_to_be_latin_are_shown_and_words_of_another_script_are_not() {
        assert_eq!(line("p\u{430}ypal.com"), "p\\u{430}ypal.com");
        assert_eq!(line("c\u{3bf}py, привет ελλάδα"), "c\\u{3bf}py, привет ελλάδα");
        assert_eq!(line("\u{ff52}\u{ff4d}"), "\\u{ff52}\\u{ff4d}");
        assert_eq!(line("π = 3"), "π = 3");
    }

    #[test]
    fn lines_are_cut_at_line_ends_only() {
        assert_eq!(lines("a\nb\n"), ["a", "b"]);
        assert_eq!(lines("a\n\nb"), ["a", "", "b"]);
        assert_eq!(lines(""), Vec::<String>::new());
    }
}
