//! Reads the names in the index of a git repository without git: versions 2 to 4, with SHA-1 and SHA-256.
//!
//! The file is untrusted. The length of its hashes is in settings that are not read here, so both lengths are tried,
//! and the results of either are used. Its own checksum does not show who has written it. A file that refers to another
//! (`link`), or has directories in place of the names in them (`sdir`), is not all of an index.
//!
//! Git reads a name by the length stored before it, and parts of a large index by tables at its
//! end: if these contradict what is parsed here, the file counts as unreadable.

use crate::cached_trees::{self, Blob, OtherTree};
use policies_guard::may_be_dot_git;

/// Maximum bytes of a name.
const NAME_MAX: usize = 4096;
/// Maximum bytes of all names, several times those of the largest projects: an index can repeat a long name in a few bytes.
const NAMES_MAX: usize = 48 << 20;
/// Bytes of an entry before its object: times, device, inode, mode, owner, size.
const STAT: usize = 40;
/// Where its mode is, and the mode of a submodule's place.
const MODE: usize = 24;
const SUBMODULE: u32 = 0o160_000;
/// The length of the name; the next, the side of a conflict.
const LENGTH: u16 = 0x0fff;
const STAGE: u16 = 0x3000;
/// `assume-unchanged`; the next flag says that more flags follow.
const ASSUME_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
/// `skip-worktree`, one of the flags that follow.
const SKIP_WORKTREE: u16 = 0x4000;
const INTENT_TO_ADD: u16 = 0x2000;

/// A name in an index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub path: Vec<u8>,
    /// Whether `git status` ignores the file.
    pub hidden: bool,
    /// Whether that is because git takes it for unchanged (`assume-unchanged`).
    pub assumed: bool,
    /// Whether it is the place of a submodule.
    pub submodule: bool,
}

/// The part of an index that is in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Its names, without those in the file on which it is based (`base`).
    pub entries: Vec<IndexEntry>,
    /// The object name in the name of the file on which it is based.
    pub base: Option<Vec<u8>>,
    /// Whether all names are in this file.
    pub whole: bool,
    /// Cached trees that are not those of its entries, if all entries are in this file.
    pub other_trees: Vec<OtherTree>,
}

/// Where an entry begins, and whether it contains its name in full.
struct EntryStart {
    at: usize,
    whole: bool,
}

/// The content with either length of hashes; empty if it is no index, or cannot be parsed.
pub(crate) fn read(bytes: &[u8]) -> Vec<Index> {
    [20, 32]
        .into_iter()
        .filter_map(|width| index_of(bytes, width))
        .collect()
}

/// Whether git itself would add such a name to an index: it is below the work tree, and not in a repository's own directory.
pub(crate) fn is_in_work_tree(path: &[u8]) -> bool {
    // An entry for a directory, in place of the names in it, ends with a slash.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.split(|byte| *byte == b'/')
        .all(|name| !matches!(name, b"" | b"." | b"..") && !may_be_dot_git(name))
}

fn index_of(bytes: &[u8], width: usize) -> Option<Index> {
    let content = bytes.get(..bytes.len().checked_sub(width)?)?;
    let mut rest = content.strip_prefix(b"DIRC")?;
    let (version, count) = (u32_of(&mut rest)?, u32_of(&mut rest)?);
    if !(2..=4).contains(&version) {
        return None;
    }
    let (entries, starts) = entries_of(content, &mut rest, (version, count), width)?;
    let end = content.len() - rest.len();
    let mut index = Index {
        entries,
        base: None,
        whole: true,
        other_trees: Vec::new(),
    };
    while !rest.is_empty() {
        let (name, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        let length = usize::try_from(u32_of(&mut rest)?).ok()?;
        let (text, after) = rest.split_at_checked(length)?;
        rest = after;
        match name {
            b"IEOT" if !are_blocks(text, &starts) => return None,
            b"link" => (index.base, index.whole) = (Some(text.get(..width)?.to_vec()), false),
            b"sdir" => index.whole = false,
            // With a name outside the work tree the index is not used, and such names are in no tree.
            b"TREE"
                if index
                    .entries
                    .iter()
                    .any(|entry| !is_in_work_tree(&entry.path)) => {}
            b"TREE" => {
                let blobs = index.entries.iter().zip(&starts);
                let blobs = blobs.map_while(|(entry, start)| blob(content, entry, start, width));
                index
                    .other_trees
                    .extend(cached_trees::others(text, blobs, width)?);
            }
            // An extension in lower case changes the meaning of entries.
            other if !other[0].is_ascii_uppercase() => return None,
            _other => {}
        }
    }
    if index.base.is_some() {
        // Entries without a name replace entries of the other file.
        index.entries.retain(|entry| !entry.path.is_empty());
        index.other_trees.clear();
    }
    ends_where_said(content, width, end).then_some(index)
}

/// The entries, each with its place, before the extensions.
fn entries_of(
    content: &[u8],
    rest: &mut &[u8],
    (version, count): (u32, u32),
    width: usize,
) -> Option<(Vec<IndexEntry>, Vec<EntryStart>)> {
    let (mut entries, mut starts): (Vec<IndexEntry>, Vec<EntryStart>) = (Vec::new(), Vec::new());
    let mut bytes_of_names = 0;
    for _ in 0..count {
        let before = entries
            .last()
            .map(|entry| entry.path.as_slice())
            .unwrap_or_default();
        let at = content.len() - rest.len();
        let (entry, whole) = match version == 4 {
            true => shortened(rest, width, before)?,
            false => (padded(rest, width)?, true),
        };
        bytes_of_names += entry.path.len();
        if bytes_of_names > NAMES_MAX {
            return None;
        }
        entries.push(entry);
        starts.push(EntryStart { at, whole });
    }
    Some((entries, starts))
}

/// An entry as a commit would take it.
fn blob<'i>(
    content: &'i [u8],
    entry: &'i IndexEntry,
    start: &EntryStart,
    width: usize,
) -> Option<Blob<'i>> {
    let fields = content.get(start.at..)?;
    let (object, mut flags) = fields.get(STAT..)?.split_at_checked(width)?;
    let first = u16_of(&mut flags)?;
    let more = if first & EXTENDED == 0 {
        0
    } else {
        u16_of(&mut flags)?
    };
    Some(Blob {
        path: &entry.path,
        mode: u32_of(&mut fields.get(MODE..)?)?,
        object,
        committed: first & STAGE == 0 && more & INTENT_TO_ADD == 0,
    })
}

/// Whether a table of blocks agrees with where separately readable entries begin.
fn are_blocks(mut table: &[u8], starts: &[EntryStart]) -> bool {
    let mut next = 0;
    let version = u32_of(&mut table);
    while let (Some(at), Some(count)) = (u32_of(&mut table), u32_of(&mut table)) {
        if !starts
            .get(next)
            .is_some_and(|start| start.whole && start.at == at as usize)
        {
            return false;
        }
        next += count as usize;
    }
    version == Some(1) && table.is_empty() && next == starts.len()
}

/// Whether the entries end where the last extension says, if that is the one that says so (`EOIE`).
fn ends_where_said(content: &[u8], width: usize, end: usize) -> bool {
    let last = content
        .len()
        .checked_sub(12 + width)
        .and_then(|start| content.get(start..));
    let Some(mut said) = last.and_then(|last| last.strip_prefix(b"EOIE")) else {
        return true;
    };
    let (_length, offset) = (u32_of(&mut said), u32_of(&mut said));
    offset.is_some_and(|offset| offset as usize == end)
}

/// The fields before the name.
struct IndexEntryHead {
    length: u16,
    hidden: bool,
    assumed: bool,
    submodule: bool,
}

fn head(rest: &mut &[u8], width: usize) -> Option<IndexEntryHead> {
    let submodule = u32_of(&mut rest.get(MODE..)?)? == SUBMODULE;
    *rest = rest.get(STAT + width..)?;
    let flags = u16_of(rest)?;
    let more = if flags & EXTENDED == 0 {
        0
    } else {
        u16_of(rest)?
    };
    let assumed = flags & ASSUME_VALID != 0;
    let hidden = assumed || more & SKIP_WORKTREE != 0;
    Some(IndexEntryHead {
        length: flags & LENGTH,
        hidden,
        assumed,
        submodule,
    })
}

impl IndexEntryHead {
    /// The entry of a name that has the stored length; for a long name that is only a minimum.
    fn entry(self, path: Vec<u8>) -> Option<IndexEntry> {
        let Self {
            length,
            hidden,
            assumed,
            submodule,
        } = self;
        let has_length = path.len().min(LENGTH.into()) == usize::from(length);
        has_length.then_some(IndexEntry {
            path,
            hidden,
            assumed,
            submodule,
        })
    }
}

/// An entry with its name in full, padded to a multiple of eight bytes.
fn padded(rest: &mut &[u8], width: usize) -> Option<IndexEntry> {
    let start = rest.len();
    let head = head(rest, width)?;
    let path = name(rest)?.to_vec();
    // The NUL after the name is the first byte of padding.
    let filling = (start - rest.len()).next_multiple_of(8) - (start - rest.len());
    *rest = rest.get(filling..)?;
    head.entry(path)
}

/// An entry that stores how many bytes to drop from the previous name, and what to append; and whether nothing of that name is kept.
fn shortened(rest: &mut &[u8], width: usize, before: &[u8]) -> Option<(IndexEntry, bool)> {
    let head = head(rest, width)?;
    let kept = before.len().checked_sub(distance(rest)?)?;
    let mut path = before.get(..kept)?.to_vec();
    path.extend_from_slice(name(rest)?);
    if path.len() > NAME_MAX {
        return None;
    }
    Some((head.entry(path)?, kept == 0))
}

fn name<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = rest.iter().take(NAME_MAX + 1).position(|byte| *byte == 0)?;
    let name = &rest[..end];
    *rest = &rest[end + 1..];
    Some(name)
}

/// A number in the encoding that packs use for offsets.
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

    /// The index that git writes when a script runs.
    fn index(script: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        fs::read(folder.path().join(".git/index")).unwrap()
    }

    const NAMES: &str = "mkdir -p a/b; for n in .env a/.env a/b/one a/b/one-and-more a/b/two zz; do echo $n > $n; done; git add -f .";

    fn names(bytes: &[u8]) -> Option<Vec<(String, bool)>> {
        let name = |entry: IndexEntry| (String::from_utf8(entry.path).unwrap(), entry.hidden);
        let all = read(bytes);
        let whole = !all.is_empty() && all.iter().all(|index| index.whole);
        whole.then(|| {
            all.into_iter()
                .flat_map(|index| index.entries)
                .map(name)
                .collect()
        })
    }

    #[test]
    fn every_version_and_hash_is_read() {
        for format in ["sha1", "sha256"] {
            for version in [2, 3, 4] {
                let bytes = index(&format!(
                    "git init -q --object-format={format} .; {NAMES}; git update-index --index-version {version}"
                ));
                let all = [
                    ".env",
                    "a/.env",
                    "a/b/one",
                    "a/b/one-and-more",
                    "a/b/two",
                    "zz",
                ];
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
    fn each_file_of_a_split_index_has_its_own_names() {
        let bytes = index(&format!(
            "git init -q .; {NAMES}; git update-index --split-index; echo x > x; git add x
             git update-index --skip-worktree zz"
        ));
        assert_eq!(names(&bytes), None, "it is not whole");
        let [
            Index {
                entries,
                base: Some(base),
                ..
            },
        ] = &read(&bytes)[..]
        else {
            panic!("{bytes:?}")
        };
        assert_eq!(
            (entries.len(), entries[0].path.as_slice(), base.len()),
            (1, b"x".as_slice(), 20)
        );
    }

    #[test]
    fn invalid_index_has_no_entries() {
        for bytes in [
            b"".as_slice(),
            b"DIRC\0\0\0\x05\0\0\0\0",
            b"DIRC\0\0\0\x04\xff\xff\xff\xff",
        ] {
            // A count without entries behind it allocates no memory.
            assert_eq!(read(&[bytes, &[0; 20]].concat()), []);
        }
    }

    #[test]
    fn names_that_git_refuses_are_known() {
        for name in [
            "../x",
            "a/../x",
            "..",
            "/x",
            "a//x",
            "./x",
            "",
            ".git/hooks/x",
            "a/.GIT/config",
            ".g\u{200c}it/x",
            "git~1/x",
            ".git./x",
            ".git /x",
            ".git::$INDEX_ALLOCATION/x",
            "a/.git",
        ] {
            assert!(!is_in_work_tree(name.as_bytes()), "{name}");
        }
        for name in [
            "a",
            ".gitignore",
            "a/.github/x",
            "x.git/y",
            "..a/b",
            "a..",
            "sparse/",
            "git~2",
            "a:b",
        ] {
            assert!(is_in_work_tree(name.as_bytes()), "{name}");
        }
    }

    /// Git reads these in another way than from the first entry to the last.
    #[test]
    fn an_index_that_git_reads_otherwise_is_not_understood() {
        let script = "git init -q .; git config index.threads 4; seq 30000 | sed 's/.*/100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 0\tname&/' |
             git update-index --index-info";
        for version in [2, 4] {
            let good = index(&format!(
                "{script}; git update-index --index-version {version} --force-write-index"
            ));
            assert_eq!(names(&good).map(|names| names.len()), Some(30_000));
            for table in [b"IEOT", b"EOIE"] {
                let at = good
                    .windows(4)
                    .rposition(|four| four == table)
                    .expect("git writes it")
                    + 4
                    + 4;
                // The offset follows the version of a table of blocks.
                let at = if table == b"IEOT" { at + 4 + 3 } else { at + 3 };
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert_eq!(names(&bad), None, "{version}");
            }
        }
        let good = index(&format!("git init -q .; {NAMES}"));
        let at = good
            .windows(5)
            .position(|name| name == b"\x04.env")
            .unwrap();
        for length in [3, 5] {
            let mut bad = good.clone();
            bad[at] = length;
            assert_eq!(names(&bad), None);
        }
    }

    /// Any byte may be changed, and any number of bytes missing.
    #[test]
    fn a_damaged_index_ends_in_something() {
        for version in [2, 4] {
            let good = index(&format!(
                "git init -q .; {NAMES}; git update-index --index-version {version}"
            ));
            for at in 0..good.len() {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[at] ^= 1 << bit;
                    drop(read(&bad));
                }
                assert_eq!(read(&good[..at]), [], "{at}");
            }
        }
    }

    #[test]
    fn a_name_has_a_limit() {
        let of = |length: usize| {
            let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
            bytes.extend([0; STAT + 20]);
            bytes.extend(LENGTH.to_be_bytes());
            bytes.extend(vec![b'n'; length]);
            let entry = bytes.len() - 12 + 1;
            bytes.extend(vec![0; 1 + entry.next_multiple_of(8) - entry + 20]);
            read(&bytes)
                .first()
                .map(|index| index.entries[0].path.len())
        };
        assert_eq!((of(NAME_MAX), of(NAME_MAX + 1)), (Some(NAME_MAX), None));
    }
}
