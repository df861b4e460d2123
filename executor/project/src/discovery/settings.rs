//! Protects paths in the user's git settings, and targets of links in the home directory.

use super::{ZoneSearch, mode};
use crate::git_settings::{MayBe, NamedPath};
use crate::links;
use crate::protected::ProtectError;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use policies_guard::Protection;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl ZoneSearch<'_> {
    /// Closes a named path for writing, with each link on the way, if it lies in a zone.
    pub(super) fn close_named(&mut self, named: &NamedPath) -> Result<(), ProtectError> {
        let NamedPath {
            file,
            key,
            directory,
            path,
            may_be,
        } = named;
        let Some(end) = links::follow(directory, path).end else {
            return Ok(());
        };
        let metadata = fs::symlink_metadata(&end);
        let closes = match (may_be, &metadata) {
            (MayBe::Anything | MayBe::Linked, _) => true,
            (MayBe::File | MayBe::Own, metadata) => {
                !metadata.as_ref().is_ok_and(|metadata| metadata.is_dir())
            }
            (MayBe::Present, metadata) => {
                metadata.as_ref().is_ok_and(|metadata| metadata.is_file())
            }
        };
        if !closes {
            return Ok(());
        }
        if self.zones.iter().any(|zone| zone.starts_with(&end)) {
            return Err(ProtectError::SettingOfRoot {
                file: file.clone(),
                key: key.clone(),
            });
        }
        let before = self.also_closed.len();
        self.open_when_new(&end);
        self.lead(file, directory, path, Some(Protection::Write), Vec::new())?;
        for closed in &mut self.also_closed[before..] {
            closed.why = match may_be {
                MayBe::Own => WhyClosed::Own,
                MayBe::Linked => WhyClosed::HomeLink(file.clone()),
                MayBe::Anything | MayBe::File | MayBe::Present => WhyClosed::Setting {
                    file: file.clone(),
                    key: key.clone(),
                },
            };
        }
        Ok(())
    }

    /// Closes by place what a name closes only once it exists.
    fn open_when_new(&mut self, end: &Path) {
        let Some(zone) = self.zone_of(end) else {
            return;
        };
        let relative = end.strip_prefix(zone).unwrap_or(end).as_os_str().as_bytes();
        let open = self.names.closes_what_exists(relative);
        if open && self.objects.protection_of_place(end).is_none() {
            self.objects
                .places
                .insert(end.to_owned(), Protection::Write);
            let why = WhyClosed::TargetOf(end.to_owned());
            self.also_closed.push(AlsoClosed {
                path: end.to_owned(),
                why,
            });
            if let Ok(metadata) = fs::symlink_metadata(end) {
                self.pins
                    .add(end.to_owned(), mode(Protection::Write, &metadata));
            }
        }
    }
}
