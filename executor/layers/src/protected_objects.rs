//! What is protected in the zones as an object, whatever it is called: found when the session opens (`discovery.rs`), asked by
//! the supervisor.

use crate::linked_repository::LinkedRepository;
use policies::Protection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Device and inode of a file. File systems give an inode again; whoever finds one compares [`ProtectedObject::born`] too.
pub type ObjectId = (u64, u64);

/// A file that was protected when the session opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedObject {
    /// What may not be done with it.
    pub protection: Protection,
    /// When it was made, where the file system says so.
    pub born: Option<SystemTime>,
}

/// A directory below which names are protected as if it had another path: a repository that is not called `.git`, or what
/// a link with a protected name leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alias {
    /// Absolute, without links.
    pub directory: PathBuf,
    /// The path that counts, relative to a zone's root: `.git`.
    pub counts_as: PathBuf,
}

/// All that was found. Paths are absolute and without links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProtectedObjects {
    /// Files and links with protected names, those below protected directories, and those that links lead to.
    pub files: HashMap<ObjectId, ProtectedObject>,
    /// Paths that are protected with all below them although no name says so: the targets of links, whether they exist or
    /// not, the links between, other names of protected files, and directories that could not be looked through.
    pub places: BTreeMap<PathBuf, Protection>,
    /// Directories whose names count as others.
    pub aliases: BTreeSet<Alias>,
    /// Directories that had the shape of a repository.
    pub repositories: BTreeSet<PathBuf>,
    /// Directories, whether they exist or not, to which something protected leads, or through which it does. No link and no other
    /// directory may come into the place of one, nor of one above it: all that is known of it is its path.
    pub ways: BTreeSet<PathBuf>,
    /// The project's repository, where it lies outside the zones.
    #[serde(skip)]
    pub linked: Option<LinkedRepository>,
}

impl ProtectedObjects {
    /// How the file with this device and inode is protected under any of its names. `born` is asked for only where they
    /// are known.
    pub fn protection(&self, id: ObjectId, born: impl FnOnce() -> Option<SystemTime>) -> Option<Protection> {
        let object = self.files.get(&id)?;
        let same = object.born.is_none() || object.born == born();
        same.then_some(object.protection)
    }

    /// How a path is protected by where it is; names are for the policy's matcher.
    pub fn protection_of_place(&self, real: &Path) -> Option<Protection> {
        let linked = self.linked.as_ref().and_then(|linked| linked.is_open(real));
        let closed = linked.filter(|open| !open).map(|_| Protection::Write);
        if self.places.is_empty() {
            return closed;
        }
        real.ancestors().filter_map(|path| self.places.get(path).copied()).max().max(closed)
    }

    /// Whether a protected place lies below `real`, or `real` is, or leads to, a directory that counts as another.
    pub fn has_place_below(&self, real: &Path) -> bool {
        let after = (Bound::Excluded(real), Bound::Unbounded);
        let place = self.places.range::<Path, _>(after).next().map(|(place, _)| place);
        let from = (Bound::Included(real), Bound::Unbounded);
        let way = self.ways.range::<Path, _>(from).next();
        place.into_iter().chain(way).any(|path| path.starts_with(real))
    }

    /// Adds what is protected elsewhere.
    pub fn extend(&mut self, other: Self) {
        let Self { files, places, aliases, repositories, ways, linked: _ } = other;
        self.files.extend(files);
        self.places.extend(places);
        self.aliases.extend(aliases);
        self.repositories.extend(repositories);
        self.ways.extend(ways);
    }

    /// The paths as which `real` counts besides its own.
    pub fn other_paths<'o>(&'o self, real: &'o Path) -> impl Iterator<Item = PathBuf> {
        self.aliases.iter().filter_map(|alias| {
            let rest = real.strip_prefix(&alias.directory).ok()?;
            let whole = rest.as_os_str().is_empty();
            Some(if whole { alias.counts_as.clone() } else { alias.counts_as.join(rest) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_inode_that_was_given_again_is_another_object() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let object = ProtectedObject { protection: Protection::All, born: at(1) };
        let objects = ProtectedObjects { files: [((1, 2), object)].into(), ..Default::default() };
        assert_eq!(objects.protection((1, 2), || at(1)), Some(Protection::All));
        assert_eq!(objects.protection((1, 2), || at(2)), None);
        assert_eq!(objects.protection((1, 3), || panic!("it is not known")), None);
    }

    #[test]
    fn a_place_is_protected_with_all_below_it() {
        let places = [(PathBuf::from("/p/tools"), Protection::Write)].into();
        let objects = ProtectedObjects { places, ..Default::default() };
        assert_eq!(objects.protection_of_place(Path::new("/p/tools/x/y")), Some(Protection::Write));
        assert_eq!(objects.protection_of_place(Path::new("/p/toolsx")), None);
        assert!(objects.has_place_below(Path::new("/p")) && !objects.has_place_below(Path::new("/p/tools")));
    }

    #[test]
    fn a_way_leads_through_itself_and_all_above_it() {
        let objects = ProtectedObjects { ways: [PathBuf::from("/p/a/b")].into(), ..Default::default() };
        assert!(["/p", "/p/a", "/p/a/b"].iter().all(|path| objects.has_place_below(Path::new(path))));
        assert!(["/p/a/b/c", "/p/a/bb", "/p/b"].iter().all(|path| !objects.has_place_below(Path::new(path))));
    }

    #[test]
    fn what_lies_below_an_alias_counts_as_below_its_other_path() {
        let alias = Alias { directory: "/p/store".into(), counts_as: ".git".into() };
        let objects = ProtectedObjects { aliases: [alias].into(), ..Default::default() };
        let paths = |real| objects.other_paths(Path::new(real)).collect::<Vec<_>>();
        assert_eq!(paths("/p/store/hooks/x"), [PathBuf::from(".git/hooks/x")]);
        assert_eq!(paths("/p/store"), [PathBuf::from(".git")]);
        assert!(paths("/p/other").is_empty());
    }
}
