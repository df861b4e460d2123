//! Which files of the project hold what is committed: their content is the one that `HEAD` has under their path.
//!
//! A name like `.env.test` is a secret's by its name alone. What is committed is none: who has the repository has it. The question
//! is answered by `HEAD` and not by the index, in which a secret may stand that somebody has added by mistake.
//!
//! A command may write to a repository whatever it likes, but not so that this says yes about a file whose content it does not
//! know: the content's own hash must be in a tree of `HEAD`'s commit, and each object on the way is hashed too.

use crate::git_objects::{ObjectName, Objects};
use crate::root::{READING, open_beneath};
use executor_layers::worker::CommittedQuery;
use nix::sys::stat::{Mode, SFlag, fstat};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Largest file that is compared.
const FILE_MAX: usize = 1 << 20;
/// Bytes of objects that are read and unpacked for one question.
const OBJECTS_MAX: usize = 256 << 20;
/// Bytes of a file that holds a ref, and of the one that holds many.
const REF_MAX: usize = 4096;
const PACKED_REFS_MAX: usize = 32 << 20;
/// Refs that lead to others.
const REFS_MAX: usize = 5;

/// A project and its repository.
pub struct Committed<'d> {
    pub project: &'d OwnedFd,
    /// The repository's common directory.
    pub common: &'d OwnedFd,
}

impl Committed<'_> {
    /// For each file of the query whether it is committed as it is.
    pub fn answer(&self, query: &CommittedQuery) -> Vec<bool> {
        let objects = Objects::new(self.common, OBJECTS_MAX);
        let mut trees = HashMap::new();
        let root = self.head(Path::new(&query.own)).and_then(|head| tree_of(&objects.get(&head, "commit")?));
        let files = query.files.iter();
        files
            .map(|path| root.as_ref().is_some_and(|root| self.is_committed(&objects, &mut trees, root, path)))
            .collect()
    }

    /// The commit that `HEAD` in the directory `own` leads to.
    fn head(&self, own: &Path) -> Option<ObjectName> {
        let mut text = self.text(&own.join("HEAD"), REF_MAX)?;
        for _ in 0..REFS_MAX {
            let line = text.trim_ascii();
            let Some(name) = line.strip_prefix(b"ref:").map(<[u8]>::trim_ascii) else {
                return ObjectName::parse(line);
            };
            let path = Path::new(std::ffi::OsStr::from_bytes(name));
            if !path.starts_with("refs") {
                return None;
            }
            match self.text(path, REF_MAX) {
                Some(next) => text = next,
                None => return self.packed(name),
            }
        }
        None
    }

    fn packed(&self, name: &[u8]) -> Option<ObjectName> {
        let packed = self.text(Path::new("packed-refs"), PACKED_REFS_MAX)?;
        let mut lines = packed.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let end = line.iter().position(|byte| *byte == b' ')?;
            (line[end + 1..] == *name).then(|| ObjectName::parse(&line[..end]))?
        })
    }

    /// A regular file of the repository, if it has no more than `max` bytes.
    fn text(&self, path: &Path, max: usize) -> Option<Vec<u8>> {
        read(self.common, path, max)
    }

    fn is_committed(
        &self,
        objects: &Objects,
        trees: &mut HashMap<ObjectName, Vec<u8>>,
        root: &ObjectName,
        path: &[u8],
    ) -> bool {
        let mut names = path.split(|byte| *byte == b'/').peekable();
        let mut tree = root.clone();
        while let Some(name) = names.next() {
            if !trees.contains_key(&tree) {
                let Some(content) = objects.get(&tree, "tree") else { return false };
                trees.insert(tree.clone(), content);
            }
            let Some((mode, object)) =
                trees.get(&tree).and_then(|content| entry(content, name, tree.bytes().len()))
            else {
                return false;
            };
            let last = names.peek().is_none();
            if last {
                let file = || read(self.project, Path::new(std::ffi::OsStr::from_bytes(path)), FILE_MAX);
                return mode.starts_with(b"100")
                    && file().is_some_and(|content| object.is_of("blob", &content));
            }
            if mode != b"40000" {
                return false;
            }
            tree = object;
        }
        false
    }
}

/// A regular file below `directory`, if it has no more than `max` bytes.
fn read(directory: &OwnedFd, path: &Path, max: usize) -> Option<Vec<u8>> {
    let file = open_beneath(directory, path, READING, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return None;
    }
    let mut content = Vec::new();
    File::from(file).take(max as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= max).then_some(content)
}

/// The tree of a commit.
fn tree_of(commit: &[u8]) -> Option<ObjectName> {
    let line = commit.split(|byte| *byte == b'\n').next()?;
    ObjectName::parse(line.strip_prefix(b"tree ")?)
}

/// Mode and object of a name in a tree.
fn entry<'t>(mut tree: &'t [u8], wanted: &[u8], width: usize) -> Option<(&'t [u8], ObjectName)> {
    while !tree.is_empty() {
        let space = tree.iter().position(|byte| *byte == b' ')?;
        let end = tree.iter().position(|byte| *byte == 0)?;
        let (mode, name) = (tree.get(..space)?, tree.get(space + 1..end)?);
        let object = tree.get(end + 1..end + 1 + width)?;
        if name == wanted {
            return Some((mode, ObjectName::new(object)));
        }
        tree = &tree[end + 1 + width..];
    }
    None
}
