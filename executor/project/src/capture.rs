//! Keeps the beginning and the end of a command's output in memory, and all of it in a file if that is not enough.

use crate::central_directory::{beneath, central_directory};
use broker_protocol::{Captured, Spill, Zone, ZonePath};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The directory of the central root for spill files.
const DIRECTORY: &str = "outputs";

/// The output of one call, or of one of its streams.
#[derive(Debug)]
pub struct Capture {
    /// Bytes kept from the beginning, and as many from the end.
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spill: SpillFile,
}

#[derive(Debug)]
enum SpillFile {
    /// No file was needed so far.
    Unused {
        cap: u64,
        central: PathBuf,
        name: String,
    },
    Open {
        file: File,
        name: String,
        left: u64,
        written: u64,
    },
    /// It is not wanted, or could not be created or written: the result names no file.
    Lost,
}

impl Capture {
    /// Keeps `capture` bytes, and spills up to `cap` bytes to a file called `name` in the root `central`.
    pub fn new(capture: u64, cap: u64, central: &Path, name: String) -> Self {
        let half = usize::try_from(capture / 2).unwrap_or(usize::MAX);
        let spill = SpillFile::Unused {
            cap,
            central: central.to_owned(),
            name,
        };
        Self {
            half,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            spill,
        }
    }

    /// Keeps nothing and only counts.
    pub fn nothing() -> Self {
        Self {
            half: 0,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            spill: SpillFile::Lost,
        }
    }

    /// Adds output as it is produced.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if self.total > 2 * self.half as u64 {
            let (first, second) = self.tail.as_slices();
            self.spill.open([&self.head, first, second]);
        }
        self.spill.write(bytes);
        let into_head = bytes.len().min(self.half - self.head.len());
        self.head.extend_from_slice(&bytes[..into_head]);
        let rest = &bytes[into_head..];
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Opens the file now, not only when there is more output than is kept; `None` if it cannot be created.
    pub fn open(&mut self) -> Option<ZonePath> {
        self.spill.open([&[], &[], &[]]);
        self.spill.path()
    }

    /// At most `max` bytes from offset `from`, or the last ones, and the offset of the first. That is later than `from`
    /// where nothing is kept there. A cell may have changed the file: then this returns its present content.
    pub fn piece(&self, from: Option<u64>, max: usize) -> (u64, Vec<u8>) {
        let from = from
            .unwrap_or(self.total.saturating_sub(max as u64))
            .min(self.total);
        let (from, mut bytes) = self.kept(from, max);
        while bytes.len() < max {
            let next = from + bytes.len() as u64;
            match self.kept(next, max - bytes.len()) {
                (at, more) if at == next && !more.is_empty() => bytes.extend(more),
                _ => break,
            }
        }
        (from, bytes)
    }

    /// Returns a piece as [`Self::piece`] does, between at most `side` bytes before and behind it, as far as these are kept.
    pub fn piece_with_sides(
        &self,
        from: Option<u64>,
        max: usize,
        side: u16,
    ) -> (u64, [Vec<u8>; 3]) {
        let (from, bytes) = self.piece(from, max);
        let length = u64::from(side).min(from);
        let (at, mut before) = self.piece(Some(from - length), length as usize);
        before.truncate(usize::try_from(from.saturating_sub(at)).unwrap_or_default());
        let end = from + bytes.len() as u64;
        let behind = match self.piece(Some(end), side.into()) {
            (at, behind) if at == end => behind,
            (_, _) => Vec::new(),
        };
        (from, [before, bytes, behind])
    }

    /// Bytes from one of the places that keep output: the beginning, the end, the file.
    fn kept(&self, from: u64, max: usize) -> (u64, Vec<u8>) {
        let last = self.total - self.tail.len() as u64;
        if let Some(head) = usize::try_from(from)
            .ok()
            .and_then(|from| self.head.get(from..))
            && !head.is_empty()
        {
            return (from, head[..head.len().min(max)].to_vec());
        }
        if from < last
            && let Some(bytes) = self.spill.piece(from, max.min((last - from) as usize))
        {
            return (from, bytes);
        }
        let from = from.max(last);
        (
            from,
            self.tail
                .iter()
                .skip((from - last) as usize)
                .take(max)
                .copied()
                .collect(),
        )
    }

    /// Number of bytes added so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The kept output, and where the whole of it is.
    pub fn finish(self) -> (Captured, Option<Spill>) {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let (mut head, tail) = (self.head, Vec::from(self.tail));
        if kept == self.total {
            head.extend_from_slice(&tail);
            return (
                Captured {
                    head,
                    tail: Vec::new(),
                    omitted: 0,
                },
                None,
            );
        }
        let captured = Captured {
            head,
            tail,
            omitted: self.total - kept,
        };
        (captured, self.spill.finish(self.total))
    }
}

impl SpillFile {
    /// Creates the file, once, and writes what was kept until now: nothing has been dropped so far.
    fn open(&mut self, kept: [&[u8]; 3]) {
        let SpillFile::Unused { cap, central, name } = self else {
            return;
        };
        let (cap, name) = (*cap, std::mem::take(name));
        *self = match create(central, &name) {
            Ok(file) if cap > 0 => SpillFile::Open {
                file,
                name,
                left: cap,
                written: 0,
            },
            Ok(_) | Err(_) => SpillFile::Lost,
        };
        kept.into_iter().for_each(|bytes| self.write(bytes));
    }

    fn write(&mut self, bytes: &[u8]) {
        let SpillFile::Open {
            file,
            left,
            written,
            ..
        } = self
        else {
            return;
        };
        let bytes = &bytes[..bytes
            .len()
            .min(usize::try_from(*left).unwrap_or(usize::MAX))];
        if file.write_all(bytes).is_err() {
            *self = SpillFile::Lost;
            return;
        }
        *left -= bytes.len() as u64;
        *written += bytes.len() as u64;
    }

    fn path(&self) -> Option<ZonePath> {
        let SpillFile::Open { name, .. } = self else {
            return None;
        };
        ZonePath::new(Zone::Central, &format!("{DIRECTORY}/{name}")).ok()
    }

    /// Reads part of what was written, if it is there.
    fn piece(&self, from: u64, max: usize) -> Option<Vec<u8>> {
        let SpillFile::Open { file, written, .. } = self else {
            return None;
        };
        let max = usize::try_from(written.checked_sub(from)?)
            .unwrap_or(max)
            .min(max);
        let mut bytes = vec![0; max];
        let length = file
            .read_at(&mut bytes, from)
            .ok()
            .filter(|length| *length > 0)?;
        bytes.truncate(length);
        Some(bytes)
    }

    fn finish(self, total: u64) -> Option<Spill> {
        let path = self.path()?;
        let SpillFile::Open { written, .. } = self else {
            return None;
        };
        Some(Spill {
            path,
            bytes: written,
            whole: written == total,
        })
    }
}

/// Creates a new file beneath the central root. Cells can write to this zone, so no link in it is followed.
fn create(central: &Path, name: &str) -> io::Result<File> {
    let root = open(
        central,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let folder = central_directory(&root, DIRECTORY)?;
    let new = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    Ok(beneath(&folder, name, new, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(
        capture: u64,
        cap: u64,
        chunks: &[&[u8]],
    ) -> (Captured, Option<Spill>, Option<Vec<u8>>) {
        let central = tempfile::tempdir().unwrap();
        let mut kept = Capture::new(capture, cap, central.path(), "1.log".into());
        chunks.iter().for_each(|chunk| kept.push(chunk));
        let (captured, spill) = kept.finish();
        (
            captured,
            spill,
            std::fs::read(central.path().join("outputs/1.log")).ok(),
        )
    }

    #[test]
    fn output_within_the_limit_is_complete_without_a_file() {
        let (captured, spill, file) = captured(10, 100, &[b"12345", b"67890"]);
        assert_eq!(
            captured,
            Captured {
                head: b"1234567890".into(),
                tail: vec![],
                omitted: 0
            }
        );
        assert_eq!((spill, file), (None, None));
    }

    #[test]
    fn both_sides_of_a_piece_are_bounded_and_end_with_the_output() {
        let central = tempfile::tempdir().unwrap();
        let mut kept = Capture::new(10, 100, central.path(), "1.log".into());
        (b"0123456789abcdef")
            .chunks(4)
            .for_each(|chunk| kept.push(chunk));
        let sides = |from, max| {
            let (at, parts) = kept.piece_with_sides(from, max, 3);
            (at, parts.map(|part| String::from_utf8(part).unwrap()))
        };
        let of = |at: u64, parts: [&str; 3]| (at, parts.map(str::to_owned));
        assert_eq!(sides(Some(0), 2), of(0, ["", "01", "234"]));
        assert_eq!(sides(Some(2), 2), of(2, ["01", "23", "456"]));
        assert_eq!(sides(Some(6), 5), of(6, ["345", "6789a", "bcd"]));
        assert_eq!(sides(None, 2), of(14, ["bcd", "ef", ""]));
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_wanted() {
        let mut kept = Capture::nothing();
        kept.push(b"12345");
        kept.push(b"6");
        assert_eq!(
            kept.piece_with_sides(Some(5), 1, 3).1,
            [const { vec![] }; 3]
        );
        assert_eq!((kept.total(), kept.piece(None, 9)), (6, (6, vec![])));
        assert_eq!(
            kept.finish(),
            (
                Captured {
                    head: vec![],
                    tail: vec![],
                    omitted: 6
                },
                None
            )
        );
    }

    #[test]
    fn output_over_the_limit_keeps_both_ends_and_spills_all() {
        let (captured, spill, file) = captured(10, 100, &[b"12345", b"678901"]);
        assert_eq!(
            captured,
            Captured {
                head: b"12345".into(),
                tail: b"78901".into(),
                omitted: 1
            }
        );
        assert_eq!(file.unwrap(), b"12345678901");
        assert!(spill.is_some_and(|spill| spill.whole && spill.bytes == 11));
    }

    #[test]
    fn the_spill_stops_at_its_cap_and_says_so() {
        let (captured, spill, file) = captured(4, 6, &[b"123", b"456789"]);
        assert_eq!(
            captured,
            Captured {
                head: b"12".into(),
                tail: b"89".into(),
                omitted: 5
            }
        );
        assert_eq!(file.unwrap(), b"123456");
        assert!(spill.is_some_and(|spill| !spill.whole && spill.bytes == 6));
    }

    #[test]
    fn every_byte_that_is_kept_can_be_had() {
        let central = tempfile::tempdir().unwrap();
        let mut kept = Capture::new(8, 10, central.path(), "1.log".into());
        assert!(kept.open().is_some());
        let text = b"0123456789abcdef";
        for (taken, byte) in text.iter().enumerate() {
            kept.push(&[*byte]);
            let so_far = &text[..=taken];
            for from in 0..=taken {
                // Beyond the file, and before the last four bytes, nothing is kept.
                let gap = (from as u64) >= 10 && from + 4 <= taken;
                let want = if gap { taken - 3 } else { from };
                let (at, bytes) = kept.piece(Some(from as u64), 3);
                assert_eq!(at, want as u64, "from {from} of {so_far:?}");
                let end = so_far.len().min(want + 3);
                let whole = end <= 10 || end + 4 > so_far.len() && want + 4 >= so_far.len();
                assert!(!bytes.is_empty() && so_far[want..end].starts_with(&bytes));
                assert!(
                    !whole || bytes == so_far[want..end],
                    "from {from} of {so_far:?}: {bytes:?}"
                );
            }
            let last = so_far.len().saturating_sub(4);
            assert_eq!(kept.piece(None, 4), (last as u64, so_far[last..].to_vec()));
        }
        assert_eq!(kept.piece(Some(99), 4), (16, vec![]));
        std::fs::write(central.path().join("outputs/1.log"), "").unwrap();
        assert_eq!(
            kept.piece(Some(5), 9),
            (12, b"cdef".to_vec()),
            "a cell has emptied the file"
        );
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let central = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), central.path().join("outputs")).unwrap();
        let mut kept = Capture::new(2, 100, central.path(), "1.log".into());
        kept.push(b"12345");
        assert_eq!(kept.finish().1, None);
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
