//! Objects of the zones that are protected whatever their names: found when the session opens
//! (`discovery.rs`), and used by the supervisor.

use crate::linked_repository::LinkedRepository;
use policies_guard::Protection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Device and inode of a file. File systems reuse inode numbers; so [`ProtectedObject::born`] must be compared too.
pub type ObjectId = (u64, u64);

/// A file that was protected when the session opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedObject {
    /// The accesses that are refused.
    pub protection: Protection,
    /// Its birth time, if the file system reports it.
    pub born: Option<SystemTime>,
}

/// A directory below which names are protected as if it had another path: a repository that is not
/// called `.git`, or the target of a link with a protected name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alias {
    /// Absolute, without links.
    pub directory: PathBuf,
    /// The equivalent path, relative to a zone's root: `.git`.
    pub counts_as: PathBuf,
}

/// Everything that was found. Paths are absolute and without links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedObjects {
    /// Files and links with protected names, those below protected directories, and the targets of links.
    pub files: HashMap<ObjectId, ProtectedObject>,
    /// Paths that are protected with everything below them although no name requires it: targets of links, whether they
    /// exist or not, the links between, other names of protected files, and directories that could not be searched.
    pub places: BTreeMap<PathBuf, Protection>,
    /// Directories whose names are equivalent to others.
    pub aliases: BTreeSet<Alias>,
    /// Directories that had the structure of a repository.
    pub repositories: BTreeSet<PathBuf>,
    /// Those of them that are looked at after each call: the user's first. All others are protected places.
    pub watched: Vec<PathBuf>,
    /// Directories, whether they exist or not, to or through which something protected leads. No
    /// link and no other directory may replace one, nor one above it: only its path is known.
    pub ways: BTreeSet<PathBuf>,
    /// The project's repository, if it lies outside the zones.
    #[serde(skip)]
    pub linked: Option<LinkedRepository>,
}

impl ProtectedObjects {
    /// How the file with this device and inode is protected under any of its names. `born` is
    /// called only if these are known.
    pub fn protection(
        &self,
        id: ObjectId,
        born: impl FnOnce() -> Option<SystemTime>,
    ) -> Option<Protection> {
        let object = self.files.get(&id)?;
        let same = object.born.is_none() || object.born == born();
        same.then_some(object.protection)
    }

    /// How a path is protected by its place; names are up to the policy's matcher.
    pub fn protection_of_place(&self, real: &Path) -> Option<Protection> {
        let linked = self.linked.as_ref().and_then(|linked| linked.is_open(real));
        let closed = linked.filter(|open| !open).map(|_| Protection::Write);
        if self.places.is_empty() {
            return closed;
        }
        real.ancestors()
            .filter_map(|path| self.places.get(path).copied())
            .max()
            .max(closed)
    }

    /// Whether a protected place lies below `real`, or `real` is, or is a parent of, a directory with an equivalent path.
    pub fn has_place_below(&self, real: &Path) -> bool {
        let after = (Bound::Excluded(real), Bound::Unbounded);
        let place = self
            .places
            .range::<Path, _>(after)
            .next()
            .map(|(place, _)| place);
        let from = (Bound::Included(real), Bound::Unbounded);
        let way = self.ways.range::<Path, _>(from).next();
        place
            .into_iter()
            .chain(way)
            .any(|path| path.starts_with(real))
    }

    /// Adds what is protected in other places.
    pub fn extend(&mut self, other: Self) {
        let Self {
            files,
            places,
            aliases,
            repositories,
            watched,
            ways,
            linked: _,
        } = other;
        self.files.extend(files);
        self.places.extend(places);
        self.aliases.extend(aliases);
        self.repositories.extend(repositories);
        self.watched.extend(watched);
        self.ways.extend(ways);
    }

    /// The equivalent paths of `real`, besides its own.
    pub fn other_paths<'o>(&'o self, real: &'o Path) -> impl Iterator<Item = PathBuf> {
        self.aliases.iter().filter_map(|alias| {
            let rest = real.strip_prefix(&alias.directory).ok()?;
            let whole = rest.as_os_str().is_empty();
            Some(if whole {
                alias.counts_as.clone()
            } else {
                alias.counts_as.join(rest)
            })
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
        let object = ProtectedObject {
            protection: Protection::All,
            born: at(1),
        };
        let objects = ProtectedObjects {
            files: [((1, 2), object)].into(),
            ..Default::default()
        };
        assert_eq!(objects.protection((1, 2), || at(1)), Some(Protection::All));
        assert_eq!(objects.protection((1, 2), || at(2)), None);
        assert_eq!(
            objects.protection((1, 3), || panic!("it is not known")),
            None
        );
    }

    #[test]
    fn a_place_is_protected_with_all_below_it() {
        let places = [(PathBuf::from("/p/tools"), Protection::Write)].into();
        let objects = ProtectedObjects {
            places,
            ..Default::default()
        };
        assert_eq!(
            objects.protection_of_place(Path::new("/p/tools/x/y")),
            Some(Protection::Write)
        );
        assert_eq!(objects.protection_of_place(Path::new("/p/toolsx")), None);
        assert!(
            objects.has_place_below(Path::new("/p"))
                && !objects.has_place_below(Path::new("/p/tools"))
        );
    }

    #[test]
    fn a_way_leads_through_itself_and_all_above_it() {
        let objects = ProtectedObjects {
            ways: [PathBuf::from("/p/a/b")].into(),
            ..Default::default()
        };
        assert!(
            ["/p", "/p/a", "/p/a/b"]
                .iter()
                .all(|path| objects.has_place_below(Path::new(path)))
        );
        assert!(
            ["/p/a/b/c", "/p/a/bb", "/p/b"]
                .iter()
                .all(|path| !objects.has_place_below(Path::new(path)))
        );
    }

    #[test]
    fn path_below_an_alias_counts_as_below_its_other_path() {
        let alias = Alias {
            directory: "/p/store".into(),
            counts_as: ".git".into(),
        };
        let objects = ProtectedObjects {
            aliases: [alias].into(),
            ..Default::default()
        };
        let paths = |real| objects.other_paths(Path::new(real)).collect::<Vec<_>>();
        assert_eq!(paths("/p/store/hooks/x"), [PathBuf::from(".git/hooks/x")]);
        assert_eq!(paths("/p/store"), [PathBuf::from(".git")]);
        assert!(paths("/p/other").is_empty());
    }
}
