//! Gives git in cells what it needs of the account's settings: the name and the email of commits, the files that it ignores, how the user
//! likes it to work, and which filters files go through.
//! Maintenance that a command starts by itself is set to end with the command: in the background it would be killed with its cell.
//!
//! Most repositories have none of their own, and without them `git commit` fails. The rest of the account's settings stays where it is:
//! it may hold tokens and names of programs. Where those settings include others for some repositories only, cells get files of their own
//! under the same conditions, so that git decides for each repository as it does outside. Where a file does not say plainly who commits,
//! cells get no name: a commit under the wrong name would be worse than none. The rest is then read by its lines.
//!
//! Files that the account ignores everywhere (`core.excludesFile`, `~/.config/git/ignore`) a command would commit with `git add -A`, and its
//! attributes (`core.attributesFile`) say how lines end. So cells get copies of these files.
//!
//! A filter that git does not know it leaves out without a word, and commits what should have been filtered: the content of large files,
//! or of files that are to be encrypted. So git-lfs is set up as `git lfs install` does it, and git stops at any other filter of the account.

use crate::git_patterns::{PATTERNS_MAX, user_patterns};
use crate::git_settings::text;
use executor_spec::sandbox::{HomeFiles, Rooted};
use policies::{
    AccountSetting, PatternFile, git_account, git_commit_settings, git_filter_drivers,
    git_includes, git_preferences,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Below a home. The account's `.gitconfig` comes after it, where a policy shows that.
const FILE: &str = ".config/git/config";
/// The first is for git before 2.47. Whatever else sets them is stronger.
const MAINTENANCE: &str = "[gc]\n\tautoDetach = false\n[maintenance]\n\tautoDetach = false\n";
/// As `git lfs install` writes them.
const LFS: &str = "\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n";
/// The depth to which git itself follows includes (`MAX_INCLUDE_DEPTH`, `config.c`).
const DEPTH_MAX: usize = 10;
/// Maximum number of files that are read.
const READ_MAX: usize = 256;

/// Gives git in cells the identity that these settings of an account with this home have, its patterns, preferences and filters, unless
/// the policy shows the file itself. Records which settings have no effect in cells.
pub fn give_git_settings(new: &mut HomeFiles, spec: &Rooted, home: &Path, settings: &[PathBuf]) {
    let all = with_includes(home, settings);
    let unseen = all.iter().filter(|(file, _)| !spec.shows(file));
    new.without_effect = unseen
        .flat_map(|(_, text)| git_commit_settings(text))
        .collect();
    let place = spec.scratch.home.join(FILE);
    if spec.shows(&place) {
        return;
    }
    let ForCells {
        own,
        included,
        patterns,
        without_effect,
    } = ForCells::of(home, settings);
    new.without_effect.extend(without_effect);
    let filters = filters(all.iter().map(|(_, text)| text.as_slice()));
    let content = MAINTENANCE.to_owned() + &own + &filters;
    new.files.push((FILE.into(), content.into_bytes()));
    let included = included.into_iter().enumerate();
    let beside = |name: String| Path::new(FILE).with_file_name(name);
    new.files
        .extend(included.map(|(at, text)| (beside(included_name(at)), text.into_bytes())));
    let patterns = patterns
        .into_iter()
        .map(|(name, text)| (beside(name), text));
    new.files
        .extend(patterns.filter(|(file, _)| !spec.shows(&spec.scratch.home.join(file))));
}

/// These files that exist, with all that they include.
fn with_includes(home: &Path, settings: &[PathBuf]) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut next: Vec<PathBuf> = settings.to_vec();
    while let Some(file) = next.pop() {
        if all.len() >= READ_MAX || all.iter().any(|(known, _)| *known == file) {
            continue;
        }
        let Ok(Some(text)) = text(&file) else {
            continue;
        };
        let included = git_includes(&text);
        next.extend(
            included
                .iter()
                .filter_map(|path| resolved(home, &file, path)),
        );
        all.push((file, text));
    }
    all
}

/// The file that an include names; `None` for another user's home.
fn resolved(home: &Path, file: &Path, path: &str) -> Option<PathBuf> {
    match path.strip_prefix('~') {
        Some("") => Some(home.to_owned()),
        Some(below) => below.strip_prefix('/').map(|below| home.join(below)),
        None => Some(file.parent()?.join(path)),
    }
}

/// The filters in these texts: git-lfs as it is, and all others without a command, but required.
fn filters<'a>(texts: impl Iterator<Item = &'a [u8]>) -> String {
    let drivers: BTreeSet<String> = texts.flat_map(git_filter_drivers).collect();
    let lines = drivers.iter().map(|name| {
        let commands = if name == "lfs" { LFS } else { "" };
        format!("[filter \"{name}\"]\n{commands}\trequired = true\n")
    });
    lines.collect()
}

fn included_name(at: usize) -> String {
    format!("identity-{at}")
}

/// The name under which git looks for a file of patterns where no setting names one.
fn pattern_name(kind: PatternFile) -> &'static str {
    match kind {
        PatternFile::Ignore => "ignore",
        PatternFile::Attributes => "attributes",
    }
}

/// The part of an account's settings that cells get.
#[derive(Debug, Default, PartialEq, Eq)]
struct ForCells {
    /// The settings of the file itself.
    own: String,
    /// Files that they include under conditions, by the number in the file's name.
    included: Vec<String>,
    /// Files of patterns, each with its name beside the settings.
    patterns: Vec<(String, Vec<u8>)>,
    /// Settings that name patterns which cells cannot get.
    without_effect: BTreeSet<&'static str>,
}

/// How a reading goes on at settings that are not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unclear {
    Ends,
    /// The reading goes on without them, and takes no identity.
    Skipped,
}

/// The part of an account's settings that cells need.
struct IdentityReading<'a> {
    home: &'a Path,
    /// Where the account's git has its files beside those of the home.
    configuration: PathBuf,
    unclear: Unclear,
    read: usize,
    got: ForCells,
}

impl ForCells {
    /// From the settings in these files, of which later ones are stronger; without an identity if they do not say it plainly.
    fn of(home: &Path, files: &[PathBuf]) -> Self {
        let read = |unclear| IdentityReading::new(home, files, unclear).all(files);
        read(Unclear::Ends)
            .or_else(|| read(Unclear::Skipped))
            .unwrap_or_default()
    }
}

impl<'a> IdentityReading<'a> {
    fn new(home: &'a Path, files: &[PathBuf], unclear: Unclear) -> Self {
        let named = files.iter().find(|file| file.ends_with("git/config"));
        let configuration = named.and_then(|file| file.parent()).map(Path::to_owned);
        Self {
            home,
            configuration: configuration.unwrap_or_else(|| home.join(".config/git")),
            unclear,
            read: 0,
            got: ForCells::default(),
        }
    }

    fn all(mut self, files: &[PathBuf]) -> Option<ForCells> {
        for kind in [PatternFile::Ignore, PatternFile::Attributes] {
            let name = pattern_name(kind);
            let text = self.patterns(kind, &self.configuration.join(name));
            if !text.is_empty() {
                self.got.patterns.push((name.to_owned(), text));
            }
        }
        for file in files {
            let own = self.rendered(file, 0);
            let is_given_up = own.is_none() && self.unclear == Unclear::Ends;
            self.got.own.push_str(&own.unwrap_or_default());
            if is_given_up {
                return None;
            }
        }
        Some(self.got)
    }

    /// A file as cells get it; empty if it says nothing.
    fn rendered(&mut self, file: &Path, depth: usize) -> Option<String> {
        self.read += 1;
        if depth > DEPTH_MAX || self.read > READ_MAX {
            return None;
        }
        let Some(text) = text(file).ok()? else {
            return Some(String::new());
        };
        let settings = match self.unclear {
            Unclear::Ends => git_account(&text)?,
            Unclear::Skipped => git_preferences(&text),
        };
        let mut rendered = String::new();
        for setting in settings {
            match self.setting(setting, file, depth) {
                Some(lines) => rendered.push_str(&lines),
                None if self.unclear == Unclear::Ends => return None,
                None => {}
            }
        }
        Some(rendered)
    }

    /// The lines for a setting in `file`.
    fn setting(&mut self, setting: AccountSetting, file: &Path, depth: usize) -> Option<String> {
        Some(match setting {
            AccountSetting::Name(name) => format!("[user]\n\tname = \"{name}\"\n"),
            AccountSetting::Email(email) => format!("[user]\n\temail = \"{email}\"\n"),
            AccountSetting::Preference { key, value } => {
                let (section, name) = key.split_once('.')?;
                format!("[{section}]\n\t{name} = \"{value}\"\n")
            }
            AccountSetting::Patterns { kind, path } => {
                self.named_patterns(kind, path.as_deref(), file)
            }
            AccountSetting::Include { condition, path } => {
                let below = self.rendered(&resolved(self.home, file, &path)?, depth + 1)?;
                match condition {
                    None => below,
                    Some(_) if below.is_empty() => below,
                    Some(condition) => self.under(&condition, file, below)?,
                }
            }
        })
    }

    /// A setting that names a copy of the patterns.
    fn named_patterns(&mut self, kind: PatternFile, path: Option<&str>, file: &Path) -> String {
        // Git takes one that is neither from the directory in which it is started.
        let is_clear = |path: &&str| path.starts_with(['/', '~']);
        let named = path
            .filter(is_clear)
            .and_then(|path| resolved(self.home, file, path));
        let text = match named {
            Some(named) => self.patterns(kind, &named),
            None if path == Some("") => Vec::new(),
            None => self.none(kind),
        };
        let name = format!("{}-{}", pattern_name(kind), self.got.patterns.len());
        let (_, key) = kind.key().split_once('.').unwrap_or_default();
        let lines = format!("[core]\n\t{key} = \"~/.config/git/{name}\"\n");
        self.got.patterns.push((name, text));
        lines
    }

    /// The patterns in a file of the user's, without those for which there is no room.
    fn patterns(&mut self, kind: PatternFile, file: &Path) -> Vec<u8> {
        let has_room = self.got.patterns.len() < PATTERNS_MAX;
        user_patterns(self.home, &self.configuration, file)
            .filter(|text| has_room || text.is_empty())
            .unwrap_or_else(|| self.none(kind))
    }

    fn none(&mut self, kind: PatternFile) -> Vec<u8> {
        self.got.without_effect.insert(kind.key());
        Vec::new()
    }

    /// The include of `below` under a condition that `file` states.
    fn under(&mut self, condition: &str, file: &Path, below: String) -> Option<String> {
        let condition = condition_of(condition, self.home, file)?;
        self.got.included.push(below);
        let name = included_name(self.got.included.len() - 1);
        Some(format!("[includeIf \"{condition}\"]\n\tpath = {name}\n"))
    }
}

/// A condition as git in a cell has to read it: its home is another one, and so is the directory of its settings. `None` for one that may
/// hold a token, or that git does not read.
fn condition_of(condition: &str, home: &Path, file: &Path) -> Option<String> {
    let (kind, value) = condition.split_once(':')?;
    let path = match kind {
        "gitdir" | "gitdir/i" => match (value.strip_prefix("~/"), value.strip_prefix("./")) {
            (Some(below), _) => plain_path(home)? + below,
            (_, Some(below)) => plain_path(file.parent()?)? + below,
            (None, None) if value.starts_with('~') => return None,
            (None, None) => value.to_owned(),
        },
        "onbranch" => value.to_owned(),
        "hasconfig" if !(value.contains("://") && value.contains('@')) => value.to_owned(),
        _ => return None,
    };
    Some(format!("{kind}:{path}"))
}

/// A directory with a slash at its end, if no character of it means something in a pattern or a setting.
fn plain_path(directory: &Path) -> Option<String> {
    // Git takes links out of these, and compares.
    let real = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let text = real.to_str()?;
    let is_plain = !text.contains(['*', '?', '[', '\\', '"']) && !text.contains(char::is_control);
    is_plain.then(|| format!("{}/", text.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/u";

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn put(&self, name: &str, text: &str) -> PathBuf {
            let file = self.0.path().join(name);
            fs::write(&file, text).unwrap();
            file
        }
    }

    fn folder() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn of(files: &[PathBuf]) -> ForCells {
        ForCells::of(Path::new(HOME), files)
    }

    #[test]
    fn a_filter_that_cells_do_not_have_stops_git() {
        let folder = folder();
        let file = folder.put(
            "c",
            "[filter \"lfs\"]\n\tclean = x\n[include]\n\tpath = more\n",
        );
        folder.put("more", "[filter \"crypt\"]\n\tclean = y\n");
        let lfs = format!("[filter \"lfs\"]\n{LFS}\trequired = true\n");
        let want = format!("[filter \"crypt\"]\n\trequired = true\n{lfs}");
        let all = with_includes(Path::new(HOME), &[file]);
        assert_eq!(filters(all.iter().map(|(_, text)| text.as_slice())), want);
        assert!(with_includes(Path::new(HOME), &["/none".into()]).is_empty());
    }

    #[test]
    fn later_files_are_stronger_and_an_unclear_one_ends_it() {
        let folder = folder();
        let files = [
            folder.put("a", "[user]\nname = A\nemail = a\n"),
            folder.put("b", "[user]\nemail = b\n"),
            "/none".into(),
        ];
        let want = "[user]\n\tname = \"A\"\n[user]\n\temail = \"a\"\n[user]\n\temail = \"b\"\n";
        assert_eq!(of(&files).own, want);
        assert_eq!(
            of(&[folder.put("c", "[core]\nbare = false\n")]),
            ForCells::default()
        );
        let unclear = folder.put("d", "[user]\nname = \\\nx\n[pull]\nff = only\n");
        assert_eq!(
            of(&[files[0].clone(), unclear]).own,
            "[pull]\n\tff = \"only\"\n"
        );
    }

    #[test]
    fn conditional_git_identity_applies_to_its_repositories_only() {
        let folder = folder();
        let at = folder
            .0
            .path()
            .canonicalize()
            .unwrap()
            .display()
            .to_string();
        folder.put("work", "[user]\nemail = w\n[core]\neditor = x\n");
        folder.put("nothing", "[core]\neditor = x\n");
        let file = folder.put(
            "c",
            "[user]\nemail = a\n[includeIf \"gitdir:~/work/\"]\npath = work\n[includeIf \"gitdir/i:./x/\"]\npath = work\n\
             [includeIf \"onbranch:m\"]\npath = nothing\n[include]\npath = work\n",
        );
        let found = of(&[file]);
        let email = |email: &str| format!("[user]\n\temail = \"{email}\"\n");
        let own = email("a")
            + "[includeIf \"gitdir:/home/u/work/\"]\n\tpath = identity-0\n"
            + &format!("[includeIf \"gitdir/i:{at}/x/\"]\n\tpath = identity-1\n")
            + &email("w");
        assert_eq!(found.own, own);
        assert_eq!(found.included, [email("w"), email("w")]);
    }

    #[test]
    fn patterns_are_copied_up_to_a_number_and_others_are_named() {
        let folder = folder();
        let ignored = folder.put("i", "*.log\n");
        let setting = format!("[core]\nexcludesFile = {}\n", ignored.display());
        let found = of(&[folder.put("c", &setting)]);
        assert_eq!(
            found.patterns,
            [("ignore-0".to_owned(), b"*.log\n".to_vec())]
        );
        let want = "[core]\n\texcludesFile = \"~/.config/git/ignore-0\"\n";
        assert_eq!((found.own.as_str(), found.without_effect.len()), (want, 0));
        for (count, lost) in [(PATTERNS_MAX, 0), (PATTERNS_MAX + 1, 1)] {
            let found = of(&[folder.put("c", &setting.repeat(count))]);
            let copied = found.patterns.iter().filter(|(_, text)| !text.is_empty());
            assert_eq!(
                (copied.count(), found.without_effect.len()),
                (PATTERNS_MAX, lost)
            );
        }
        let relative = of(&[folder.put("c", "[core]\nattributesFile = x\n")]);
        assert!(relative.without_effect.contains("core.attributesFile"));
    }

    #[test]
    fn includes_have_an_end() {
        let folder = folder();
        let file = folder.put("c", "[user]\nname = A\n[include]\npath = c\n");
        assert_eq!(of(std::slice::from_ref(&file)), ForCells::default());
        assert_eq!(with_includes(Path::new(HOME), &[file]).len(), 1);
    }

    #[test]
    fn conditions_that_git_would_read_otherwise_are_not_given() {
        let file = Path::new("/etc/gitconfig");
        let of = |condition: &str| condition_of(condition, Path::new(HOME), file);
        assert_eq!(of("gitdir:w/").unwrap(), "gitdir:w/");
        let remote = "hasconfig:remote.*.url:git@h.invalid:*/**";
        assert_eq!(of(remote).unwrap(), remote);
        for none in [
            "hasconfig:remote.*.url:https://t@h.invalid/**",
            "x:y",
            "gitdir",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(condition_of("gitdir:~/w", Path::new("/h/[u]"), file), None);
    }
}
