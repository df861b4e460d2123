//! Lists a directory: names, kinds and sizes, in order. Names are not secret: a closed file is listed, but
//! not the contents of a closed directory, nor those of a `.git` directory unless it was requested.

use crate::bounds::AnswerRoom;
use crate::error::WorkError;
use crate::root::is;
use crate::walk::{WalkOptions, WalkStep};
use crate::worker::FileCall;
use broker_protocol::{FileList, Listed, ListedEntry, ListedKind, Truncated};

/// Bytes of an entry in an answer besides its path.
const ENTRY: usize = 8 + 4 + 8;

impl FileCall<'_> {
    /// Answers `file_list`.
    pub fn list(&self, request: &FileList) -> Result<Listed, WorkError> {
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
                false => entries.push(ListedEntry {
                    size: self.size(&step),
                    kind: step.kind,
                    path,
                }),
            }
        }
        let (shown, total) = (entries.len() as u64, (!walk.cut()).then_some(count));
        let truncated = (full || walk.cut()).then_some(Truncated { total, shown });
        Ok(Listed { entries, truncated })
    }

    fn size(&self, step: &WalkStep) -> u64 {
        if step.kind != ListedKind::File {
            return 0;
        }
        let file = self
            .stat(&step.location)
            .ok()
            .flatten()
            .filter(|stat| is(stat, libc::S_IFREG));
        file.map_or(0, |stat| stat.st_size as u64)
    }
}
