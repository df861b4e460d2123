//! Known secret values in what is shown or recorded: each becomes `[redacted:NAME]`.
//!
//! Only values as they are: one that a command encodes, cuts or spells out another way is not seen. It is a net under the
//! layers that keep secrets out of a cell, and no wall.

use aho_corasick::{AhoCorasick, MatchKind, PatternID};
use broker_protocol::Captured;
use policies::secret::{Secret, VALUE_MIN};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Longest text in a record, in characters.
pub const BRIEF: usize = 2000;
/// Shortest piece of a secret that is blotted out where an output was cut through it, in bytes.
const PIECE: usize = 4;

/// Looks for secrets. With none to look for it costs nothing.
pub struct Redactor(Option<Search>);

struct Search {
    automaton: AhoCorasick,
    secrets: Vec<Secret>,
    /// Whether a secret begins with this byte.
    begins: [bool; 256],
    longest: usize,
    /// The same for what may begin and end within a secret; `None` where none has several lines.
    lines: Option<Box<Search>>,
}

/// The lines of a secret that has several, each as a secret by itself.
fn lines_of(secret: &Secret) -> Vec<Secret> {
    let lines = secret.value.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let long = lines.filter(|line| (VALUE_MIN..secret.value.len()).contains(&line.len()));
    long.map(|line| Secret { name: secret.name.clone(), value: line.to_vec() }).collect()
}

/// `value` with `change` made in every text in it, names of fields too.
fn texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(values) => values.iter().map(|value| texts(value, change)).collect(),
        Value::Object(fields) => {
            let changed = |(name, value): (&String, &Value)| (change(name), texts(value, change));
            Value::Object(fields.iter().map(changed).collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

impl Redactor {
    /// Looks for `secrets`, none of which is empty.
    pub fn new(secrets: Vec<Secret>) -> Self {
        let mut search = Search::new(secrets.clone());
        let lines: Vec<Secret> = secrets.iter().flat_map(lines_of).collect();
        if let Some(search) = search.as_mut().filter(|_| !lines.is_empty()) {
            search.lines = Search::new([secrets, lines].concat()).map(Box::new);
        }
        Self(search)
    }

    /// Whether there is anything to look for.
    pub fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// `bytes` without secrets.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(search) = self.0.as_ref().filter(|search| search.automaton.is_match(bytes)) else {
            return Cow::Borrowed(bytes);
        };
        let mut clear = Vec::with_capacity(bytes.len());
        let end = search.pass(bytes, bytes.len(), &mut clear);
        clear.extend_from_slice(&bytes[end..]);
        Cow::Owned(clear)
    }

    /// `bytes` without secrets, and without lines of them: these are lines of a file, and a secret may go on before and behind.
    /// The line ends in a secret stay, so that all lines keep their numbers.
    pub fn excerpt(&self, bytes: &mut Vec<u8>) {
        let Some(search) = &self.0 else { return };
        let search = search.lines.as_deref().unwrap_or(search);
        let mut clear = Vec::new();
        let mut at = 0;
        for found in search.automaton.find_iter(&*bytes) {
            clear.extend_from_slice(&bytes[at..found.start()]);
            clear.extend(search.mark(found.pattern()).bytes());
            clear.extend(bytes[found.range()].iter().filter(|byte| **byte == b'\n'));
            at = found.end();
        }
        if at > 0 {
            clear.extend_from_slice(&bytes[at..]);
            *bytes = clear;
        }
    }

    /// `text` without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The beginning of `text`, without secrets and not ending within one.
    pub fn brief(&self, text: &str) -> String {
        let Some((end, _)) = text.char_indices().nth(BRIEF) else { return self.text(text).into_owned() };
        let clear = self.stream().push(&text.as_bytes()[..end]).into_owned();
        let clear: String = String::from_utf8_lossy(&clear).chars().take(BRIEF).collect();
        format!("{clear}… [{} bytes in all]", text.len())
    }

    /// `value` with every text in it [`brief`](Self::brief).
    pub fn value(&self, value: &Value) -> Value {
        texts(value, &|text| self.brief(text))
    }

    /// `value` without secrets, and with all else in it.
    pub fn whole<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        if self.is_idle() {
            return Cow::Borrowed(value);
        }
        Cow::Owned(texts(value, &|text| self.text(text).into_owned()))
    }

    /// Blots out the pieces of a secret that an output was cut through: neither end shows half of it.
    pub fn cut(&self, captured: &mut Captured) {
        let Some(search) = self.0.as_ref().filter(|_| captured.omitted > 0) else { return };
        let start = search.unfinished(&captured.head, 0);
        if captured.head.len() - start >= PIECE {
            captured.head.truncate(start);
            captured.head.extend_from_slice(b"[redacted]");
        }
        let end = search.continued(&captured.tail);
        if end >= PIECE {
            captured.tail.splice(..end, *b"[redacted]");
        }
    }

    /// For bytes that come in pieces.
    pub fn stream(&self) -> Stream<'_> {
        Stream { redactor: self, held: Vec::new() }
    }
}

impl Search {
    /// Looks for `secrets`; `None` where there are none.
    fn new(secrets: Vec<Secret>) -> Option<Self> {
        if secrets.is_empty() {
            return None;
        }
        let mut begins = [false; 256];
        secrets
            .iter()
            .filter_map(|secret| secret.value.first())
            .for_each(|byte| begins[usize::from(*byte)] = true);
        let longest = secrets.iter().map(|secret| secret.value.len()).max().unwrap_or(0);
        let values = secrets.iter().map(|secret| &secret.value);
        // It fails on patterns of gigabytes, and an environment has no such.
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
        Some(Self { automaton: automaton.ok()?, secrets, begins, longest, lines: None })
    }

    /// Appends what of `bytes` begins before `end`, without secrets; returns where it stopped, which is behind `end` where a
    /// secret reaches over it.
    fn pass(&self, bytes: &[u8], end: usize, clear: &mut Vec<u8>) -> usize {
        let mut at = 0;
        for found in self.automaton.find_iter(bytes).take_while(|found| found.start() < end) {
            clear.extend_from_slice(&bytes[at..found.start()]);
            clear.extend(self.mark(found.pattern()).bytes());
            at = found.end();
        }
        if at < end {
            clear.extend_from_slice(&bytes[at..end]);
            at = end;
        }
        at
    }

    /// What stands where a secret was.
    fn mark(&self, pattern: PatternID) -> String {
        format!("[redacted:{}]", self.secrets[pattern].name)
    }

    /// Where the longest end of `bytes` begins, from `from` on, that may still become a secret.
    fn unfinished(&self, bytes: &[u8], from: usize) -> usize {
        let first = from.max((bytes.len() + 1).saturating_sub(self.longest));
        let begins = |at: &usize| {
            let end = &bytes[*at..];
            self.begins[usize::from(bytes[*at])]
                && self
                    .secrets
                    .iter()
                    .any(|secret| secret.value.len() > end.len() && secret.value.starts_with(end))
        };
        (first..bytes.len()).find(begins).unwrap_or(bytes.len())
    }

    /// How many bytes at the start of `bytes` are the end of a secret.
    fn continued(&self, bytes: &[u8]) -> usize {
        let most = bytes.len().min(self.longest - 1);
        let ends = |length: &usize| {
            let start = &bytes[..*length];
            self.secrets.iter().any(|secret| secret.value.len() > *length && secret.value.ends_with(start))
        };
        (1..=most).rev().find(ends).unwrap_or(0)
    }
}

/// Takes secrets out of a stream however it is cut.
pub struct Stream<'r> {
    redactor: &'r Redactor,
    /// The beginning of what may become a secret.
    held: Vec<u8>,
}

impl Stream<'_> {
    /// Adds `bytes`; gives what can be shown now.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(search) = &self.redactor.0 else { return Cow::Borrowed(bytes) };
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        let mut clear = Vec::with_capacity(joined.len());
        let mut at = 0;
        loop {
            let safe = search.unfinished(&joined, at);
            let passed = at + search.pass(&joined[at..], safe - at, &mut clear);
            if passed == safe {
                self.held = joined.split_off(safe);
                return Cow::Owned(clear);
            }
            // A secret reaches over what was to be held: what is held begins behind it.
            at = passed;
        }
    }

    /// What was held at the end: it never became a secret.
    pub fn rest(&mut self) -> Vec<u8> {
        self.redactor.bytes(&std::mem::take(&mut self.held)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redactor(values: &[(&str, &str)]) -> Redactor {
        let secret =
            |(name, value): &(&str, &str)| Secret { name: (*name).into(), value: value.as_bytes().to_vec() };
        Redactor::new(values.iter().map(secret).collect())
    }

    fn streamed(redactor: &Redactor, pieces: &[&[u8]]) -> String {
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        pieces.iter().for_each(|piece| out.extend_from_slice(&stream.push(piece)));
        out.extend(stream.rest());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn with_nothing_to_look_for_nothing_is_copied() {
        let none = redactor(&[]);
        assert!(none.is_idle());
        assert!(matches!(none.bytes(b"abc"), Cow::Borrowed(_)));
        assert!(matches!(none.stream().push(b"abc"), Cow::Borrowed(_)));
        let one = redactor(&[("A", "secret-a")]);
        assert!(matches!(one.text("innocent"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_is_found_however_the_stream_is_cut() {
        let both = redactor(&[("A", "abcabcabd"), ("B", "abcabcab"), ("C", "cabdxyz1"), ("D", "zzzzzzzz")]);
        let text = b"1 abcabcabd 2 abcabcab 3 abcabcabcabd 4 cabdxyz1 5 zzzzzzzzz abcabcabdxyz1 abcabca";
        let want = both.text(std::str::from_utf8(text).unwrap()).into_owned();
        let shown = "1 [redacted:A] 2 [redacted:B] 3 [redacted:B]cabd 4 [redacted:C] 5 [redacted:D]z [redacted:A]xyz1 abcabca";
        assert_eq!(want, shown);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(streamed(&both, &pieces), want, "cut at {first} and {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(streamed(&both, &bytes), want);
    }

    #[test]
    fn nothing_is_held_but_what_may_become_a_secret() {
        let one = redactor(&[("A", "secret-a")]);
        let mut stream = one.stream();
        assert_eq!(&*stream.push(b"text sec"), b"text ");
        assert_eq!(&*stream.push(b"ond"), b"second");
        assert_eq!(&*stream.push(b"secret-"), b"");
        assert_eq!(stream.rest(), b"secret-");
    }

    #[test]
    fn of_an_excerpt_no_line_of_a_secret_is_left_and_lines_keep_their_numbers() {
        let key = "--- begin ---\r\nfirst-line-1\nsecond-line\nab\n--- end ---";
        let both = redactor(&[("KEY", key), ("A", "secret-a")]);
        let excerpt = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            both.excerpt(&mut bytes);
            assert_eq!(text.matches('\n').count(), bytes.iter().filter(|byte| **byte == b'\n').count());
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(excerpt("plain\n"), "plain\n");
        assert_eq!(excerpt(&format!("k={key};\nsecret-a\n")), "k=[redacted:KEY]\n\n\n\n;\n[redacted:A]\n");
        // It begins before, it goes on behind, or both.
        assert_eq!(excerpt("second-line\nab\n--- end ---;\nx\n"), "[redacted:KEY]\nab\n[redacted:KEY];\nx\n");
        assert_eq!(excerpt("k=--- begin ---\n"), "k=[redacted:KEY]\n");
        assert_eq!(excerpt("first-line-1\r\nsecond-line\n"), "[redacted:KEY]\r\n[redacted:KEY]\n");
        // Elsewhere a line of it is nobody's secret.
        assert_eq!(both.text("first-line-1"), "first-line-1");
        let mut none = b"secret-a".to_vec();
        redactor(&[]).excerpt(&mut none);
        assert_eq!(none, b"secret-a");
    }

    #[test]
    fn a_cut_output_shows_no_half_of_a_secret() {
        let one = redactor(&[("A", "secret-a")]);
        for cut in 0..=8 {
            let (head, tail) = ("secret-a".split_at(cut).0, "secret-a".split_at(cut).1);
            let mut captured =
                Captured { head: format!("x{head}").into(), tail: format!("{tail}y").into(), omitted: 9 };
            one.cut(&mut captured);
            let text = String::from_utf8([captured.head, captured.tail].concat()).unwrap();
            let left = one.text(&text);
            assert!(!left.contains("secr") && !left.contains("et-a"), "{cut}: {left}");
            assert!(left.starts_with('x') && left.ends_with('y'), "{cut}: {left}");
        }
        let mut whole = Captured { head: b"xsecret".to_vec(), tail: vec![], omitted: 0 };
        one.cut(&mut whole);
        assert_eq!(whole.head, b"xsecret");
    }

    #[test]
    fn what_is_recorded_is_brief_and_does_not_end_within_a_secret() {
        let one = redactor(&[("A", "secret-a")]);
        let long = format!("{}secret-a{}", "x".repeat(BRIEF - 4), "y".repeat(50));
        let brief = one.brief(&long);
        assert!(
            !brief.contains("secr") && brief.ends_with(&format!("[{} bytes in all]", long.len())),
            "{brief}"
        );
        let exact = "é".repeat(BRIEF);
        assert_eq!(one.brief(&exact), exact);
        assert_eq!(
            one.value(&json!({"secret-a": ["secret-a", 1, null]})),
            json!({"[redacted:A]": ["[redacted:A]", 1, null]})
        );
    }
}
