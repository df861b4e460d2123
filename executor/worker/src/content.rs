//! Bytes and digests of files.

use crate::bounds::{CHUNK, HASHED};
use broker_protocol::Digest;
use sha2::{Digest as _, Sha256};
use std::io::{self, ErrorKind, Read};

/// Reads the first `max` bytes of `file`, and one more if there are more. `size` is the expected
/// size: if it is right, one read is enough.
pub(crate) fn read_up_to(mut file: impl Read, size: u64, max: usize) -> io::Result<Vec<u8>> {
    let expected = usize::try_from(size).ok().filter(|size| *size <= max);
    let mut content = vec![0; expected.unwrap_or(max) + 1];
    let mut filled = 0;
    loop {
        match file.read(&mut content[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if filled > max || expected == Some(filled) {
            break;
        }
        if filled == content.len() {
            content.resize(max + 1, 0);
        }
    }
    content.truncate(filled);
    Ok(content)
}

/// The digest of `content`.
pub(crate) fn digest(content: &[u8]) -> Digest {
    Digest(Sha256::digest(content).into())
}

/// The digest of a file of at most [`HASHED`] bytes; `None` if it is larger.
pub(crate) fn file_digest(file: impl Read) -> io::Result<Option<Digest>> {
    let mut source = file.take(HASHED + 1);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => hash.update(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((source.limit() > 0).then(|| Digest(hash.finalize().into())))
}
