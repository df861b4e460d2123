//! Keys of hosts, as the files that ssh reads have them (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), hashed names too. Lines are read as strictly as
//! OpenSSH reads them, or more: a name with `*` or `?` and an authority of certificates open nothing, a line with a negation opens nothing at
//! all, and a key that is revoked for anyone is no host's.

use crate::wire::WireReader;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::gateway::known_host_name;
use ring::hmac;

/// Bytes of the shortest name for which OpenSSH gives up on its line.
const NAME_TOO_LONG: usize = 1023;
/// Bytes of the salt of a hashed name.
const SALT: usize = 20;

#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    lines: Vec<KnownHost>,
    revoked: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct KnownHost {
    names: HostNames,
    key: Vec<u8>,
}

#[derive(Debug)]
enum HostNames {
    Plain(Vec<String>),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl KnownHosts {
    /// Reads the lines that it understands; others open nothing.
    pub(super) fn parse(text: &str) -> Self {
        let mut known = Self::default();
        for line in text.lines() {
            let mut words = words(line);
            match words.next() {
                // For whichever host, and whatever else the line says: OpenSSH looks at both.
                Some(marker) if marker.starts_with("@revoked") => {
                    known.revoked.extend(words.filter_map(revoked_key));
                }
                // OpenSSH reads on after some zero bytes, and not after others.
                Some(names) if !names.starts_with(['@', '#']) && !line.contains('\0') => {
                    let both = HostNames::parse(names).zip(key(words));
                    known
                        .lines
                        .extend(both.map(|(names, key)| KnownHost { names, key }));
                }
                Some(_) | None => {}
            }
        }
        known
    }

    /// Whether this is a key of the host.
    pub(super) fn is_key_of(&self, host: &str, port: u16, key: &[u8]) -> bool {
        let name = known_host_name(host, port);
        let mut lines = self.lines.iter();
        let is_known = lines.any(|line| line.key == key && line.names.has(&name));
        is_known && !self.revoked.iter().any(|revoked| revoked == key)
    }
}

/// The words of a line, parted by spaces and tabs alone, as OpenSSH parts them; in a revocation by zero bytes too.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split([' ', '\t', '\0']);
    words.filter(|word| !word.is_empty())
}

/// The key in what follows the names of a line: its kind, then itself, which begins with the same kind.
fn key<'t>(mut words: impl Iterator<Item = &'t str>) -> Option<Vec<u8>> {
    let (kind, key) = (words.next()?, words.next()?);
    let key = STANDARD.decode(key).ok()?;
    (WireReader::new(&key).string()? == kind.as_bytes()).then_some(key)
}

/// A word of a revocation, if it may be the key. OpenSSH passes over white space within it.
fn revoked_key(word: &str) -> Option<Vec<u8>> {
    let is_space = |byte: char| byte.is_ascii_whitespace() || byte == '\x0b';
    STANDARD.decode(word.replace(is_space, "")).ok()
}

impl HostNames {
    /// `None` for names that are not understood: then no host has the key by this line.
    fn parse(names: &str) -> Option<Self> {
        if names.starts_with('|') {
            return Self::hashed(names);
        }
        let is_long = |name: &str| name.len() >= NAME_TOO_LONG;
        if names.contains('!') || names.split(',').any(is_long) {
            return None;
        }
        let names = names.split(',').map(str::to_ascii_lowercase).collect();
        Some(Self::Plain(names))
    }

    fn hashed(names: &str) -> Option<Self> {
        let (salt, hash) = names.strip_prefix("|1|")?.split_once('|')?;
        let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
        (salt.len() == SALT).then_some(Self::Hashed { salt, hash })
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Plain(names) => names.iter().any(|known| known == name),
            Self::Hashed { salt, hash } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                hmac::verify(&key, name.as_bytes(), hash).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// An Ed25519 key in base64; what its last bytes are plays no role.
    fn ed25519(last: u8) -> String {
        let mut key = Vec::new();
        crate::wire::put_string(&mut key, b"ssh-ed25519");
        crate::wire::put_string(&mut key, &[last; 32]);
        STANDARD.encode(key)
    }

    fn is_known(text: &str, (host, port): (&str, u16), key: &str) -> bool {
        KnownHosts::parse(text).is_key_of(host, port, &STANDARD.decode(key).unwrap())
    }

    fn hashed(name: &str, salt: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
        let hash = STANDARD.encode(hmac::sign(&key, name.as_bytes()));
        format!("|1|{}|{hash}", STANDARD.encode(salt))
    }

    #[test]
    fn a_host_has_the_keys_of_its_lines() {
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(ed25519);
        let text = format!(
            "# a comment\n\
             a.example,B.example ssh-ed25519 {a}\n\
             [a.example]:2222 ssh-ed25519 {b} comment\r\n\
             *.example ssh-ed25519 {c}\n\
             @cert-authority a.example ssh-ed25519 {d}\n\
             @revoked * ssh-ed25519 {e}\n\
             c.example ssh-ed25519 {e}\n\
             short\n"
        );
        assert!(is_known(&text, ("a.example", 22), &a));
        assert!(is_known(&text, ("b.example", 22), &a));
        assert!(is_known(&text, ("a.example", 2222), &b));
        for (place, of) in [
            (("a.example", 2222), &a),
            (("a.example", 22), &b),
            (("a.example", 22), &c),
            (("a.example", 22), &d),
            (("c.example", 22), &e),
            (("d.example", 22), &a),
        ] {
            assert!(!is_known(&text, place, of), "{place:?} {of}");
        }
    }

    /// Whether OpenSSH finds a key of the host that no line revokes; `None` on a machine without it.
    #[expect(clippy::disallowed_methods, reason = "the control")]
    fn openssh_finds(text: &str) -> Option<bool> {
        let mut command = Command::new("ssh-keygen");
        command.args(["-F", "a.example", "-f", "/dev/stdin"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().ok()?;
        let mut input = child.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let found = child.wait_with_output().unwrap().stdout;
        let found = String::from_utf8_lossy(&found);
        let is_line = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let lines: Vec<_> = found.lines().filter(is_line).collect();
        let is_revoked = lines.iter().any(|line| line.contains("@revoked"));
        Some(!lines.is_empty() && !is_revoked)
    }

    /// Each with the verdict on `key`, and whether it is OpenSSH's too; otherwise OpenSSH opens, or `ssh-keygen` prints a line that `ssh`
    /// passes over.
    fn assert_verdicts(key: &str, lines: impl IntoIterator<Item = (String, bool, bool)>) {
        for (text, opens, is_openssh) in lines {
            assert_eq!(is_known(&text, ("a.example", 22), key), opens, "{text:?}");
            if let Some(found) = openssh_finds(&text) {
                assert_eq!(found == opens, is_openssh, "OpenSSH: {text:?}");
            }
        }
    }

    #[test]
    fn a_revoked_key_opens_nothing_in_whatever_form_openssh_reads_it() {
        let key = ed25519(1);
        let plain = format!("a.example ssh-ed25519 {key}\n");
        let with = |line: &str, key: &str| format!("{plain}{line} ssh-ed25519 {key}\n");
        let of_hashed = format!("@revoked {}", hashed("a.example", &[7; 20]));
        let spaced = key.replace("AAAAI", "AAAAI\x0b");
        let zero = format!("{key}\0");
        let other_kind = format!("{plain}@revoked a.example ssh-rsa {key}\n");
        let rows = [
            (plain.clone(), true, true),
            (with("@revoked a.example", &ed25519(2)), true, false),
            (with("@revoked a.example", &key), false, true),
            (with(" @revoked a.example", &key), false, true),
            (with("\t@revoked a.example", &key), false, true),
            (with("@revoked \t a.example\t", &key), false, true),
            (with("@revoked *.example,b", &key), false, true),
            (with(&of_hashed, &key), false, true),
            (with("@revoked a.example", &spaced), false, true),
            (with("@revoked a.example", &zero), false, true),
            (with("@revoked a.example\0", &key), false, true),
            (other_kind, false, true),
            (with("@revoked b.example", &key), false, false),
            (with("@revoked\ta.example", &key), false, false),
            (
                with("@revoked @cert-authority a.example", &key),
                false,
                false,
            ),
        ];
        assert_verdicts(&key, rows);
    }

    #[test]
    fn names_open_only_where_openssh_opens() {
        let key = ed25519(1);
        let line = |names: &str| format!("{names} ssh-ed25519 {key}\n");
        let long = format!("a.example,{}", "x".repeat(NAME_TOO_LONG));
        let rows = [
            ("   a.example", true, true),
            ("\ta.example", true, true),
            ("b.example,A.EXAMPLE,c", true, true),
            ("a.example,*.org", true, true),
            (&hashed("a.example", &[7; 20]), true, true),
            ("a.example,!a.example", false, true),
            ("!a.example,a.example", false, true),
            ("a.example,!*.example", false, true),
            ("a.example,!a.ex?mple", false, true),
            ("a.example,!A.example", false, true),
            ("a.example,!b.example", false, false),
            ("*.example", false, false),
            ("@cert-authority a.example", false, false),
            ("@other a.example", false, true),
            ("|2|a,a.example", false, true),
            (&hashed("a.example", b"salt"), false, true),
            (&long, false, true),
            ("a.example\r", false, true),
            ("a.example\0", false, false),
        ];
        let rows = rows.map(|(names, opens, is_openssh)| (line(names), opens, is_openssh));
        assert_verdicts(&key, rows);
        let rows = [
            (line("a.example").replace('\n', "\r\n"), true, true),
            // `ssh-keygen` does not look at the key.
            (format!("a.example ssh-rsa {key}\n"), false, false),
            (format!("a.example {key}\n"), false, true),
        ];
        assert_verdicts(&key, rows);
    }

    #[test]
    fn a_hashed_name_is_found() {
        let key = ed25519(1);
        let text = format!("{} ssh-ed25519 {key}", hashed("a.example", &[7; 20]));
        assert!(is_known(&text, ("a.example", 22), &key));
        assert!(!is_known(&text, ("b.example", 22), &key));
    }
}
