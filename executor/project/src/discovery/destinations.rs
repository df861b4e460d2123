//! Protects the targets of links, and of files in repositories that name a directory.

use super::{PendingDirectory, SearchedEntry, ZoneSearch, mode};
use crate::links;
use crate::protected::ProtectError;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::linked_repository::LinkedRepository;
use executor_spec::pins::PinMode;
use policies_guard::Protection;
use policies_guard::search::Redirection;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl<'a> ZoneSearch<'a> {
    /// Adds a repository outside the zones, where names are protected as in `.git`, and pins what else is closed there.
    pub(super) fn linked_repository(
        &mut self,
        linked: &'a LinkedRepository,
    ) -> PendingDirectory<'a> {
        let (common, git) = (linked.common.as_path(), PathBuf::from(".git"));
        self.zones.push(common);
        self.add_alias(common, &git);
        for (path, is_way) in linked.kept() {
            let mode = if is_way {
                PinMode::KeepPlace
            } else {
                PinMode::ReadOnly
            };
            let link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
            self.pins
                .add(path, if link { PinMode::KeepLink } else { mode });
        }
        self.objects.linked = Some(linked.clone());
        // The worktree's own directory leads here too.
        self.reached
            .insert((common.to_owned(), None, vec![git.clone()]));
        PendingDirectory {
            counts_as: vec![git],
            ..PendingDirectory::root(common)
        }
    }

    /// Pins a link with a protected name, or with protected names below it, and protects its target.
    pub(super) fn link(
        &mut self,
        directory: &PendingDirectory<'a>,
        entry: &SearchedEntry,
        protection: Option<Protection>,
        pinned: Option<Protection>,
    ) -> Result<(), ProtectError> {
        let counts_as = directory.searched(self.names).led_to_by(&entry.name);
        let path = entry.entry.path();
        match protection {
            None if counts_as.is_empty() => return Ok(()),
            None => {
                self.hold(&path);
            }
            Some(protection) => self.file(&path, entry.entry.metadata(), protection),
        }
        if pinned.is_some() {
            self.pins.add(path.clone(), PinMode::KeepLink);
        }
        self.lead(
            &path,
            &directory.path,
            Path::new(&entry.name),
            protection,
            counts_as,
        )
    }

    /// Pins a link that nothing else protects.
    fn hold(&mut self, link: &Path) {
        if self.zone_of(link).is_some() && self.covered(link).is_none() {
            self.objects
                .places
                .insert(link.to_owned(), Protection::Write);
            self.pins.add(link.to_owned(), PinMode::KeepLink);
        }
    }

    /// Keeps a directory, which need not exist, in its place, with those above it.
    pub(super) fn hold_way(&mut self, directory: &Path) {
        let Some(zone) = self.zone_of(directory).filter(|zone| directory != *zone) else {
            return;
        };
        if !self.objects.ways.insert(directory.to_owned()) {
            return;
        }
        let is_directory =
            |path: &&Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let below = directory.ancestors().take_while(|path| *path != zone);
        if let Some(present) = below.into_iter().find(is_directory) {
            self.pins.add(present.to_owned(), PinMode::KeepPlace);
        }
    }

    /// How a path is protected already, by a name or by its place.
    fn covered(&self, path: &Path) -> Option<Protection> {
        let relative = self
            .zone_of(path)
            .and_then(|zone| path.strip_prefix(zone).ok())?;
        let rule = self.names.protection(relative.as_os_str().as_bytes());
        rule.map(|rule| rule.protection)
            .max(self.objects.protection_of_place(path))
    }

    /// Protects what `path` leads to, relative to `directory`; `from` is the file or link that names it.
    pub(super) fn lead(
        &mut self,
        from: &Path,
        directory: &Path,
        path: &Path,
        protection: Option<Protection>,
        counts_as: Vec<PathBuf>,
    ) -> Result<(), ProtectError> {
        let found = links::follow(directory, path);
        found
            .between
            .iter()
            .filter(|link| *link != from)
            .for_each(|link| self.hold(link));
        found
            .left
            .iter()
            .for_each(|directory| self.hold_way(directory));
        let Some(end) = found.end else { return Ok(()) };
        let Some(zone) = self.zone_of(&end) else {
            return Ok(());
        };
        let covered = self.covered(&end);
        if protection.is_some() && covered.is_some() {
            self.led_to.insert(end.clone());
        }
        let protection = protection.filter(|_| protection > covered);
        if protection.is_some() && self.zones.iter().any(|zone| zone.starts_with(&end)) {
            return Err(ProtectError::LinkToRoot {
                link: from.to_owned(),
            });
        }
        if protection.is_none() && counts_as.is_empty()
            || !self
                .reached
                .insert((end.clone(), protection, counts_as.clone()))
        {
            return Ok(());
        }
        counts_as
            .iter()
            .for_each(|counts_as| self.add_alias(&end, counts_as));
        self.protect_end(from, (zone, end), protection, counts_as);
        Ok(())
    }

    /// Protects the `end` of a way, and looks through it if it is a directory.
    fn protect_end(
        &mut self,
        from: &Path,
        (zone, end): (&'a Path, PathBuf),
        protection: Option<Protection>,
        counts_as: Vec<PathBuf>,
    ) {
        let metadata = fs::symlink_metadata(&end);
        if let Some(protection) = protection {
            self.objects.places.insert(end.clone(), protection);
            self.also_closed.push(AlsoClosed {
                path: end.clone(),
                why: WhyClosed::TargetOf(from.to_owned()),
            });
            if let Ok(metadata) = &metadata {
                self.pins.add(end.clone(), mode(protection, metadata));
            }
        }
        match (metadata, protection) {
            (Ok(metadata), inherited) if metadata.is_dir() => {
                self.left.push(PendingDirectory {
                    path: end,
                    inherited,
                    counts_as,
                    ..PendingDirectory::root(zone)
                });
            }
            (Ok(metadata), Some(protection)) => self.file(&end, Ok(metadata), protection),
            // It does not exist, and may not be created.
            (Ok(_), None) | (Err(_), _) => {}
        }
    }

    /// A file that names the directory of the repository leads there like a link.
    pub(super) fn redirection(
        &mut self,
        directory: &PendingDirectory<'a>,
        name: &OsStr,
    ) -> Result<(), ProtectError> {
        let redirections = directory.searched(self.names).redirections(name);
        for Redirection { before, counts_as } in redirections {
            let path = directory.path.join(name);
            self.objects
                .places
                .entry(path.clone())
                .or_insert(Protection::Write);
            if directory.inherited.is_none() {
                self.pins.add(path.clone(), PinMode::ReadOnly);
            }
            if let Some(target) = links::target_in(&path, before.as_bytes()) {
                self.lead(
                    &path,
                    &directory.path,
                    &target,
                    None,
                    vec![counts_as.into()],
                )?;
            }
        }
        Ok(())
    }
}
