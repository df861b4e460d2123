//! The forms in which a value may come to be shown: as it is, cleaned, escaped in the ways of JSON (once, and within JSON), of
//! Python, of shells, of HTML, of our messages and of our screens, encoded for an address once or twice, with every byte as a
//! number, and within base64.
//!
//! Text changes its form on its way, and not always where we can inspect it first: a program quotes its input, and an error quotes
//! the program. So the redactor searches for each secret in all forms at once, wherever text passes.

use crate::characters::is_deceptive;
use crate::clean::Cleaner;
use crate::escape;
use base64::Engine;
use base64::alphabet::{self, Alphabet};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write;

/// `value` and its forms of at least `min` bytes, without duplicates.
pub(crate) fn forms(value: &[u8], min: usize) -> BTreeSet<Vec<u8>> {
    let lossy = String::from_utf8_lossy(value).into_owned();
    let cleaned = |mut cleaner: Cleaner| cleaner.clean(value).into_owned();
    let bases: BTreeSet<Vec<u8>> = [
        value.to_vec(),
        lossy.into_bytes(),
        cleaned(Cleaner::default()),
        cleaned(Cleaner::of_file()),
    ]
    .into();
    let mut forms: BTreeSet<Vec<u8>> = bases.iter().flat_map(|base| encodings(base)).collect();
    forms.extend(numbers(value).map(String::into_bytes));
    forms.extend(bases);
    forms.retain(|form| form.len() >= min);
    forms.insert(value.to_vec());
    forms
}

fn encodings(value: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(value);
    let quoted = format!("{text:?}");
    let mut texts = vec![
        quoted[1..quoted.len() - 1].to_owned(),
        value.escape_ascii().to_string(),
        escape::line(&text),
        escape::one_line(&text),
        escape::for_terminal(&text),
    ];
    texts.extend(json_forms(&text));
    texts.extend(python(&text));
    texts.extend(shell(&text));
    // A program prints its input as JSON, and the next one prints that: of each form, what JSON makes of it.
    let nested: Vec<String> = texts
        .iter()
        .chain([&json(&json(&text))])
        .map(|form| json(form))
        .collect();
    texts.extend(nested);
    texts.extend(html(&text));
    let mut encodings: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    for stays in stays(value) {
        for (digits, space) in [
            (HexDigits::Lower, "%20"),
            (HexDigits::Upper, "%20"),
            (HexDigits::Lower, "+"),
            (HexDigits::Upper, "+"),
        ] {
            let once = percent(value, &stays, digits, space);
            // An address within another one: of what was encoded once, only the signs are.
            encodings.push(once.replace('%', "%25").into_bytes());
            encodings.push(once.into_bytes());
        }
    }
    for alphabet in [&alphabet::STANDARD, &alphabet::URL_SAFE] {
        encodings.extend((0..3).map(|offset| base64_core(value, offset, alphabet)));
    }
    encodings
}

/// Every byte or character as a number: in an address (once and within another one), in hexadecimal, as escapes of C, Python and
/// JavaScript, as references of HTML.
fn numbers(value: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(value).into_owned();
    let bytes = |form: fn(u8) -> String| value.iter().copied().map(form).collect::<String>();
    let units = |form: fn(u16) -> String| text.encode_utf16().map(form).collect::<String>();
    let characters =
        |form: fn(u32) -> String| text.chars().map(|c| form(u32::from(c))).collect::<String>();
    [
        bytes(|byte| format!("%{byte:02x}")),
        bytes(|byte| format!("%{byte:02X}")),
        bytes(|byte| format!("%25{byte:02x}")),
        bytes(|byte| format!("%25{byte:02X}")),
        bytes(|byte| format!("{byte:02x}")),
        bytes(|byte| format!("{byte:02X}")),
        bytes(|byte| format!("\\x{byte:02x}")),
        bytes(|byte| format!("\\x{byte:02X}")),
        bytes(|byte| format!("\\{byte:03o}")),
        units(|unit| format!("\\u{unit:04x}")),
        units(|unit| format!("\\u{unit:04X}")),
        characters(|c| format!("&#{c};")),
        characters(|c| format!("&#x{c:x};")),
        characters(|c| format!("&#x{c:X};")),
    ]
    .into_iter()
}

/// What JSON makes of a text.
fn json_forms(text: &str) -> [String; 5] {
    let json = json(text);
    [
        json.replace('/', "\\/"),
        ascii(&json, "\\u"),
        ascii(&json.replace('/', "\\/"), "\\u"),
        ascii(&json, "\\U").replace("\\U", "\\u"),
        json,
    ]
}

/// Python's `repr` of a text, without its quotes: a quotation mark is escaped if it is the one around, or if both occur.
fn python(text: &str) -> [String; 3] {
    let plain = text.chars().fold(String::new(), |mut out, c| {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_graphic() || c == ' ' => out.push(c),
            c if is_deceptive(c) || c.is_control() => {
                // Writing to a string does not fail.
                let _ = match u32::from(c) {
                    number @ ..0x100 => write!(out, "\\x{number:02x}"),
                    number @ ..0x10000 => write!(out, "\\u{number:04x}"),
                    number => write!(out, "\\U{number:08x}"),
                };
            }
            c => out.push(c),
        }
        out
    });
    [
        plain.replace('\'', "\\'"),
        plain.replace('"', "\\\""),
        plain,
    ]
}

/// A text as a shell is given it, without its quotes: within single ones in two ways, within double ones, and without any.
fn shell(text: &str) -> [String; 4] {
    let escaped = |is_plain: &dyn Fn(char) -> bool| {
        text.chars().fold(String::new(), |mut out, c| {
            if !is_plain(c) {
                out.push('\\');
            }
            out.push(c);
            out
        })
    };
    [
        text.replace('\'', "'\\''"),
        text.replace('\'', "'\"'\"'"),
        escaped(&|c| !"\"\\$`".contains(c)),
        escaped(&|c| c.is_alphanumeric() || "%+-./:=@_^".contains(c) || !c.is_ascii()),
    ]
}

/// A text within HTML, as the common escapers write it; each of them leaves other characters as they are.
fn html(text: &str) -> Vec<String> {
    // Of `"`, `'`, and of `/`, a grave accent and `=`.
    const QUOTES: [(&str, &str); 10] = [
        ("\"", "'"),
        ("&quot;", "'"),
        ("&quot;", "&#x27;"),
        ("&quot;", "&#39;"),
        ("&quot;", "&#039;"),
        ("&quot;", "&apos;"),
        ("&#34;", "&#39;"),
        ("&#x22;", "&#x27;"),
        ("\"", "&#39;"),
        ("\"", "&#x27;"),
    ];
    const MORE: [[&str; 3]; 3] = [
        ["/", "`", "="],
        ["&#x2F;", "&#x60;", "&#x3D;"],
        ["&#x2F;", "`", "="],
    ];
    let numbered = |text: &str| {
        text.chars().fold(String::new(), |mut out, c| {
            if c.is_ascii() {
                out.push(c);
            } else {
                // Writing to a string does not fail.
                let _ = write!(out, "&#{};", u32::from(c));
            }
            out
        })
    };
    let mut forms = Vec::new();
    for (double, single) in QUOTES {
        for [slash, accent, equals] in MORE {
            let form = text.chars().fold(String::new(), |mut out, c| {
                match c {
                    '&' => out.push_str("&amp;"),
                    '<' => out.push_str("&lt;"),
                    '>' => out.push_str("&gt;"),
                    '"' => out.push_str(double),
                    '\'' => out.push_str(single),
                    '/' => out.push_str(slash),
                    '`' => out.push_str(accent),
                    '=' => out.push_str(equals),
                    c => out.push(c),
                }
                out
            });
            forms.push(numbered(&form));
            forms.push(form);
        }
    }
    forms
}

/// A JSON string without its quotes.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// `json` with all but ASCII as UTF-16 escapes; if `mark` is upper case, so are the digits.
fn ascii(json: &str, mark: &str) -> String {
    json.chars().fold(String::new(), |mut out, c| {
        if c.is_ascii() {
            out.push(c);
            return out;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = match mark {
                "\\U" => write!(out, "{mark}{unit:04X}"),
                _ => write!(out, "{mark}{unit:04x}"),
            };
        }
        out
    })
}

/// The characters that the most common encoders leave unchanged in an address, besides letters, digits and [`ALWAYS`]: a component
/// (RFC 3986) and one by JavaScript, a form (URL Standard) and one by PHP; a path by Python, a whole address by JavaScript; a part
/// of a path, a path, and a user by Go; a user, a query, a query of HTTP and a path (URL Standard).
const STAYS: [&[u8]; 13] = [
    b"~",
    b"~!*'()",
    b"*",
    b"",
    b"~/",
    b"~!*'();/?:@&=+$,#",
    b"~$&+=:@",
    b"~$&+,/:;=@",
    b"~$&+,;=",
    b"~!$&'()*+,%",
    b"~!$&()*+,;=:@/?%[]\\^`{|}",
    b"~!$&'()*+,;=:@/?%[]\\^`{|}",
    b"~!$&'()*+,;=:@/%[]\\|",
];
/// Characters that all of them leave unchanged.
const ALWAYS: &[u8] = b"-_.";
/// Maximum number of different characters, encoded by some encoders only, for which every combination is searched: base64 has three.
const CHOICES_MAX: usize = 3;

/// Which characters of `value` may stay unchanged when it is encoded for an address.
fn stays(value: &[u8]) -> Vec<Vec<u8>> {
    let differs = |byte: &u8| byte.is_ascii_punctuation() && !ALWAYS.contains(byte);
    let differing: Vec<u8> = BTreeSet::from_iter(value.iter().copied().filter(differs))
        .into_iter()
        .collect();
    if differing.len() > CHOICES_MAX {
        return STAYS.map(<[u8]>::to_vec).into();
    }
    let choice = |bits: usize| (0..differing.len()).filter(move |at| bits >> at & 1 == 1);
    (0..1 << differing.len())
        .map(|bits| choice(bits).map(|at| differing[at]).collect())
        .collect()
}

#[derive(Clone, Copy)]
enum HexDigits {
    Lower,
    Upper,
}

fn percent(value: &[u8], stays: &[u8], digits: HexDigits, space: &str) -> String {
    value.iter().fold(String::new(), |mut out, byte| {
        match byte {
            byte if byte.is_ascii_alphanumeric()
                || ALWAYS.contains(byte)
                || stays.contains(byte) =>
            {
                out.push(char::from(*byte))
            }
            b' ' => out.push_str(space),
            byte => out.push_str(&match digits {
                HexDigits::Lower => format!("%{byte:02x}"),
                HexDigits::Upper => format!("%{byte:02X}"),
            }),
        }
        out
    })
}

/// The base64 characters that `value` alone determines if it begins `offset` bytes after a complete group.
fn base64_core(value: &[u8], offset: usize, alphabet: &Alphabet) -> Vec<u8> {
    let joined = [&[0; 2][..offset], value].concat();
    let encoded = GeneralPurpose::new(alphabet, NO_PAD)
        .encode(&joined)
        .into_bytes();
    let (first, end) = ((8 * offset).div_ceil(6), 8 * joined.len() / 6);
    encoded.get(first..end).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    fn has(value: &str, form: &str) -> bool {
        forms(value.as_bytes(), 8).contains(form.as_bytes())
    }

    #[test]
    fn a_plain_value_has_no_form_but_base64_and_numbers() {
        let forms = forms(b"plain-value1", 8);
        // As it is, within base64 at three offsets, and 14 ways to write numbers, of which some are equal.
        assert!((16..=18).contains(&forms.len()), "{forms:?}");
    }

    #[test]
    fn a_value_is_known_in_json_within_json() {
        let value = "a\"b\\c\nd/é-value";
        for form in [
            "a\\\\\\\"b\\\\\\\\c\\\\nd/é-value",
            "a\\\\\\\"b\\\\\\\\c\\\\nd\\\\/é-value",
            "a\\\\\\\"b\\\\\\\\c\\\\nd/\\\\u00e9-value",
        ] {
            assert!(has(value, form), "{form}");
        }
        let json = |text: &str| serde_json::Value::from(text).to_string();
        let thrice = json(&json(&json(value)));
        assert!(forms(value.as_bytes(), 8).iter().any(|form| {
            form.len() > 3 * value.len() / 2
                && thrice
                    .as_bytes()
                    .windows(form.len())
                    .any(|part| part == form)
        }));
    }

    #[test]
    fn a_value_is_known_as_programs_quote_it() {
        let value = "it's \"a\\b$\tc\u{a0}é<&>=/";
        for form in [
            // Python's repr of a text, in either quotes, and of a text without both.
            "it\\'s \"a\\\\b$\\tc\\xa0é<&>=/",
            // Shells.
            "it'\\''s \"a\\b$\tc\u{a0}é<&>=/",
            "it'\"'\"'s \"a\\b$\tc\u{a0}é<&>=/",
            "it's \\\"a\\\\b\\$\tc\u{a0}é<&>=/",
            // HTML by Python, Go, PHP, Ruby, Mustache, and with numbers.
            "it&#x27;s &quot;a\\b$\tc\u{a0}é&lt;&amp;&gt;=/",
            "it&#39;s &#34;a\\b$\tc\u{a0}é&lt;&amp;&gt;=/",
            "it&#039;s &quot;a\\b$\tc\u{a0}é&lt;&amp;&gt;=/",
            "it&#39;s &quot;a\\b$\tc\u{a0}é&lt;&amp;&gt;=/",
            "it&#39;s &quot;a\\b$\tc\u{a0}é&lt;&amp;&gt;&#x3D;&#x2F;",
            "it's \"a\\b$\tc&#160;&#233;&lt;&amp;&gt;=/",
        ] {
            assert!(has(value, form), "{form}");
        }
        assert!(has("it's-a-secret", "it's-a-secret") && has("say \"secret\"", "say \"secret\""));
        let bytes = forms(b"it's\x00-\xc3\xa9-secret", 8);
        assert!(bytes.contains(&b"it\\'s\\x00-\\xc3\\xa9-secret"[..]));
    }

    #[test]
    fn a_value_is_known_with_every_byte_as_a_number() {
        for form in [
            "%73%65%63%72%65%74%2d%61",
            "%73%65%63%72%65%74%2D%61",
            "%2573%2565%2563%2572%2565%2574%252D%2561",
            "7365637265742d61",
            "7365637265742D61",
            "\\x73\\x65\\x63\\x72\\x65\\x74\\x2d\\x61",
            "\\163\\145\\143\\162\\145\\164\\055\\141",
            "\\u0073\\u0065\\u0063\\u0072\\u0065\\u0074\\u002d\\u0061",
            "&#115;&#101;&#99;&#114;&#101;&#116;&#45;&#97;",
            "&#x73;&#x65;&#x63;&#x72;&#x65;&#x74;&#x2d;&#x61;",
        ] {
            assert!(has("secret-a", form), "{form}");
        }
    }

    #[test]
    fn a_value_is_known_in_each_form_that_text_may_take() {
        let value = "a\"b\\c\r\nd é/&=+ z";
        for form in [
            "a\"b\\c\nd é/&=+ z",
            "a\\\"b\\\\c\\r\\nd é/&=+ z",
            "a\\\"b\\\\c\\r\\nd \\u00e9/&=+ z",
            "a\\\"b\\\\c\\r\\nd \\u00E9/&=+ z",
            "a\\\"b\\\\c\\r\\nd é\\/&=+ z",
            "a\"b\\c\\u{d}\nd é/&=+ z",
            "a%22b%5Cc%0D%0Ad%20%C3%A9%2F%26%3D%2B%20z",
            "a%22b%5cc%0d%0ad%20%c3%a9%2f%26%3d%2b%20z",
            "a%22b%5Cc%0D%0Ad+%C3%A9%2F%26%3D%2B+z",
        ] {
            assert!(has(value, form), "{form}");
        }
        let bytes = forms(b"secret-\xff-bytes", 8);
        assert!(bytes.contains("secret-\u{fffd}-bytes".as_bytes()));
        assert!(bytes.contains("secret-\\xff-bytes".as_bytes()));
    }

    #[test]
    fn a_value_is_known_however_an_address_has_it() {
        // A base64 key: each of its special characters may be encoded or not.
        for form in [
            "K7MDENG%2BbPx%2FRfi%3D",
            "K7MDENG%2bbPx/Rfi=",
            "K7MDENG+bPx%2fRfi%3d",
            "K7MDENG+bPx/Rfi%3D",
        ] {
            assert!(has("K7MDENG+bPx/Rfi=", form), "{form}");
        }
        // More such characters: only the combinations of actual encoders.
        let value = "a/b+c:d@e;f,g&h=i?j$k%l~m";
        for form in [
            "a%2Fb%2Bc%3Ad%40e%3Bf%2Cg%26h%3Di%3Fj%24k%25l~m",
            "a%2Fb%2Bc%3Ad%40e%3Bf%2Cg%26h%3Di%3Fj%24k%25l%7Em",
            "a/b%2Bc%3Ad%40e%3Bf%2Cg%26h%3Di%3Fj%24k%25l~m",
            "a/b+c:d@e;f,g&h=i?j$k%25l~m",
            "a%2Fb+c:d@e%3Bf%2Cg&h=i%3Fj$k%25l~m",
            "a/b+c:d@e;f,g&h=i%3Fj$k%25l~m",
            "a%2Fb+c%3Ad%40e;f,g&h=i%3Fj$k%25l~m",
            "a%2Fb+c%3Ad%40e%3Bf,g&h%3Di%3Fj$k%l~m",
        ] {
            assert!(has(value, form), "{form}");
        }
        for form in ["K7MDENG%252BbPx%252FRfi%253D", "K7MDENG%252bbPx/Rfi="] {
            assert!(has("K7MDENG+bPx/Rfi=", form), "{form}");
        }
        assert!(has("two words+one", "two+words%2Bone") && has("two words+one", "two%20words+one"));
    }

    #[test]
    fn base64_is_known_wherever_the_value_lies_in_it() {
        let value = b"secret-value";
        let forms = forms(value, 8);
        for before in 0..7 {
            for after in 0..4 {
                let text = [&vec![b'x'; before][..], value, &vec![b'y'; after][..]].concat();
                let encoded = STANDARD.encode(text);
                assert!(
                    forms.iter().any(|form| encoded
                        .as_bytes()
                        .windows(form.len())
                        .any(|part| part == form)),
                    "{before} {after}"
                );
            }
        }
    }
}
