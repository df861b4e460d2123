//! Lists a directory: names, kinds, sizes, permission bits and times, in order. Names are not secret: a closed file is listed, but
//! not the contents of a closed directory, nor those of a `.git` directory unless it was requested.

use crate::bounds::AnswerRoom;
use crate::error::WorkError;
use crate::root::is;
use crate::walk::{WalkOptions, WalkStep};
use crate::worker::FileCall;
use broker_protocol::{FileList, Listed, ListedEntry, ListedKind, Truncated};
use nix::sys::stat::FileStat;

/// Bytes of an entry in an answer besides its path.
const ENTRY: usize = 8 + 4 + 8 + 4 + 8;

impl FileCall<'_> {
    /// Answers `file_list`.
    pub(crate) fn list(&self, request: &FileList) -> Result<Listed, WorkError> {
        let start = self.directory_at(&request.path)?;
        let options = WalkOptions {
            depth: request.depth.into(),
            dotted: &|_| request.hidden,
            repositories: false,
            ignored: true,
        };
        let mut walk = self.walk(&request.path, start, options)?;
        let mut room = AnswerRoom::new();
        let mut entries = Vec::new();
        let (mut count, mut full) = (0, false);
        while let Some(step) = walk.next() {
            count += 1;
            if full {
                continue;
            }
            let path = step.below.to_string_lossy().into_owned();
            full = entries.len() == request.limit as usize || !room.take(path.len() + ENTRY);
            match full {
                true => walk.only_count(),
                false => entries.push(self.entry(&step, path)),
            }
        }
        let (shown, total) = (entries.len() as u64, (!walk.cut()).then_some(count));
        let truncated = (full || walk.cut()).then_some(Truncated { total, shown });
        Ok(Listed { entries, truncated })
    }

    /// Describes the entry. One that became something else since its directory was read has no size, and one that is gone
    /// nothing but its name.
    fn entry(&self, step: &WalkStep, path: String) -> ListedEntry {
        let stat = self.stat(&step.location).ok().flatten();
        let is_file = |stat: &&FileStat| step.kind == ListedKind::File && is(stat, libc::S_IFREG);
        let modified = |stat: &FileStat| {
            let seconds = stat.st_mtime.saturating_mul(1000);
            seconds.saturating_add(stat.st_mtime_nsec / 1_000_000)
        };
        ListedEntry {
            path,
            kind: step.kind,
            size: stat
                .as_ref()
                .filter(is_file)
                .map_or(0, |stat| stat.st_size as u64),
            mode: stat
                .as_ref()
                .map_or(0, |stat| (stat.st_mode & 0o7777) as u16),
            modified_ms: stat.as_ref().map_or(0, modified),
        }
    }
}
