//! The mounts that pin protected names in the namespaced tier: which are needed, and how to use fewer when there would be too many.

use crate::birth_time::born;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of mounts for protected names in a session: each cell has a copy of all of them.
pub const PINS_MAX: usize = 4096;
/// Maximum number of mounts where more than half of them are for what lies directly in a zone's root, which cannot be closed as a whole. Each cell
/// takes longer to make, and the session opens.
pub const ROOT_PINS_MAX: usize = 16_384;

/// One mount that pins a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Absolute path.
    pub path: PathBuf,
    /// The effect of the mount.
    pub mode: PinMode,
}

impl Pin {
    /// Whether it hides the content.
    pub fn is_hidden(&self) -> bool {
        matches!(self.mode, PinMode::Hidden { .. })
    }

    /// Whether it prevents any change at `path`.
    pub fn holds(&self, path: &Path) -> bool {
        match self.mode {
            PinMode::KeepPlace => false,
            PinMode::KeepLink | PinMode::ReadOnly | PinMode::Masked | PinMode::Hidden { .. } => {
                path.starts_with(&self.path)
            }
        }
    }

    /// Whether it hides `path`.
    pub fn hides(&self, path: &Path) -> bool {
        self.is_hidden() && path.starts_with(&self.path)
    }
}

/// The effect of a pin on its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinMode {
    /// Keeps a parent directory in its place.
    KeepPlace,
    /// Keeps a link and its target text.
    KeepLink,
    /// Keeps the name, and allows reading.
    ReadOnly,
    /// Keeps the name of a file, and shows a text in place of the content.
    Masked,
    /// Keeps the name, and hides the content.
    Hidden {
        /// Whether it is a directory.
        directory: bool,
    },
}

/// Paths to pin in a set of zones.
#[derive(Debug, Default)]
pub struct Pins(BTreeMap<PathBuf, PinMode>);

/// A directory closed as a whole, and the first protected name for which it was closed.
pub(crate) type ClosedWhole = (PathBuf, PathBuf);

/// A zone's root itself contains more protected names than can be pinned. It could only be closed as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The first over the bound.
    pub path: PathBuf,
}

impl Pins {
    /// Adds a pin; of two for one path the stronger counts.
    pub fn add(&mut self, path: PathBuf, mode: PinMode) {
        let held = self.0.entry(path).or_insert(mode);
        *held = mode.max(*held);
    }

    /// Drops the pins whose paths are not `kept`.
    pub fn retain(&mut self, kept: impl Fn(&Path) -> bool) {
        self.0.retain(|path, _| kept(path));
    }

    /// All pins, with every directory between a zone's root and a pin, which must not be moved away: parents first, as
    /// mounting requires. If there are more than `max`, directories are closed as a whole, as strictly as the strictest name in
    /// them, and returned with the first name for which each was closed: those below `first`, where only commands work, before
    /// others, and newer ones before older ones: what a command makes is newer than what the user had. What lies directly in a
    /// zone's root has no such directory: with much of that there may be `root_max`.
    pub fn finish(
        mut self,
        zones: &[&Path],
        first: &Path,
        (max, root_max): (usize, usize),
    ) -> Result<(Vec<Pin>, Vec<ClosedWhole>), Overflow> {
        self.drop_covered();
        let max = match self.in_roots(zones) > max / 2 {
            true => root_max,
            false => max,
        };
        let mut closed = BTreeMap::new();
        while self.count(zones) > max {
            self.close_some(zones, first, max, &mut closed)?;
        }
        // Without those that were closed with their parents later.
        closed.retain(|path, _| self.0.contains_key(path));
        for parent in self.parents(zones) {
            self.0.entry(parent).or_insert(PinMode::KeepPlace);
        }
        let pins = self.0.into_iter().map(|(path, mode)| Pin { path, mode });
        Ok((pins.collect(), closed.into_iter().collect()))
    }

    /// Drops pins below a hidden directory: there is nothing to mount over.
    fn drop_covered(&mut self) {
        let mut hidden: Option<PathBuf> = None;
        self.0.retain(|path, mode| {
            if hidden
                .as_ref()
                .is_some_and(|hidden| path.starts_with(hidden))
            {
                return false;
            }
            if matches!(mode, PinMode::Hidden { .. }) {
                hidden = Some(path.clone());
            }
            true
        });
    }

    fn parents(&self, zones: &[&Path]) -> BTreeSet<PathBuf> {
        let inside = |path: &&Path| {
            zones
                .iter()
                .any(|zone| path.starts_with(zone) && path != zone)
        };
        let above = |path: &PathBuf| -> Vec<PathBuf> {
            path.ancestors()
                .skip(1)
                .take_while(inside)
                .map(Path::to_owned)
                .collect()
        };
        self.0
            .keys()
            .flat_map(above)
            .filter(|path| !self.0.contains_key(path))
            .collect()
    }

    /// How many names directly in the zones' roots have pins, or have some below them.
    fn in_roots(&self, zones: &[&Path]) -> usize {
        let in_root = |path: &Path| {
            let zone = zones.iter().find(|zone| path.starts_with(zone))?;
            let name = path.strip_prefix(zone).ok()?.components().next()?;
            Some(zone.join(name))
        };
        let names = self.0.keys().filter_map(|path| in_root(path));
        names.collect::<BTreeSet<_>>().len()
    }

    fn count(&self, zones: &[&Path]) -> usize {
        self.0.len() + self.parents(zones).len()
    }

    /// Closes the directories of pins, one level up, until at most `max` are left or all were closed. Adds each to `closed`, with the
    /// first name for which it was closed.
    fn close_some(
        &mut self,
        zones: &[&Path],
        first: &Path,
        max: usize,
        closed: &mut BTreeMap<PathBuf, PathBuf>,
    ) -> Result<(), Overflow> {
        let parent = |path: &PathBuf| {
            path.parent()
                .filter(|path| !zones.contains(path))
                .map(Path::to_owned)
        };
        let mut parents: BTreeSet<PathBuf> = self.0.keys().filter_map(parent).collect();
        parents.retain(|path| {
            !zones.iter().any(|zone| zone.starts_with(path)) && !first.starts_with(path)
        });
        if parents.is_empty() {
            let path = self.0.keys().nth(max).cloned().unwrap_or_default();
            return Err(Overflow { path });
        }
        let mut parents: Vec<PathBuf> = parents.into_iter().collect();
        parents.sort_by_cached_key(|path| (path.starts_with(first), born(path), path.clone()));
        let mut over = self.count(zones).saturating_sub(max);
        for directory in parents.into_iter().rev() {
            if over == 0 {
                break;
            }
            if let Some((first, saved)) = self.close(&directory) {
                over = over.saturating_sub(saved);
                let first = closed.get(&first).cloned().unwrap_or(first);
                closed.insert(directory, first);
            }
        }
        Ok(())
    }

    /// Closes a directory in place of all pins below it. Returns the first name among these, and at
    /// least how many mounts it saves.
    fn close(&mut self, directory: &Path) -> Option<(PathBuf, usize)> {
        let below: Vec<(PathBuf, PinMode)> = self
            .0
            .range(directory.to_owned()..)
            .take_while(|(path, _)| path.starts_with(directory))
            .map(|(path, mode)| (path.clone(), *mode))
            .collect();
        let (first, _) = below.first()?;
        let strictest = below.iter().map(|(_, mode)| *mode).max()?;
        let mode = match strictest {
            PinMode::Masked | PinMode::Hidden { .. } => PinMode::Hidden { directory: true },
            PinMode::KeepPlace | PinMode::KeepLink | PinMode::ReadOnly => PinMode::ReadOnly,
        };
        for (path, _) in &below {
            self.0.remove(path);
        }
        self.0.insert(directory.to_owned(), mode);
        Some((first.clone(), below.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: PinMode = PinMode::Hidden { directory: false };

    fn finish(paths: &[&str], max: usize) -> Result<(Vec<String>, Vec<String>), Overflow> {
        let mut pins = Pins::default();
        paths.iter().for_each(|path| pins.add(path.into(), FILE));
        let (pins, closed) =
            pins.finish(&[Path::new("/z")], Path::new("/z/central"), (max, max))?;
        let text = |path: &Path| path.display().to_string();
        Ok((
            pins.iter().map(|pin| text(&pin.path)).collect(),
            closed
                .iter()
                .map(|(path, first)| format!("{} {}", text(path), text(first)))
                .collect(),
        ))
    }

    #[test]
    fn parents_are_pinned_and_hidden_paths_have_no_pins_below() {
        let (pins, closed) = finish(&["/z/a/b/.env", "/z/a/b/.env/x"], 10).unwrap();
        assert_eq!(pins, ["/z/a", "/z/a/b", "/z/a/b/.env"]);
        assert!(closed.is_empty());
    }

    #[test]
    fn over_the_bound_the_last_directories_are_closed_whole_and_named() {
        let (pins, closed) =
            finish(&["/z/.env", "/z/a/.env", "/z/b/.env", "/z/c/.env"], 6).unwrap();
        assert_eq!(
            pins,
            ["/z/.env", "/z/a", "/z/a/.env", "/z/b", "/z/b/.env", "/z/c"]
        );
        assert_eq!(closed, ["/z/c /z/c/.env"]);
        let (pins, closed) = finish(&["/z/d/1/.env", "/z/d/2/.env", "/z/d/3/.env"], 2).unwrap();
        assert_eq!(pins, ["/z/d"], "level by level");
        assert_eq!(closed, ["/z/d /z/d/1/.env"]);
    }

    #[test]
    fn entries_of_a_root_itself_have_a_larger_limit() {
        let finish = |count: usize, root_max| {
            let mut pins = Pins::default();
            (0..count).for_each(|n| pins.add(format!("/z/{n}/.env").into(), FILE));
            let finished = pins.finish(&[Path::new("/z")], Path::new("/z/central"), (8, root_max));
            finished.map(|(pins, closed)| (pins.len(), closed.len()))
        };
        // Half of the smaller bound, which the directories of names take too.
        assert_eq!(finish(4, 12), Ok((8, 0)));
        assert_eq!(finish(5, 12), Ok((10, 0)));
        assert_eq!(finish(9, 12), Ok((12, 6)));
        assert_eq!(finish(12, 12), Ok((12, 12)));
        assert!(finish(13, 12).is_err());
    }

    #[test]
    fn pin_limit_in_a_root_itself_fails() {
        let names = ["/z/.env.1", "/z/.env.2", "/z/.env.3"];
        assert_eq!(
            finish(&names, 2),
            Err(Overflow {
                path: "/z/.env.3".into()
            })
        );
        assert!(finish(&names, 3).is_ok());
    }
}
