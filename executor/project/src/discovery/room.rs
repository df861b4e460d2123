//! How much of the zones is searched, and what is closed where there is more.
//!
//! A command can create any number of names. Each root has room of its own, so that what one holds takes none from another. Where
//! there is more, what has the most entries directly below the root is closed as a whole and not searched: the session opens without
//! it, and says so. Only the names of a root itself can neither be closed nor left out.

use super::budget::Room;
use super::{PendingDirectory, ZoneSearch};
use crate::protected::ProtectError;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::pins::PinMode;
use policies_guard::Protection;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the central root may be searched: only commands and Lazaret work there, and a directory costs more than a file.
const CENTRAL_TIME: Duration = Duration::from_secs(10);

impl<'a> ZoneSearch<'a> {
    /// Makes room for the entries of a directory, of which `seen` have not been counted; closes something if there are too many.
    pub(super) fn make_room(&mut self, directory: &PendingDirectory<'a>, seen: usize) -> Room {
        let (root, part) = self.part_of(directory);
        let is_late = root == self.central && part != root && {
            let begun = *self.budget.begun.get_or_insert_with(Instant::now);
            begun.elapsed() > CENTRAL_TIME
        };
        if is_late {
            self.close_large(part.to_owned());
            return Room::Closed;
        }
        let max = self.leased.unwrap_or(self.entries_max);
        let budget = &mut self.budget;
        budget
            .parts
            .entry(part.to_owned())
            .or_insert_with(|| (root.to_owned(), 0))
            .1 += seen;
        let all = budget.roots.entry(root.to_owned()).or_default();
        *all += seen;
        if *all <= max {
            return Room::Left;
        }
        while self.budget.roots.get(root).is_some_and(|all| *all > max) {
            match self.largest(root, directory) {
                Some(large) => self.close_large(large),
                None => return Room::None,
            }
        }
        if self.budget.parts.contains_key(part) {
            Room::Left
        } else {
            Room::Closed
        }
    }

    /// The root of a directory, and what is directly below that on the way to it.
    fn part_of<'d>(&self, directory: &'d PendingDirectory<'a>) -> (&'a Path, &'d Path)
    where
        'a: 'd,
    {
        let path = directory.path.as_path();
        let roots = [directory.zone, self.project, self.central].into_iter();
        let root = roots
            .filter(|root| path.starts_with(root))
            .max_by_key(|root| root.as_os_str().len());
        let root = root.unwrap_or(directory.zone);
        (
            root,
            path.ancestors()
                .find(|above| above.parent() == Some(root))
                .unwrap_or(root),
        )
    }

    /// The part to close to make room: the one with the most entries, unless a root lies in it.
    fn largest(&self, root: &Path, directory: &PendingDirectory<'a>) -> Option<PathBuf> {
        if self.leased.is_some() || self.is_around(directory) {
            return None;
        }
        let parts = self.budget.parts.iter().filter(|(_, (of, _))| of == root);
        let (largest, _) = parts.max_by_key(|(_, (_, entries))| *entries)?;
        let holds_root = [self.project, self.central]
            .iter()
            .any(|other| other.starts_with(largest));
        let is_linked = self
            .objects
            .linked
            .as_ref()
            .is_some_and(|linked| root == linked.common);
        (!holds_root && !is_linked).then(|| largest.clone())
    }

    fn close_large(&mut self, path: PathBuf) {
        if let Some((root, entries)) = self.budget.parts.remove(&path)
            && let Some(all) = self.budget.roots.get_mut(&root)
        {
            *all = all.saturating_sub(entries);
        }
        self.left
            .retain(|directory| !directory.path.starts_with(&path));
        self.objects.places.insert(path.clone(), Protection::All);
        self.pins
            .add(path.clone(), PinMode::Hidden { directory: true });
        self.also_closed.push(AlsoClosed {
            path,
            why: WhyClosed::TooLarge,
        });
    }

    /// Why no more of a directory is searched.
    pub(super) fn too_large(&self, directory: &PendingDirectory<'a>) -> ProtectError {
        let (root, _) = self.part_of(directory);
        match self.leased {
            Some(max) => ProtectError::LeaseTooLarge { max },
            None if self.is_around(directory) => ProtectError::AroundTooLarge {
                around: directory.zone.to_owned(),
            },
            None if root == self.central => ProtectError::CentralTooLarge {
                central: root.to_owned(),
            },
            None => ProtectError::TooLarge {
                zone: root.to_owned(),
            },
        }
    }
}
