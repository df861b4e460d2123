//! The file in a body of `multipart/form-data` (RFC 7578), which is in memory as a whole: at most what a write may have.

use crate::fault::SandboxFault;

/// Bytes that such a body may have beyond its file: boundaries, headers, other fields.
pub(crate) const OVERHEAD_MAX: usize = 64 * 1024;
/// Bytes of a boundary (RFC 2046, 5.1.1).
const BOUNDARY_MAX: usize = 70;
/// Parts that are looked at.
const PARTS_MAX: usize = 64;

/// The part called `file`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UploadedFile {
    /// The name that the client gave it, if it did.
    pub name: Option<String>,
    pub content: Vec<u8>,
}

/// The boundary of a body of this type; `None` if it is no form.
///
/// # Errors
/// It is a form without a usable boundary.
pub(crate) fn boundary(media_type: &str) -> Result<Option<String>, SandboxFault> {
    let mut parts = media_type.split(';');
    let kind = parts.next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("multipart/form-data") {
        return Ok(None);
    }
    let found = parts.filter_map(|part| part.trim().split_once('='));
    let found = found
        .filter(|(name, _)| name.eq_ignore_ascii_case("boundary"))
        .map(|(_, value)| value.trim_matches('"'))
        .next()
        .filter(|value| !value.is_empty() && value.len() <= BOUNDARY_MAX);
    found
        .map(|value| Some(value.to_owned()))
        .ok_or_else(|| SandboxFault::invalid("the form has no boundary, or one that is too long"))
}

/// The file in `body`.
///
/// # Errors
/// There is none, or the body is no form.
pub(crate) fn file(body: &[u8], boundary: &str) -> Result<UploadedFile, SandboxFault> {
    let broken = || SandboxFault::invalid("the form is broken");
    // So that the first delimiter looks like the others.
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    let mut rest = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => rest,
        None => after(body, &delimiter).ok_or_else(broken)?.1,
    };
    for _ in 0..PARTS_MAX {
        if rest.starts_with(b"--") {
            return Err(SandboxFault::invalid("the form has no part `file`"));
        }
        let (_, part) = after(rest, b"\r\n").ok_or_else(broken)?;
        let (content, next) = after(part, &delimiter).ok_or_else(broken)?;
        let (head, content) = match content.strip_prefix(b"\r\n") {
            Some(content) => (&[][..], content),
            None => after(content, b"\r\n\r\n").ok_or_else(broken)?,
        };
        let head = std::str::from_utf8(head).map_err(|_| broken())?;
        if let Some(name) = named_file(head) {
            let content = content.to_vec();
            return Ok(UploadedFile { name, content });
        }
        rest = next;
    }
    Err(SandboxFault::invalid(format!(
        "the form has no part `file` among its first {PARTS_MAX}"
    )))
}

/// The bytes before and after the first `mark`.
fn after<'b>(bytes: &'b [u8], mark: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = bytes
        .windows(mark.len())
        .position(|window| window == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}

/// The file name that a part called `file` has; the outer `None` for other parts.
fn named_file(head: &str) -> Option<Option<String>> {
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim()
            .eq_ignore_ascii_case("content-disposition")
            .then_some(value)
    })?;
    let (mut is_file, mut filename) = (false, None);
    for (name, value) in parameters(disposition) {
        match name.to_ascii_lowercase().as_str() {
            "name" => is_file = value == "file",
            "filename" => filename = Some(value),
            _ => {}
        }
    }
    is_file.then_some(filename)
}

/// The parameters behind the first `;`. Browsers escape only quotes, line feeds and carriage returns, and by percent signs.
fn parameters(text: &str) -> Vec<(String, String)> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((_, next)) = rest.split_once(';') {
        let Some((name, value)) = next.split_once('=') else {
            break;
        };
        let (value, behind) = match value.strip_prefix('"') {
            Some(quoted) => match quoted.split_once('"') {
                Some(split) => split,
                None => break,
            },
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        let plain = value.replace("%22", "\"").replace("%0A", "\n");
        found.push((name.trim().to_owned(), plain.replace("%0D", "\r")));
        rest = behind;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (head, content) in parts {
            body.extend_from_slice(format!("--B\r\n{head}\r\n\r\n").as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--B--\r\n");
        body
    }

    #[test]
    fn the_file_of_a_form_is_found_with_every_byte() {
        let all: Vec<u8> = (0..=255).collect();
        let tricky = b"\r\n--A\r\n\r\n--\r\n";
        let named = "Content-Disposition: form-data; name=\"file\"; filename=\"a b/é.bin\"";
        for content in [&all[..], tricky, b"", b"\r\n"] {
            let body = form(&[
                ("Content-Disposition: form-data; name=\"other\"", b"file"),
                (&format!("Content-Type: x/y\r\n{named}"), content),
            ]);
            let got = file(&body, "B").unwrap();
            assert_eq!(got.content, content);
            assert_eq!(got.name.as_deref(), Some("a b/é.bin"));
        }
        let unnamed = form(&[("content-disposition: form-data; name=file", b"x")]);
        assert_eq!(file(&unnamed, "B").unwrap().name, None);
    }

    #[test]
    fn a_form_without_a_file_or_an_end_is_refused() {
        let other = (
            "Content-Disposition: form-data; name=\"notfile\"",
            &b"x"[..],
        );
        let mut cut = form(&[("Content-Disposition: form-data; name=\"file\"", b"xyz")]);
        cut.truncate(cut.len() - 9);
        for body in [form(&[other]), form(&[]), cut, b"--B".to_vec(), vec![]] {
            assert!(file(&body, "B").is_err());
        }
        let mut many = vec![other; PARTS_MAX];
        assert!(file(&form(&many), "B").is_err());
        many[PARTS_MAX - 1] = ("Content-Disposition: form-data; name=\"file\"", b"x");
        assert!(file(&form(&many), "B").is_ok());
        many.insert(0, other);
        assert!(file(&form(&many), "B").is_err());
    }

    #[test]
    fn only_a_form_has_a_boundary() {
        let got = |text: &str| boundary(text).map_err(|_| ());
        assert_eq!(got("application/octet-stream"), Ok(None));
        assert_eq!(got("multipart/form-data; boundary=B"), Ok(Some("B".into())));
        assert_eq!(
            got("Multipart/Form-Data; x=y; BOUNDARY=\"a b\""),
            Ok(Some("a b".into()))
        );
        assert_eq!(got("multipart/form-data"), Err(()));
        let long = |length| format!("multipart/form-data; boundary={}", "x".repeat(length));
        assert!(got(&long(BOUNDARY_MAX)).is_ok() && got(&long(BOUNDARY_MAX + 1)).is_err());
    }
}
