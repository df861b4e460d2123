//! Searches what a host sends for the values of credentials: verbatim, in base64 at its three alignments, in hex, each also
//! percent-encoded or with the escapes of JSON or HTML, and across the borders of what arrives together.
//!
//! The last word of what has arrived is held until more arrives, so that a host that sends byte by byte does not give away all but the
//! last one. Whether it is the beginning of a value does not count: a program sees where parts of an answer end, and could have a host
//! send one guess after another for each byte. So only a whole value shows, by the end of the stream. A host that says no more for a
//! moment gets its word passed on, for the sake of whoever waits for it; the value is still found when the rest comes. Other
//! encodings, and parts of a value, are not found.

use super::limits::SEARCHED;
use super::values::Value;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use memchr::memmem::Finder;
use orchestrator_http::written::{ESCAPED, ESCAPES, Escapes, in_hex, plain_forms};
use std::rc::Rc;
use zeroize::Zeroizing;

/// The longest end of a word that is held where no value is longer than [`SEARCHED`]: one of so many bytes, escaped, or in hex,
/// percent-encoded.
const HELD: usize = ESCAPED * SEARCHED;
/// Maximum bytes that are held where a value is longer: then as many as its longest form has, so that nothing of it passes before its end
/// is found. Each stream may need them.
const HELD_MAX: usize = 64 << 10;
/// Bytes that end a message without ending a line. No encoded form of a value has one.
const CLOSING: &[u8] = b"\"}])>,";

/// The values of one host's credentials, in all forms that are searched for.
#[derive(Default)]
pub(super) struct Needles {
    forms: Vec<Finder<'static>>,
    /// Each value in hex, in lower case.
    hex: Vec<Finder<'static>>,
    /// The length of the shortest of these.
    least_hex: usize,
    /// The whole values, each with the placeholder that stands for it.
    values: Vec<(Rc<Value>, String)>,
    longest: usize,
    /// The length of the longest whole value.
    longest_value: usize,
    /// Whether a value has a byte that ends words, such as a space. Then only lines end: which byte it is would tell something of the value.
    only_lines_end: bool,
}

impl Needles {
    pub(super) fn new(values: Vec<(Rc<Value>, String)>) -> Self {
        let (mut forms, mut hex) = (Vec::<Zeroizing<Vec<u8>>>::new(), Vec::new());
        for bytes in values.iter().flat_map(|(value, _)| value.secrets()) {
            let bytes = &bytes[bytes.len().saturating_sub(SEARCHED)..];
            hex.push(in_hex(bytes));
            for form in plain_forms(bytes) {
                if !forms.contains(&form) {
                    forms.push(form);
                }
            }
        }
        let secrets = || values.iter().flat_map(|(value, _)| value.secrets());
        let only_lines_end = secrets().any(|bytes| !bytes.iter().all(is_of_word));
        let longest_value = secrets().map(|bytes| bytes.len()).max().unwrap_or(0);
        let lengths = || forms.iter().chain(&hex).map(|form| form.len());
        let finders = |forms: &[Zeroizing<Vec<u8>>]| {
            let finder = |form: &Zeroizing<Vec<u8>>| Finder::new(&**form).into_owned();
            forms.iter().map(finder).collect()
        };
        Self {
            longest: lengths().max().unwrap_or(0),
            least_hex: hex.iter().map(|form| form.len()).min().unwrap_or(0),
            forms: finders(&forms),
            hex: finders(&hex),
            longest_value,
            only_lines_end,
            values,
        }
    }

    /// Whether `bytes` contain a value.
    pub(super) fn are_in(&self, bytes: &[u8]) -> bool {
        if self.forms.is_empty() {
            return false;
        }
        let any = |bytes: &[u8]| {
            let mut forms = self.forms.iter();
            forms.any(|form| form.find(bytes).is_some()) || self.are_in_hex(bytes)
        };
        let escaped = |escapes: &Escapes| {
            let part = escapes.part(bytes, self.longest);
            part.is_some_and(|part| any(&escapes.decoded(part)))
        };
        any(bytes) || ESCAPES.iter().any(escaped)
    }

    /// Whether a value stands there in hex, in whichever case each digit is. Bytes are looked at one by one only where there are as many
    /// digits in a row.
    fn are_in_hex(&self, bytes: &[u8]) -> bool {
        let is_other = |byte: &u8| !byte.is_ascii_hexdigit();
        let Some(mut at) = self.least_hex.checked_sub(1) else {
            return false;
        };
        while let Some(byte) = bytes.get(at) {
            if !is_other(byte) {
                let start = bytes[..at]
                    .iter()
                    .rposition(is_other)
                    .map_or(0, |last| last + 1);
                let end = bytes[at..].iter().position(is_other);
                let end = end.map_or(bytes.len(), |length| at + length);
                let digits = Zeroizing::new(bytes[start..end].to_ascii_lowercase());
                if self.hex.iter().any(|form| form.find(&digits).is_some()) {
                    return true;
                }
                at = end;
            }
            at += self.least_hex;
        }
        false
    }

    /// How many bytes of a stream's end are kept, and held at most.
    fn window(&self) -> usize {
        (ESCAPED * self.longest_value).clamp(HELD, HELD_MAX)
    }

    /// How many bytes of a word `bytes` end with. It depends on them alone.
    fn last_word(&self, bytes: &[u8]) -> usize {
        let is_word = |byte: &&u8| match self.only_lines_end {
            true => !b"\r\n".contains(byte),
            false => is_of_word(byte),
        };
        match self.forms.is_empty() {
            true => 0,
            false => {
                let end = bytes.iter().rev().take(self.window());
                end.take_while(is_word).count()
            }
        }
    }

    /// Puts placeholders in the place of values in headers.
    pub(super) fn clean(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if self.are_in(value.as_bytes()) {
                *value = self.cleaned(value);
            }
        }
        let names: Vec<_> = headers
            .keys()
            .filter(|name| self.name_holds(name.as_str()))
            .cloned()
            .collect();
        for name in names {
            headers.remove(name);
        }
    }

    fn name_holds(&self, name: &str) -> bool {
        if self.are_in(name.as_bytes()) {
            return true;
        }
        let mut secrets = self.values.iter().flat_map(|(value, _)| value.secrets());
        secrets.any(|bytes| {
            let lower = Zeroizing::new(bytes.to_ascii_lowercase());
            memchr::memmem::find(name.as_bytes(), &lower).is_some()
        })
    }

    fn cleaned(&self, header: &HeaderValue) -> HeaderValue {
        let mut bytes = header.as_bytes().to_vec();
        let values = self.values.iter().flat_map(|(value, placeholder)| {
            let secrets = value.secrets();
            secrets.map(move |secret| (secret, placeholder))
        });
        for (secret, placeholder) in values {
            let mut from = 0;
            while let Some(at) = memchr::memmem::find(&bytes[from..], secret) {
                let at = from + at;
                bytes.splice(at..at + secret.len(), placeholder.bytes());
                from = at + placeholder.len();
            }
        }
        if self.are_in(&bytes) {
            // Encoded: nothing of it stays.
            bytes = self
                .values
                .first()
                .map_or_else(Vec::new, |(_, placeholder)| placeholder.clone().into());
        }
        HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static(""))
    }
}

fn is_of_word(byte: &u8) -> bool {
    byte.is_ascii_graphic() && !CLOSING.contains(byte)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueFound;

/// The search of one stream.
#[derive(Default)]
pub(super) struct StreamSearch {
    /// The end of the stream so far, in which a value may begin.
    tail: Vec<u8>,
    /// How much of its end is not passed on yet.
    held: usize,
}

impl StreamSearch {
    /// The bytes that may be passed on, once `next` has arrived.
    ///
    /// # Errors
    /// A value: nothing more may be passed on.
    pub(super) fn pass(&mut self, needles: &Needles, next: Bytes) -> Result<Bytes, ValueFound> {
        let window = needles.window();
        if needles.forms.is_empty() && self.held == 0 {
            // The rest of a value may come when it is known.
            self.retain(&next, window);
            return Ok(next);
        }
        let before = self.tail.len();
        self.tail.extend_from_slice(&next[..next.len().min(window)]);
        if needles.are_in(&self.tail) || needles.are_in(&next) {
            return Err(ValueFound);
        }
        self.tail.truncate(before);
        let held = self.release();
        self.retain(&next, window);
        let mut passed = match held.is_empty() {
            true => next,
            false => [held, next].concat().into(),
        };
        self.held = needles.last_word(&passed);
        passed.truncate(passed.len() - self.held);
        Ok(passed)
    }

    /// Keeps the end of the stream.
    fn retain(&mut self, next: &[u8], window: usize) {
        let kept = next.len().min(window);
        self.tail.extend_from_slice(&next[next.len() - kept..]);
        self.tail.drain(..self.tail.len().saturating_sub(window));
    }

    /// The bytes that are held, for a program that has waited for more, or at the end of the stream. The search goes on behind them.
    pub(super) fn release(&mut self) -> Bytes {
        let held = &self.tail[self.tail.len() - self.held..];
        self.held = 0;
        Bytes::copy_from_slice(held)
    }

    /// How many bytes are held.
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decrypted::limits::Times;
    use crate::decrypted::values::CredentialValues;
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

    const VALUE: &str = "gho_s3cr3t/With+Odd~chars-9";
    const PLACEHOLDER: &str = "gho_PLACEHOLDERPLACEHOLDER";

    fn needles(value: &str) -> Needles {
        let values = CredentialValues::new(1, Times::default(), Rc::new(|_| {}));
        values.deliver(0, Ok(value.into()));
        let known = values.known(0).into_iter();
        Needles::new(known.map(|value| (value, PLACEHOLDER.to_owned())).collect())
    }

    fn hex(text: &str, upper: bool) -> String {
        text.bytes()
            .map(|byte| {
                if upper {
                    format!("{byte:02X}")
                } else {
                    format!("{byte:02x}")
                }
            })
            .collect()
    }

    fn escaped(text: &str, all: bool) -> String {
        text.chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() && !all {
                    c.to_string()
                } else {
                    format!("%{:02x}", c as u32)
                }
            })
            .collect()
    }

    /// Hex in which each second digit is in upper case.
    fn mixed(text: &str) -> String {
        let digits = hex(text, false);
        let raised = digits.chars().enumerate().map(|(at, digit)| match at % 2 {
            0 => digit,
            _ => digit.to_ascii_uppercase(),
        });
        raised.collect()
    }

    fn encodings() -> Vec<String> {
        let mut all = vec![
            VALUE.to_owned(),
            hex(VALUE, false),
            hex(VALUE, true),
            escaped(VALUE, false),
            escaped(VALUE, true),
            escaped(VALUE, true).to_uppercase(),
            mixed(VALUE),
            VALUE.replace('/', "\\/"),
            VALUE.replace('+', "\\u002B"),
            VALUE.replace('+', "\\u002b").replace('/', "\\/"),
            VALUE.replace('+', "&#43;"),
            VALUE.replace('+', "&plus;").replace('/', "&#x2F;"),
            VALUE.replace('/', "&#047;"),
            VALUE.chars().map(|c| format!("&#{};", c as u32)).collect(),
            VALUE
                .chars()
                .map(|c| format!("\\u{:04x}", c as u32))
                .collect(),
        ];
        for before in ["", "a", "ab", "abc", "x-access-token:"] {
            for after in ["", "z", "zz"] {
                let text = format!("{before}{VALUE}{after}");
                for encoded in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    all.push(escaped(&encoded, false));
                    all.push(encoded);
                }
            }
        }
        all
    }

    /// What passes of a text that arrives in parts, until the value is found.
    fn passed(needles: &Needles, text: &[u8], part: usize) -> Result<Vec<u8>, Vec<u8>> {
        let (mut search, mut out) = (StreamSearch::default(), Vec::new());
        for part in text.chunks(part) {
            match search.pass(needles, Bytes::copy_from_slice(part)) {
                Ok(bytes) => out.extend_from_slice(&bytes),
                Err(ValueFound) => return Err(out),
            }
        }
        out.extend_from_slice(&search.release());
        Ok(out)
    }

    #[test]
    fn a_headers_name_with_a_value_in_hex_is_dropped() {
        let value = Value::of(b"of-nobody-at-all".to_vec());
        let needles = Needles::new(vec![(value, "x".to_owned())]);
        let mut headers = HeaderMap::new();
        for name in [
            "x-6f662d6e6f626f64792d61742d616c6c",
            "x-of-nobody-at-all",
            "x-other",
        ] {
            headers.insert(name, HeaderValue::from_static("y"));
        }
        needles.clean(&mut headers);
        let names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["x-other"]);
    }

    #[test]
    fn every_encoding_is_found_across_every_border_and_nothing_of_it_passes() {
        let needles = needles(VALUE);
        for encoded in encodings() {
            let text = format!("before {encoded} after");
            for part in [1, 2, 3, 5, 7, 16, 1000] {
                let out = passed(&needles, text.as_bytes(), part).unwrap_err();
                // In base64 the digits at the borders depend on other bytes too.
                assert!(out.len() <= "before ".len() + 24, "{encoded} {part}");
                assert!(!String::from_utf8_lossy(&out).contains("s3cr3t"));
            }
        }
    }

    #[test]
    fn text_without_a_value_passes_unchanged() {
        let needles = needles(VALUE);
        let partial = &VALUE[..VALUE.len() - 1];
        let mut text = format!(
            "{partial} {} % %4 %zz {PLACEHOLDER} \\ \\u \\u00 \\u00zz \\u1234 & &; &# &#x; &#3000; &#43 &amp; {} ",
            escaped(partial, true),
            mixed(partial),
        );
        text += &text.repeat(50);
        text += partial;
        for end in ["", "%", "%4", "%g", "\\", "\\u002", "&", "&#4", "&#43"] {
            let text = format!("{text}{end}");
            for part in [1, 2, 3, 7, 64, 100_000] {
                let out = passed(&needles, text.as_bytes(), part);
                assert_eq!(out.as_deref(), Ok(text.as_bytes()), "{part}");
            }
        }
    }

    #[test]
    fn nothing_is_held_of_lines_and_messages() {
        let needles = needles(VALUE);
        for text in [
            "data: {\"delta\": \"hello\"}\n\n",
            "[1,{\"a\":\"b\"}]",
            "<p>x</p>",
        ] {
            let mut search = StreamSearch::default();
            assert_eq!(search.pass(&needles, text.into()), Ok(text.into()));
            assert_eq!(search.held(), 0, "{text}");
        }
        let mut search = StreamSearch::default();
        let none = Needles::new(Vec::new());
        assert_eq!(search.pass(&none, "no line".into()), Ok("no line".into()));
    }

    /// Somebody who guesses has a host send one guess after another, and sees where the parts of its answer end.
    #[test]
    fn beginning_of_a_value_is_held_as_any_other_word_is() {
        let needles = needles(VALUE);
        for encoded in encodings() {
            for length in 1..encoded.len() - 8 {
                let guess = &encoded[..length];
                let wrong = format!("{}~", &encoded[..length - 1]);
                let [right, wrong] = [guess, &wrong].map(|guess| {
                    let mut search = StreamSearch::default();
                    let passed = search.pass(&needles, format!("a {guess}").into());
                    let passed = passed.map(|bytes| bytes.len());
                    let next = search.pass(&needles, "~ b".into()).map(|bytes| bytes.len());
                    (passed, next, search.held())
                });
                assert_eq!(right, wrong, "{guess}");
            }
        }
    }

    #[test]
    fn value_is_found_after_a_pause_within_it() {
        let needles = needles(VALUE);
        let mut search = StreamSearch::default();
        let (begin, end) = VALUE.split_at(9);
        let passed = search.pass(&needles, format!("a {begin}").into());
        assert_eq!(passed, Ok("a ".into()));
        assert_eq!(search.release(), begin);
        assert_eq!(search.held(), 0);
        assert_eq!(
            search.pass(&needles, end.to_owned().into()),
            Err(ValueFound)
        );
    }

    #[test]
    fn value_with_a_byte_that_ends_words_is_held_as_a_whole() {
        for value in [
            "p4ss,w0rd)of}many",
            "correct horse battery",
            "p\u{e4}ssw\u{f6}rter",
        ] {
            let needles = needles(value);
            for part in [1, 2, 5, 9] {
                let out = passed(&needles, format!("a\nb {value} c").as_bytes(), part);
                assert_eq!(out, Err(b"a\n".to_vec()), "{value} {part}");
            }
        }
    }

    #[test]
    fn a_space_a_tab_and_a_backslash_before_hide_nothing() {
        let value = "pass word,\tx/9";
        let needles = needles(value);
        let json: String = value
            .chars()
            .map(|c| format!("\\u{:04x}", c as u32))
            .collect();
        for text in [
            "pass+word%2C%09x%2F9",
            "pass%20word,%09x/9",
            "pass word,\\tx\\/9",
            &json,
            &format!("\\{json}"),
            &format!("\\\\\\{json}"),
        ] {
            assert!(needles.are_in(text.as_bytes()), "{text}");
        }
        assert!(!needles.are_in(b"pass+word%2C%09x"), "the control");
    }

    #[test]
    fn a_long_value_is_found_by_its_end_and_held_as_a_whole() {
        let mut state = 1u32;
        let value: String = (0..4000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from(b'a' + u8::try_from((state >> 16) % 26).unwrap())
            })
            .collect();
        let needles = needles(&value);
        let mut encoded = vec![value.clone(), hex(&value, false), escaped(&value, true)];
        encoded.push(STANDARD_NO_PAD.encode(&value));
        for encoded in encoded {
            for part in [100, 7919] {
                let text = format!("x {encoded}y");
                let out = passed(&needles, text.as_bytes(), part).unwrap_err();
                assert!(b"x ".starts_with(&out), "{part}");
            }
        }
        let mut search = StreamSearch::default();
        let long = escaped(&value[..3999], true).repeat(9);
        for part in long.as_bytes().chunks(5000) {
            search.pass(&needles, Bytes::copy_from_slice(part)).unwrap();
            assert!(search.held() <= 6 * 4000 && search.tail.len() <= 6 * 4000);
        }
        let most = self::needles(&value.repeat(4)).window();
        assert_eq!(most, HELD_MAX);
    }

    #[test]
    fn headers_get_the_placeholder() {
        let needles = needles(VALUE);
        let mut headers = HeaderMap::new();
        let set = [
            (
                "location",
                format!("https://a.example/?t={VALUE}&u={VALUE}"),
                format!("https://a.example/?t={PLACEHOLDER}&u={PLACEHOLDER}"),
            ),
            (
                "x-hex",
                format!("a {}", hex(VALUE, true)),
                PLACEHOLDER.into(),
            ),
            ("x-url", escaped(VALUE, true), PLACEHOLDER.into()),
            (
                "x-basic",
                STANDARD_NO_PAD.encode(format!("u:{VALUE}")),
                PLACEHOLDER.into(),
            ),
            ("x-other", "unchanged".into(), "unchanged".into()),
        ];
        for (name, value, _) in &set {
            headers.insert(*name, value.parse().unwrap());
        }
        needles.clean(&mut headers);
        for (name, _, want) in &set {
            assert_eq!(headers[*name], want, "{name}");
        }
    }
}
