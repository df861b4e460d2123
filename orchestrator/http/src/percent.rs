//! Percent-encoding, as paths, queries and answers have it.

/// `bytes` with each `%HH` as the byte that it stands for.
pub fn decoded(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        match escape(rest) {
            Some(byte) => {
                out.push(byte);
                rest = &rest[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

/// The byte for which `%HH` at the beginning of `bytes` stands.
pub fn escape(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}
