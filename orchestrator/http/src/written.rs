//! Ways in which an answer may write a value: encoded as a whole, without escapes, and with those of addresses, JSON and HTML.

use crate::percent;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use zeroize::Zeroizing;

/// How many bytes one byte has at most when it is escaped: `\u002f`, `&#x2F;`.
pub const ESCAPED: usize = 6;

/// Headers of answers by which these are no plain text, and the values by which they are.
const ENCODED: [(&str, &[&str]); 5] = [
    ("content-encoding", &["", "identity"]),
    ("transfer-encoding", &["chunked", "identity"]),
    ("grpc-encoding", &["", "identity"]),
    ("connect-content-encoding", &["", "identity"]),
    ("im", &["", "identity"]),
];
/// Charsets that have the characters of values as ASCII has them, and the beginnings of such names.
const CHARSETS: [&str; 5] = ["", "utf-8", "utf8", "us-ascii", "ascii"];
const CHARSET_FAMILIES: [&str; 2] = ["iso-8859-", "windows-125"];

/// Whether an answer is no plain text, in which a value would be found.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    let has_other = |(name, plain): &(&str, &[&str])| {
        let is_plain = |value: &HeaderValue| {
            let value = value.as_bytes().trim_ascii();
            let mut plain = plain.iter();
            plain.any(|plain| value.eq_ignore_ascii_case(plain.as_bytes()))
        };
        !headers.get_all(*name).iter().all(is_plain)
    };
    let has_other_charset = |value: &HeaderValue| {
        let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        let parameters = value.split(';').filter_map(|one| one.split_once('='));
        let mut charsets = parameters.filter(|(name, _)| name.trim() == "charset");
        charsets.any(|(_, charset)| {
            let charset = charset.trim().trim_matches(['"', '\'']);
            let mut families = CHARSET_FAMILIES.iter();
            !CHARSETS.contains(&charset) && !families.any(|family| charset.starts_with(family))
        })
    };
    ENCODED.iter().any(has_other) || headers.get_all(CONTENT_TYPE).iter().any(has_other_charset)
}

/// In hex, in small letters.
pub fn in_hex(value: &[u8]) -> Zeroizing<Vec<u8>> {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]);
    Zeroizing::new(value.iter().flat_map(digits).collect())
}

/// The forms of a value without escapes: as it is, with `+` for a space, and in base64 at each alignment.
pub fn plain_forms(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let plain = Zeroizing::new(value.to_vec());
    // As forms write it; the same without a space.
    let of_form = |byte: &u8| if *byte == b' ' { b'+' } else { *byte };
    let mut forms = vec![plain, Zeroizing::new(value.iter().map(of_form).collect())];
    for before in 0..3 {
        let padded = Zeroizing::new([&[0; 2][..before], value].concat());
        // Digits that depend on the bytes around the value are left out.
        let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let encoded = Zeroizing::new(engine.encode(&*padded));
            forms.push(Zeroizing::new(encoded.as_bytes()[first..last].to_vec()));
        }
    }
    forms
}

/// A way to write some bytes by others.
pub struct Escapes {
    /// The byte with which each begins.
    mark: u8,
    /// Reads the escape at the beginning of bytes: its length, and the byte that it stands for.
    read: fn(&[u8]) -> Option<(usize, u8)>,
}

/// Escapes of addresses, JSON and HTML.
pub const ESCAPES: [Escapes; 4] = [
    Escapes {
        mark: b'%',
        read: |bytes| Some((3, percent::escape(bytes)?)),
    },
    Escapes {
        mark: b'\\',
        read: json_escape,
    },
    // Behind a backslash that is none of the text's: two of them are no escape.
    Escapes {
        mark: b'\\',
        read: |bytes| json_escape(bytes).filter(|(_, byte)| *byte != b'\\'),
    },
    Escapes {
        mark: b'&',
        read: html_escape,
    },
];

/// An escape of JSON for a byte that may stand in a value: `\/`, as PHP writes, or `\u002B`, as .NET does.
fn json_escape(bytes: &[u8]) -> Option<(usize, u8)> {
    match bytes {
        [b'\\', byte @ (b'/' | b'"' | b'\\'), ..] => Some((2, *byte)),
        [b'\\', b't', ..] => Some((2, b'\t')),
        [b'\\', b'u', b'0', b'0', digits @ ..] => {
            let [high, low] = *digits.first_chunk()?;
            Some((ESCAPED, percent::escape(&[b'%', high, low])?))
        }
        [..] => None,
    }
}

/// Names of characters that pages do not show as they are (HTML, section 13.5): those that libraries write by name.
const NAMED: [(&[u8], u8); 7] = [
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"plus", b'+'),
    (b"sol", b'/'),
];

/// An escape of HTML for a byte that may stand in a value: `&#43;`, as Go writes, `&#x2F;`, as Mustache does, or `&amp;`.
fn html_escape(bytes: &[u8]) -> Option<(usize, u8)> {
    let bytes = &bytes[..bytes.len().min(ESCAPED)];
    let end = memchr::memchr(b';', bytes)?;
    let byte = match &bytes[1..end] {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
        [b'#', digits @ ..] => number(digits, 10)?,
        name => NAMED.iter().find(|(known, _)| *known == name)?.1,
    };
    Some((end + 1, byte))
}

fn number(digits: &[u8], radix: u32) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, radix).ok()
}

impl Escapes {
    /// The part of `bytes` in which an escaped form of at most `longest` bytes can be: around the escapes.
    pub fn part<'b>(&self, bytes: &'b [u8], longest: usize) -> Option<&'b [u8]> {
        let is_escape = |at: &usize| (self.read)(&bytes[*at..]).is_some();
        let first = memchr::memchr_iter(self.mark, bytes).find(is_escape)?;
        let last = memchr::memrchr_iter(self.mark, bytes).find(is_escape)?;
        let end = (last + ESCAPED + longest).min(bytes.len());
        Some(&bytes[first.saturating_sub(longest)..end])
    }

    /// `bytes` with each escape as the byte that it stands for.
    pub fn decoded(&self, mut bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        // As long as it can become: what it has held would stay in memory where it grows.
        let mut out = Zeroizing::new(Vec::with_capacity(bytes.len()));
        while let Some(at) = memchr::memchr(self.mark, bytes) {
            let (length, byte) = (self.read)(&bytes[at..]).unwrap_or((1, self.mark));
            out.extend_from_slice(&bytes[..at]);
            out.push(byte);
            bytes = &bytes[at + length..];
        }
        out.extend_from_slice(bytes);
        out
    }
}
