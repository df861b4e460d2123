//! The directory in which a command ended, for Claude Code.
//!
//! It ends each command line with `… && pwd -P >| /tmp/claude-ID-cwd` and starts the next where that file says. A cell has a `/tmp`
//! of its own, or none that can be written, and then all that went well would end with a failure. So the cell's shell prints the
//! directory on its standard output instead, between marks that nobody guesses by chance, and we write the file.
//!
//! Nothing of this is believed: a command can read the marks and print them. What it can bring about is that the file, which we make
//! ourselves and only where Claude Code has started us, names another directory of the project, as `cd` could.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Set by Claude Code for what it starts.
const CLAUDE_CODE: &str = "CLAUDECODE";
/// How it ends a command line, before the path of the file.
const ENDING: &str = " && pwd -P >| ";
/// Bytes of the longest path, as `PATH_MAX` in `linux/limits.h`.
const PATH_MAX: usize = 4096;
/// Bytes of a path and what stands around it, at most.
const REPORT_MAX: usize = PATH_MAX + 3;
/// A descriptor for the shell's standard output: what a command line does to its own does not change this one.
const OUTPUT: u8 = 19;
const MARK: u8 = 1;

/// Writes the file, and takes what the shell prints for it out of the output.
pub struct WorkingDirectory {
    project: PathBuf,
    /// `None` where it cannot be made; the report is taken out of the output all the same.
    file: Option<File>,
    /// What stands before a report.
    mark: Vec<u8>,
    /// The bytes after the last that was passed on: the beginning of a mark, or a report up to here.
    held: Vec<u8>,
    /// The last report, as it was printed.
    reported: Option<Vec<u8>>,
}

impl WorkingDirectory {
    /// Where `script` ends as Claude Code's do: what it is to be instead, and who writes the file, which is made here and names the
    /// present directory. A file in the project is left to the command itself.
    pub fn of(script: &str, project: &Path) -> Option<(String, Self)> {
        std::env::var_os(CLAUDE_CODE)?;
        let directory =
            std::env::var_os("CLAUDE_CODE_TMPDIR").map(PathBuf::from).unwrap_or_else(std::env::temp_dir);
        let here = std::env::current_dir().ok()?;
        let (commands, path) = split(script, &directory)?;
        if fs::canonicalize(&directory).is_ok_and(|directory| directory.starts_with(project)) {
            return None;
        }
        let nonce = nonce();
        // The bracket is closed on a line of its own: the commands may end in a comment, which then has taken the report, as it would
        // have taken Claude Code's.
        let script = format!(
            "{{ {commands} && \
             {{ \\builtin printf '\\{MARK:03o}{nonce}' && \\builtin pwd -P && \\builtin printf '\\{MARK:03o}'; }} >&{OUTPUT}\n}} {OUTPUT}>&1"
        );
        let file = make(&path, &here);
        let mark = [&[MARK], nonce.as_bytes()].concat();
        Some((script, Self { project: project.to_owned(), file, mark, held: Vec::new(), reported: None }))
    }

    /// What is to be passed on of the standard output, of which `bytes` come next.
    pub fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut passed = Vec::new();
        loop {
            let begin = find(&self.held, &self.mark).unwrap_or_else(|| self.held.len() - self.begun());
            passed.extend(self.held.drain(..begin));
            let Some(report) = self.held.strip_prefix(self.mark.as_slice()) else { return passed };
            match report.iter().position(|byte| *byte == MARK) {
                Some(end) => {
                    self.reported = Some(report[..end].to_vec());
                    self.held.drain(..self.mark.len() + end + 1);
                }
                None if report.len() > REPORT_MAX => passed.extend(self.held.drain(..self.mark.len())),
                None => return passed,
            }
        }
    }

    /// Writes the file when the command is over; returns what was held back and is no report.
    pub fn finish(mut self) -> Vec<u8> {
        if let (Some(file), Some(directory)) = (&mut self.file, self.reported.as_deref()) {
            // Looked at now, when the command can change nothing any more. Without it, Claude Code starts the next command where it
            // started this one.
            let _ = below(&self.project, directory).map(|directory| write(file, &directory));
        }
        let is_report = self.held.starts_with(&self.mark);
        if is_report { Vec::new() } else { self.held }
    }

    /// How many of the last bytes held may be the beginning of a mark.
    fn begun(&self) -> usize {
        let longest = self.held.len().min(self.mark.len() - 1);
        (0..=longest).rev().find(|count| self.held.ends_with(&self.mark[..*count])).unwrap_or(0)
    }
}

/// The commands of a line of Claude Code's, and the path of the file.
fn split(script: &str, directory: &Path) -> Option<(String, PathBuf)> {
    let (commands, path) = script.trim_end().rsplit_once(ENDING)?;
    // Quoted where the shell would change it.
    let path = path.strip_prefix('\'').and_then(|path| path.strip_suffix('\'')).unwrap_or(path);
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

/// Makes the file. One that is there is not touched: its name came with the command line.
#[expect(
    clippy::disallowed_methods,
    reason = "it is Claude Code's file, outside of both roots, and made new"
)]
fn make(path: &Path, here: &Path) -> Option<File> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).ok()?;
    write(&mut file, here).ok()?;
    Some(file)
}

fn write(file: &mut File, directory: &Path) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(directory.as_os_str().as_bytes())
}

/// The directory of a report, if it is one of the project that no link leads to.
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
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// 128 bits that no other run has.
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
        WorkingDirectory { project: "/".into(), file: None, mark, held: Vec::new(), reported: None }
    }

    #[test]
    fn a_report_is_found_however_the_output_is_cut() {
        let report = |path: &str| format!("\x01nonce{path}\n\x01");
        let long = "x".repeat(REPORT_MAX + 1);
        for (output, passed, reported) in [
            (format!("out\n{}", report("/usr")), "out\n".to_owned(), Some("/usr")),
            (format!("{}{}after", report("/usr"), report("/usr/bin")), "after".into(), Some("/usr/bin")),
            (
                format!("\x01non\x01\x01nonc{}\x01n", report("/usr")),
                "\x01non\x01\x01nonc\x01n".into(),
                Some("/usr"),
            ),
            (format!("a\x01nonce{long}"), format!("a\x01nonce{long}"), None),
            // The shell could not say where it is.
            ("out\x01nonce".into(), "out".into(), None),
            (report("/no/such/directory"), String::new(), None),
            (report("relative"), String::new(), None),
        ] {
            for piece in [1, 2, 7, output.len()] {
                let mut reporter = reporter();
                let mut got: Vec<u8> =
                    output.as_bytes().chunks(piece).flat_map(|bytes| reporter.filter(bytes)).collect();
                assert_eq!(
                    reporter.reported.as_deref().and_then(|reported| below(Path::new("/"), reported)),
                    reported.map(PathBuf::from),
                    "{output:?} in pieces of {piece}"
                );
                got.extend(reporter.finish());
                assert_eq!(String::from_utf8(got).unwrap(), passed, "{output:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn only_claude_codes_own_ending_is_one() {
        let tmp = Path::new("/tmp");
        let (commands, path) = split("x && eval 'y' && pwd -P >| /tmp/claude-a1-b_cwd-cwd\n", tmp).unwrap();
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
        assert_eq!(split(&format!("x && pwd -P >| /tmp/claude-{}-cwd", "a".repeat(65)), tmp), None);
    }
}
