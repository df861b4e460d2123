//! Headers for collectors in the value of a variable, as OpenTelemetry has it: `name=value,name=value`.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING};
use orchestrator_http::key::Key;
use orchestrator_http::percent;

/// Maximum bytes of such a variable.
const HEADERS_MAX: usize = 16 << 10;

/// The headers, each value percent-decoded. `None` if one of them is no header, or one that the connection has itself.
pub(crate) fn parse(text: &str) -> Option<Vec<(HeaderName, Key)>> {
    const OF_CONNECTION: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];
    if text.len() > HEADERS_MAX {
        return None;
    }
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let value = percent::decoded(value.trim().as_bytes());
        let value = Key::of_header(&String::from_utf8(value).ok()?)?;
        (!OF_CONNECTION.contains(&name)).then_some((name, value))
    };
    pairs.map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_and_none_of_the_connection() {
        let all = parse("x-key=a%20b, authorization=Bearer%3D1,").unwrap();
        let named = |at: usize| (all[at].0.as_str(), all[at].1.expose());
        assert_eq!(named(0), ("x-key", "a b"));
        assert_eq!(named(1), ("authorization", "Bearer=1"));
        assert_eq!(all.len(), 2);
        assert!(!format!("{all:?}").contains("Bearer"), "a key is not shown");
        for wrong in [
            "x",
            "x y=1",
            "=1",
            "x=%0a",
            "host=h",
            "Content-Length=1",
            "transfer-encoding=chunked",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        let long = |length: usize| format!("x={}", "a".repeat(length - "x=".len()));
        assert!(parse(&long(HEADERS_MAX)).is_some());
        assert!(parse(&long(HEADERS_MAX + 1)).is_none());
    }
}
