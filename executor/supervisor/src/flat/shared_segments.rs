//! System V shared memory where the session has no IPC namespace: segments that programs of one call have made, for these programs
//! alone. They end with the call.
//!
//! Programs know a segment by a number of the whole machine. So it has no key there: keys are this supervisor's, and none but those
//! of the call are found. A program attaches by itself, since nobody can map memory for another: that call continues, but all that
//! is decided about is a number in a register, and while this process has the segment attached it is no other segment's.

use crate::object::errno;
use executor_sys::shared_segment::SharedSegment;
use nix::Result;
use nix::errno::Errno;

/// Maximum number of segments of a call.
const SEGMENTS_MAX: usize = 64;
/// Maximum bytes of them together: what nobody has mapped, no limit on memory counts.
const BYTES_MAX: usize = 64 << 20;
/// Maximum number of segments that a call makes in all. Far fewer than after which the kernel uses a number again.
const MADE_MAX: u32 = 4096;

/// The segments of a call.
#[derive(Default)]
pub(crate) struct SharedSegments {
    list: Vec<KnownSegment>,
    made: u32,
}

struct KnownSegment {
    key: i32,
    size: usize,
    segment: SharedSegment,
}

impl SharedSegments {
    fn make(&mut self, key: i32, size: usize) -> Result<i32> {
        let used: usize = self.list.iter().map(|known| known.size).sum();
        if size == 0 {
            return Err(Errno::EINVAL);
        }
        let too_large = size > BYTES_MAX - used;
        if too_large || self.list.len() >= SEGMENTS_MAX || self.made >= MADE_MAX {
            return Err(Errno::ENOSPC);
        }
        let segment = SharedSegment::new(size).map_err(errno)?;
        let id = segment.id();
        self.made += 1;
        self.list.push(KnownSegment { key, size, segment });
        Ok(id)
    }

    pub(crate) fn get(&mut self, key: i32, size: usize, flags: i32) -> Result<i32> {
        let known = self.list.iter().find(|known| known.key == key);
        match known.filter(|_| key != libc::IPC_PRIVATE) {
            Some(_) if flags & libc::IPC_CREAT != 0 && flags & libc::IPC_EXCL != 0 => {
                Err(Errno::EEXIST)
            }
            Some(known) if size > known.size => Err(Errno::EINVAL),
            Some(known) => Ok(known.segment.id()),
            None if key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0 => {
                self.make(key, size)
            }
            None => Err(Errno::ENOENT),
        }
    }

    /// Whether it is a segment of the call.
    ///
    /// # Errors
    /// `EINVAL` if it is not.
    pub(crate) fn check(&self, id: i32) -> Result<()> {
        self.position(id).map(drop)
    }

    pub(crate) fn remove(&mut self, id: i32) -> Result<()> {
        let at = self.position(id)?;
        drop(self.list.remove(at));
        Ok(())
    }

    /// The kernel's description of a segment, as programs of the call are to see it.
    pub(crate) fn state(&self, id: i32) -> Result<Vec<u8>> {
        let known = &self.list[self.position(id)?];
        known.segment.state(known.key).map_err(errno)
    }

    fn position(&self, id: i32) -> Result<usize> {
        let mut list = self.list.iter();
        let at = list.position(|known| known.segment.id() == id);
        at.ok_or(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: i32 = libc::IPC_CREAT | libc::IPC_EXCL;

    #[test]
    fn keys_and_bounds_are_those_of_the_call() {
        let mut segments = SharedSegments::default();
        assert_eq!(segments.get(7, 1, 0), Err(Errno::ENOENT));
        let id = segments.get(7, 4096, libc::IPC_CREAT).unwrap();
        assert_eq!(segments.get(7, 100, 0), Ok(id));
        assert_eq!(segments.get(7, 4096, NEW), Err(Errno::EEXIST));
        assert_eq!(segments.get(7, 4097, 0), Err(Errno::EINVAL));
        let private = segments.get(libc::IPC_PRIVATE, 1, 0).unwrap();
        assert_ne!(segments.get(libc::IPC_PRIVATE, 1, 0), Ok(private));
        assert_eq!(segments.get(8, 0, NEW), Err(Errno::EINVAL));
        assert_eq!(segments.get(8, BYTES_MAX, NEW), Err(Errno::ENOSPC));
        assert_eq!(segments.check(i32::MAX), Err(Errno::EINVAL));
        assert_eq!((segments.check(id), segments.remove(id)), (Ok(()), Ok(())));
        assert_eq!(segments.remove(id), Err(Errno::EINVAL));
        assert_eq!(segments.get(7, 1, 0), Err(Errno::ENOENT));
        while segments.list.len() < SEGMENTS_MAX {
            segments.get(libc::IPC_PRIVATE, 1, 0).unwrap();
        }
        assert_eq!(segments.get(libc::IPC_PRIVATE, 1, 0), Err(Errno::ENOSPC));
    }

    #[test]
    fn the_description_is_that_of_a_segment_that_stays() {
        let segment = SharedSegment::new(5000).unwrap();
        let state = segment.state(0x0102_0304).unwrap();
        assert_eq!(state[..4], 0x0102_0304_i32.to_ne_bytes());
        assert!(
            state
                .windows(8)
                .any(|bytes| bytes == 5000_usize.to_ne_bytes())
        );
    }
}
