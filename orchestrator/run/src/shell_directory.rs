//! Reports the directory in which a command ended to Claude Code.
//!
//! Claude Code ends each command line with `… && pwd -P >| /tmp/claude-ID-cwd` and starts the next one in the directory that this file
//! names. A cell has a `/tmp` of its own, or none that is writable: then every successful command would end with an error. So the shell in
//! the cell prints the directory to its standard output instead, between marks that cannot occur by chance, and we write the file.
//!
//! None of this is trusted: a command can read the marks and print them. All it can achieve is that the file, which we create
//! ourselves and only if Claude Code started us, names another directory of the project, as `cd` could.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Set by Claude Code in the environment of its programs.
const CLAUDE_CODE: &str = "CLAUDECODE";
/// The end of its command lines, before the path of the file.
const ENDING: &str = " && pwd -P >| ";
/// Maximum length of a path, as `PATH_MAX` in `linux/limits.h`.
const PATH_MAX: usize = 4096;
/// Maximum length of a report: a path with its delimiters.
const REPORT_MAX: usize = PATH_MAX + 3;
/// A descriptor for the shell's standard output, so that redirections in a command line do not affect the report.
const OUTPUT: u8 = 19;
const MARK: u8 = 1;

/// Removes the shell's report from its output and writes it to the file.
pub(crate) struct WorkingDirectory {
    project: PathBuf,
    /// `None` if it cannot be created; the report is removed from the output anyway.
    file: Option<File>,
    /// The mark before a report.
    mark: Vec<u8>,
    /// Bytes held back: the beginning of a mark, or an incomplete report.
    held: Vec<u8>,
    /// The last report, as printed.
    reported: Option<Vec<u8>>,
}

impl WorkingDirectory {
    /// If `script` ends like Claude Code's, returns the script to run instead and the writer of the file. The file is created here
    /// and names the current directory. A file in the project is left to the command itself.
    pub(crate) fn of(script: &str, project: &Path) -> Option<(String, Self)> {
        std::env::var_os(CLAUDE_CODE)?;
        let directory = std::env::var_os("CLAUDE_CODE_TMPDIR")
            .map(PathBuf::from)
            .unwrap_or_else(std::env::temp_dir);
        let here = std::env::current_dir().ok()?;
        let (commands, path) = split(script, &directory)?;
        if fs::canonicalize(&directory).is_ok_and(|directory| directory.starts_with(project)) {
            return None;
        }
        let nonce = nonce();
        // The bracket is closed on a line of its own: the commands may end with a comment, which then swallows the report, as it
        // would have swallowed Claude Code's.
        let script = format!(
            "{{ {commands} && \
             {{ \\builtin printf '\\{MARK:03o}{nonce}' && \\builtin pwd -P && \\builtin printf '\\{MARK:03o}'; }} >&{OUTPUT}\n}} {OUTPUT}>&1"
        );
        let file = make(&path, &here);
        let mark = [&[MARK], nonce.as_bytes()].concat();
        Some((
            script,
            Self {
                project: project.to_owned(),
                file,
                mark,
                held: Vec::new(),
                reported: None,
            },
        ))
    }

    /// The part of the standard output to pass on, after the next `bytes`.
    pub(crate) fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut passed = Vec::new();
        loop {
            let begin =
                find(&self.held, &self.mark).unwrap_or_else(|| self.held.len() - self.begun());
            passed.extend(self.held.drain(..begin));
            let Some(report) = self.held.strip_prefix(self.mark.as_slice()) else {
                return passed;
            };
            match report.iter().position(|byte| *byte == MARK) {
                Some(end) => {
                    self.reported = Some(report[..end].to_vec());
                    self.held.drain(..self.mark.len() + end + 1);
                }
                None if report.len() > REPORT_MAX => {
                    passed.extend(self.held.drain(..self.mark.len()))
                }
                None => return passed,
            }
        }
    }

    /// Writes the file after the command has ended; returns held bytes that are no report.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if let (Some(file), Some(directory)) = (&mut self.file, self.reported.as_deref()) {
            // Checked now, when the command can change nothing any more. Without the file, Claude Code starts the next command
            // where it started this one.
            let _ = below(&self.project, directory).map(|directory| write(file, &directory));
        }
        let is_report = self.held.starts_with(&self.mark);
        if is_report { Vec::new() } else { self.held }
    }

    /// How many of the last held bytes may begin a mark.
    fn begun(&self) -> usize {
        let longest = self.held.len().min(self.mark.len() - 1);
        (0..=longest)
            .rev()
            .find(|count| self.held.ends_with(&self.mark[..*count]))
            .unwrap_or(0)
    }
}

/// The commands in a line of Claude Code, and the path of the file.
fn split(script: &str, directory: &Path) -> Option<(String, PathBuf)> {
    let (commands, path) = script.trim_end().rsplit_once(ENDING)?;
    // Quoted if the shell would change it.
    let path = path
        .strip_prefix('\'')
        .and_then(|path| path.strip_suffix('\''))
        .unwrap_or(path);
    let id = Path::new(path)
        .strip_prefix(directory)
        .ok()?
        .to_str()?
        .strip_prefix("claude-")?
        .strip_suffix("-cwd")?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_id = (1..=64).contains(&id.len()) && id.bytes().all(fits);
    is_id.then(|| (commands.to_owned(), path.into()))
}

/// Creates the file. An existing file is not touched: its name came with the command line.
#[expect(
    clippy::disallowed_methods,
    reason = "it is Claude Code's file, outside of both roots, and made new"
)]
fn make(path: &Path, here: &Path) -> Option<File> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .ok()?;
    write(&mut file, here).ok()?;
    Some(file)
}

fn write(file: &mut File, directory: &Path) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(directory.as_os_str().as_bytes())
}

/// The directory in a report, if it is in the project and is reached without links.
fn below(project: &Path, report: &[u8]) -> Option<PathBuf> {
    let text = std::str::from_utf8(report).ok()?.strip_suffix('\n')?;
    let path = Path::new(text);
    let plain = !text.chars().any(char::is_control);
    let names = path.strip_prefix(project).ok()?.components();
    let mut at = project.to_owned();
    for name in names {
        if !matches!(name, std::path::Component::Normal(_)) {
            return None;
        }
        at.push(name);
        if !fs::symlink_metadata(&at).is_ok_and(|metadata| metadata.is_dir()) {
            return None;
        }
    }
    plain.then_some(at)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// 128 random bits, unique to this run.
fn nonce() -> String {
    use std::hash::{BuildHasher, RandomState};
    let [one, two] = [0, 1].map(|_| RandomState::new().hash_one(std::process::id()));
    format!("{one:016x}{two:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> WorkingDirectory {
        let mark = b"\x01nonce".to_vec();
        WorkingDirectory {
            project: "/".into(),
            file: None,
            mark,
            held: Vec::new(),
            reported: None,
        }
    }

    #[test]
    fn a_report_is_found_however_the_output_is_cut() {
        let report = |path: &str| format!("\x01nonce{path}\n\x01");
        let long = "x".repeat(REPORT_MAX + 1);
        for (output, passed, reported) in [
            (
                format!("out\n{}", report("/usr")),
                "out\n".to_owned(),
                Some("/usr"),
            ),
            (
                format!("{}{}after", report("/usr"), report("/usr/bin")),
                "after".into(),
                Some("/usr/bin"),
            ),
            (
                format!("\x01non\x01\x01nonc{}\x01n", report("/usr")),
                "\x01non\x01\x01nonc\x01n".into(),
                Some("/usr"),
            ),
            (
                format!("a\x01nonce{long}"),
                format!("a\x01nonce{long}"),
                None,
            ),
            // The shell could not determine its directory.
            ("out\x01nonce".into(), "out".into(), None),
            (report("/no/such/directory"), String::new(), None),
            (report("relative"), String::new(), None),
        ] {
            for piece in [1, 2, 7, output.len()] {
                let mut reporter = reporter();
                let mut got: Vec<u8> = output
                    .as_bytes()
                    .chunks(piece)
                    .flat_map(|bytes| reporter.filter(bytes))
                    .collect();
                assert_eq!(
                    reporter
                        .reported
                        .as_deref()
                        .and_then(|reported| below(Path::new("/"), reported)),
                    reported.map(PathBuf::from),
                    "{output:?} in pieces of {piece}"
                );
                got.extend(reporter.finish());
                assert_eq!(
                    String::from_utf8(got).unwrap(),
                    passed,
                    "{output:?} in pieces of {piece}"
                );
            }
        }
    }

    #[test]
    fn only_claude_codes_cwd_suffix_is_recognised() {
        let tmp = Path::new("/tmp");
        let (commands, path) =
            split("x && eval 'y' && pwd -P >| /tmp/claude-a1-b_cwd-cwd\n", tmp).unwrap();
        assert_eq!(
            (commands.as_str(), path.as_path()),
            ("x && eval 'y'", Path::new("/tmp/claude-a1-b_cwd-cwd"))
        );
        assert!(split("x && pwd -P >| '/tmp/claude-a-cwd'", tmp).is_some());
        for script in [
            "pwd -P >| /tmp/claude-a-cwd",
            "x && pwd -P >| /tmp/claude--cwd/../x",
            "x && pwd -P >| /tmp/claude-/cwd",
            "x && pwd -P >| /tmp/claude-$x-cwd",
            "x && pwd -P >| /tmp/sub/claude-a-cwd",
            "x && pwd -P >| /home/u/claude-a-cwd",
            "x && pwd -P >| /tmp/claude-a-cwd; y",
            "x && pwd -P > /tmp/claude-a-cwd",
        ] {
            assert_eq!(split(script, tmp), None, "{script}");
        }
        assert_eq!(
            split(
                &format!("x && pwd -P >| /tmp/claude-{}-cwd", "a".repeat(65)),
                tmp
            ),
            None
        );
    }
}
