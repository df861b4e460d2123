//! Reads the user's own files of patterns for git (what to ignore, attributes), of which cells get copies.
//!
//! The copy shows cells what the path leads to, so no command may decide that: of a file that lies in a project, or is reached through one,
//! a command could have made a link to a key. A link counts only where no command ever writes: in the user's home itself, in the directory
//! of git's settings and the one around it, and in the root directory. Attack: `no_link_of_a_command_is_followed_to_the_users_ignore_file`.

use crate::links;
use executor_sys::file::open_without_links;
use nix::errno::Errno;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Maximum bytes of a file.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Maximum number of files of which cells get copies.
pub(crate) const PATTERNS_MAX: usize = 8;

/// The content of `file`, empty if it does not exist; `None` if cells cannot get it.
pub(crate) fn user_patterns(home: &Path, configuration: &Path, file: &Path) -> Option<Vec<u8>> {
    let way = links::follow(Path::new("/"), file);
    let real = |directory: &Path| fs::canonicalize(directory).ok();
    let around = configuration.parent().unwrap_or(configuration);
    let homes: Vec<PathBuf> = [home, around, configuration]
        .iter()
        .filter_map(|d| real(d))
        .collect();
    let is_safe = |link: &PathBuf| {
        link.parent().is_some_and(|parent| {
            parent == Path::new("/") || homes.iter().any(|home| home == parent)
        })
    };
    let end = way.end.filter(|_| way.between.iter().all(is_safe))?;
    // No link has come since: this follows none.
    let opened = match open_without_links(&end) {
        Ok(opened) => opened,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Some(Vec::new()),
        Err(_) => return None,
    };
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let kind = fs::metadata(&path).ok()?.file_type();
    // `/dev/null` is how people switch off a default.
    if kind.is_char_device() && end == Path::new("/dev/null") {
        return Some(Vec::new());
    }
    // Looked at first: to open a pipe would wait for its writer.
    let file = kind.is_file().then(|| File::open(&path))?.ok()?;
    let mut text = Vec::new();
    file.take(PATTERN_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .ok()?;
    (text.len() <= PATTERN_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_of_patterns_is_bounded_and_regular() {
        let folder = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| home.join(name);
        let read = |name: &str| user_patterns(&home, &at(".config/git"), &at(name));
        fs::write(at("most"), vec![b'x'; PATTERN_BYTES_MAX]).unwrap();
        fs::write(at("more"), vec![b'x'; PATTERN_BYTES_MAX + 1]).unwrap();
        fs::create_dir(at("d")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read("pipe"), None, "nobody waits for its writer");
        assert_eq!(read("most").map(|text| text.len()), Some(PATTERN_BYTES_MAX));
        assert_eq!([read("more"), read("d")], [None, None]);
        assert_eq!(
            [read("none"), read("/dev/null")],
            [Some(vec![]), Some(vec![])]
        );
    }

    #[test]
    fn only_links_in_the_home_itself_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| home.join(name);
        let read = |name: &str| user_patterns(&home, &at(".config/git"), &at(name));
        fs::create_dir_all(at("p/d")).unwrap();
        fs::write(at("key"), "key").unwrap();
        fs::write(at("p/list"), "list").unwrap();
        symlink("p/list", at("link")).unwrap();
        symlink("../key", at("p/planted")).unwrap();
        symlink("p/planted", at("to-planted")).unwrap();
        symlink("../..", at("p/d/up")).unwrap();
        assert_eq!(read("link").unwrap(), b"list");
        for planted in ["p/planted", "to-planted", "p/d/up/key"] {
            assert_eq!(read(planted), None, "{planted}");
        }
    }
}
