//! Parses the arguments of a shell like bash.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The arguments with which to start bash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    arguments: Vec<OsString>,
    /// The index of the command string.
    script: Option<usize>,
}

/// Options that take the next argument.
const WITH_ARGUMENT: [&str; 2] = ["--rcfile", "--init-file"];

impl Arguments {
    /// Parses our own arguments. A single argument that is neither an option nor a script is a command string: a program may put our
    /// name as a prefix before a command line meant for a shell. A login shell is not started as one: the files it would read set the
    /// host's `PATH`, but a cell's environment comes from the policy.
    pub(crate) fn parse(given: Vec<OsString>, is_script: impl Fn(&Path) -> bool) -> Self {
        if let [only] = given.as_slice()
            && !is_option(only)
            && !(is_word(only) && is_script(Path::new(only)))
        {
            return Self {
                arguments: vec!["-c".into(), only.clone()],
                script: Some(1),
            };
        }
        let mut arguments = Vec::new();
        let mut given = given.into_iter().peekable();
        let mut takes_script = false;
        while let Some(option) = given.next_if(|next| is_option(next)) {
            let bytes = option.as_bytes();
            if bytes == b"--login" {
                continue;
            }
            let ends = bytes == b"--" || bytes == b"-";
            let long = bytes.starts_with(b"--");
            let takes_value = match long {
                true => WITH_ARGUMENT.iter().any(|name| name.as_bytes() == bytes),
                false => bytes.iter().any(|letter| b"oO".contains(letter)),
            };
            takes_script |= !long && bytes.starts_with(b"-") && bytes.contains(&b'c');
            arguments.extend(if long {
                Some(option)
            } else {
                without_login(&option)
            });
            if takes_value {
                arguments.extend(given.next());
            }
            if ends {
                break;
            }
        }
        let script = (takes_script && given.peek().is_some()).then_some(arguments.len());
        arguments.extend(given);
        Self { arguments, script }
    }

    /// The command line: `bash` and its arguments.
    pub(crate) fn words(&self) -> Vec<OsString> {
        std::iter::once("bash".into())
            .chain(self.arguments.iter().cloned())
            .collect()
    }

    /// The index of the command string among the words, if there is one.
    pub(crate) fn script(&self) -> Option<usize> {
        self.script.map(|at| at + 1)
    }
}

/// Whether a shell run with this word alone reads it as a script, as bash does. A program with a path is no such file: a prefix
/// may stand before one in any language, and as a command line it starts by its own first line, a shell's script as well. Nor is a
/// file called like a command (`ls`, `cd`): who allows that command has not allowed what a project calls so.
pub(crate) fn is_script(word: &Path) -> bool {
    let Ok(metadata) = word.metadata() else {
        return false;
    };
    let is_program = metadata.permissions().mode() & 0o111 != 0;
    let bytes = word.as_os_str().as_bytes();
    metadata.is_file()
        && match bytes.contains(&b'/') {
            true => !is_program,
            false => bytes.contains(&b'.') && !is_command(word),
        }
}

/// Whether a program has this name.
fn is_command(name: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Whether this is one word to a shell, and nothing that it expands. A file of the project's whose name looks like a command line
/// must not run in place of that.
fn is_word(argument: &OsStr) -> bool {
    let is_of_word = |byte: &u8| {
        byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(byte) || !byte.is_ascii()
    };
    !argument.is_empty() && argument.as_bytes().iter().all(is_of_word)
}

fn is_option(argument: &OsStr) -> bool {
    matches!(argument.as_bytes(), [b'-' | b'+', ..])
}

/// A cluster of short options without `l`; `None` if it contained nothing else.
fn without_login(option: &OsStr) -> Option<OsString> {
    let bytes = option.as_bytes();
    let rest: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|letter| *letter != b'l')
        .collect();
    (rest.len() > 1 || rest.len() == bytes.len()).then(|| OsString::from_vec(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_parsed(given: &[&str], words: &[&str], script: Option<&str>) {
        let is_script = |word: &Path| [Path::new("s.sh"), Path::new("a b")].contains(&word);
        let parsed = Arguments::parse(given.iter().map(OsString::from).collect(), is_script);
        assert_eq!(
            parsed.words()[1..],
            words.iter().map(OsString::from).collect::<Vec<_>>(),
            "{given:?}"
        );
        let found = parsed.script().map(|at| parsed.words()[at].clone());
        assert_eq!(found, script.map(OsString::from), "{given:?}");
    }

    #[test]
    fn bash_gets_what_it_was_given_but_for_login() {
        assert_parsed(&[], &[], None);
        assert_parsed(
            &["-c", "ls", "name", "a"],
            &["-c", "ls", "name", "a"],
            Some("ls"),
        );
        assert_parsed(&["-c", "-l", "ls"], &["-c", "ls"], Some("ls"));
        assert_parsed(&["-lc", "ls -l"], &["-c", "ls -l"], Some("ls -l"));
        assert_parsed(&["-ilc", "ls"], &["-ic", "ls"], Some("ls"));
        assert_parsed(&["-l"], &[], None);
        assert_parsed(&["--login", "-i"], &["-i"], None);
        assert_parsed(&["-s", "a", "-l"], &["-s", "a", "-l"], None);
        assert_parsed(
            &["--norc", "-euo", "pipefail", "-c", "x"],
            &["--norc", "-euo", "pipefail", "-c", "x"],
            Some("x"),
        );
        assert_parsed(
            &["+O", "extglob", "-c", "x"],
            &["+O", "extglob", "-c", "x"],
            Some("x"),
        );
        assert_parsed(
            &["--rcfile", "-c", "x", "y"],
            &["--rcfile", "-c", "x", "y"],
            None,
        );
        assert_parsed(&["--", "script", "-l"], &["--", "script", "-l"], None);
        assert_parsed(&["-c"], &["-c"], None);
        assert_parsed(&["-"], &["-"], None);
    }

    #[test]
    fn one_string_is_a_command() {
        assert_parsed(
            &["cat -n 'a b'"],
            &["-c", "cat -n 'a b'"],
            Some("cat -n 'a b'"),
        );
        assert_parsed(&["ls"], &["-c", "ls"], Some("ls"));
        assert_parsed(&["ls", "-l"], &["ls", "-l"], None);
        // Not even where a file has such a name.
        assert_parsed(&["a b"], &["-c", "a b"], Some("a b"));
    }

    #[test]
    fn single_word_that_is_a_script_runs_as_a_script() {
        assert_parsed(&["s.sh"], &["s.sh"], None);
        assert_parsed(&["-c", "s.sh"], &["-c", "s.sh"], Some("s.sh"));
    }

    #[test]
    fn a_script_is_a_file_that_is_no_program_with_a_path() {
        assert!(is_script(Path::new("Cargo.toml")) && is_script(Path::new("./Cargo.toml")));
        assert!(!is_script(Path::new("/bin/sh")));
        assert!(!is_script(Path::new("src")));
        assert!(!is_script(Path::new("none")));
    }
}
