//! Names in the index of a git repository, read without git: versions 2 to 4, of SHA-1 and SHA-256.
//!
//! The file is a stranger's. How long its hashes are stands in settings that are not read here, so that both lengths are tried, and
//! what either says is taken. Its own checksum says nothing about who has written it. What goes on in another file (`link`), or has
//! directories in place of the names in them (`sdir`), is not all of an index.
//!
//! Git reads a name by the length that stands before it, and parts of a large index by tables at its end: where these say something else
//! than what is read here, nothing is understood.

use policies::may_be_dot_git;

/// Bytes of the longest name.
const NAME_MAX: usize = 4096;
/// Bytes of an entry before its object: times, device, inode, mode, owner, size.
const STAT: usize = 40;
/// The length of the name.
const LENGTH: u16 = 0x0fff;
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

/// What one file has of an index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Its names, those of a file that it goes on from (`base`) left out.
    pub entries: Vec<IndexEntry>,
    /// The object name in that of the file from which this one goes on.
    pub base: Option<Vec<u8>>,
    /// Whether all names are here.
    pub whole: bool,
}

/// Where an entry begins, and whether all of its name stands there.
struct Start {
    at: usize,
    whole: bool,
}

/// What a file says with either length of hashes; none if it is no index, or one that is not understood.
pub fn read(bytes: &[u8]) -> Vec<Index> {
    [20, 32].into_iter().filter_map(|width| index_of(bytes, width)).collect()
}

/// Whether git itself puts such a name into an index: it is one below the work tree, and leads to no repository's own directory.
pub fn is_in_work_tree(path: &[u8]) -> bool {
    // A directory in place of the names in it ends with a slash.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..") && !may_be_dot_git(name))
}

fn index_of(bytes: &[u8], width: usize) -> Option<Index> {
    let content = bytes.get(..bytes.len().checked_sub(width)?)?;
    let mut rest = content.strip_prefix(b"DIRC")?;
    let (version, count) = (u32_of(&mut rest)?, u32_of(&mut rest)?);
    if !(2..=4).contains(&version) {
        return None;
    }
    let (mut entries, mut starts): (Vec<IndexEntry>, Vec<Start>) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let before = entries.last().map(|entry| entry.path.as_slice()).unwrap_or_default();
        let at = content.len() - rest.len();
        let (entry, whole) = match version == 4 {
            true => shortened(&mut rest, width, before)?,
            false => (padded(&mut rest, width)?, true),
        };
        entries.push(entry);
        starts.push(Start { at, whole });
    }
    let end = content.len() - rest.len();
    let mut index = Index { entries, base: None, whole: true };
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
            // One in lower case changes what the entries mean.
            other if !other[0].is_ascii_uppercase() => return None,
            _other => {}
        }
    }
    if index.base.is_some() {
        // Those that stand for an entry of the other file.
        index.entries.retain(|entry| !entry.path.is_empty());
    }
    ends_where_said(content, width, end).then_some(index)
}

/// Whether a table of blocks says where entries begin that are read on their own.
fn are_blocks(mut table: &[u8], starts: &[Start]) -> bool {
    let mut next = 0;
    let version = u32_of(&mut table);
    while let (Some(at), Some(count)) = (u32_of(&mut table), u32_of(&mut table)) {
        if !starts.get(next).is_some_and(|start| start.whole && start.at == at as usize) {
            return false;
        }
        next += count as usize;
    }
    version == Some(1) && table.is_empty() && next == starts.len()
}

/// Whether the end of the entries is where the last extension says, if it is the one that does (`EOIE`).
fn ends_where_said(content: &[u8], width: usize, end: usize) -> bool {
    let last = content.len().checked_sub(12 + width).and_then(|start| content.get(start..));
    let Some(mut said) = last.and_then(|last| last.strip_prefix(b"EOIE")) else { return true };
    let (_length, offset) = (u32_of(&mut said), u32_of(&mut said));
    offset.is_some_and(|offset| offset as usize == end)
}

/// What stands before the name: its length, and whether the entry is hidden.
fn head(rest: &mut &[u8], width: usize) -> Option<(u16, bool)> {
    *rest = rest.get(STAT + width..)?;
    let flags = u16_of(rest)?;
    let more = if flags & EXTENDED == 0 { 0 } else { u16_of(rest)? };
    Some((flags & LENGTH, flags & ASSUME_VALID != 0 || more & SKIP_WORKTREE != 0))
}

/// Whether a name is as long as stands before it; a long one is as long as it is.
fn has_length(path: &[u8], length: u16) -> bool {
    path.len().min(LENGTH.into()) == usize::from(length)
}

/// An entry with its whole name, filled up to a multiple of eight.
fn padded(rest: &mut &[u8], width: usize) -> Option<IndexEntry> {
    let start = rest.len();
    let (length, hidden) = head(rest, width)?;
    let path = name(rest)?.to_vec();
    // The name's own NUL is the first of the filling.
    let filling = (start - rest.len()).next_multiple_of(8) - (start - rest.len());
    *rest = rest.get(filling..)?;
    has_length(&path, length).then_some(IndexEntry { path, hidden })
}

/// An entry that says how much of the name before it goes, and what comes instead; and whether nothing of that name stays.
fn shortened(rest: &mut &[u8], width: usize, before: &[u8]) -> Option<(IndexEntry, bool)> {
    let (length, hidden) = head(rest, width)?;
    let kept = before.len().checked_sub(distance(rest)?)?;
    let mut path = before.get(..kept)?.to_vec();
    path.extend_from_slice(name(rest)?);
    let fits = path.len() <= NAME_MAX && has_length(&path, length);
    fits.then_some((IndexEntry { path, hidden }, kept == 0))
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
        let all = read(bytes);
        let whole = !all.is_empty() && all.iter().all(|index| index.whole);
        whole.then(|| all.into_iter().flat_map(|index| index.entries).map(name).collect())
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
    fn of_an_index_in_two_files_each_has_its_own_names() {
        let bytes = index(&format!(
            "git init -q .; {NAMES}; git update-index --split-index; echo x > x; git add x
             git update-index --skip-worktree zz"
        ));
        assert_eq!(names(&bytes), None, "it is not whole");
        let [Index { entries, base: Some(base), .. }] = &read(&bytes)[..] else { panic!("{bytes:?}") };
        assert_eq!((entries.len(), entries[0].path.as_slice(), base.len()), (1, b"x".as_slice(), 20));
    }

    #[test]
    fn what_is_no_index_is_not_understood() {
        for bytes in [b"".as_slice(), b"DIRC\0\0\0\x05\0\0\0\0", b"DIRC\0\0\0\x04\xff\xff\xff\xff"] {
            // A count that nothing stands behind takes no memory.
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
        for name in ["a", ".gitignore", "a/.github/x", "x.git/y", "..a/b", "a..", "sparse/", "git~2", "a:b"] {
            assert!(is_in_work_tree(name.as_bytes()), "{name}");
        }
    }

    /// Git reads these another way than from the first entry to the last.
    #[test]
    fn an_index_that_git_reads_otherwise_is_not_understood() {
        let script = "git init -q .; git config index.threads 4; seq 30000 | sed 's/.*/100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 0\tname&/' |
             git update-index --index-info";
        for version in [2, 4] {
            let good =
                index(&format!("{script}; git update-index --index-version {version} --force-write-index"));
            assert_eq!(names(&good).map(|names| names.len()), Some(30_000));
            for table in [b"IEOT", b"EOIE"] {
                let at = good.windows(4).rposition(|four| four == table).expect("git writes it") + 4 + 4;
                // The offset: behind the version of a table of blocks.
                let at = if table == b"IEOT" { at + 4 + 3 } else { at + 3 };
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert_eq!(names(&bad), None, "{version}");
            }
        }
        let good = index(&format!("git init -q .; {NAMES}"));
        let at = good.windows(5).position(|name| name == b"\x04.env").unwrap();
        for length in [3, 5] {
            let mut bad = good.clone();
            bad[at] = length;
            assert_eq!(names(&bad), None);
        }
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
            read(&bytes).first().map(|index| index.entries[0].path.len())
        };
        assert_eq!((of(NAME_MAX), of(NAME_MAX + 1)), (Some(NAME_MAX), None));
    }
}
