//! The trees that an index caches (`TREE`), compared with those of its entries. Git's next commit takes a cached tree as it is, and
//! neither `git status` nor `git diff` looks at what is in it: a tree of others would be committed unseen.

use crate::git_objects::{ObjectName, Objects};
use std::collections::HashMap;

/// Maximum number of directories in an index, several times those of the largest projects.
const DIRECTORIES_MAX: usize = 1 << 20;
/// Maximum depth of trees whose objects are read.
const DEPTH_MAX: usize = 256;
const TREE: u32 = 0o40_000;

/// A cached tree that is not, byte for byte, the one of the entries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OtherTree {
    /// The directory, empty for the root.
    pub directory: Vec<u8>,
    cached: ObjectName,
    /// The tree of the entries, if they make one.
    own: Option<ObjectName>,
}

impl OtherTree {
    /// Whether it still has the same files: an old tree may write modes in another form (`100664`).
    pub(crate) fn has_same_files(&self, objects: &Objects) -> bool {
        let mut known = HashMap::new();
        let usual = usual_form(objects, &self.cached, &mut known, DEPTH_MAX);
        usual.is_some() && usual == self.own
    }
}

/// The name that a tree would have if git wrote it today; `None` if not all of it can be read.
fn usual_form(
    objects: &Objects,
    tree: &ObjectName,
    known: &mut HashMap<ObjectName, ObjectName>,
    depth: usize,
) -> Option<ObjectName> {
    if let Some(known) = known.get(tree) {
        return Some(known.clone());
    }
    let width = tree.bytes().len();
    let (content, mut usual) = (objects.get(tree, "tree")?, Vec::new());
    let mut rest = content.as_slice();
    while !rest.is_empty() {
        let [mode, name, object, after] = first_entry(rest, width)?;
        let mode = usual_mode(u32::from_str_radix(std::str::from_utf8(mode).ok()?, 8).ok()?);
        let object = ObjectName::new(object);
        let object = match mode {
            TREE => usual_form(objects, &object, known, depth.checked_sub(1)?)?,
            _ => object,
        };
        add(&mut usual, mode, name, object.bytes());
        rest = after;
    }
    let usual = ObjectName::of("tree", &usual, width);
    known.insert(tree.clone(), usual.clone());
    Some(usual)
}

/// A mode as git has it in an index: of a file's bits it keeps whether its owner may execute it.
fn usual_mode(mode: u32) -> u32 {
    const KIND: u32 = 0o170_000;
    match mode & KIND {
        0o100_000 if mode & 0o100 != 0 => 0o100_755,
        0o100_000 => 0o100_644,
        kind => kind,
    }
}

/// Mode, name and object of a tree's first entry, and the rest of the tree.
pub(crate) fn first_entry(tree: &[u8], width: usize) -> Option<[&[u8]; 4]> {
    let space = tree.iter().position(|byte| *byte == b' ')?;
    let end = tree.iter().position(|byte| *byte == 0)?;
    let (object, rest) = tree.get(end + 1..)?.split_at_checked(width)?;
    Some([tree.get(..space)?, tree.get(space + 1..end)?, object, rest])
}

fn add(tree: &mut Vec<u8>, mode: u32, name: &[u8], object: &[u8]) {
    tree.extend(format!("{mode:o} ").into_bytes());
    tree.extend(name);
    tree.push(0);
    tree.extend(object);
}

/// An entry of an index.
pub(crate) struct Blob<'i> {
    pub path: &'i [u8],
    pub mode: u32,
    pub object: &'i [u8],
    /// Whether a commit would take it: neither a part of a conflict, nor one that is only announced (`git add -N`).
    pub committed: bool,
}

/// Which of the cached trees in the extension `text` are not those of `blobs`; `None` if git may read it in another way, or there are
/// too many directories.
pub(crate) fn others<'i>(
    text: &[u8],
    blobs: impl Iterator<Item = Blob<'i>>,
    width: usize,
) -> Option<Vec<OtherTree>> {
    let cached = cached(text, width)?;
    if cached.is_empty() {
        return Some(Vec::new());
    }
    let own = Trees::of(blobs, width)?;
    let others = cached.into_iter().filter_map(|(directory, count, cached)| {
        let own = own.get(&directory).cloned().flatten();
        let same = own
            .as_ref()
            .is_some_and(|own| *own == (count, cached.clone()));
        // One with another number of entries is not the directory's at all.
        let own = own.filter(|(number, _)| *number == count);
        (!same).then(|| OtherTree {
            directory,
            cached,
            own: own.map(|(_, name)| name),
        })
    });
    Some(others.collect())
}

/// The valid trees of the extension: directory, number of entries below it, and name.
fn cached(mut text: &[u8], width: usize) -> Option<Vec<(Vec<u8>, usize, ObjectName)>> {
    let mut all = Vec::new();
    // The directories that are open, each with how many of its subdirectories follow.
    let mut open: Vec<(Vec<u8>, usize)> = Vec::new();
    for _ in 0..=DIRECTORIES_MAX {
        let name = until(&mut text, 0)?;
        let directory = match open.last() {
            Some((above, _)) if above.is_empty() => name.to_vec(),
            Some((above, _)) => [above, name].join(&b'/'),
            None => Vec::new(),
        };
        if name.is_empty() != open.is_empty() {
            return None;
        }
        let count = number(until(&mut text, b' ')?);
        let below = usize::try_from(number(until(&mut text, b'\n')?)?).ok()?;
        if let Ok(count) = usize::try_from(count?) {
            let (object, rest) = text.split_at_checked(width)?;
            text = rest;
            all.push((directory.clone(), count, ObjectName::new(object)));
        }
        open.push((directory, below));
        while open.last().is_some_and(|(_, left)| *left == 0) {
            open.pop();
        }
        match open.last_mut() {
            Some((_, left)) => *left -= 1,
            None => return text.is_empty().then_some(all),
        }
    }
    None
}

fn until<'t>(text: &mut &'t [u8], end: u8) -> Option<&'t [u8]> {
    let at = text.iter().position(|byte| *byte == end)?;
    let (before, after) = (&text[..at], &text[at + 1..]);
    *text = after;
    Some(before)
}

/// A number as git writes it, and in no other form that it reads.
fn number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// For each directory the number of entries below it, and its tree; `None` if they make none.
type Directories = HashMap<Vec<u8>, Option<(usize, ObjectName)>>;

/// The trees of an index's entries.
struct Trees {
    width: usize,
    /// The directories on the way to the current entry, from the root.
    open: Vec<OpenTree>,
    done: Directories,
}

struct OpenTree {
    path: Vec<u8>,
    content: Vec<u8>,
    count: usize,
    /// Whether its entries make a tree.
    whole: bool,
}

impl OpenTree {
    fn new(path: Vec<u8>) -> Self {
        Self {
            path,
            content: Vec::new(),
            count: 0,
            whole: true,
        }
    }
}

impl Trees {
    fn of<'i>(blobs: impl Iterator<Item = Blob<'i>>, width: usize) -> Option<Directories> {
        let mut trees = Self {
            width,
            open: vec![OpenTree::new(Vec::new())],
            done: HashMap::new(),
        };
        for blob in blobs {
            trees.add(&blob)?;
        }
        while !trees.open.is_empty() {
            trees.close()?;
        }
        Some(trees.done)
    }

    fn add(&mut self, blob: &Blob) -> Option<()> {
        // One for a directory, in place of the names in it, ends with a slash.
        let (path, mode) = match blob.path.strip_suffix(b"/") {
            Some(path) => (path, TREE),
            None => (blob.path, blob.mode),
        };
        let end = path.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = (
            &path[..end.unwrap_or(0)],
            &path[end.map_or(0, |end| end + 1)..],
        );
        while !self.open.last()?.is_above(directory) {
            self.close()?;
        }
        loop {
            let at = self.open.last()?.path.len();
            if at == directory.len() {
                break;
            }
            let from = if at == 0 { 0 } else { at + 1 };
            let length = directory[from..].iter().position(|byte| *byte == b'/');
            let next = length.map_or(directory.len(), |length| from + length);
            self.open.push(OpenTree::new(directory[..next].to_vec()));
        }
        let open = self.open.last_mut()?;
        open.count += 1;
        open.whole &= blob.committed;
        add(&mut open.content, mode, name, blob.object);
        if mode == TREE {
            let tree = (1, ObjectName::new(blob.object));
            self.finish(path.to_vec(), Some(tree))?;
        }
        Some(())
    }

    /// Ends the last open directory.
    fn close(&mut self) -> Option<()> {
        let ended = self.open.pop()?;
        let name = ObjectName::of("tree", &ended.content, self.width);
        if let Some(above) = self.open.last_mut() {
            let start = if above.path.is_empty() {
                0
            } else {
                above.path.len() + 1
            };
            above.count += ended.count;
            above.whole &= ended.whole;
            add(&mut above.content, TREE, &ended.path[start..], name.bytes());
        }
        let tree = ended.whole.then_some((ended.count, name));
        self.finish(ended.path, tree)
    }

    /// A directory in two places is none to git.
    fn finish(&mut self, path: Vec<u8>, tree: Option<(usize, ObjectName)>) -> Option<()> {
        self.done
            .entry(path)
            .and_modify(|tree| *tree = None)
            .or_insert(tree);
        (self.done.len() <= DIRECTORIES_MAX).then_some(())
    }
}

impl OpenTree {
    fn is_above(&self, directory: &[u8]) -> bool {
        let below = directory.strip_prefix(self.path.as_slice());
        below.is_some_and(|below| {
            self.path.is_empty() || below.is_empty() || below.starts_with(b"/")
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::git_index::read;
    use crate::git_objects::Objects;
    use crate::root::ENTERING;
    use nix::sys::stat::Mode;
    use std::fs;
    use std::process::Command;

    /// The directories with other trees in the index that a script leaves, and which of them have the same files; `None` if it is
    /// unreadable.
    fn others(format: &str, script: &str) -> Option<Vec<(String, bool)>> {
        let folder = tempfile::tempdir().unwrap();
        let make = "git config user.name t; git config user.email t@t; mkdir -p a/b a.c e; for n in a/b/one a/two a-z a.c/x e/f zz; do
            echo $n > $n; done; git add .; git commit -qm 1";
        let done = Command::new("bash")
            .args([
                "-ec",
                &format!("git init -q --object-format={format} .; {make}; {script}"),
            ])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}");
        let git = folder.path().join(".git");
        let common = nix::fcntl::open(&git, ENTERING, Mode::empty()).unwrap();
        let objects = Objects::new(&common, 64 << 20);
        let all = read(&fs::read(git.join("index")).unwrap());
        let other = all.iter().flat_map(|index| &index.other_trees);
        let named = other.map(|other| {
            let directory = String::from_utf8(other.directory.clone()).unwrap();
            (directory, other.has_same_files(&objects))
        });
        (!all.is_empty()).then(|| named.collect())
    }

    #[test]
    fn tree_cached_by_git_equals_the_tree_of_its_entries() {
        for format in ["sha1", "sha256"] {
            for script in [
                "true",
                "git config index.version 4; git read-tree HEAD",
                "echo x > a/b/x; git add a",
                "echo x > a/b/x; git add -N a",
                "git rm -rq a; git write-tree",
                "git rm -rq .; git write-tree",
                "git read-tree --empty; git write-tree",
                "git checkout -qb n; echo 1 > e/f; git commit -qam n; git checkout -q -; echo 2 > e/f; git commit -qam m; git merge n || true",
                "git sparse-checkout set --sparse-index a; git checkout -q .",
                "git update-index --chmod=+x a/two; ln -s a l; git add l; git write-tree",
            ] {
                assert_eq!(
                    others(format, script),
                    Some(Vec::new()),
                    "{format}: {script}"
                );
            }
        }
    }

    /// Puts the first argument, a tree of git's, in the place of the second.
    const CACHE: &str = r#"cache() { python3 - $1 $2 <<'END'
import hashlib, sys
new, old = map(bytes.fromhex, sys.argv[1:])
data = open(".git/index", "rb").read()
kind = hashlib.sha1 if len(old) == 20 else hashlib.sha256
data = data[:-len(old)]; at = data.index(b"TREE")
data = data[:at] + data[at:].replace(old, new)
open(".git/index", "wb").write(data + kind(data).digest())
END
}; git write-tree > /dev/null; cache"#;

    #[test]
    fn another_tree_is_found_in_any_directory() {
        for format in ["sha1", "sha256"] {
            for directory in ["", "a", "a/b", "a.c"] {
                let script =
                    format!("{CACHE} $(git rev-parse HEAD:e) $(git rev-parse HEAD:{directory})");
                let found = Some(vec![(directory.to_owned(), false)]);
                assert_eq!(others(format, &script), found, "{format}: {directory}");
            }
        }
    }

    #[test]
    fn a_tree_with_modes_of_old_is_the_same() {
        let old = r#"python3 -c '
import hashlib, os, subprocess, zlib
blob = bytes.fromhex(subprocess.run(["git", "rev-parse", "HEAD:e/f"], capture_output=True, check=True).stdout.strip().decode())
data = b"100664 f\0" + blob
data = b"tree %d\0" % len(data) + data
name = hashlib.sha1(data).hexdigest()
os.makedirs(".git/objects/" + name[:2], exist_ok=True)
open(".git/objects/" + name[:2] + "/" + name[2:], "wb").write(zlib.compress(data))
print(name)'"#;
        let script = format!("{CACHE} $({old}) $(git rev-parse HEAD:e)");
        assert_eq!(others("sha1", &script), Some(vec![("e".to_owned(), true)]));
    }

    #[test]
    fn cached_trees_in_another_form_make_an_index_unreadable() {
        let change = r#"python3 -c '
import hashlib, sys
data = open(".git/index", "rb").read()[:-20]
at = data.index(b"TREE") + 8
assert data[at:at + 5] == b"\x006 3\n", data[at:at + 9]
data = data[:at] + sys.argv[1].encode().decode("unicode_escape").encode() + data[at + 5:]
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())'"#;
        for (text, readable) in [
            ("\\x006 3\\n", true),
            ("\\x00+6 3", false),
            ("\\x006 4\\n", false),
            ("\\x006 2\\n", false),
            ("x6 3\\n", false),
        ] {
            let found = others("sha1", &format!("git write-tree; {change} '{text}'"));
            assert_eq!(found.is_some(), readable, "{text}");
        }
        // Another number of entries would leave some out of a commit.
        let found = others("sha1", &format!("git write-tree; {change} '\\x005 3\\n'"));
        assert_eq!(found, Some(vec![(String::new(), false)]));
    }
}
