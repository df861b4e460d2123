//! A trust store for Java, which reads no PEM: certificates in the format JKS, whose digest is the file's end. So it is written at once,
//! when the last certificate has come, and no program finds a part of one.

use crate::pem;
use crate::sha1::Sha1;
use std::fs::File;
use std::io::{self, Write};

/// Java's own trust stores have this password too. It is no secret: it begins the digest that finds damage.
pub(crate) const PASSWORD: &str = "changeit";
/// The magic number and the version of the format.
const FORMAT: [u32; 2] = [0xfeed_feed, 2];
/// The tag of an entry that is a trusted certificate.
const TRUSTED: u32 = 2;
/// The kind of a certificate.
const KIND: &str = "X.509";
/// A constant of the format, of the digest.
const WHITENER: &str = "Mighty Aphrodite";

/// The store while certificates come.
#[derive(Debug, Default)]
pub(crate) struct TrustStore {
    entries: Vec<u8>,
    count: u32,
}

impl TrustStore {
    /// Adds a block in PEM form. Broken ones are left out: with one of them Java would read none.
    pub(crate) fn add(&mut self, block: &str) {
        let Some(der) = pem::der(block) else {
            return;
        };
        // Of two bytes at most: see `pem::der`.
        let Ok(length) = u32::try_from(der.len()) else {
            return;
        };
        self.count += 1;
        self.entries.extend(TRUSTED.to_be_bytes());
        text(&mut self.entries, &format!("lazaret-{}", self.count));
        // When it was added, in milliseconds: nobody reads it, and so the same certificates are the same file.
        self.entries.extend(0_u64.to_be_bytes());
        text(&mut self.entries, KIND);
        self.entries.extend(length.to_be_bytes());
        self.entries.extend(der);
    }

    /// Writes the whole store into an empty file.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn write(&self, mut file: &File) -> io::Result<()> {
        let mut head: Vec<u8> = FORMAT.iter().flat_map(|word| word.to_be_bytes()).collect();
        head.extend(self.count.to_be_bytes());
        let mut digest = Sha1::default();
        let password: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for part in [&*password, WHITENER.as_bytes(), &head, &self.entries] {
            digest.update(part);
        }
        for part in [&*head, &self.entries, &digest.finish()] {
            file.write_all(part)?;
        }
        Ok(())
    }
}

/// Appends a short text of ASCII as Java's `writeUTF` does.
fn text(to: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(0);
    to.extend(length.to_be_bytes());
    to.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pem::{BEGIN, END};

    /// Java's own reader is asked in `a_trust_store_of_java_has_what_the_bundle_has`.
    #[test]
    fn a_store_is_a_head_its_entries_and_their_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut store = TrustStore::default();
        let object: Vec<u8> = [0x30, 0x81, 0x80].into_iter().chain([0; 128]).collect();
        let block = |body: &str| format!("{BEGIN}\n{body}\n{END}\n");
        let body = format!("MIGA{}AAA=", "A".repeat(168));
        assert_eq!(pem::der(&block(&body)), Some(object.clone()));
        store.add(&block(&body));
        // One of another length than it says, and no object.
        store.add(&block(&body.replace("MIGA", "MIHA")));
        store.add(&block("bm8gREVSIGhlcmU="));
        store.write(&File::create(&path).unwrap()).unwrap();
        let mut want = [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2].to_vec();
        want.extend(b"\0\x09lazaret-1\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x83");
        want.extend(object);
        let mut digest = Sha1::default();
        digest.update(b"\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite");
        digest.update(&want);
        want.extend(digest.finish());
        assert_eq!(std::fs::read(path).unwrap(), want);
    }
}
