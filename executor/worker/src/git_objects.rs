//! Reads objects of a git repository without git: loose ones and those in packs.
//!
//! The repository is untrusted: its files may contain anything. So each object is hashed and
//! compared with the requested name before it is returned; what lies between, indices and deltas,
//! is not trusted. Everything that is read and unpacked is counted ([`Objects::new`]).

use crate::root::{LISTING, READING, open_beneath};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use nix::dir::Dir;
use nix::sys::stat::{Mode, SFlag, fstat};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum size of an object that is read: a tree of some 400,000 names.
const OBJECT_MAX: usize = 16 << 20;
/// Maximum number of packs that are searched.
const PACKS_MAX: usize = 4096;
/// Maximum number of deltas on the way to an object: git makes 50 by default.
const DELTAS_MAX: usize = 256;
/// Bytes by which a compressed object may exceed its content.
const ZLIB_MORE: usize = 1024;

/// The name of an object: 20 bytes of SHA-1, or 32 of SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectName(Vec<u8>);

impl ObjectName {
    /// Parses a name written in hexadecimal.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
        if !matches!(text.len(), 40 | 64) {
            return None;
        }
        text.chunks_exact(2)
            .map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?))
            .collect::<Option<_>>()
            .map(Self)
    }

    /// Of its bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// That of an object of this kind and content, with `width` bytes.
    pub(crate) fn of(kind: &str, content: &[u8], width: usize) -> Self {
        let header = format!("{kind} {}\0", content.len());
        Self(match width {
            20 => Sha1::new()
                .chain_update(header)
                .chain_update(content)
                .finalize()
                .to_vec(),
            _ => Sha256::new()
                .chain_update(header)
                .chain_update(content)
                .finalize()
                .to_vec(),
        })
    }

    /// Whether an object of this kind and content has this name.
    pub(crate) fn is_of(&self, kind: &str, content: &[u8]) -> bool {
        *self == Self::of(kind, content, self.0.len())
    }
}

/// The objects of a repository.
pub(crate) struct Objects<'d> {
    common: &'d OwnedFd,
    /// Bytes that may still be read and unpacked.
    left: Cell<usize>,
}

impl<'d> Objects<'d> {
    /// The objects of the repository `common`, of which at most `bytes` are read and unpacked.
    pub(crate) fn new(common: &'d OwnedFd, bytes: usize) -> Self {
        Self {
            common,
            left: Cell::new(bytes),
        }
    }

    /// The content of an object of this kind; `None` if it is not found, too large, or does not match its name.
    pub(crate) fn get(&self, name: &ObjectName, kind: &str) -> Option<Vec<u8>> {
        let content = self.loose(name, kind).or_else(|| self.packed(name))?;
        name.is_of(kind, &content).then_some(content)
    }

    fn spend(&self, bytes: usize) -> Option<()> {
        self.left.set(self.left.get().checked_sub(bytes)?);
        Some(())
    }

    /// Opens a regular file of the repository without following links.
    fn open(&self, path: &str) -> Option<File> {
        let file = open_beneath(self.common, Path::new(path), READING, Mode::empty()).ok()?;
        let regular = fstat(&file).is_ok_and(|stat| {
            SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
        });
        regular.then(|| File::from(file))
    }

    fn read(&self, file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.spend(length)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Reads at most `length` bytes, as many as the file has.
    fn read_some(&self, file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
        let rest = file.metadata().ok()?.len().checked_sub(offset)?;
        self.read(file, offset, length.min(usize::try_from(rest).ok()?))
    }

    fn unpack(&self, compressed: &[u8], max: usize) -> Option<Vec<u8>> {
        self.spend(max.min(OBJECT_MAX))?;
        let content = decompress_to_vec_zlib_with_limit(compressed, max.min(OBJECT_MAX)).ok()?;
        // What was reserved for a larger one is released.
        self.left
            .set(self.left.get() + max.min(OBJECT_MAX) - content.len());
        Some(content)
    }

    fn loose(&self, name: &ObjectName, kind: &str) -> Option<Vec<u8>> {
        let hex = name.hex();
        let file = self.open(&format!("objects/{}/{}", &hex[..2], &hex[2..]))?;
        let content = self.unpack(&self.read_some(&file, 0, OBJECT_MAX)?, OBJECT_MAX)?;
        let end = content.iter().take(32).position(|byte| *byte == 0)?;
        content[..end]
            .starts_with(kind.as_bytes())
            .then(|| content[end + 1..].to_vec())
    }

    fn packed(&self, name: &ObjectName) -> Option<Vec<u8>> {
        let directory = open_beneath(
            self.common,
            Path::new("objects/pack"),
            LISTING,
            Mode::empty(),
        )
        .ok()?;
        let mut directory = Dir::from_fd(directory).ok()?;
        for entry in directory.iter().take(2 * PACKS_MAX).flatten() {
            let Some(pack) = entry
                .file_name()
                .to_str()
                .ok()
                .and_then(|entry| entry.strip_suffix(".idx"))
            else {
                continue;
            };
            let index = format!("objects/pack/{pack}.idx");
            let Some(offset) = self.offset_in(&index, name) else {
                continue;
            };
            let pack = self.open(&format!("objects/pack/{pack}.pack"));
            let found = pack.and_then(|pack| self.entry(&pack, &index, offset, name.bytes().len()));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The offset of an object according to an index of version 1 or 2 (gitformat-pack(5)).
    fn offset_in(&self, index: &str, name: &ObjectName) -> Option<u64> {
        const MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
        let index = self.open(index)?;
        let begin = self.read(&index, 0, 8)?;
        let width = name.bytes().len() as u64;
        // In version 1 each name follows its offset, in version 2 all offsets follow all names.
        let (counts, names, step) = match begin == MAGIC {
            true => (8, 8 + 256 * 4, width),
            false if begin.starts_with(&MAGIC[..4]) => return None,
            false => (0, 256 * 4 + 4, width + 4),
        };
        let number = |offset| {
            Some(u64::from(u32::from_be_bytes(
                *self.read(&index, offset, 4)?.first_chunk()?,
            )))
        };
        let first = u64::from(*name.bytes().first()?);
        let (mut low, mut high) = (
            if first == 0 {
                0
            } else {
                number(counts + (first - 1) * 4)?
            },
            number(counts + first * 4)?,
        );
        let total = number(counts + 255 * 4)?;
        // Each step halves the range, whatever the file contains.
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.read(&index, names + middle * step, name.bytes().len())?;
            match found.as_slice().cmp(name.bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal if step > width => {
                    return number(names + middle * step - 4);
                }
                std::cmp::Ordering::Equal => {
                    let offsets = names + total * (width + 4);
                    let offset = number(offsets + middle * 4)?;
                    let Some(large) = offset.checked_sub(1 << 31) else {
                        return Some(offset);
                    };
                    let bytes = self.read(&index, offsets + total * 4 + large * 8, 8)?;
                    return Some(u64::from_be_bytes(*bytes.first_chunk()?));
                }
            }
        }
        None
    }

    /// The content of the object at `offset` of a pack, of any kind; names have `width` bytes.
    fn entry(&self, pack: &File, index: &str, mut offset: u64, width: usize) -> Option<Vec<u8>> {
        let mut deltas = Vec::new();
        let mut content = loop {
            if deltas.len() > DELTAS_MAX {
                return None;
            }
            let header = self.read_some(pack, offset, 96)?;
            let (kind, size, mut at) = entry_header(&header)?;
            let base = match kind {
                1..=4 => None,
                6 => Some(offset.checked_sub(distance(&header, &mut at)?)?),
                7 => {
                    let base = ObjectName(header.get(at..at + width)?.to_vec());
                    at += width;
                    // On disk, a delta's base is in the same pack.
                    Some(self.offset_in(index, &base)?)
                }
                _ => return None,
            };
            let compressed =
                self.read_some(pack, offset + at as u64, size + size / 512 + ZLIB_MORE)?;
            let content = self.unpack(&compressed, size)?;
            let Some(base) = base else { break content };
            offset = base;
            deltas.push(content);
        };
        while let Some(delta) = deltas.pop() {
            content = self.apply(&content, &delta)?;
        }
        Some(content)
    }

    fn apply(&self, base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
        let mut at = 0;
        if varint(delta, &mut at)? != base.len() {
            return None;
        }
        let size = varint(delta, &mut at)?;
        self.spend(size)?;
        let mut made = Vec::new();
        while let Some(&op) = delta.get(at) {
            at += 1;
            let piece = match op {
                0 => return None,
                1..=0x7f => {
                    let piece = delta.get(at..at + usize::from(op))?;
                    at += usize::from(op);
                    piece
                }
                _ => {
                    let (mut start, mut length) = (0usize, 0usize);
                    for bit in 0..7 {
                        if op & 1 << bit != 0 {
                            let byte = usize::from(*delta.get(at)?);
                            at += 1;
                            let part = if bit < 4 { &mut start } else { &mut length };
                            *part |= byte << (8 * (bit % 4));
                        }
                    }
                    let length = if length == 0 { 0x10000 } else { length };
                    base.get(start..start.checked_add(length)?)?
                }
            };
            if made.len() + piece.len() > size {
                return None;
            }
            made.extend_from_slice(piece);
        }
        (made.len() == size).then_some(made)
    }
}

/// The kind of a pack's entry, the size of its content, and the offset of its content or of its base's name.
fn entry_header(header: &[u8]) -> Option<(u8, usize, usize)> {
    let first = *header.first()?;
    let (mut size, mut at, mut last) = (usize::from(first & 15), 1, first);
    while last & 0x80 != 0 {
        last = *header.get(at)?;
        let shift = 4 + 7 * (at - 1);
        size |= usize::from(last & 0x7f) << Some(shift).filter(|shift| *shift < 32)?;
        at += 1;
    }
    (size <= OBJECT_MAX).then_some((first >> 4 & 7, size, at))
}

/// The distance from an entry back to its base.
fn distance(header: &[u8], at: &mut usize) -> Option<u64> {
    let mut byte = *header.get(*at)?;
    let mut distance = u64::from(byte & 0x7f);
    *at += 1;
    while byte & 0x80 != 0 {
        byte = *header.get(*at)?;
        distance = (distance + 1).checked_mul(128)? | u64::from(byte & 0x7f);
        *at += 1;
    }
    Some(distance)
}

/// A size at the start of a delta, up to the maximum size of an object.
fn varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut size = 0;
    for shift in (0..28).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        size |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (size <= OBJECT_MAX).then_some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::ENTERING;
    use std::fs;
    use std::process::Command;

    /// Runs a script in a new repository.
    fn repository(script: &str) -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        let script =
            format!("git init -q .; git config user.name t; git config user.email t@t; {script}");
        let done = Command::new("sh")
            .args(["-ec", &script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let common =
            nix::fcntl::open(&folder.path().join(".git"), ENTERING, Mode::empty()).unwrap();
        (folder, common)
    }

    fn name(folder: &tempfile::TempDir, of: &str) -> ObjectName {
        let output = Command::new("git")
            .args(["rev-parse", of])
            .current_dir(folder.path())
            .output()
            .unwrap();
        ObjectName::parse(output.stdout.trim_ascii()).unwrap()
    }

    const HISTORY: &str = "seq 1 4000 > f; git add f; git commit -qm a; for i in 1 2 3 4 5 6; do echo $i >> f; seq $i 900 >> f; \
        git commit -qam $i; done";

    #[test]
    fn objects_are_found_loose_and_packed_and_in_deltas() {
        for pack in [
            "true",
            "git gc -q",
            "git -c repack.useDeltaBaseOffset=false repack -qadf --depth=50",
        ] {
            let (folder, common) = repository(&format!("{HISTORY}; {pack}"));
            let objects = Objects::new(&common, 64 << 20);
            for commit in ["HEAD", "HEAD~3", "HEAD~6"] {
                assert!(
                    objects.get(&name(&folder, commit), "commit").is_some(),
                    "{pack} {commit}"
                );
                assert!(
                    objects
                        .get(&name(&folder, &format!("{commit}^{{tree}}")), "tree")
                        .is_some(),
                    "{pack}"
                );
                let blob = objects
                    .get(&name(&folder, &format!("{commit}:f")), "blob")
                    .unwrap();
                let shown = Command::new("git")
                    .args(["show", &format!("{commit}:f")])
                    .current_dir(folder.path())
                    .output();
                assert_eq!(blob, shown.unwrap().stdout, "{pack} {commit}");
            }
            assert!(
                objects.get(&name(&folder, "HEAD"), "tree").is_none(),
                "of another kind"
            );
            assert!(objects.get(&ObjectName::new(&[7; 20]), "blob").is_none());
        }
    }

    #[test]
    fn object_whose_content_does_not_match_its_name_is_ignored() {
        let (folder, common) =
            repository("echo one > f; echo two > g; git add .; git commit -qm a");
        let (one, two) = (name(&folder, "HEAD:f"), name(&folder, "HEAD:g"));
        let path = |name: &ObjectName| {
            folder
                .path()
                .join(".git/objects")
                .join(&name.hex()[..2])
                .join(&name.hex()[2..])
        };
        assert!(
            Objects::new(&common, 64 << 20).get(&one, "blob").is_some(),
            "control"
        );
        fs::remove_file(path(&one)).unwrap();
        fs::copy(path(&two), path(&one)).unwrap();
        assert!(Objects::new(&common, 64 << 20).get(&one, "blob").is_none());
    }

    #[test]
    fn no_more_is_read_and_unpacked_than_was_given() {
        let (folder, common) = repository(&format!("{HISTORY}; git gc -q"));
        let head = name(&folder, "HEAD:f");
        assert!(Objects::new(&common, 64 << 20).get(&head, "blob").is_some());
        assert!(Objects::new(&common, 4 << 10).get(&head, "blob").is_none());
    }

    /// Any byte of a pack and its index may be changed.
    #[test]
    fn damaged_packs_end_in_nothing() {
        let (folder, common) = repository(&format!("{HISTORY}; git gc -q"));
        let names = ["HEAD", "HEAD~6", "HEAD:f", "HEAD~6:f"].map(|of| name(&folder, of));
        for entry in fs::read_dir(folder.path().join(".git/objects/pack"))
            .unwrap()
            .flatten()
        {
            let (path, good) = (entry.path(), fs::read(entry.path()).unwrap());
            fs::remove_file(&path).unwrap();
            for step in 0..400 {
                let mut bad = good.clone();
                let at = step * bad.len() / 400;
                bad[at] ^= 1 << (step % 8);
                bad.truncate(if step % 7 == 0 { at } else { good.len() });
                fs::write(&path, bad).unwrap();
                let objects = Objects::new(&common, 8 << 20);
                // Whatever is returned is right: its name was checked.
                names
                    .iter()
                    .for_each(|name| drop(objects.get(name, "blob")));
            }
            fs::write(&path, good).unwrap();
        }
    }

    #[test]
    fn deltas_are_applied_as_git_applies_them() {
        let (_folder, common) = repository("true");
        let objects = Objects::new(&common, 1 << 20);
        let apply = |delta: &[u8]| objects.apply(b"0123456789", delta);
        assert_eq!(
            apply(&[10, 5, 0x91, 2, 3, 2, b'a', b'b']).unwrap(),
            b"234ab"
        );
        for wrong in [
            &[9, 3, 0x91, 2, 3][..],
            &[10, 3, 0x91, 8, 3],
            &[10, 2, 0x91, 2, 3],
            &[10, 4, 0x91, 2, 3],
            &[10, 3, 0],
            &[10, 3, 5, b'a'],
            &[10, 3, 0x91, 2],
            &[10],
            &[0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(apply(wrong), None, "{wrong:?}");
        }
    }
}
