//! Strings of SSH's formats: four bytes of length, then the bytes.

pub(crate) fn put(packet: &mut Vec<u8>, bytes: &[u8]) {
    // Ours are short.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(bytes);
}

#[derive(Clone, Copy)]
pub(crate) struct PacketReader<'p>(pub(crate) &'p [u8]);

impl<'p> PacketReader<'p> {
    /// The next bytes, if there are so many.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn string(&mut self) -> Option<&'p [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// The value, if nothing comes after it.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}
