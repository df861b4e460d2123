//! How much a supervisor may copy: its writes are not among those of the call's processes, for which the policy has a limit.

use std::cell::Cell;

/// Maximum bytes of a file that is copied.
const FILE_MAX: u64 = 256 * 1024 * 1024;
/// Maximum bytes that are copied for one call.
const CALL_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes that were copied for one call.
#[derive(Debug, Default)]
pub(crate) struct CopiedBytes(Cell<u64>);

impl CopiedBytes {
    /// Counts a copy of this many bytes, if the bounds and the policy's limit on what a call may write permit it.
    pub(crate) fn take(&self, bytes: u64, written: Option<u64>) -> bool {
        let total = self.0.get().saturating_add(bytes);
        let fits = bytes <= FILE_MAX && total <= CALL_MAX && written.is_none_or(|max| total <= max);
        if fits {
            self.0.set(total);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bounded_by_file_by_call_and_by_policy() {
        let copied = CopiedBytes::default();
        assert!(!copied.take(FILE_MAX + 1, None) && copied.take(FILE_MAX, None));
        assert!(!copied.take(1, Some(FILE_MAX)) && copied.take(0, Some(FILE_MAX)));
        assert!((1..CALL_MAX / FILE_MAX).all(|_| copied.take(FILE_MAX, None)));
        assert!(!copied.take(1, None) && !copied.take(u64::MAX, None));
    }
}
