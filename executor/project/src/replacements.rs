//! Objects that a repository's git shows in place of others (`git replace`): names and values before a call and after it.

use crate::created_record::{inspect, is_recent, state};
use crate::finding::of_repository;
use crate::record_file::read_short;
use broker_protocol::{Finding, FindingKind};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "refs/replace";
const PACKED: &str = "packed-refs";
/// Maximum number of them, in files of their own and in the one for all.
const REPLACEMENTS_MAX: usize = 4096;
/// Maximum bytes of a file with one reference, and of that with all.
const REFERENCE_MAX: u64 = 4096;
const PACKED_MAX: u64 = 32 << 20;

/// For each object that is replaced what its reference says.
type ReplacedValues = BTreeMap<Vec<u8>, Vec<u8>>;

/// The replacements in one repository at the last check.
#[derive(Debug, Default)]
pub(crate) struct Replacements {
    /// `None` if there were more than are compared, or not all could be read.
    values: Option<ReplacedValues>,
    /// Values from the file for all, and its state when they were read.
    packed: Option<ReplacedValues>,
    packed_state: Option<[i64; 7]>,
}

impl Replacements {
    /// Reads those that are there now.
    pub(crate) fn of(common: &Path) -> Self {
        let mut new = Self {
            packed: Some(ReplacedValues::new()),
            ..Self::default()
        };
        new.values = new.read(common);
        new
    }

    /// The files that hold them.
    pub(crate) fn files(common: &Path) -> [PathBuf; 2] {
        [DIRECTORY, PACKED].map(|name| common.join(name))
    }

    /// Compares them with those of the last check.
    pub(crate) fn update(&mut self, common: &Path) -> Option<Finding> {
        let now = self.read(common);
        let before = std::mem::replace(&mut self.values, now);
        let why = match &self.values {
            None => format!(
                "A command has left more than {REPLACEMENTS_MAX} of `git replace`, or some that cannot be read: your git may show other \
                 objects than a push sends."
            ),
            Some(now) if before.as_ref() == Some(now) => return None,
            Some(_) => "A command used `git replace`: your git now shows one object in place of another, but a push sends the original."
                .to_owned(),
        };
        // What cannot be compared is said once.
        if self.values.is_none() && before.is_none() {
            return None;
        }
        let path = common.join(DIRECTORY);
        let found = of_repository(FindingKind::Replacement, &path, &why);
        Some(found.with_advice(
            "`git --no-replace-objects log` shows the originals, `git replace -d` removes a replacement",
        ))
    }

    fn read(&mut self, common: &Path) -> Option<ReplacedValues> {
        let path = common.join(PACKED);
        let now = inspect(&path).ok().map(|(_, metadata)| state(&metadata));
        if now != self.packed_state || now.as_ref().is_some_and(is_recent) {
            self.packed = now.map_or_else(|| Some(ReplacedValues::new()), |_| packed(&path));
            self.packed_state = now;
        }
        let mut values = self.packed.clone()?;
        loose(&common.join(DIRECTORY), &mut values)?;
        Some(values)
    }
}

/// Adds those in files of their own, which count before the others.
fn loose(directory: &Path, values: &mut ReplacedValues) -> Option<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Some(());
        }
        Err(_) => return None,
    };
    for (count, entry) in entries.enumerate() {
        if count >= REPLACEMENTS_MAX {
            return None;
        }
        let name = entry.ok()?.file_name();
        if is_object(name.as_bytes()) {
            // What cannot be read is none to git either.
            let value = read_short(&directory.join(&name), REFERENCE_MAX).unwrap_or_default();
            values.insert(name.as_bytes().to_vec(), value.trim_ascii_end().to_vec());
        }
    }
    Some(())
}

/// Reads those in the file for all.
fn packed(path: &Path) -> Option<ReplacedValues> {
    let text = read_short(path, PACKED_MAX)?;
    let mut values = ReplacedValues::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(space) = line.iter().position(|byte| *byte == b' ') else {
            continue;
        };
        let (value, name) = (&line[..space], &line[space + 1..]);
        let name = name.strip_prefix(b"refs/replace/").unwrap_or_default();
        if is_object(name) {
            values.insert(name.to_vec(), value.to_vec());
        }
    }
    (values.len() <= REPLACEMENTS_MAX).then_some(values)
}

/// Whether git takes a reference of this name for a replacement.
fn is_object(name: &[u8]) -> bool {
    matches!(name.len(), 40 | 64) && name.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(common: &Path, name: &str, text: &str) {
        let path = common.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn reference(number: usize) -> PathBuf {
        PathBuf::from(format!("refs/replace/{number:040x}"))
    }

    #[test]
    fn each_replacement_is_reported_once_wherever_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let common = folder.path();
        put(common, PACKED, "# pack-refs\n");
        let mut seen = Replacements::of(common);
        assert!(seen.update(common).is_none());
        let (one, two) = (reference(1), reference(2));
        put(common, one.to_str().unwrap(), "aa\n");
        assert!(seen.update(common).is_some() && seen.update(common).is_none());
        // A name that is no object's means nothing to git.
        put(common, "refs/replace/x.tmp", "junk");
        assert!(seen.update(common).is_none());
        // As `git pack-refs` does.
        put(common, PACKED, &format!("aa {}\n", one.display()));
        fs::remove_file(common.join(&one)).unwrap();
        assert!(seen.update(common).is_none());
        put(
            common,
            PACKED,
            &format!("aa {}\nbb {}\n", one.display(), two.display()),
        );
        assert!(seen.update(common).is_some());
        put(common, two.to_str().unwrap(), "cc\n");
        assert!(seen.update(common).is_some() && seen.update(common).is_none());
    }

    #[test]
    fn replacements_over_the_limit_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let common = folder.path();
        let mut seen = Replacements::of(common);
        for number in 0..REPLACEMENTS_MAX {
            put(common, reference(number).to_str().unwrap(), "");
        }
        let said = seen.update(common).unwrap();
        assert!(said.why.contains("A command used"), "{said:?}");
        put(common, reference(REPLACEMENTS_MAX).to_str().unwrap(), "");
        let said = seen.update(common).unwrap();
        assert!(said.why.contains("more than"), "{said:?}");
        assert!(seen.update(common).is_none());
    }
}
