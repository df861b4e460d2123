//! Finds which files of the project have their committed content: the one that `HEAD` has under their path.
//!
//! A name like `.env.test` makes a file a secret by its name alone. A committed file is no secret: whoever has the
//! repository has it. `HEAD` decides this and not the index, which may contain a secret that somebody added by mistake.
//!
//! The index's protected names are reported too, as commands may have changed it (`tracked_secrets.rs` of `executor-project`).
//!
//! A command may write anything to a repository, but it cannot make this say yes about a file whose content it does not
//! know: the content's own hash must be in a tree of `HEAD`'s commit, and each object on the way is hashed too.

use crate::cached_trees::first_entry;
use crate::git_index::{self, Index};
use crate::git_objects::{ObjectName, Objects};
use crate::hidden::hidden;
use crate::root::{LISTING, READING, open_beneath};
use executor_spec::worker::{
    INDEXED_MAX, InHead, IndexFault, IndexedName, RepositoryAnswer, RepositoryQuery, SUBMODULES_MAX,
};
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, fstat};
use policies_guard::{GIT_HEAD_MAX, HeadEnd, Matcher, follow_head};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum size of a file that is compared.
const FILE_MAX: usize = 1 << 20;
/// Maximum bytes of objects that are read and unpacked for one question.
const OBJECTS_MAX: usize = 256 << 20;
/// Maximum bytes of the file that contains many references.
const PACKED_REFS_MAX: usize = 32 << 20;
/// Maximum bytes of an index: one with some million names.
const INDEX_MAX: usize = 128 << 20;

/// A project and its repository.
pub(crate) struct Committed<'d> {
    pub project: &'d OwnedFd,
    /// The repository's common directory.
    pub common: &'d OwnedFd,
    /// The policy's protected names.
    pub names: &'d Matcher,
}

impl Committed<'_> {
    pub(crate) fn answer(&self, query: &RepositoryQuery) -> RepositoryAnswer {
        let objects = Objects::new(self.common, OBJECTS_MAX);
        let mut trees = HashMap::new();
        let own = Path::new(&query.own);
        let root = self
            .head(own)
            .and_then(|head| head.map(|head| tree_of(&objects, &head)).transpose());
        let in_head = |path: &Vec<u8>| match &root {
            Ok(Some(root)) => match find(&objects, &mut trees, root, path) {
                Ok(Some((mode, object))) => self.compare(path, &mode, &object),
                Ok(None) => InHead::Nothing,
                Err(Unreadable) => InHead::Unknown,
            },
            Ok(None) => InHead::Nothing,
            Err(Unreadable) => InHead::Unknown,
        };
        let files = query.files.iter().map(in_head).collect();
        RepositoryAnswer {
            files,
            ..self.index(own, &objects)
        }
    }

    /// What the index of the directory `own` has.
    fn index(&self, own: &Path, objects: &Objects) -> RepositoryAnswer {
        let path = own.join("index");
        if open_beneath(self.common, &path, READING, Mode::empty()).err() == Some(Errno::ENOENT) {
            return RepositoryAnswer {
                index: Some(Vec::new()),
                ..RepositoryAnswer::default()
            };
        }
        let mut files = self
            .text(&path, INDEX_MAX)
            .map_or_else(Vec::new, |text| git_index::read(&text));
        let shared: Vec<String> = files.iter().filter_map(shared_file).collect();
        let based_on = shared.iter().map(|name| self.shared_index(&own.join(name)));
        let Some(based_on) = based_on
            .collect::<Option<Vec<_>>>()
            .filter(|_| !files.is_empty())
        else {
            let fault = Some(IndexFault::Unreadable);
            return RepositoryAnswer {
                fault,
                shared,
                ..RepositoryAnswer::default()
            };
        };
        files.extend(based_on.into_iter().flatten());
        let entries = || files.iter().flat_map(|file| &file.entries);
        let outside = entries().find(|entry| !git_index::is_in_work_tree(&entry.path));
        let mut others = files.iter().flat_map(|file| &file.other_trees);
        let other = others.find(|other| !other.has_same_files(objects));
        let fault = outside
            .map(|entry| IndexFault::Outside(entry.path.clone()))
            .or_else(|| other.map(|other| IndexFault::OtherTree(other.directory.clone())));
        let protected = entries().filter(|entry| self.names.protection(&entry.path).is_some());
        let names: Vec<_> = protected
            .map(|entry| IndexedName {
                path: entry.path.clone(),
                hidden: entry.hidden,
            })
            .take(INDEXED_MAX + 1)
            .collect();
        let known = names.len() <= INDEXED_MAX && files.iter().all(|file| file.whole);
        let submodules = entries()
            .filter(|entry| entry.submodule)
            .map(|entry| entry.path.clone());
        let submodules = submodules.take(SUBMODULES_MAX).collect();
        let index = known.then_some(names);
        let (hidden, left_out) = hidden(entries(), self.project);
        RepositoryAnswer {
            index,
            hidden,
            left_out,
            submodules,
            fault,
            shared,
            ..RepositoryAnswer::default()
        }
    }

    /// The index at `path`, on which another one is based.
    fn shared_index(&self, path: &Path) -> Option<Vec<Index>> {
        Some(git_index::read(&self.text(path, INDEX_MAX)?)).filter(|read| !read.is_empty())
    }

    /// The commit to which `HEAD` in the directory `own` refers; `None` before the first one.
    fn head(&self, own: &Path) -> Result<Option<ObjectName>, Unreadable> {
        let head = own.join("HEAD");
        let (references, end) = follow_head(|name| {
            let path = match name {
                None => head.as_path(),
                Some(name) => Path::new(std::ffi::OsStr::from_bytes(name)),
            };
            existing(self.common, path, GIT_HEAD_MAX)
        })?;
        match (end, references.last()) {
            (HeadEnd::Object(name), _) => ObjectName::parse(&name).map(Some).ok_or(Unreadable),
            (HeadEnd::Absent, Some(last)) => self.packed(last),
            (HeadEnd::Absent, None) | (HeadEnd::Invalid, _) => Err(Unreadable),
        }
    }

    fn packed(&self, name: &[u8]) -> Result<Option<ObjectName>, Unreadable> {
        // References may be there in a form that is not read here.
        if open_beneath(self.common, Path::new("reftable"), LISTING, Mode::empty()).is_ok() {
            return Err(Unreadable);
        }
        let packed =
            existing(self.common, Path::new("packed-refs"), PACKED_REFS_MAX)?.unwrap_or_default();
        let mut lines = packed.split(|byte| *byte == b'\n');
        let object = lines.find_map(|line| {
            let end = line.iter().position(|byte| *byte == b' ')?;
            (line[end + 1..] == *name).then(|| &line[..end])
        });
        object
            .map(|object| ObjectName::parse(object).ok_or(Unreadable))
            .transpose()
    }

    /// The content of a regular file of the repository, if it has at most `max` bytes.
    fn text(&self, path: &Path, max: usize) -> Option<Vec<u8>> {
        read(self.common, path, max)
    }

    /// Whether the file at `path` has the content that a tree has there.
    fn compare(&self, path: &[u8], mode: &[u8], object: &ObjectName) -> InHead {
        let file = || {
            read(
                self.project,
                Path::new(std::ffi::OsStr::from_bytes(path)),
                FILE_MAX,
            )
        };
        match mode.starts_with(b"100")
            && file().is_some_and(|content| object.is_of("blob", &content))
        {
            true => InHead::Same,
            false => InHead::Other,
        }
    }
}

/// The name of the file on which an index is based; all zeros mean that there is none.
fn shared_file(index: &Index) -> Option<String> {
    let base = index
        .base
        .as_ref()
        .filter(|base| base.iter().any(|byte| *byte != 0))?;
    let digits: String = base.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("sharedindex.{digits}"))
}

/// Something that git may be able to read and this worker is not: too large, of an unknown form, elsewhere, or invalid.
#[derive(Debug)]
struct Unreadable;

/// Mode and object of a path below the tree `root`, if it has that path.
fn find(
    objects: &Objects,
    trees: &mut HashMap<ObjectName, Vec<u8>>,
    root: &ObjectName,
    path: &[u8],
) -> Result<Option<(Vec<u8>, ObjectName)>, Unreadable> {
    let mut names = path.split(|byte| *byte == b'/').peekable();
    let mut tree = root.clone();
    while let Some(name) = names.next() {
        let width = tree.bytes().len();
        let content = match trees.entry(tree) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let content = objects.get(new.key(), "tree").ok_or(Unreadable)?;
                new.insert(content)
            }
        };
        let Some((mode, object)) = entry(content, name, width)? else {
            return Ok(None);
        };
        if names.peek().is_none() {
            return Ok(Some((mode.to_vec(), object)));
        }
        if mode != b"40000" {
            return Ok(None);
        }
        tree = object;
    }
    Ok(None)
}

/// The content of a regular file below `directory`, if it has at most `max` bytes.
fn read(directory: &OwnedFd, path: &Path, max: usize) -> Option<Vec<u8>> {
    existing(directory, path, max).ok().flatten()
}

/// The same; `None` if there is no such file.
fn existing(directory: &OwnedFd, path: &Path, max: usize) -> Result<Option<Vec<u8>>, Unreadable> {
    let file = match open_beneath(directory, path, READING, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        Err(_) => return Err(Unreadable),
    };
    let stat = fstat(&file).map_err(|_| Unreadable)?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => {}
        SFlag::S_IFDIR => return Ok(None),
        _ => return Err(Unreadable),
    }
    let mut content = Vec::new();
    File::from(file)
        .take(max as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|_| Unreadable)?;
    if content.len() <= max {
        Ok(Some(content))
    } else {
        Err(Unreadable)
    }
}

/// The tree of a commit.
fn tree_of(objects: &Objects, commit: &ObjectName) -> Result<ObjectName, Unreadable> {
    let commit = objects.get(commit, "commit").ok_or(Unreadable)?;
    let line = commit.split(|byte| *byte == b'\n').next();
    line.and_then(|line| ObjectName::parse(line.strip_prefix(b"tree ")?))
        .ok_or(Unreadable)
}

/// Mode and object of a name in a tree, if it has that name.
fn entry<'t>(
    mut tree: &'t [u8],
    wanted: &[u8],
    width: usize,
) -> Result<Option<(&'t [u8], ObjectName)>, Unreadable> {
    while !tree.is_empty() {
        let [mode, name, object, rest] = first_entry(tree, width).ok_or(Unreadable)?;
        if name == wanted {
            return Ok(Some((mode, ObjectName::new(object))));
        }
        tree = rest;
    }
    Ok(None)
}
