//! Keys of hosts, as the user's `known_hosts` has them (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), hashed names too. Names with `*`, `?` or `!` and
//! authorities of certificates are not understood, so their lines open nothing; a key that is revoked anywhere is no host's.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::gateway::known_host_name;
use ring::hmac;

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
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("@revoked") => {
                    known.revoked.extend(key(words.skip(1)));
                }
                Some(names) if !names.starts_with(['@', '#']) => {
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

/// The key in what follows the names of a line: its kind, then itself, which begins with its kind.
fn key<'t>(mut words: impl Iterator<Item = &'t str>) -> Option<Vec<u8>> {
    let (_, key) = (words.next()?, words.next()?);
    STANDARD.decode(key).ok()
}

impl HostNames {
    fn parse(names: &str) -> Option<Self> {
        let Some(hashed) = names.strip_prefix("|1|") else {
            let names = names.split(',').map(str::to_ascii_lowercase).collect();
            return Some(Self::Plain(names));
        };
        let (salt, hash) = hashed.split_once('|')?;
        let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
        Some(Self::Hashed { salt, hash })
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

    #[test]
    fn a_host_has_the_keys_of_its_lines() {
        let known = KnownHosts::parse(
            "# a comment\n\
             a.example,B.example ssh-ed25519 AAAA\n\
             [a.example]:2222 ssh-ed25519 BBBB comment\n\
             *.example ssh-ed25519 CCCC\n\
             @cert-authority a.example ssh-ed25519 DDDD\n\
             @revoked * ssh-ed25519 EEEE\n\
             c.example ssh-ed25519 EEEE\n\
             short\n",
        );
        let key = |text: &str| STANDARD.decode(text).unwrap();
        assert!(known.is_key_of("a.example", 22, &key("AAAA")));
        assert!(known.is_key_of("b.example", 22, &key("AAAA")));
        assert!(known.is_key_of("a.example", 2222, &key("BBBB")));
        for (host, port, of) in [
            ("a.example", 2222, "AAAA"),
            ("a.example", 22, "BBBB"),
            ("a.example", 22, "CCCC"),
            ("a.example", 22, "DDDD"),
            ("c.example", 22, "EEEE"),
            ("d.example", 22, "AAAA"),
        ] {
            assert!(!known.is_key_of(host, port, &key(of)), "{host} {of}");
        }
    }

    #[test]
    fn a_hashed_name_is_found() {
        // `ssh-keygen -H` on a line of a.example.
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"salt");
        let hash = hmac::sign(&key, b"a.example");
        let [salt, hash] = [b"salt".as_slice(), hash.as_ref()].map(|part| STANDARD.encode(part));
        let known = KnownHosts::parse(&format!("|1|{salt}|{hash} ssh-ed25519 AAAA"));
        let key = STANDARD.decode("AAAA").unwrap();
        assert!(known.is_key_of("a.example", 22, &key));
        assert!(!known.is_key_of("b.example", 22, &key));
    }
}
