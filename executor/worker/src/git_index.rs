//! Names in the index of a git repository, read without git: versions 2 to 4, of SHA-1 and SHA-256.
//!
//! The file is a stranger's. How long its hashes are stands in settings that are not read here, so that both lengths are tried, and
//! what either says is taken. Its own checksum says nothing about who has written it. What another file goes on (`link`), or what
//! stands for names that are not there (`sdir`), is not read: such an index is none that is understood.

/// Bytes of the longest name.
const NAME_MAX: usize = 4096;
/// Bytes of an entry before its object: times, device, inode, mode, owner, size.
const STAT: usize = 40;
/// `assume-unchanged`, and that more flags follow.
const ASSUME_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
/// `skip-worktree`, among those that follow.
const SKIP_WORKTREE: u16 = 0x4000;

/// A name in an index.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub path: Vec<u8>,
    /// Whether `git status` does not look at the file.
    pub hidden: bool,
}

/// Every name; `None` if this is no index, or one that is not understood as a whole.
pub fn entries(bytes: &[u8]) -> Option<Vec<IndexEntry>> {
    let read: Vec<_> = [20, 32].into_iter().filter_map(|width| entries_of(bytes, width)).collect();
    (!read.is_empty()).then(|| read.into_iter().flatten().collect())
}

fn entries_of(bytes: &[u8], width: usize) -> Option<Vec<IndexEntry>> {
    let content = bytes.get(..bytes.len().checked_sub(width)?)?;
    let mut rest = content.strip_prefix(b"DIRC")?;
    let (version, count) = (u32_of(&mut rest)?, u32_of(&mut rest)?);
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut entries: Vec<IndexEntry> = Vec::new();
    for _ in 0..count {
        let before = entries.last().map(|entry| entry.path.as_slice()).unwrap_or_default();
        let entry = match version == 4 {
            true => shortened(&mut rest, width, before)?,
            false => padded(&mut rest, width)?,
        };
        entries.push(entry);
    }
    while !rest.is_empty() {
        let (name, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        let length = usize::try_from(u32_of(&mut rest)?).ok()?;
        // One in lower case changes what the entries mean.
        rest = rest.get(length..).filter(|_| name[0].is_ascii_uppercase())?;
    }
    Some(entries)
}

/// What stands before the name: whether the entry is hidden.
fn head(rest: &mut &[u8], width: usize) -> Option<bool> {
    *rest = rest.get(STAT + width..)?;
    let flags = u16_of(rest)?;
    let more = if flags & EXTENDED == 0 { 0 } else { u16_of(rest)? };
    Some(flags & ASSUME_VALID != 0 || more & SKIP_WORKTREE != 0)
}

/// An entry with its whole name, filled up to a multiple of eight.
fn padded(rest: &mut &[u8], width: usize) -> Option<IndexEntry> {
    let start = rest.len();
    let hidden = head(rest, width)?;
    let path = name(rest)?.to_vec();
    // The name's own NUL is the first of the filling.
    let filling = (start - rest.len()).next_multiple_of(8) - (start - rest.len());
    *rest = rest.get(filling..)?;
    Some(IndexEntry { path, hidden })
}

/// An entry that says how much of the name before it goes, and what comes instead.
fn shortened(rest: &mut &[u8], width: usize, before: &[u8]) -> Option<IndexEntry> {
    let hidden = head(rest, width)?;
    let kept = before.len().checked_sub(distance(rest)?)?;
    let mut path = before.get(..kept)?.to_vec();
    path.extend_from_slice(name(rest)?);
    (path.len() <= NAME_MAX).then_some(IndexEntry { path, hidden })
}

fn name<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.iter().take(NAME_MAX + 1).position(|byte| *byte == 0)?;
    let name = &rest[..end];
    *rest = &rest[end + 1..];
    Some(name)
}

/// A number as packs have it for distances.
fn distance(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0_usize;
    for place in 0..4 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number = if place == 0 { 0 } else { (number + 1) << 7 } | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn u16_of(rest: &mut &[u8]) -> Option<u16> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u16::from_be_bytes(*number))
}

fn u32_of(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// The index that git writes by a script.
    fn index(script: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let done = Command::new("sh").args(["-ec", script]).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        fs::read(folder.path().join(".git/index")).unwrap()
    }

    const NAMES: &str = "mkdir -p a/b; for n in .env a/.env a/b/one a/b/one-and-more a/b/two zz; do echo $n > $n; done; git add -f .";

    fn names(bytes: &[u8]) -> Option<Vec<(String, bool)>> {
        let name = |entry: IndexEntry| (String::from_utf8(entry.path).unwrap(), entry.hidden);
        Some(entries(bytes)?.into_iter().map(name).collect())
    }

    #[test]
    fn every_version_and_hash_is_read() {
        for format in ["sha1", "sha256"] {
            for version in [2, 3, 4] {
                let bytes = index(&format!(
                    "git init -q --object-format={format} .; {NAMES}; git update-index --index-version {version}"
                ));
                let all = [".env", "a/.env", "a/b/one", "a/b/one-and-more", "a/b/two", "zz"];
                let plain: Vec<_> = all.map(|name| (name.to_owned(), false)).into();
                assert_eq!(names(&bytes), Some(plain), "{format} {version}");
                let bytes = index(&format!(
                    "git init -q --object-format={format} .; {NAMES}; git update-index --skip-worktree .env
                     git update-index --assume-unchanged a/b/two; git update-index --index-version {version}"
                ));
                let hidden = all.map(|name| (name.to_owned(), [".env", "a/b/two"].contains(&name)));
                assert_eq!(names(&bytes), Some(hidden.into()), "{format} {version}");
            }
        }
    }

    #[test]
    fn an_index_that_another_file_goes_on_is_not_understood() {
        let bytes =
            index(&format!("git init -q .; {NAMES}; git update-index --split-index; echo x > x; git add x"));
        assert_eq!(entries(&bytes), None);
        assert_eq!(entries(b""), None);
        assert_eq!(entries(&[b"DIRC\0\0\0\x05\0\0\0\0".as_slice(), &[0; 20]].concat()), None);
        // A count that nothing stands behind takes no memory.
        assert_eq!(entries(&[b"DIRC\0\0\0\x04\xff\xff\xff\xff".as_slice(), &[0; 20]].concat()), None);
    }

    /// Any byte may be another one, and any number of them missing.
    #[test]
    fn a_damaged_index_ends_in_something() {
        for version in [2, 4] {
            let good = index(&format!("git init -q .; {NAMES}; git update-index --index-version {version}"));
            for at in 0..good.len() {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[at] ^= 1 << bit;
                    drop(entries(&bad));
                }
                assert_eq!(entries(&good[..at]), None, "{at}");
            }
        }
    }

    #[test]
    fn a_name_has_a_limit() {
        let of = |length: usize| {
            let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
            bytes.extend([0; STAT + 20 + 2]);
            bytes.extend(vec![b'n'; length]);
            let entry = bytes.len() - 12 + 1;
            bytes.extend(vec![0; 1 + entry.next_multiple_of(8) - entry + 20]);
            entries(&bytes).map(|entries| entries[0].path.len())
        };
        assert_eq!((of(NAME_MAX), of(NAME_MAX + 1)), (Some(NAME_MAX), None));
    }
}
