//! Makes git in cells ignore files of the project that are closed for reading, and secrets of which commands see a mask or the content.
//!
//! `git add -A` and `git stash -u` read every file that is neither tracked nor ignored, and fail at the first
//! unreadable one. So each ignore file in the home of cells (`.config/git/ignore`, and the copies of what the user's settings name) ends with
//! the names of these files, each by its path in its repository. Tracked files are unaffected, and `git add NAME`
//! and `git status --ignored` show the rule. The host's git uses another home, and does not see the file.

use executor_spec::sandbox::{Found, HomeFiles, Rooted, View, ViewKind};
use nix::fcntl::OFlag;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file, below a home.
const FILE: &str = ".config/git/ignore";
/// Maximum bytes of it. If it cannot list a file, git itself reports that it cannot read that.
const MAX: usize = 256 << 10;
const HEAD: &[u8] = b"# Closed in cells of Lazaret; git passes over them here, and nowhere else.\n";

/// Makes git in cells ignore what is hidden in the project, besides what the ignore files of `home` say. If the policy shows a file of
/// the user's at this place, its content is kept at the beginning.
pub fn ignore_hidden(home: &mut HomeFiles, spec: &Rooted, found: &Found) {
    let hidden = found
        .pins
        .iter()
        .filter(|pin| pin.is_hidden())
        .map(|pin| pin.path.as_path());
    // What commands can read of others is no secret to add either, or it is one.
    let readable = found.secrets.iter().map(|secret| secret.path.as_path());
    let lines = lines(&spec.project, hidden.chain(readable), is_repository);
    if lines.is_empty() {
        return;
    }
    let is_ignore_file = |path: &Path| {
        path.parent() == Path::new(FILE).parent()
            && path
                .file_name()
                .is_some_and(|name| name.as_bytes().starts_with(b"ignore"))
    };
    for (_, content) in home
        .files
        .iter_mut()
        .filter(|(path, _)| is_ignore_file(path))
    {
        content.push(b'\n');
        content.extend_from_slice(HEAD);
        content.extend_from_slice(&lines);
    }
    if home.files.iter().any(|(path, _)| path == Path::new(FILE)) {
        return;
    }
    let place = spec.scratch.home.join(FILE);
    let mut content = Vec::new();
    let is_shown = |view: &View| view.path == place && view.kind == ViewKind::System;
    if spec.views.iter().any(is_shown) {
        // A file that is unreadable here would be unreadable there too; one that is too long stays unchanged.
        let Some(own) = read(&place) else { return };
        content.extend(own);
        content.push(b'\n');
        home.replaced = Some(place);
    }
    content.extend_from_slice(HEAD);
    content.extend(lines);
    home.files.push((FILE.into(), content));
}

/// A pattern for each path of `hidden` in the project: relative to the project's root, and to each
/// repository on the way, as git resolves patterns from the repository in which it works.
fn lines<'a>(
    project: &Path,
    hidden: impl Iterator<Item = &'a Path>,
    is_repository: impl Fn(&Path) -> bool,
) -> Vec<u8> {
    let mut lines = Vec::new();
    let in_git = |path: &Path| path.iter().any(|name| name.eq_ignore_ascii_case(".git"));
    for path in hidden {
        let Ok(below) = path.strip_prefix(project) else {
            continue;
        };
        if below.as_os_str().is_empty() || in_git(below) {
            continue;
        }
        let between = path
            .ancestors()
            .skip(1)
            .take_while(|parent| *parent != project);
        let roots: Vec<PathBuf> = between
            .filter(|parent| is_repository(parent))
            .map(Path::to_owned)
            .collect();
        for root in roots.iter().map(PathBuf::as_path).chain([project]) {
            let line = path.strip_prefix(root).map(pattern).unwrap_or_default();
            if lines.len() + line.len() > MAX {
                return lines;
            }
            lines.extend(line);
        }
    }
    lines
}

fn is_repository(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(".git")).is_ok()
}

/// A line that matches only this path. It contains no line end: `?` matches any byte.
fn pattern(path: &Path) -> Vec<u8> {
    let mut line = vec![b'/'];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'*' | b'?' | b'[' | b'\\' | b' ' => line.extend([b'\\', *byte]),
            b'\n' | b'\r' => line.push(b'?'),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

/// The content of the user's own file, if it is a regular file and not too long.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .ok()?;
    file.metadata().ok().filter(|metadata| metadata.is_file())?;
    let mut own = Vec::new();
    file.take(MAX as u64 + 1).read_to_end(&mut own).ok()?;
    (own.len() <= MAX).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hidden: &[&str], repositories: &[&str]) -> String {
        let is_repository = |path: &Path| repositories.iter().any(|root| Path::new(root) == path);
        String::from_utf8(lines(
            Path::new("/p"),
            hidden.iter().map(Path::new),
            is_repository,
        ))
        .unwrap()
    }

    #[test]
    fn each_file_is_named_from_the_root_of_each_repository_around_it() {
        assert_eq!(text(&["/p/.env"], &[]), "/.env\n");
        assert_eq!(
            text(&["/p/a/b/.env"], &["/p", "/p/a"]),
            "/b/.env\n/a/b/.env\n"
        );
        assert_eq!(
            text(&["/c/.env", "/p", "/p/.git/x", "/p/a/.GIT/x"], &[]),
            "",
            "not the project's"
        );
    }

    /// Pattern characters in a name match only themselves.
    #[test]
    fn a_name_is_no_pattern() {
        assert_eq!(text(&["/p/a*[b]?\\ "], &[]), "/a\\*\\[b]\\?\\\\\\ \n");
        assert_eq!(text(&["/p/#a\nb\r"], &[]), "/#a?b?\n");
        assert_eq!(text(&["/p/!a"], &[]), "/!a\n");
    }

    #[test]
    fn the_file_is_bounded() {
        let long = format!("/p/{}", "n".repeat(200));
        let hidden = vec![long.as_str(); 10_000];
        let text = text(&hidden, &[]);
        assert!(text.len() <= MAX && text.len() > MAX - 202 && text.ends_with('\n'));
    }
}
