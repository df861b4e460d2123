//! Decodes a server's text: determines its kind and its encoding.

use encoding_rs::{Encoding, UTF_8};
use orchestrator_text::characters::is_unsafe;

/// How many bytes of a page to search for its declared encoding, as browsers do.
const PRESCAN: usize = 1024;

/// The kind of text that a media type means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    Html,
    /// Text that is shown unchanged.
    Plain,
}

/// The kind of `media`, such as `text/html`, in lower case and without parameters; `None` if it is not text.
pub fn kind(media: &str) -> Option<TextKind> {
    const PLAIN: [&str; 12] = [
        "application/json",
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/x-javascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/x-ndjson",
        "application/graphql",
        "application/sql",
        "application/x-sh",
    ];
    match media {
        "text/html" | "application/xhtml+xml" => Some(TextKind::Html),
        _ if media.starts_with("text/") || PLAIN.contains(&media) => Some(TextKind::Plain),
        _ if media.ends_with("+json") || media.ends_with("+xml") || media.ends_with("+yaml") => {
            Some(TextKind::Plain)
        }
        _ => None,
    }
}

/// Whether the bytes of a page are all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEnd {
    Complete,
    Cut,
}

/// Decodes `bytes`: by a byte order mark, else by the server's `charset`, else by the page's declaration, else as UTF-8. Removes
/// unsafe characters, and an incomplete character where the rest of a page is missing.
pub fn decode(bytes: &[u8], charset: Option<&str>, kind: TextKind, end: PageEnd) -> String {
    let named = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let own = || (kind == TextKind::Html).then(|| prescan(bytes)).flatten();
    let (text, _, _) = named.or_else(own).unwrap_or(UTF_8).decode(bytes);
    let text = match end {
        PageEnd::Complete => &text,
        PageEnd::Cut => text.trim_end_matches('\u{fffd}'),
    };
    text.chars()
        .filter(|c| !is_unsafe(*c) || matches!(c, '\n' | '\t'))
        .collect()
}

/// The encoding that a page declares in a `meta` tag near its beginning.
fn prescan(bytes: &[u8]) -> Option<&'static Encoding> {
    const WORD: &[u8] = b"charset";
    let start = bytes[..bytes.len().min(PRESCAN)].to_ascii_lowercase();
    let at = start
        .windows(WORD.len())
        .position(|window| window == WORD)?
        + WORD.len();
    let label: Vec<u8> = start[at..]
        .iter()
        .skip_while(|byte| b" \t\r\n='\"".contains(byte))
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte))
        .copied()
        .collect();
    let encoding = Encoding::for_label(&label)?;
    // A page whose tag was readable is not in UTF-16, whatever it declares.
    Some(if encoding.is_ascii_compatible() {
        encoding
    } else {
        UTF_8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_in_its_own_encoding() {
        let decoded = |bytes: &[u8], charset, kind| decode(bytes, charset, kind, PageEnd::Complete);
        assert_eq!(
            decoded(b"caf\xe9", Some("iso-8859-1"), TextKind::Plain),
            "café"
        );
        assert_eq!(decoded(b"caf\xc3\xa9", None, TextKind::Plain), "café");
        assert_eq!(
            decoded(b"caf\xc3\xa9", Some("no-such"), TextKind::Plain),
            "café"
        );
        assert_eq!(
            decoded(b"\x93\xfa\x96\x7b", Some("Shift_JIS"), TextKind::Plain),
            "日本"
        );
        // A byte order mark overrides the server.
        assert_eq!(
            decoded(
                b"\xef\xbb\xbfcaf\xc3\xa9",
                Some("iso-8859-1"),
                TextKind::Plain
            ),
            "café"
        );
        assert_eq!(decoded(b"\xff\xfea\0", None, TextKind::Plain), "a");
        let page = b"<meta charset=\"windows-1251\"><p>\xef\xf0\xe8";
        assert!(decoded(page, None, TextKind::Html).ends_with("при"));
        assert!(decoded(page, Some("utf-8"), TextKind::Html).contains('\u{fffd}'));
        assert!(!decoded(page, None, TextKind::Plain).ends_with("при"));
        assert_eq!(
            decoded(b"<meta charset=utf-16>a", None, TextKind::Html),
            "<meta charset=utf-16>a"
        );
        assert_eq!(
            decode(b"a\xe2\x82", None, TextKind::Plain, PageEnd::Cut),
            "a"
        );
        assert_eq!(
            decode(b"a\xe2\x82", None, TextKind::Plain, PageEnd::Complete),
            "a\u{fffd}"
        );
        assert_eq!(
            decoded(b"a\x1b[2J\0\r\n\tb\xe2\x80\xae", None, TextKind::Plain),
            "a[2J\n\tb"
        );
    }

    #[test]
    fn only_text_is_text() {
        for (media, want) in [
            ("text/html", Some(TextKind::Html)),
            ("application/xhtml+xml", Some(TextKind::Html)),
            ("text/plain", Some(TextKind::Plain)),
            ("application/json", Some(TextKind::Plain)),
            ("application/activity+json", Some(TextKind::Plain)),
            ("image/svg+xml", Some(TextKind::Plain)),
            ("image/png", None),
            ("application/octet-stream", None),
            ("application/pdf", None),
            ("", None),
        ] {
            assert_eq!(kind(media), want, "{media}");
        }
    }
}
