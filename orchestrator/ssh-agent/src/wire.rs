//! Numbers and strings as ssh writes them (RFC 4251). Pure: a string that is longer than what is there is no string.

/// Reads what a message holds, from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireReader<'a>(&'a [u8]);

impl<'a> WireReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// A positive number of any length, without the zero that its sign may need before it. One with more zeros is none: a key would have
    /// two forms, and one of them could be revoked.
    pub(super) fn positive(&mut self) -> Option<&'a [u8]> {
        match self.string()? {
            [] => Some(&[]),
            [0, rest @ ..] => rest
                .first()
                .is_some_and(|next| *next >= 0x80)
                .then_some(rest),
            digits => (digits[0] < 0x80).then_some(digits),
        }
    }

    /// True if every byte of the message was read.
    pub(super) fn is_at_end(self) -> bool {
        self.0.is_empty()
    }
}

/// Adds a string to a message.
pub(super) fn put_string(message: &mut Vec<u8>, string: &[u8]) {
    // Every message here has a limit far below this.
    let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
    message.extend(length.to_be_bytes());
    message.extend(string);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_longer_than_its_message_is_none() {
        let mut message = Vec::new();
        put_string(&mut message, b"ab");
        let mut reader = WireReader::new(&message);
        assert_eq!(reader.string(), Some(&b"ab"[..]));
        assert!(reader.is_at_end());
        assert_eq!(WireReader::new(&message[..5]).string(), None);
        assert_eq!(WireReader::new(&[0xff; 4]).string(), None);
        assert_eq!(WireReader::new(&[0; 3]).number(), None);
    }

    #[test]
    fn a_number_is_positive_and_has_one_form() {
        let read = |bytes: &[u8]| {
            let mut message = Vec::new();
            put_string(&mut message, bytes);
            WireReader::new(&message).positive().map(<[u8]>::to_vec)
        };
        assert_eq!(read(&[0, 0x80]), Some(vec![0x80]));
        assert_eq!(read(&[1, 0]), Some(vec![1, 0]));
        for wrong in [&[0x80][..], &[0], &[0, 1], &[0, 0, 0x80]] {
            assert_eq!(read(wrong), None);
        }
        assert_eq!(read(&[]), Some(vec![]));
    }
}
