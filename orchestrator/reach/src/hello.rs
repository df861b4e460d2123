//! Reads the name in a TLS ClientHello, of connections that are decrypted and of those that are not.
//!
//! By hand, and not by rustls: a program whose TLS rustls would not speak still has a name that can be compared.

/// Maximum length of a hello that is read, in bytes. Post-quantum key shares make hellos of some 2 KiB.
pub const HELLO_MAX: usize = 16 * 1024;

/// The beginning of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionStart {
    Partial,
    Other,
    /// A hello, and the name in it.
    Name(Option<String>),
    /// It begins like a hello and is none, or is longer than [`HELLO_MAX`].
    Malformed,
}

/// Reads the first bytes of a connection.
pub fn read(bytes: &[u8]) -> ConnectionStart {
    match bytes {
        [] => return ConnectionStart::Partial,
        [0x16] | [0x16, 3, ..] => {}
        _ => return ConnectionStart::Other,
    }
    match message(bytes).and_then(|message| name(&message)) {
        Ok(name) => ConnectionStart::Name(name),
        Err(Short::More) if bytes.len() < HELLO_MAX => ConnectionStart::Partial,
        Err(Short::More | Short::Malformed) => ConnectionStart::Malformed,
    }
}

/// Whether a hello's name is that of this host: whatever its case, and with a final dot.
pub fn is_same_host(name: &str, host: &str) -> bool {
    let bare = |name: &'_ str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    bare(name) == bare(host)
}

enum Short {
    More,
    Malformed,
}

/// The handshake message that the first records hold.
fn message(mut records: &[u8]) -> Result<Vec<u8>, Short> {
    let mut message = Vec::new();
    loop {
        if let [kind, a, b, c, body @ ..] = &message[..] {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if *kind != 1 || length > HELLO_MAX {
                return Err(Short::Malformed);
            }
            if body.len() >= length {
                return Ok(body[..length].to_vec());
            }
        }
        let [0x16, 3, _, high, low, rest @ ..] = records else {
            return Err(match records {
                [] | [0x16] | [0x16, 3, ..] => Short::More,
                _ => Short::Malformed,
            });
        };
        let length = usize::from(*high) << 8 | usize::from(*low);
        if length == 0 {
            return Err(Short::Malformed);
        }
        let held = rest.len().min(length);
        message.extend_from_slice(&rest[..held]);
        records = &rest[held..];
    }
}

/// Takes parts with a length before them off a message.
struct LengthPrefixed<'a>(&'a [u8]);

impl<'a> LengthPrefixed<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Short> {
        let (part, rest) = self.0.split_at_checked(length).ok_or(Short::Malformed)?;
        self.0 = rest;
        Ok(part)
    }

    /// A part whose length stands before it in `width` bytes.
    fn part(&mut self, width: usize) -> Result<&'a [u8], Short> {
        let length = self
            .take(width)?
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        self.take(length)
    }
}

fn name(hello: &[u8]) -> Result<Option<String>, Short> {
    let mut hello = LengthPrefixed(hello);
    // Version and random number; session, ciphers, compressions.
    hello.take(2 + 32)?;
    for width in [1, 2, 1] {
        hello.part(width)?;
    }
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = LengthPrefixed(hello.part(2)?);
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.take(2)?;
        let extension = extensions.part(2)?;
        if kind == [0, 0] {
            // Two names: which one counts depends on who reads it.
            if found.replace(server_name(extension)?).is_some() {
                return Err(Short::Malformed);
            }
        }
    }
    Ok(found)
}

fn server_name(extension: &[u8]) -> Result<String, Short> {
    let mut list = LengthPrefixed(LengthPrefixed(extension).part(2)?);
    let kind = list.take(1)?;
    let name = list.part(2)?;
    if kind != [0] || name.is_empty() || !list.0.is_empty() || !name.is_ascii() {
        return Err(Short::Malformed);
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok(name.strip_suffix('.').unwrap_or(&name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::sync::Arc;

    fn hello(name: &'static str, padding: usize) -> Vec<u8> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols = vec![vec![b'x'; 200]; padding / 200];
        let mut client = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_name_is_read_wherever_the_hello_is_cut() {
        for padding in [0, 4000] {
            let bytes = hello("a.example", padding);
            assert!(padding == 0 || bytes.len() > 4000);
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), ConnectionStart::Partial, "{cut}");
            }
            assert_eq!(
                read(&bytes),
                ConnectionStart::Name(Some("a.example".into()))
            );
        }
    }

    #[test]
    fn a_hello_in_many_records_is_one() {
        let whole = hello("a.example", 0);
        let mut bytes = Vec::new();
        for part in whole[5..].chunks(7) {
            bytes.extend([0x16, 3, 1, 0, u8::try_from(part.len()).unwrap()]);
            bytes.extend(part);
        }
        assert_eq!(
            read(&bytes),
            ConnectionStart::Name(Some("a.example".into()))
        );
    }

    #[test]
    fn an_address_has_no_name_and_other_protocols_are_told_apart() {
        assert_eq!(read(&hello("127.0.0.1", 0)), ConnectionStart::Name(None));
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", b"\x16\x02"] {
            assert_eq!(read(other), ConnectionStart::Other);
        }
    }

    #[test]
    fn endless_hello_is_malformed_at_the_limit() {
        let mut bytes = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0x40, 0];
        bytes.resize(HELLO_MAX - 1, 0);
        assert_eq!(read(&bytes), ConnectionStart::Partial);
        bytes.resize(HELLO_MAX, 0);
        assert_eq!(read(&bytes), ConnectionStart::Malformed);
        assert_eq!(
            read(&[0x16, 3, 1, 0x40, 0, 1, 1, 0, 0]),
            ConnectionStart::Malformed,
            "longer than the limit by its own word"
        );
        assert_eq!(read(&[0x16, 3, 1, 0, 0]), ConnectionStart::Malformed);
        assert_eq!(
            read(&[0x16, 3, 1, 0, 4, 2, 0, 0, 0]),
            ConnectionStart::Malformed
        );
    }
}
