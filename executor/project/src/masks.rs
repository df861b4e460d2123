//! Files of secrets in dotenv form that commands can read, in place of being hidden: with placeholders for the values, or as they are.
//!
//! Chosen when a session opens, among what was found to be hidden. Only the file that lay there then is readable so: what appears or
//! replaces it later is closed as every new secret. In the namespaced tier a file with the masked text is mounted over the name
//! (`mounts.rs`); in the flat tier the supervisor answers an open with one.

use crate::protected::Discovery;
use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::pins::{Pin, PinMode};
use executor_spec::readable_secret::{ReadableSecret, SecretView};
use executor_sys::random;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use policies::dotenv::{self, DOTENV_MAX, DotenvFault, Salt, is_dotenv_name};
use policies::{SecretMode, SecretModes};
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum number of such files in a session. Those nearest to a root come first.
pub(crate) const SECRETS_MAX: usize = 64;
/// Maximum bytes of all masked texts of a session: each of its processes inherits them.
pub(crate) const MASKS_MAX: usize = 1 << 20;

/// A file of secrets in dotenv form that was found hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Absolute, without links.
    pub path: PathBuf,
    pub mode: SecretMode,
    /// Whether no file of policy keeps it from being revealed.
    pub may_be_revealed: bool,
}

/// Why a file is not masked.
#[derive(Debug, Error)]
pub enum NotMasked {
    #[error("{0}")]
    Form(#[from] DotenvFault),
    #[error("it cannot be read: {0}")]
    Unread(#[from] io::Error),
    #[error("it is no regular file, or was replaced")]
    Replaced,
    #[error("git tracks it, or may, with other content, and would commit the placeholders")]
    Tracked,
    #[error("more than {SECRETS_MAX} such files, or {} KiB of them, were found", MASKS_MAX >> 10)]
    TooMany,
}

/// The hidden files in dotenv form, those nearest to a root first: by their own names, or by that of a link that leads to them.
pub fn candidates(found: &Discovery, modes: &SecretModes) -> Vec<Candidate> {
    let hidden = found
        .pins
        .iter()
        .filter(|pin| pin.mode == PinMode::Hidden { directory: false });
    let named = hidden.filter_map(|pin| Some((pin, name_of(pin, &found.also_closed)?)));
    let mut all: Vec<Candidate> = named
        .map(|(pin, name)| Candidate {
            path: pin.path.clone(),
            mode: modes.of(name),
            may_be_revealed: modes.max(name) == SecretMode::Show,
        })
        .collect();
    all.sort_by_cached_key(|file| (file.path.components().count(), file.path.clone()));
    all
}

fn name_of<'f>(pin: &'f Pin, also_closed: &'f [AlsoClosed]) -> Option<&'f [u8]> {
    let about = || also_closed.iter().filter(|closed| closed.path == pin.path);
    let own = match about().next().map(|closed| &closed.why) {
        None => &pin.path,
        Some(WhyClosed::TargetOf(link)) if about().count() == 1 => link,
        Some(_) => return None,
    };
    own.file_name()
        .map(OsStrExt::as_bytes)
        .filter(|name| is_dotenv_name(name))
}

/// Makes those of `files` readable that are to be, and returns them, with why others stay hidden. `tracked` says which of some files
/// git tracks or may track.
pub fn make_readable(
    found: &mut Discovery,
    files: Vec<Candidate>,
    tracked: impl FnOnce(&[PathBuf]) -> BTreeSet<PathBuf>,
) -> (Vec<ReadableSecret>, Vec<(PathBuf, NotMasked)>) {
    let (mut readable, mut hidden, mut size) = (Vec::new(), Vec::new(), 0);
    for Candidate {
        path,
        mode,
        may_be_revealed,
    } in files
    {
        let seen = match mode {
            SecretMode::Hide => continue,
            _ if readable.len() == SECRETS_MAX => Err(NotMasked::TooMany),
            SecretMode::Mask => mask(found, &path, MASKS_MAX - size),
            SecretMode::Show => show(found, &path),
        };
        match seen {
            Ok(mut file) => {
                file.may_be_revealed = may_be_revealed;
                size += if let SecretView::Masked(text) = &file.seen {
                    text.len()
                } else {
                    0
                };
                readable.push(file);
            }
            Err(why) => hidden.push((path, why)),
        }
    }
    let masked = |file: &ReadableSecret| matches!(file.seen, SecretView::Masked(_));
    let asked: Vec<PathBuf> = readable
        .iter()
        .filter(|file| masked(file))
        .map(|file| file.path.clone())
        .collect();
    let tracked = if asked.is_empty() {
        BTreeSet::new()
    } else {
        tracked(&asked)
    };
    readable.retain(|file| !(masked(file) && tracked.contains(&file.path)));
    hidden.extend(tracked.into_iter().map(|path| (path, NotMasked::Tracked)));
    for file in &readable {
        let mode = if masked(file) {
            PinMode::Masked
        } else {
            PinMode::ReadOnly
        };
        found
            .pins
            .iter_mut()
            .filter(|pin| pin.path == file.path)
            .for_each(|pin| pin.mode = mode);
    }
    (readable, hidden)
}

fn mask(found: &Discovery, path: &Path, room: usize) -> Result<ReadableSecret, NotMasked> {
    let (file, metadata) = open(
        found,
        path,
        OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY,
    )?;
    let mut text = Vec::with_capacity(DOTENV_MAX + 1);
    let read = file.take(DOTENV_MAX as u64 + 1).read_to_end(&mut text);
    // Of each file its own: who can write one file would otherwise find the values of another by comparing placeholders.
    let mut salt: Salt = random::bytes()?;
    let masked = read
        .map_err(NotMasked::Unread)
        .and_then(|_| Ok(dotenv::mask(&text, &salt)?));
    // Processes of the session inherit what this one has in memory.
    text.fill(0);
    salt.fill(0);
    black_box((&text, &salt));
    let masked = masked?;
    if masked.len() > room {
        return Err(NotMasked::TooMany);
    }
    Ok(readable(
        path,
        &metadata,
        SecretView::Masked(masked.into_bytes().into()),
    ))
}

fn show(found: &Discovery, path: &Path) -> Result<ReadableSecret, NotMasked> {
    let (_, metadata) = open(found, path, OFlag::O_PATH)?;
    Ok(readable(path, &metadata, SecretView::Real))
}

fn readable(path: &Path, metadata: &Metadata, seen: SecretView) -> ReadableSecret {
    let (id, born) = ((metadata.dev(), metadata.ino()), metadata.created().ok());
    ReadableSecret {
        path: path.to_owned(),
        id,
        born,
        seen,
        may_be_revealed: false,
    }
}

/// Opens the regular file that was found at `path`. A command of an earlier session may have put anything there.
fn open(found: &Discovery, path: &Path, flags: OFlag) -> Result<(File, Metadata), NotMasked> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let file = File::from(openat2(AT_FDCWD, path, how).map_err(io::Error::from)?);
    let metadata = file.metadata()?;
    let id = (metadata.dev(), metadata.ino());
    let same = found
        .objects
        .protection(id, || metadata.created().ok())
        .is_some();
    if metadata.is_file() && same {
        Ok((file, metadata))
    } else {
        Err(NotMasked::Replaced)
    }
}

#[cfg(test)]
mod tests;
