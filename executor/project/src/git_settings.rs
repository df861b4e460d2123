//! Finds the files inside the zones that the user's own git executes, or reads settings from, because its settings name them.
//!
//! The settings are the user's: those of the account, and of each repository that the session may touch, with
//! all includes, whatever their conditions. No cell writes them. Texts in which no value can be a path are
//! skipped; all others are parsed by a confined worker, from bytes, and its answer can only close more.

use crate::links;
use crate::protected::{ProtectError, SETTINGS_BYTES_MAX};
use crate::repository_programs;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::worker::{SETTINGS_MAX, Setting, SettingKind};
use nix::unistd::{Uid, User};
use policies::{git_config_worktree, is_harmless_git_config, names_no_path};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Maximum bytes of all settings in which a value can be a path, and maximum number of files.
const BYTES_MAX: usize = 8 << 20;
const FILES_MAX: usize = 4096;
/// Bytes of texts that are sent to the worker at once.
const QUESTION_MAX: usize = 512 << 10;
/// The depth to which git itself follows includes (`MAX_INCLUDE_DEPTH`, `config.c`).
const DEPTH_MAX: usize = 10;
/// Maximum number of paths that are checked: words times directories to which they may be relative.
const LOOKED_AT_MAX: usize = 100_000;

/// The settings that the account's git reads in every repository.
#[derive(Clone, Debug, Default)]
pub struct UserGit {
    /// The directory for which `~` stands.
    pub home: PathBuf,
    /// The machine's settings and the account's, whether the files exist or not.
    pub files: Vec<PathBuf>,
    /// Files that Lazaret itself executes and obeys, with the user's rights: see [`own_files`].
    pub own: Vec<PathBuf>,
}

/// The directory of the administrator's policy.
const SYSTEM: &str = "/etc/lazaret";
/// Where packages put the programs that nobody starts by hand.
const PACKAGED: &str = "libexec/lazaret";
/// Our programs: together, or in the two directories of a package (see [`program_directories`]).
const PROGRAMS: [&str; 7] = [
    "lazaret",
    "lazaret-bash",
    "lazaret-executor",
    "lazaret-worker",
    "lazaret-gateway",
    "lazaret-trace",
    "lazaret-attack",
];

/// The directories in which our programs look for each other. In a package those that nobody starts by hand are in `libexec/lazaret`,
/// the others in the `bin` of the same prefix, where a program of any of the names would be found first.
fn program_directories(program: &Path) -> Vec<PathBuf> {
    let directory = program.parent().unwrap_or(Path::new("/"));
    let prefix = directory
        .ends_with(PACKAGED)
        .then(|| directory.ancestors().nth(PACKAGED.split('/').count()));
    let commands = prefix.flatten().map(|prefix| prefix.join("bin"));
    commands.into_iter().chain([directory.to_owned()]).collect()
}

/// Our own programs around `program`, and the files of these configuration directories. A root may be where they lie, or where
/// links from there lead, as with settings that are kept in a repository.
pub fn own_files(program: &Path, configuration: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let settings = [configuration, Path::new(SYSTEM)]
        .into_iter()
        .flat_map(entries);
    let programs = program_directories(program)
        .into_iter()
        .flat_map(|directory| PROGRAMS.map(|name| directory.join(name)));
    programs.chain(settings.map(|entry| entry.path())).collect()
}

/// A path named by a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPath {
    /// The file that contains the setting.
    pub file: PathBuf,
    pub(crate) key: String,
    /// The directory, without links, to which `path` is relative.
    pub directory: PathBuf,
    /// As it is written in the setting.
    pub path: PathBuf,
    /// The kinds of objects that may have to be closed there.
    pub(crate) may_be: MayBe,
}

/// The kinds of objects that a named path may be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MayBe {
    /// A file, a directory with its contents, or nothing yet.
    Anything,
    /// A file, or not there yet.
    File,
    Present,
    /// A file of Lazaret's own, or not there yet.
    Own,
    /// The target of a link in the user's home directory.
    Linked,
}

/// A file of settings, and the directories to which its paths may be relative.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GitSettingsFile {
    file: PathBuf,
    directories: Rc<Vec<PathBuf>>,
    /// The repositories' own, to which a path after an expansion may be relative: `$(git rev-parse --git-dir)/x`.
    own: Rc<Vec<PathBuf>>,
}

/// Asks a worker what the settings in some texts name; the answer has one list per text.
pub type Ask<'a> = dyn Fn(Vec<Vec<u8>>) -> io::Result<Vec<Vec<Setting>>> + 'a;

/// Everything that is named, for a `project` and what was found in both zones.
///
/// # Errors
/// There are more settings than the limits, or no worker can read them.
pub fn named(
    user: UserGit,
    project: &Path,
    objects: &ProtectedObjects,
    ask: &Ask,
) -> Result<BTreeSet<NamedPath>, ProtectError> {
    let mut reading = SettingsReading::new(user, project, objects)?;
    while let Some(texts) = reading.next_question()? {
        let answers = ask(texts).map_err(|source| ProtectError::SettingsUnread { source })?;
        reading.take_answers(answers)?;
    }
    Ok(reading.into_named())
}

/// The settings as far as they have been read. What a worker must parse is a question to it, so that whoever reads need not wait.
#[derive(Debug)]
pub struct SettingsReading {
    user: UserGit,
    first: Vec<GitSettingsFile>,
    bytes: usize,
    read: usize,
    files: BTreeSet<(PathBuf, Vec<PathBuf>)>,
    looked_at: usize,
    named: BTreeSet<NamedPath>,
    /// How many includes lead to the files that are read now.
    depth: usize,
    /// Files of this depth, with texts in which a value can be a path.
    left: VecDeque<(GitSettingsFile, Vec<u8>)>,
    /// The files of the last question, until its answer.
    asked: Vec<GitSettingsFile>,
    /// Files of the next depth.
    included: Vec<GitSettingsFile>,
}

impl SettingsReading {
    /// Begins with the files that git reads for a `project` and what was found in it.
    ///
    /// # Errors
    /// There are more settings than the limits.
    pub fn new(
        user: UserGit,
        project: &Path,
        objects: &ProtectedObjects,
    ) -> Result<Self, ProtectError> {
        let first = sources(&user, project, objects);
        let mut reading = Self {
            user,
            first: Vec::new(),
            bytes: 0,
            read: 0,
            files: BTreeSet::new(),
            looked_at: 0,
            named: BTreeSet::new(),
            depth: 0,
            left: VecDeque::new(),
            asked: Vec::new(),
            included: Vec::new(),
        };
        let accounts = reading.user.files.clone().into_iter();
        let accounts = accounts.map(|file| (file, "the account's settings", MayBe::File));
        let own = reading.user.own.clone().into_iter();
        let own = own.map(|file| (file, "Lazaret", MayBe::Own));
        for (file, key, may_be) in accounts.chain(own) {
            let source = GitSettingsFile {
                file: file.clone(),
                directories: Rc::default(),
                own: Rc::default(),
            };
            reading.name(&source, key, &file, may_be)?;
        }
        reading.read_files(&first)?;
        reading.first = first;
        Ok(reading)
    }

    /// Whether both began with the same files.
    pub fn begins_like(&self, other: &Self) -> bool {
        self.first == other.first
    }

    /// The texts that a worker must parse next; `None` when all settings have been read.
    ///
    /// # Errors
    /// There are more settings than the limits.
    pub(crate) fn next_question(&mut self) -> Result<Option<Vec<Vec<u8>>>, ProtectError> {
        while self.left.is_empty() {
            let included = std::mem::take(&mut self.included);
            if included.is_empty() || self.depth == DEPTH_MAX {
                return Ok(None);
            }
            self.depth += 1;
            self.read_files(&included)?;
        }
        let mut bytes = 0;
        let fits = self.left.iter().take_while(|(_, text)| {
            bytes += text.len();
            bytes <= QUESTION_MAX
        });
        let fits = fits.count();
        let (asked, texts) = self.left.drain(..fits).unzip();
        self.asked = asked;
        Ok(Some(texts))
    }

    /// Takes what a worker says that each of these texts names.
    ///
    /// # Errors
    /// There are more settings than the limits, or it speaks of other texts.
    pub(crate) fn take_answers(&mut self, answers: Vec<Vec<Setting>>) -> Result<(), ProtectError> {
        let asked = std::mem::take(&mut self.asked);
        if answers.len() != asked.len() {
            let source = io::ErrorKind::InvalidData.into();
            return Err(ProtectError::SettingsUnread { source });
        }
        for (source, settings) in asked.iter().zip(answers) {
            if settings.len() >= SETTINGS_MAX {
                return Err(ProtectError::Settings {
                    file: source.file.clone(),
                });
            }
            for setting in settings {
                let included = self.setting(source, &setting)?;
                self.included.extend(included);
            }
        }
        Ok(())
    }

    /// All that the settings name.
    pub fn into_named(self) -> BTreeSet<NamedPath> {
        self.named
    }

    /// Reads these files, as far as no worker is needed for it.
    fn read_files(&mut self, sources: &[GitSettingsFile]) -> Result<(), ProtectError> {
        for source in sources {
            // Resolves the directory, as `a/../a` is the same. Not a link to a file: its own directory counts.
            let parent = source.file.parent().map(real).unwrap_or_default();
            let file = parent.join(source.file.file_name().unwrap_or_default());
            if !self.files.insert((file, source.directories.to_vec())) {
                continue;
            }
            let over = || ProtectError::Settings {
                file: source.file.clone(),
            };
            let Some(text) = text(&source.file).map_err(|TooLong| over())? else {
                continue;
            };
            if names_no_path(&text) {
                continue;
            }
            // Commands can make any number of repositories, but only with such settings.
            if self.bytes + text.len() > BYTES_MAX && is_harmless_git_config(&text) {
                continue;
            }
            self.bytes += text.len();
            self.read += 1;
            if self.bytes > BYTES_MAX || self.read > FILES_MAX {
                return Err(over());
            }
            self.left.push_back((source.clone(), text));
        }
        Ok(())
    }

    /// Records what one setting names, and returns what it includes.
    fn setting(
        &mut self,
        source: &GitSettingsFile,
        setting: &Setting,
    ) -> Result<Option<GitSettingsFile>, ProtectError> {
        let key = &setting.key;
        match setting.kind {
            SettingKind::Include => {
                let Some(path) = self.expanded(&setting.value) else {
                    return Ok(None);
                };
                let directory = source.file.parent().unwrap_or(Path::new("/"));
                let file = directory.join(path);
                self.name(source, key, &file, MayBe::File)?;
                return Ok(Some(GitSettingsFile {
                    file,
                    ..source.clone()
                }));
            }
            SettingKind::Path => {
                if let Some(path) = self.expanded(&setting.value) {
                    self.name(source, key, &path, MayBe::Anything)?;
                }
            }
            SettingKind::Command | SettingKind::Other => {
                // Asked once: a value has as many words as a file has room for.
                let expands = has_expansion(&setting.value);
                for (word, may_be) in words(&setting.value, setting.kind, &self.user.home) {
                    let Some(path) = self.expanded(&word) else {
                        continue;
                    };
                    self.name(source, key, &path, may_be)?;
                    // A path after an expansion: `$(git rev-parse --show-toplevel)/tools/x`.
                    if let Ok(rest) = path.strip_prefix("/")
                        && fs::symlink_metadata(&path).is_err()
                    {
                        self.name(source, key, rest, may_be)?;
                        self.name_ends(source, key, rest)?;
                    }
                    if expands {
                        self.name_in_repositories(source, key, &path)?;
                    }
                }
            }
        }
        Ok(None)
    }

    fn name(
        &mut self,
        source: &GitSettingsFile,
        key: &str,
        path: &Path,
        may_be: MayBe,
    ) -> Result<(), ProtectError> {
        let directories: &[PathBuf] = if path.is_absolute() {
            &[PathBuf::from("/")]
        } else {
            &source.directories
        };
        self.looked_at += directories.len();
        if self.looked_at > LOOKED_AT_MAX {
            return Err(ProtectError::Settings {
                file: source.file.clone(),
            });
        }
        for directory in directories {
            self.named.insert(NamedPath {
                file: source.file.clone(),
                key: key.to_owned(),
                directory: directory.clone(),
                path: path.to_owned(),
                may_be,
            });
        }
        Ok(())
    }

    /// Records the files that lie where `path` ends: the expansion before it may lead to a directory above the project, as
    /// `$WORK/project/tools/x` does.
    fn name_ends(
        &mut self,
        source: &GitSettingsFile,
        key: &str,
        path: &Path,
    ) -> Result<(), ProtectError> {
        let mut names = path.components();
        while names.next().is_some() && !names.as_path().as_os_str().is_empty() {
            self.name(source, key, names.as_path(), MayBe::Present)?;
        }
        Ok(())
    }

    /// Records the files of this path's last name in the repositories' own directories.
    fn name_in_repositories(
        &mut self,
        source: &GitSettingsFile,
        key: &str,
        path: &Path,
    ) -> Result<(), ProtectError> {
        let Some(name) = path.file_name() else {
            return Ok(());
        };
        for directory in source.own.iter() {
            self.name(source, key, &directory.join(name), MayBe::Present)?;
        }
        Ok(())
    }

    /// A path as git and a shell expand it; `None` if it is not a file, or one of a user that does not exist.
    fn expanded(&self, value: &[u8]) -> Option<PathBuf> {
        let value = value.strip_prefix(b":(optional)").unwrap_or(value);
        if value.is_empty() || value.len() >= libc::PATH_MAX as usize || value.contains(&0) {
            return None;
        }
        let Some(rest) = value.strip_prefix(b"~") else {
            return Some(PathBuf::from(OsStr::from_bytes(value)));
        };
        let (name, below) = rest.split_at(
            rest.iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(rest.len()),
        );
        let home = match name {
            b"" => self.user.home.clone(),
            name => User::from_name(std::str::from_utf8(name).ok()?).ok()??.dir,
        };
        match below.iter().position(|byte| *byte != b'/') {
            Some(start) => Some(home.join(OsStr::from_bytes(&below[start..]))),
            None => Some(home),
        }
    }
}

/// Words that may be files: in any command, those that look like a path; as arguments, those that exist.
fn words(value: &[u8], kind: SettingKind, home: &Path) -> Vec<(Vec<u8>, MayBe)> {
    let value = without_variables(value, home);
    let unquoted = unquoted(&value);
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`;|&()<>{}$=,!".contains(byte);
    let plain = value.split(ends).filter(|word| !word.is_empty());
    let quoted = |quote| {
        value
            .split(move |byte| *byte == quote)
            .skip(1)
            .step_by(2)
            .map(<[u8]>::trim_ascii)
    };
    let first = plain.clone().next();
    let words = plain
        .chain(quoted(b'"'))
        .chain(quoted(b'\''))
        .chain([value.trim_ascii()]);
    let words = words.map(|word| (word, !word.contains(&b' ')));
    let words = words.chain(unquoted.iter().map(|word| (word.as_slice(), true)));
    let counts = |word: &[u8], is_one: bool| {
        let url = word.windows(3).any(|part| part == b"://");
        let path = word.contains(&b'/')
            || word.contains(&b'.') && word.iter().any(u8::is_ascii_alphabetic);
        match kind {
            _ if word.starts_with(b"-") || url => None,
            // A program of the machine, found in `PATH`: never in the project.
            SettingKind::Command if first == Some(word) && !word.contains(&b'/') => None,
            SettingKind::Command if path && is_one => Some(MayBe::File),
            SettingKind::Command => Some(MayBe::Present),
            SettingKind::Other if path => Some(MayBe::Present),
            SettingKind::Other | SettingKind::Path | SettingKind::Include => None,
        }
    };
    words
        .filter_map(|(word, is_one)| Some((word.to_vec(), counts(word, is_one)?)))
        .collect()
}

/// The words of a command line in which a quote or a backslash stands, without those.
fn unquoted(value: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let (mut word, mut marked, mut quote) = (Vec::new(), false, None);
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', None | Some(b'"')) => {
                word.extend(bytes.next());
                marked = true;
            }
            (b'"' | b'\'', None) => (quote, marked) = (Some(byte), true),
            (_, Some(end)) if byte == end => quote = None,
            (_, None) if byte.is_ascii_whitespace() || b"`;|&()<>".contains(&byte) => {
                words.extend(Some(std::mem::take(&mut word)).filter(|_| marked));
                marked = false;
            }
            (_, None | Some(_)) => word.push(byte),
        }
    }
    words.extend(Some(word).filter(|_| marked));
    words.retain(|word| !word.is_empty());
    words
}

/// A command line with the home for each `$HOME`, and a blank for any other `$NAME`: the text after it counts as a path of its own.
fn without_variables(value: &[u8], home: &Path) -> Vec<u8> {
    let mut parts = value.split(|byte| *byte == b'$');
    let mut plain = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let end = part
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let in_braces = part.strip_prefix(b"{HOME}");
        match in_braces.or_else(|| (name == b"HOME").then_some(rest)) {
            Some(rest) => plain.extend([home.as_os_str().as_bytes(), rest].concat()),
            None => plain.extend([b" ", rest].concat()),
        }
    }
    plain
}

/// Whether a shell replaces something in a command line that says where a path begins.
fn has_expansion(value: &[u8]) -> bool {
    value.iter().any(|byte| b"$`".contains(byte))
}

/// Repositories whose settings the user's git reads, each directory with its worktree.
type Repositories = BTreeSet<(PathBuf, PathBuf)>;

/// Those that are looked at after calls, and those to which a `.git` in the project or above it leads.
fn known_repositories(project: &Path, objects: &ProtectedObjects) -> Repositories {
    let mut repositories = Repositories::new();
    for repository in &objects.watched {
        repositories.insert((repository.clone(), worktree(repository)));
    }
    let is_git = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.eq_ignore_ascii_case(".git"))
    };
    let files = objects
        .places
        .keys()
        .filter(|path| is_git(path))
        .filter_map(|path| path.parent());
    for directory in files.chain(project.ancestors()) {
        repositories.extend(own_directory(directory).map(|own| (own, directory.to_owned())));
    }
    repositories
}

/// The files with which the user's git begins.
fn sources(user: &UserGit, project: &Path, objects: &ProtectedObjects) -> Vec<GitSettingsFile> {
    let mut repositories = known_repositories(project, objects);
    let mut worktrees: Vec<PathBuf> = repositories
        .iter()
        .map(|(_, worktree)| worktree.clone())
        .collect();
    worktrees.push(project.to_owned());
    worktrees.sort();
    worktrees.dedup();
    let everywhere = Rc::new(worktrees);
    // Those over the bound on repositories are closed for writing, but what their settings name is not.
    let known: BTreeSet<PathBuf> = repositories.iter().map(|(own, _)| own.clone()).collect();
    let others = objects
        .repositories
        .iter()
        .filter(|path| !known.contains(*path))
        .take(FILES_MAX);
    repositories.extend(others.map(|path| (path.clone(), worktree(path))));
    // Once for each: any number of worktrees have one repository.
    let mut found: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    let mut directories_of = |repository: &PathBuf| {
        let found = found.entry(repository.clone());
        found
            .or_insert_with(|| repository_programs::directories(repository))
            .clone()
    };
    let all: Vec<PathBuf> = repositories
        .iter()
        .flat_map(|(own, _)| directories_of(own))
        .collect();
    let all = Rc::new(all);
    let account = user.files.iter().map(|file| GitSettingsFile {
        file: file.clone(),
        directories: everywhere.clone(),
        own: all.clone(),
    });
    let own = repositories.into_iter().flat_map(|(own, worktree)| {
        let directories = Rc::new(vec![worktree]);
        let common =
            links::target_in(&own.join("commondir"), b"").map(|common| real(&own.join(common)));
        let common = common.unwrap_or_else(|| own.clone());
        let private = [&own, &common].into_iter().flat_map(&mut directories_of);
        let private = Rc::new(private.collect::<Vec<_>>());
        let files = [
            common.join("config"),
            common.join("config.worktree"),
            own.join("config.worktree"),
        ];
        files.map(|file| GitSettingsFile {
            file,
            directories: directories.clone(),
            own: private.clone(),
        })
    });
    account.chain(own).collect()
}

/// The directory that `.git` in `directory` is, or leads to; `None` if it belongs to another user: git does not work in that.
fn own_directory(directory: &Path) -> Option<PathBuf> {
    let git = directory.join(".git");
    let ours = [Uid::effective().as_raw(), 0];
    let metadata = fs::metadata(&git)
        .ok()
        .filter(|metadata| ours.contains(&metadata.uid()))?;
    let own = if metadata.is_file() {
        directory.join(links::target_in(&git, b"gitdir:")?)
    } else {
        git
    };
    Some(real(&own)).filter(|own| own.is_dir())
}

/// The worktree of a repository; the repository itself if it has none.
fn worktree(repository: &Path) -> PathBuf {
    let named = || git_config_worktree(&text(&repository.join("config")).ok()??);
    match repository.file_name() {
        Some(name) if name.eq_ignore_ascii_case(".git") => {
            repository.parent().unwrap_or(repository).to_owned()
        }
        _ => named().map_or_else(
            || repository.to_owned(),
            |named| real(&repository.join(named)),
        ),
    }
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A file of settings has more than [`SETTINGS_BYTES_MAX`] bytes.
pub(crate) struct TooLong;

/// The content of a regular file, following links as git does; `None` if git reads nothing there.
pub(crate) fn text(path: &Path) -> Result<Option<Vec<u8>>, TooLong> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else {
        return Ok(None);
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(None);
    }
    let mut text = Vec::new();
    if file
        .take(SETTINGS_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .is_err()
    {
        return Ok(None);
    }
    if text.len() > SETTINGS_BYTES_MAX {
        Err(TooLong)
    } else {
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A project whose settings are lines `KEY=VALUE`, in place of the worker's answers.
    struct Project(tempfile::TempDir);

    impl Project {
        fn new() -> Self {
            let project = Self(tempfile::tempdir().unwrap());
            project.put(".git/HEAD", "ref: refs/heads/m\n");
            project
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn put(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            fs::write(self.at(path), text).unwrap();
        }

        fn named(&self) -> Result<BTreeSet<NamedPath>, ProtectError> {
            self.named_by(&|texts| Ok(texts.iter().map(|text| answer(text)).collect()))
        }

        fn named_by(&self, ask: &Ask) -> Result<BTreeSet<NamedPath>, ProtectError> {
            let user = UserGit {
                home: self.at("home"),
                files: vec![self.at("home/.gitconfig")],
                own: Vec::new(),
            };
            let objects = ProtectedObjects {
                watched: vec![self.at(".git")],
                ..Default::default()
            };
            named(user, &self.at(""), &objects, ask)
        }

        /// The named paths, relative to the project.
        fn paths(&self) -> Vec<String> {
            let named = self.named().unwrap();
            let path = |named: &NamedPath| named.directory.join(&named.path);
            let paths: BTreeSet<PathBuf> = named.iter().map(path).collect();
            let text = |path: PathBuf| {
                path.strip_prefix(self.at(""))
                    .unwrap_or(&path)
                    .display()
                    .to_string()
            };
            paths
                .into_iter()
                .map(text)
                .filter(|path| path != "home/.gitconfig")
                .collect()
        }
    }

    #[test]
    fn programs_of_a_package_lie_in_two_directories() {
        let own = |program: &str| own_files(Path::new(program), Path::new("/absent"));
        let packaged = own("/p/libexec/lazaret/lazaret-worker");
        for path in [
            "/p/bin/lazaret",
            "/p/bin/lazaret-executor",
            "/p/libexec/lazaret/lazaret-executor",
        ] {
            assert!(packaged.contains(&path.into()), "{path}");
        }
        let together = own("/p/debug/lazaret-worker");
        assert!(together.contains(&"/p/debug/lazaret".into()));
        assert!(!together.iter().any(|path| path.starts_with("/p/bin")));
    }

    fn answer(text: &[u8]) -> Vec<Setting> {
        let settings = std::str::from_utf8(text)
            .unwrap()
            .lines()
            .filter_map(|line| {
                let (key, value) = line.split_once('=')?;
                let kind = match key {
                    "include" => SettingKind::Include,
                    "path" => SettingKind::Path,
                    "other" => SettingKind::Other,
                    _ => SettingKind::Command,
                };
                Some(Setting {
                    key: key.into(),
                    kind,
                    value: value.into(),
                })
            });
        settings.collect()
    }

    #[test]
    fn paths_are_meant_where_git_looks_for_them() {
        let project = Project::new();
        project.put(
            ".git/config",
            "path=tools/hooks\ninclude=../dev\nrun=./x y\npath=~/h\npath=~other/h\npath=\n",
        );
        project.put("dev", "path=/etc/x\ninclude=conf/more\n");
        project.put("conf/more", "path=deep\ninclude=../dev\n");
        project.put("home/.gitconfig", "path=.mine\n");
        let found = project.paths();
        let want = [
            "/etc/x",
            ".git/../conf/../dev",
            ".git/../conf/more",
            ".git/../dev",
            ".mine",
            "deep",
            "home/h",
            "tools/hooks",
            "x",
            "x y",
            "y",
        ];
        assert_eq!(
            found.iter().map(String::as_str).collect::<BTreeSet<_>>(),
            BTreeSet::from(want)
        );
    }

    #[test]
    fn words_of_commands_are_files_by_their_look_or_because_they_are() {
        let words = |value: &str, kind| {
            let text = |(word, may_be)| (String::from_utf8(word).unwrap(), may_be);
            words(value.as_bytes(), kind, Path::new("/h/u"))
                .into_iter()
                .map(text)
                .collect::<BTreeSet<_>>()
        };
        let set = |words: &[(&str, MayBe)]| -> BTreeSet<_> {
            words
                .iter()
                .map(|(word, may_be)| ((*word).to_owned(), *may_be))
                .collect()
        };
        let (file, present) = (MayBe::File, MayBe::Present);
        let command = |value| words(value, SettingKind::Command);
        assert_eq!(command("tools/x"), set(&[("tools/x", file)]));
        assert_eq!(command("less"), set(&[]), "a program of the machine");
        assert_eq!(command("gcloud.sh"), set(&[]), "likewise");
        let found = command("sh run --all x.sh");
        assert!(
            found.is_superset(&set(&[("run", present), ("x.sh", file)])),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .all(|(word, _)| word != "sh" && word != "--all"),
            "{found:?}"
        );
        let found = command("sh \"$TOP/a b/x\" ${T}/c $(pwd)/d");
        assert!(
            found.is_superset(&set(&[("/a b/x", present), ("/c", file), ("/d", file)])),
            "{found:?}"
        );
        assert!(
            command("\"tools/a b\" x").is_superset(&set(&[("tools/a b", present)])),
            "quoted"
        );
        for (value, want) in [
            ("$HOME/x", "/h/u/x"),
            ("sh ${HOME}/x $HOMER/y", "/h/u/x"),
            ("my\\ tools/x", "my tools/x"),
            ("sh \"$HOME/my tools\"/'x y' z", "/h/u/my tools/x y"),
            ("sh \"a\\\"b\"/c", "a\"b/c"),
        ] {
            let found = command(value);
            assert!(
                found.iter().any(|(word, _)| word == want),
                "{value}: {found:?}"
            );
        }
        assert!(
            command("$HOMER/x").is_superset(&set(&[("/x", file)])),
            "another variable"
        );
        assert!(command("X=a/b;(c/d)").is_superset(&set(&[("a/b", file), ("c/d", file)])));
        let other = |value| words(value, SettingKind::Other);
        assert_eq!(other("main"), set(&[]));
        assert_eq!(other("a.json"), set(&[("a.json", present)]));
        assert_eq!(other("https://h.invalid/a"), set(&[]));
    }

    #[test]
    fn path_after_a_variable_matches_every_suffix() {
        let project = Project::new();
        project.put(".git/config", "run=$WORK/p/tools/x\n");
        assert_eq!(
            project.paths(),
            ["/p/tools/x", ".git/x", "p/tools/x", "tools/x", "x"]
        );
    }

    #[test]
    fn tilde_expands_to_the_home_of_the_named_user() {
        let project = Project::new();
        project.put(
            ".git/config",
            "path=~root/h\npath=~root//h/i\npath=~no-such-user/h\npath=~\n",
        );
        let root = User::from_name("root")
            .unwrap()
            .unwrap()
            .dir
            .display()
            .to_string();
        assert_eq!(
            project.paths(),
            [
                format!("{root}/h"),
                format!("{root}/h/i"),
                "home".to_owned()
            ]
        );
    }

    #[test]
    fn includes_end_where_git_ends_them() {
        let project = Project::new();
        project.put(".git/config", "include=1\n");
        for depth in 1..20 {
            project.put(
                &format!(".git/{depth}"),
                &format!("include={}\n", depth + 1),
            );
        }
        let found = project.paths();
        assert!(
            found.contains(&".git/11".to_owned()) && !found.contains(&".git/12".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn over_a_bound_or_without_an_answer_nothing_opens() {
        let over = |result| matches!(result, Err(ProtectError::Settings { .. }));
        let project = Project::new();
        let config = |bytes: usize| {
            project.put(
                ".git/config",
                &("x=y\n".to_owned() + &"#".repeat(bytes - 4)),
            )
        };
        config(SETTINGS_BYTES_MAX);
        assert!(project.named().is_ok());
        let answers = |answers: usize| project.named_by(&move |_| Ok(vec![Vec::new(); answers]));
        assert!(answers(1).is_ok());
        assert!(matches!(
            answers(2),
            Err(ProtectError::SettingsUnread { .. })
        ));
        let none = project.named_by(&|_| Err(io::ErrorKind::TimedOut.into()));
        assert!(matches!(none, Err(ProtectError::SettingsUnread { .. })));
        let many = |count: usize| {
            project.named_by(&move |_| Ok(vec![answer("other=x\n".repeat(count).as_bytes())]))
        };
        assert!(many(SETTINGS_MAX - 1).is_ok() && over(many(SETTINGS_MAX)));
        config(SETTINGS_BYTES_MAX + 1);
        assert!(over(project.named()));
        // One chain of includes: each file is read once.
        let includes = |count: usize| {
            let includes: String = (0..count)
                .map(|file| format!("include=f{file}\n"))
                .collect();
            project.put(".git/config", &includes);
            for file in 0..count {
                project.put(
                    &format!(".git/f{file}"),
                    &("x=y\n".to_owned() + &"#".repeat(SETTINGS_BYTES_MAX - 4)),
                );
            }
        };
        includes(BYTES_MAX / SETTINGS_BYTES_MAX - 1);
        assert!(project.named().is_ok());
        includes(BYTES_MAX / SETTINGS_BYTES_MAX);
        assert!(over(project.named()));
        let words = |count: usize| {
            project.named_by(&move |texts| {
                let run = |_: &Vec<u8>| {
                    vec![Setting {
                        key: "run".into(),
                        kind: SettingKind::Command,
                        value: "a/b ".repeat(count).into(),
                    }]
                };
                Ok(texts.iter().map(run).collect())
            })
        };
        project.put(".git/config", "run=x\n");
        assert!(words(LOOKED_AT_MAX / 2).is_ok() && over(words(LOOKED_AT_MAX + 1)));
    }
}
