//! Every event of a session passes through this. It removes known secrets, then unsafe characters, then secrets that appear only
//! after that. If unsafe characters are kept, a text that would contain a secret without them loses both.

use crate::clean::Cleaner;
use crate::escape;
use crate::found_secrets::MARK;
use crate::redact::{Redactor, SecretStream};
use crate::utf8::Utf8Joiner;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::VecDeque;

/// Removes from text what must not be shown.
#[derive(Clone, Copy)]
pub struct Sanitizer(&'static Redactor);

/// Bytes that are safe to show.
#[derive(Debug, PartialEq, Eq)]
pub struct Sanitized<'a> {
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
    /// How many unsafe characters and sequences were removed.
    pub stripped: u64,
    /// Whether secrets were removed.
    pub redacted: bool,
}

/// How to treat unsafe characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// Remove them, and also a carriage return before a line feed.
    Remove,
    /// Remove them, but keep line breaks unchanged: a file's content will be compared with the file again.
    RemoveInFile,
    Keep,
}

impl Sanitizer {
    /// Uses the secrets that `redactor` knows.
    pub fn new(redactor: &'static Redactor) -> Self {
        Self(redactor)
    }

    /// The redactor that finds the secrets.
    pub fn redactor(self) -> &'static Redactor {
        self.0
    }

    /// `text` in a form that is safe to show.
    pub fn text(self, text: &str) -> String {
        let clean = self.bytes(text.as_bytes(), Unsafe::Remove);
        String::from_utf8_lossy(&clean.bytes).into_owned()
    }

    /// `bytes` in a form that is safe to show.
    pub fn bytes(self, bytes: &[u8], characters: Unsafe) -> Sanitized<'_> {
        let mut cleaner = match characters {
            Unsafe::Remove | Unsafe::Keep => Cleaner::default(),
            Unsafe::RemoveInFile => Cleaner::of_file(),
        };
        let without = self.0.bytes(bytes);
        let redacted = matches!(without, Cow::Owned(_)) || self.0.withholds();
        if characters == Unsafe::Keep && self.0.is_idle() {
            return Sanitized {
                bytes: without,
                stripped: 0,
                redacted,
            };
        }
        let mut before_search = Cleaner::before_search();
        let clean = match before_search.clean(&without) {
            Cow::Borrowed(_) => {
                return Sanitized {
                    bytes: without,
                    stripped: 0,
                    redacted,
                };
            }
            Cow::Owned(clean) => clean,
        };
        let found = match self.0.bytes(&clean) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        };
        let redacted = redacted || found.is_some();
        match (found, characters) {
            (None, Unsafe::Keep) => Sanitized {
                bytes: without,
                stripped: 0,
                redacted,
            },
            (found, _) => {
                let text = found.unwrap_or(clean);
                let bytes = Cow::Owned(cleaner.clean(&text).into_owned());
                Sanitized {
                    bytes,
                    stripped: before_search.stripped() + cleaner.stripped(),
                    redacted,
                }
            }
        }
    }

    /// A text of a question to a person, on one line: only secrets are missing, and [`escape::line`] shows what hides or imitates. Front
    /// ends do not escape it again.
    pub fn question(self, text: &str) -> String {
        let shown = escape::line(&self.0.text(text));
        self.0.text(&shown).into_owned()
    }

    /// An input in a form to show to a person: only secrets are missing, and unsafe characters are shown by number. A typed text
    /// that looks like a redaction mark is escaped.
    pub fn input(self, value: &Value) -> Value {
        let shown = |text: &str| self.0.text(&escape::input(&self.0.text(text))).into_owned();
        let mut safe = value.clone();
        self.0.change(&mut safe, &|text| {
            let mut parts = text.split(MARK);
            let mut all = parts.next().map_or_else(String::new, shown);
            for part in parts {
                escape::push_by_number(&mut all, MARK);
                all.push_str(&shown(part));
            }
            Some(all)
        });
        safe
    }

    /// A stream of output, however it is split.
    pub fn stream(self, characters: Unsafe) -> SanitizedStream {
        let kept = (characters == Unsafe::Keep).then(HeldText::default);
        SanitizedStream {
            is_idle: self.0.is_idle(),
            before: self.0.stream(),
            joiner: Utf8Joiner::default(),
            cleaner: Cleaner::before_search(),
            after: self.0.stream(),
            returns: Cleaner::default(),
            kept,
        }
    }
}

/// Sanitizes one stream. No piece of its output ends within a character or a secret.
pub struct SanitizedStream {
    is_idle: bool,
    before: SecretStream,
    joiner: Utf8Joiner,
    cleaner: Cleaner,
    after: SecretStream,
    /// Turns returns into line breaks, once no secret has one in it.
    returns: Cleaner,
    /// The state if unsafe characters are kept.
    kept: Option<HeldText>,
}

/// Text with its unsafe characters, held until it is clear that it contains no secret without them.
#[derive(Default)]
struct HeldText {
    pieces: VecDeque<OriginalBytes>,
    /// Number of clean bytes in all pieces.
    clean_len: usize,
    /// The clean bytes that can no longer contain a secret.
    clean: Vec<u8>,
    /// Number of exact bytes in all pieces.
    exact_len: usize,
    /// Number of secrets found before it.
    found: u64,
    /// Whether the held text begins within bytes that are shown without unsafe characters: then what follows is too, up to its end.
    is_cut: bool,
}

/// Original bytes, and how many are left without unsafe characters.
struct OriginalBytes {
    exact: Vec<u8>,
    clean: usize,
}

/// Maximum bytes of a piece: small, because all of it waits for its last byte.
const PIECE: usize = 4 << 10;
/// Maximum bytes that are held. Beyond it, they lose their unsafe characters.
const KEPT_MAX: usize = 64 << 10;

impl SanitizedStream {
    /// Adds `bytes`; returns what can be shown now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let redacted = self.before.push(bytes);
        let joined = self.joiner.push(&redacted).into_owned();
        self.clean(joined)
    }

    /// Whether the last word waits for what follows it.
    pub fn holds_a_word(&self) -> bool {
        self.before.holds_a_word() || self.after.holds_a_word()
    }

    /// Gives up what was held back, but for an incomplete character. The next piece begins a word.
    pub fn pause(&mut self) -> Vec<u8> {
        let held = self.before.finish();
        let last = self.joiner.push(&held).into_owned();
        self.last(last)
    }

    /// What was held back, for an incomplete secret or character.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = self.before.finish();
        let mut last = self.joiner.push(&held).into_owned();
        last.extend(self.joiner.finish());
        self.last(last)
    }

    fn last(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut last = self.clean(bytes);
        let held = self.after.finish();
        match &mut self.kept {
            None => last.extend_from_slice(&self.returns.clean(&held)),
            Some(kept) => last.extend(kept.passed(held, self.after.found(), 0)),
        }
        last
    }

    fn clean(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.is_idle && self.kept.is_some() {
            return bytes;
        }
        let Some(kept) = &mut self.kept else {
            let passed = self.after.push(&self.cleaner.clean(&bytes)).into_owned();
            return self.returns.clean(&passed).into_owned();
        };
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(piece_end(rest));
            let clean = self.cleaner.clean(piece);
            kept.wait(piece, clean.len());
            let passed = self.after.push(&clean).into_owned();
            out.extend(kept.passed(passed, self.after.found(), self.after.held()));
            rest = behind;
        }
        out
    }
}

/// The end of the first piece of `bytes`: never within a character.
fn piece_end(bytes: &[u8]) -> usize {
    let is_start = |at: &usize| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = PIECE.min(bytes.len());
    // A character has at most four bytes; a longer run of such bytes is none.
    (end.saturating_sub(3)..=end)
        .rev()
        .find(is_start)
        .unwrap_or(end)
}

impl HeldText {
    /// Adds a piece of which `clean` bytes are left without unsafe characters.
    fn wait(&mut self, exact: &[u8], clean: usize) {
        self.exact_len += exact.len();
        self.clean_len += clean;
        self.pieces.push_back(OriginalBytes {
            exact: exact.to_vec(),
            clean,
        });
    }

    /// What can be shown now: `passed` are the next clean bytes, which contain no secret any more; `found` is the number of secrets
    /// so far; `held` clean bytes may still become one. Pieces that end before those are shown with their characters.
    fn passed(&mut self, passed: Vec<u8>, found: u64, held: usize) -> Vec<u8> {
        self.clean.extend(passed);
        if found != self.found || self.is_cut || self.exact_len > KEPT_MAX {
            let clean = Cleaner::default().clean(&self.clean).into_owned();
            *self = Self {
                found,
                is_cut: held > 0,
                ..Self::default()
            };
            return clean;
        }
        let mut certain = self.clean_len - held;
        let mut out = Vec::new();
        while self
            .pieces
            .front()
            .is_some_and(|piece| piece.clean <= certain)
            && let Some(piece) = self.pieces.pop_front()
        {
            certain -= piece.clean;
            self.clean_len -= piece.clean;
            self.exact_len -= piece.exact.len();
            self.clean.drain(..piece.clean);
            out.extend(piece.exact);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::secret::Secret;
    use serde_json::json;

    fn sanitizer() -> Sanitizer {
        let secret = Secret {
            name: "A".into(),
            value: b"secret-a".to_vec(),
        };
        Sanitizer::new(Box::leak(Box::new(Redactor::new(vec![secret]).unwrap())))
    }

    /// The sequence is removed first; the return must still not have become a line break then.
    #[test]
    fn a_secret_with_sequences_and_returns_in_it_is_found_however_the_stream_is_cut() {
        for secret in [
            "secr\u{1b}[1m\ret-a",
            "s\recr\u{1b}]0;title\u{7}et\r-a",
            "secr\r\u{1b}[0m\u{200b}\ret-a",
        ] {
            let text = format!("1 {secret}\r\n2\r3");
            assert_eq!(sanitizer().text(&text), "1 [redacted:A]\n2\n3", "{text:?}");
            let bytes = text.as_bytes();
            let file = sanitizer().bytes(bytes, Unsafe::RemoveInFile);
            assert_eq!(&*file.bytes, b"1 [redacted:A]\r\n2\n3", "{text:?}");
            let kept = sanitizer().bytes(bytes, Unsafe::Keep);
            assert_eq!(&*kept.bytes, b"1 [redacted:A]\n2\n3", "{text:?}");
            for characters in [Unsafe::Remove, Unsafe::Keep] {
                for at in 0..=bytes.len() {
                    let mut stream = sanitizer().stream(characters);
                    let mut out = stream.push(&bytes[..at]);
                    out.extend(stream.push(&bytes[at..]));
                    out.extend(stream.finish());
                    let out = String::from_utf8(out).unwrap();
                    assert!(
                        out.starts_with("1 [redacted:A]") && !out.contains("et"),
                        "{text:?} at {at}: {out:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_secret_that_cleaning_makes_is_found() {
        let text = "secr\u{1b}[1met-a\r\n";
        assert_eq!(sanitizer().text(text), "[redacted:A]\n");
        let file = sanitizer().bytes(text.as_bytes(), Unsafe::RemoveInFile);
        assert_eq!(
            (&*file.bytes, file.stripped, file.redacted),
            (&b"[redacted:A]\r\n"[..], 1, true)
        );
        let kept = sanitizer().bytes(text.as_bytes(), Unsafe::Keep);
        assert_eq!(
            (&*kept.bytes, kept.redacted),
            (&b"[redacted:A]\n"[..], true)
        );
        let plain = "secr\u{1b}[1met-b\r\n";
        let unchanged = Sanitized {
            bytes: plain.as_bytes().into(),
            stripped: 0,
            redacted: false,
        };
        assert_eq!(sanitizer().bytes(plain.as_bytes(), Unsafe::Keep), unchanged);
        let whole = sanitizer().bytes(b"secret-a", Unsafe::Keep);
        assert_eq!(
            (&*whole.bytes, whole.redacted),
            (&b"[redacted:A]"[..], true)
        );
    }

    #[test]
    fn a_stream_is_sanitized_wherever_it_is_cut() {
        let text = "é secr\u{1b}]0;x\u{7}et-a \u{202e}z".as_bytes();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut stream = sanitizer().stream(Unsafe::Remove);
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let mut out: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece)).collect();
                out.extend(stream.finish());
                assert_eq!(
                    String::from_utf8(out).unwrap(),
                    "é [redacted:A] z",
                    "cut at {first} and {second}"
                );
            }
        }
    }

    /// The output of a stream that keeps unsafe characters, fed in chunks of `size`.
    fn kept(bytes: &[u8], size: usize) -> Vec<u8> {
        let mut stream = sanitizer().stream(Unsafe::Keep);
        let mut out: Vec<u8> = bytes
            .chunks(size)
            .flat_map(|chunk| stream.push(chunk))
            .collect();
        out.extend(stream.finish());
        out
    }

    #[test]
    fn a_stream_that_keeps_everything_loses_nothing_however_long_it_may_become_a_secret() {
        // Each piece ends with the beginning of a secret, and so waits for the next one.
        for unit in [
            &b"s"[..],
            b"se\x00s",
            b"\x1b[1mse",
            b"\xffsec",
            "é\u{202e}s".as_bytes(),
        ] {
            let bytes = unit.repeat((4 * KEPT_MAX).div_ceil(unit.len()));
            for size in [1000, KEPT_MAX, KEPT_MAX + 1, bytes.len()] {
                assert!(kept(&bytes, size) == bytes, "{unit:?} in chunks of {size}");
            }
        }
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        let bytes: Vec<u8> = (0..8 * KEPT_MAX)
            .map(|_| chance.of(b"secret\x00\x1b\xff\r\n\xc3\xa9"))
            .collect();
        assert!(kept(&bytes, KEPT_MAX) == bytes);
    }

    #[test]
    fn a_question_hides_no_character_that_makes_a_difference() {
        let sanitizer = sanitizer();
        for (text, shown) in [
            ("refs/heads/main", "refs/heads/main"),
            ("refs/heads/ma\u{200b}in", "refs/heads/ma\\u{200b}in"),
            ("a\u{202e}b\u{e0041}\u{1b}", "a\\u{202e}b\\u{e0041}\\u{1b}"),
            ("a\nb", "a\\nb"),
            ("a\\u{200b}", "a\\\\u{200b}"),
        ] {
            assert_eq!(sanitizer.question(text), shown, "{text:?}");
        }
        assert_eq!(sanitizer.text("ma\u{200b}in"), "main", "the control");
        let secret = "its program sends secret-a";
        assert!(!sanitizer.question(secret).contains("secret-a"));
    }

    #[test]
    fn text_over_the_wait_limit_is_shown_without_unsafe_characters_only() {
        let hidden =
            |count: usize| [&b"before\x00 secr"[..], &vec![0; count], b"et-a behind\x00"].concat();
        assert_eq!(kept(&hidden(10), 7), b"before\x00 [redacted:A] behind\x00");
        assert_eq!(
            kept(&hidden(2 * KEPT_MAX), KEPT_MAX),
            b"before [redacted:A] behind"
        );
        let none = [&b"secr"[..], &vec![0; 2 * KEPT_MAX], b"et-b\x00"].concat();
        assert_eq!(kept(&none, KEPT_MAX), b"secret-b");
    }

    #[test]
    fn input_is_redacted_and_escaped() {
        let input = json!({"a": ["x\u{202e}y\n", 1, "secret-a"]});
        assert_eq!(
            sanitizer().input(&input),
            json!({"a": ["x\\u{202e}y\n", 1, "[redacted:A]"]})
        );
        let typed = json!({"secret-a": r"a\[redacted:A] secret-a", "[redacted:A]": 1});
        let want =
            json!({"[redacted:A]": r"a\\\u{5b}redacted:A] [redacted:A]", r"\u{5b}redacted:A]": 1});
        assert_eq!(sanitizer().input(&typed), want);
    }

    /// Pseudo-random numbers, the same in each run (xorshift).
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % end as u64) as usize
        }

        fn of<T: Copy>(&mut self, choices: &[T]) -> T {
            choices[self.below(choices.len())]
        }

        /// A secret with characters that change its form.
        fn secret(&mut self) -> Vec<u8> {
            const PARTS: [&[u8]; 16] = [
                b"a",
                b"Z",
                b"7",
                b"-",
                b"\"",
                b"\\",
                b"\r\n",
                b"\n",
                b"/",
                b"%",
                b"+ &",
                "\u{e9}".as_bytes(),
                "\u{202e}".as_bytes(),
                b"\xff",
                b"'",
                b"\t",
            ];
            let length = 8 + self.below(12);
            let mut secret = b"k3y".to_vec();
            (0..length).for_each(|_| secret.extend(self.of(&PARTS)));
            secret.extend(b"e9d");
            secret
        }

        /// `text` in pieces, with invisible sequences between its bytes.
        fn disguised(&mut self, text: &[u8]) -> Vec<Vec<u8>> {
            let mut pieces = vec![Vec::new()];
            for byte in text {
                match self.below(8) {
                    // Not within a character and not at a line break, where they would be visible.
                    0 if byte.is_ascii_alphanumeric() => {
                        pieces.last_mut().unwrap().extend(self.of(&[
                            &b"\x1b[1m"[..],
                            b"\x1b]0;t\x07",
                            b"\x00",
                        ]));
                    }
                    1 => pieces.push(Vec::new()),
                    _ => {}
                }
                pieces.last_mut().unwrap().push(*byte);
            }
            pieces
        }
    }

    /// Whatever a secret consists of and in whatever form it comes: the output contains it in no form.
    #[test]
    fn nothing_that_is_shown_has_a_secret_in_any_form() {
        let mut chance = Chance(0x2545_f491_4f6c_dd1d);
        let mut controls = 0;
        for _ in 0..60 {
            let value = chance.secret();
            let known = crate::forms::forms(&value, 8);
            let secret = Secret {
                name: "K".into(),
                value: value.clone(),
            };
            let sanitizer =
                Sanitizer::new(Box::leak(Box::new(Redactor::new(vec![secret]).unwrap())));
            let has = |text: &[u8]| {
                known
                    .iter()
                    .any(|form| text.windows(form.len()).any(|part| part == form))
            };
            for form in &known {
                let text = [&b"before "[..], form, b" after"].concat();
                let lossy = String::from_utf8_lossy(&text).into_owned();
                controls += usize::from(has(&text));
                let mut shown = vec![sanitizer.text(&lossy).into_bytes()];
                for characters in [Unsafe::Remove, Unsafe::RemoveInFile, Unsafe::Keep] {
                    shown.push(sanitizer.bytes(&text, characters).bytes.into_owned());
                    let mut stream = sanitizer.stream(characters);
                    let pieces = chance.disguised(&text);
                    let mut out: Vec<u8> =
                        pieces.iter().flat_map(|piece| stream.push(piece)).collect();
                    out.extend(stream.finish());
                    let clean = Cleaner::default().clean(&out).into_owned();
                    shown.extend([out, clean]);
                }
                shown.push(
                    sanitizer
                        .input(&json!({ lossy.clone(): [lossy] }))
                        .to_string()
                        .into_bytes(),
                );
                for text in shown {
                    assert!(
                        !has(&text),
                        "{form:?} is shown: {:?}",
                        String::from_utf8_lossy(&text)
                    );
                }
            }
        }
        assert!(controls > 500, "{controls}");
    }
}
