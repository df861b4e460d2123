//! Reads `HEAD` of a repository, and the references to which it leads.

use crate::record_file::read_short;
use policies_guard::{GIT_HEAD_MAX, follow_head};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `HEAD` in the directory `own`, and the references in `common` to which it leads one after the other; the last may not exist.
pub(crate) fn head_references(own: &Path, common: &Path) -> Vec<PathBuf> {
    let head = own.join("HEAD");
    let path = |reference: &[u8]| common.join(OsStr::from_bytes(reference));
    let followed = follow_head(|reference| {
        let path = reference.map_or_else(|| head.clone(), path);
        Ok::<_, Infallible>(read_short(&path, GIT_HEAD_MAX as u64))
    });
    let Ok((references, _)) = followed;
    let references = references.iter().map(|reference| path(reference));
    [head.clone()].into_iter().chain(references).collect()
}
