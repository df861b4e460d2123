//! The record of a change: one line of text, alone in its file.
//!
//! ```text
//! 2 SESSION CALL TIME_MS MODE BEFORE AFTER ZONE:PATH
//! 2 5e3f…01c2 7 1732096812345 644 9f86…0a08 60303…e752 project:src/main.rs
//! ```
//!
//! Session and call are those of the audit. The mode is octal; `-` stands for the digest or mode of a missing file; in the path, `%` and
//! control characters are written as `%XX`. Anybody who can write in the central root may have written the line, so it is parsed strictly
//! and not trusted: its path is checked like that of any request, its content by its digest, and its mode has only permission bits.

use broker_protocol::{CallId, Digest, Zone, ZonePath};
use executor_spec::worker::SESSION_LEN;
use nix::sys::stat::Mode;
use std::fmt::Write as _;

/// Maximum bytes of a line: a path of [`PATH_MAX`](broker_protocol::path::PATH_MAX) bytes, each escaped, and the rest.
pub(crate) const LINE_MAX: usize = 3 * 4096 + 512;

/// A file as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub digest: Digest,
    pub mode: Mode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeRecord {
    /// The session that made it: [`SESSION_LEN`] hexadecimal digits.
    pub session: String,
    pub call: CallId,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    pub path: ZonePath,
    /// The file before the change; `None` if there was none.
    pub before: Option<FileState>,
    /// The file after the change; `None` if it was removed.
    pub after: Option<Digest>,
}

impl ChangeRecord {
    pub(crate) fn to_line(&self) -> String {
        let ChangeRecord {
            session,
            call,
            time_ms,
            path,
            before,
            after,
        } = self;
        let mode = before.map_or("-".to_owned(), |state| format!("{:o}", state.mode.bits()));
        let [before, after] =
            [before.map(|state| state.digest), *after].map(|digest| match digest {
                Some(digest) => digest.to_string(),
                None => "-".to_owned(),
            });
        let path = escaped(path.relative());
        let zone = self.path.zone().name();
        format!("2 {session} {call} {time_ms} {mode} {before} {after} {zone}:{path}\n")
    }

    /// Parses a line; `None` if it is incomplete, or not ours.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let mut words = line.splitn(8, ' ');
        let mut word = || words.next();
        let ("2", session, call, time_ms, mode, before, after, path) = (
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
        ) else {
            return None;
        };
        let before = match (mode, digest(before)?) {
            ("-", None) => None,
            (mode, Some(digest)) => {
                let bits = u32::from_str_radix(mode, 8)
                    .ok()
                    .filter(|bits| *bits <= 0o777)?;
                Some(FileState {
                    digest,
                    mode: Mode::from_bits_truncate(bits),
                })
            }
            _ => return None,
        };
        let (session, call, time_ms) = (id(session)?, call.parse().ok()?, time_ms.parse().ok()?);
        Some(ChangeRecord {
            session,
            call,
            time_ms,
            path: zone_path(path)?,
            before,
            after: digest(after)?,
        })
    }
}

fn id(word: &str) -> Option<String> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (word.len() == SESSION_LEN && word.bytes().all(is_digit)).then(|| word.to_owned())
}

fn digest(word: &str) -> Option<Option<Digest>> {
    match word {
        "-" => Some(None),
        hex => hex.parse().ok().map(Some),
    }
}

fn zone_path(text: &str) -> Option<ZonePath> {
    let (zone, path) = text.split_once(':')?;
    let zone = [Zone::Project, Zone::Central]
        .into_iter()
        .find(|known| known.name() == zone)?;
    ZonePath::new(zone, &unescaped(path)?).ok()
}

fn escaped(path: &str) -> String {
    let mut line = String::with_capacity(path.len());
    for c in path.chars() {
        if c == '%' || c.is_ascii_control() {
            // Writing to a string does not fail.
            let _ = write!(line, "%{:02x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut path = parts.next()?.to_owned();
    for part in parts {
        let byte = u8::from_str_radix(part.get(..2)?, 16)
            .ok()
            .filter(u8::is_ascii)?;
        path.push(byte.into());
        path.push_str(&part[2..]);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> ChangeRecord {
        let digest = Digest([0xab; 32]);
        let before = Some(FileState {
            digest,
            mode: Mode::from_bits_truncate(0o640),
        });
        let path = ZonePath::new(Zone::Central, path).unwrap();
        ChangeRecord {
            session: "5e".repeat(16),
            call: 7,
            time_ms: 9,
            path,
            before,
            after: Some(Digest([1; 32])),
        }
    }

    #[test]
    fn a_line_reads_back() {
        for path in [
            "a",
            "a b/c d",
            "100%",
            "two\nlines\r\t\u{7f}",
            "é%2e",
            "%",
            "-",
            "project:x",
        ] {
            let entry = entry(path);
            let line = entry.to_line();
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert_eq!(ChangeRecord::parse(line.as_bytes()), Some(entry));
        }
        let none = ChangeRecord {
            before: None,
            after: None,
            ..entry("a")
        };
        assert_eq!(ChangeRecord::parse(none.to_line().as_bytes()), Some(none));
    }

    #[test]
    fn torn_or_forged_change_record_is_not_parsed() {
        let line = entry("dir/a").to_line();
        for cut in 0..line.len() {
            assert_eq!(ChangeRecord::parse(&line.as_bytes()[..cut]), None, "{cut}");
        }
        for (from, to) in [
            ("central:", "/etc:"),
            ("central:", "central:/"),
            ("central:", "central:../"),
            ("central:dir", "central:dir/%2e%2e/%2e%2e"),
            ("dir", "d%00r"),
            ("dir", "d%ffr"),
            ("dir", "d%r"),
            ("640", "4640"),
            ("640", "-"),
            ("2 5e", "1 5e"),
            ("2 5e", "2 5E"),
            ("2 5e", "2 e"),
            ("5e 7", "5e -7"),
            ("abab", "ab"),
        ] {
            let forged = line.replacen(from, to, 1);
            assert_ne!(forged, line);
            assert_eq!(ChangeRecord::parse(forged.as_bytes()), None, "{forged}");
        }
    }
}
