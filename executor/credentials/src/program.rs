//! Programs of the user's that a source may start: none that commands could have written, nor one that names or is run by such a one.

use crate::owner::{Owner, SourceError};
use nix::unistd::{AccessFlags, access};
use policies::leads_into;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a script's first line that the kernel reads (`BINPRM_BUF_SIZE` in `linux/binfmts.h`).
const LINE: u64 = 256;
/// How many scripts may run one another: the kernel follows so many (`exec_binprm` in `fs/exec.c`).
const INTERPRETERS_MAX: usize = 5;

/// Where commands can write, and where the user's programs are found.
#[derive(Clone, Debug)]
pub struct UserPrograms {
    writable: Vec<PathBuf>,
    /// The user's `PATH` without directories that commands can write, or lead elsewhere.
    search: OsString,
    home: PathBuf,
}

impl UserPrograms {
    /// Finds the user's, by the directories in `PATH` as they are now.
    pub fn of(owner: &Owner) -> Self {
        let own = owner.variables.get(OsStr::new("PATH")).cloned();
        let is_usable = |directory: &PathBuf| {
            let is_there = directory.is_absolute() && directory.exists();
            is_there && !leads_into(directory, &owner.writable)
        };
        let own = own.unwrap_or_default();
        let directories = std::env::split_paths(&own).filter(is_usable);
        Self {
            writable: owner.writable.clone(),
            search: std::env::join_paths(directories).unwrap_or_default(),
            home: owner.home.to_owned(),
        }
    }

    /// The environment of such a program: these `variables`, and the `PATH` by which it is found.
    pub fn environment(
        &self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<CString> {
        let path = (OsString::from("PATH"), self.search.clone());
        let entries = variables.chain([path]).filter_map(|(mut entry, value)| {
            entry.push("=");
            entry.push(value);
            CString::new(entry.as_bytes()).ok()
        });
        entries.collect()
    }

    /// The program of a command.
    ///
    /// # Errors
    /// There is none, or it or a word of the command may be of commands' making.
    pub fn find(&self, words: &[String]) -> Result<PathBuf, SourceError> {
        let word = words.first().map_or("", String::as_str);
        let found = match Path::new(word).is_absolute() {
            true => PathBuf::from(word),
            false => {
                let mut places = self.places(word);
                let found = places.find(|path| self.check(path).is_ok());
                found.ok_or_else(|| SourceError::NoProgram(word.to_owned()))?
            }
        };
        self.check(&found)?;
        match words.iter().skip(1).find(|word| self.is_inside(word)) {
            Some(word) => Err(SourceError::Writable(word.clone())),
            None => Ok(found),
        }
    }

    /// Whether `path` is a program that commands cannot have written, nor what runs it.
    pub(crate) fn check(&self, path: &Path) -> Result<(), SourceError> {
        self.check_run(path, INTERPRETERS_MAX)
    }

    fn check_run(&self, path: &Path, left: usize) -> Result<(), SourceError> {
        let name = || path.display().to_string();
        let real = path.canonicalize();
        let real = real.map_err(|error| SourceError::Unopened(name(), error))?;
        if leads_into(path, &self.writable) {
            return Err(SourceError::Writable(name()));
        }
        if !real.is_file() {
            return Err(SourceError::NotRegular(name()));
        }
        access(&real, AccessFlags::X_OK)
            .map_err(|errno| SourceError::Unopened(name(), errno.into()))?;
        let Some(line) = first_line(&real) else {
            return Ok(());
        };
        let mut words = line.split_whitespace();
        let interpreter = words.next().map(Path::new);
        // `env` looks the others up.
        if words.any(|word| self.is_inside(word)) {
            return Err(SourceError::Writable(name()));
        }
        match (interpreter, left.checked_sub(1)) {
            (Some(interpreter), Some(left)) if interpreter.is_absolute() => {
                self.check_run(interpreter, left)
            }
            (Some(_), _) => Err(SourceError::Writable(name())),
            (None, _) => Ok(()),
        }
    }

    /// Whether a text names where commands can write, or a program there: alone or within other text such as an option or a script. An
    /// interpreter runs what it names.
    fn is_inside(&self, text: &str) -> bool {
        let home = self.home.to_string_lossy();
        let text = text.replace("${HOME}", &home).replace("$HOME", &home);
        let mut parts = text.split(|c: char| c.is_whitespace() || "=;|&()<>`'\"$,".contains(c));
        self.mentions(&text) || parts.any(|part| self.leads(part))
    }

    /// Whether one word of it does.
    fn leads(&self, word: &str) -> bool {
        let below_home = word.strip_prefix("~/").map(|rest| self.home.join(rest));
        let path = match below_home {
            Some(path) => path,
            // The directory of a source is `/`.
            None if word.contains('/') => Path::new("/").join(word),
            None => {
                let mut places = self.places(word);
                let found = places.find(|place| access(place, AccessFlags::X_OK).is_ok());
                return found.is_some_and(|place| leads_into(&place, &self.writable));
            }
        };
        leads_into(&path, &self.writable)
    }

    /// Whether a text has the path of one of these directories in it.
    fn mentions(&self, text: &str) -> bool {
        let is_end =
            |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
        let is_there = |directory: &str| {
            text.match_indices(directory)
                .any(|(at, _)| is_end(&text[at + directory.len()..]))
        };
        let paths = self.writable.iter();
        paths.filter_map(|path| path.to_str()).any(is_there)
    }

    /// Where a program of this name may lie.
    fn places(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let is_name = !name.is_empty() && name != "." && name != "..";
        std::env::split_paths(&self.search)
            .filter(move |_| is_name)
            .map(move |directory| directory.join(name))
    }
}

/// The words in the first line of a script; `None` if it is no script.
fn first_line(script: &Path) -> Option<String> {
    let mut line = Vec::new();
    let file = fs::File::open(script).ok()?;
    file.take(LINE).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    Some(OsStr::from_bytes(line).to_string_lossy().into_owned())
}
