//! In the broker: what was found when no client was left to report it, for the first result of the next session. It is in
//! `.lazaret/found` of the central root, a protected name; an unreadable file counts as empty.

use crate::record_file::{self, directory};
use broker_protocol::{Findings, frame};
use executor_spec::sandbox::Rooted;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::io;
use std::os::fd::OwnedFd;

const NAME: &str = "found";

/// Takes what earlier sessions have left. A throw-away session leaves it to one whose results are read.
pub fn take_unreported(spec: &Rooted) -> Findings {
    let Some(directory) = directory(spec).filter(|_| spec.tracer.is_none()) else {
        return Findings::default();
    };
    let found = read(&directory);
    if !found.is_empty() {
        // A file that stays is reported again.
        let _ = unlinkat(&directory, NAME, UnlinkatFlags::NoRemoveDir);
    }
    found
}

/// Leaves `found` to the next session, with what others have left. A failure to write is ignored: nobody is left to report it to.
pub fn leave_unreported(spec: &Rooted, found: Findings) {
    let Some(directory) = directory(spec).filter(|_| !found.is_empty()) else {
        return;
    };
    let mut all = read(&directory);
    all.append(found);
    let _ = write(&directory, &all);
}

fn read(directory: &OwnedFd) -> Findings {
    record_file::read(directory, NAME, frame::FRAME_MAX)
        .and_then(|bytes| frame::decode_whole::<Findings>(&bytes).ok())
        .filter(|found| found.check().is_ok())
        .unwrap_or_default()
}

fn write(directory: &OwnedFd, found: &Findings) -> io::Result<()> {
    let bytes = frame::encode_whole(found).map_err(io::Error::other)?;
    record_file::write(directory, NAME, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Finding, FindingKind};
    use std::fs::{self, File};

    #[test]
    fn unreported_findings_read_back_and_other_bytes_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let directory: OwnedFd = File::open(folder.path()).unwrap().into();
        assert!(read(&directory).is_empty());
        let mut found = Findings::default();
        found.push(
            Finding::new(FindingKind::Lock, "a", "Why.")
                .with_state("s")
                .with_advice("b"),
        );
        write(&directory, &found).unwrap();
        assert_eq!(read(&directory), found);
        let mut bytes = fs::read(folder.path().join(NAME)).unwrap();
        bytes.push(0);
        fs::write(folder.path().join(NAME), bytes).unwrap();
        assert!(read(&directory).is_empty());
    }
}
