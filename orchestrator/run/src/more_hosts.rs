//! After a command of `lazaret run` on a terminal failed because hosts, ports or paths were denied, asks whether it may have them. Then it
//! runs again in a new cell, and the executor grants what was answered, for that call or for this session.

use crate::refused_connections::RefusedConnections;
use broker_protocol::{Ended, Extent, Leased, Wants, limit};
use orchestrator_engine::CallResult;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_launch::stdio::{print, terminal};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Maximum bytes of an answer; a longer one is invalid. A terminal passes on no longer line.
const ANSWER_MAX: usize = 4096;
/// How long a question is shown before an answer counts: by then, replies that the command's output drew from the terminal have come.
const SHOWN: Duration = Duration::from_millis(400);

/// Says which answers there are, after another one.
const UNKNOWN: &str =
    "that is no answer to this question: `y` or `o` once, `s` for this session, `n` no";

/// Maximum bytes of the writer's report.
const LINE_MAX: u64 = 8192;

/// What the person at the terminal has granted.
pub(crate) struct MoreHosts {
    /// What the command was denied; `None` if nobody is asked.
    refused: Option<Rc<RefusedConnections>>,
    wants: Wants,
    extent: Extent,
    /// The project root, without links.
    project: PathBuf,
    /// Writes the policy file; absent if an answer given here may not count permanently.
    writer: Option<UnixStream>,
}

/// The possible answers about a host, a port or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostAnswer {
    Once,
    Session,
    Always,
    No,
}

impl HostAnswer {
    /// The answer about `name`. Always, which changes the policy for good, has to repeat the name: a letter could be meant for a
    /// question that the command seemed to ask.
    fn of(line: &[u8], name: &str) -> Option<Self> {
        let line = line.trim_ascii();
        let (word, rest) = line.split_at(
            line.iter()
                .position(u8::is_ascii_whitespace)
                .unwrap_or(line.len()),
        );
        match (word.to_ascii_lowercase().as_slice(), rest.trim_ascii()) {
            // The questions of `lazaret chat` and `approve` take the same words.
            (b"o" | b"once" | b"y" | b"yes", b"") => Some(HostAnswer::Once),
            (b"s" | b"session", b"") => Some(HostAnswer::Session),
            (b"a" | b"always", rest) if rest == name.as_bytes() => Some(HostAnswer::Always),
            (b"" | b"n" | b"no", b"") => Some(HostAnswer::No),
            _ => None,
        }
    }
}

impl MoreHosts {
    /// No grants yet. `refused` collects what the command could not reach; `writer` receives permanent grants.
    pub(crate) fn new(
        refused: Option<Rc<RefusedConnections>>,
        writer: Option<UnixStream>,
        project: PathBuf,
    ) -> Self {
        Self {
            project,
            refused,
            wants: Wants::default(),
            extent: Extent::Session,
            writer,
        }
    }

    /// Whether a person sees the command's errors and can answer.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// What the command wants in its next run.
    pub(crate) fn wants(&self) -> Wants {
        self.wants.clone()
    }

    /// How far the person's approval extends.
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Asks about each host and path that a failed command was denied; returns whether to run it again.
    pub(crate) async fn ask(&mut self, result: &CallResult) -> bool {
        let Some(refused) = self.refused.clone() else {
            return false;
        };
        if matches!(
            result.ended,
            None | Some(Ended::Exited(0) | Ended::Cancelled)
        ) {
            return false;
        }
        let hosts = refused
            .leasable()
            .into_iter()
            .filter(|host| !self.wants.hosts.contains(host));
        let room = limit::WANTS - self.wants.hosts.len();
        let mut wanted: Vec<_> = hosts.take(room).map(Leased::Host).collect();
        wanted.extend(self.denied(result));
        let mut yes = false;
        for opens in wanted {
            let can_write = self.writer.is_some() && is_written(&opens, &self.project);
            let reach = can_write.then(|| reach(&opens, &self.project));
            match question(&opens, reach).await {
                HostAnswer::No => continue,
                HostAnswer::Once => self.extent = Extent::Once,
                HostAnswer::Session => {}
                HostAnswer::Always => self.write(&opens),
            }
            yes = true;
            self.wants.push(opens);
        }
        if yes {
            refused.forget();
        }
        yes
    }

    /// The paths and ports that a command was denied and that a lease would open, without duplicates.
    fn denied(&self, result: &CallResult) -> Vec<Leased> {
        let mut paths: Vec<Leased> = Vec::new();
        for opens in result.denials().filter_map(|denial| denial.lease.as_ref()) {
            if !paths.contains(opens) && !self.wants.each().any(|wanted| wanted == *opens) {
                paths.push(opens.clone());
            }
        }
        let mut ports = limit::WANTS - self.wants.connect.len();
        let mut room = limit::WANTED_PATHS - self.wants.read.len() - self.wants.write.len();
        paths.retain(|opens| {
            let room = match opens.is_place() {
                true => &mut ports,
                false => &mut room,
            };
            let fits = *room > 0;
            *room = room.saturating_sub(1);
            fits
        });
        paths
    }

    /// Lets the writer add this to the policy file, and reports the outcome: the command gets it in any case.
    fn write(&mut self, opens: &Leased) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let answer = writer
            .write_all(format!("{opens}\n").as_bytes())
            .and_then(|()| {
                let mut line = String::new();
                BufReader::new(&*writer)
                    .take(LINE_MAX)
                    .read_line(&mut line)?;
                Ok(line)
            });
        match answer
            .as_deref()
            .map(|line| (line.strip_prefix('+'), line.strip_prefix('-')))
        {
            Ok((Some(written), _)) => print::problem(written.trim_end()),
            Ok((_, Some(why))) => print::problem(&format!("not written: {}", why.trim_end())),
            Ok((None, None)) | Err(_) => {
                print::problem("not written: no answer from what writes the policy file")
            }
        }
    }
}

/// Whether the policy file can express it: a profile grants hosts, paths for reading, and names of files in the project. The name must
/// be one that a person can type as it is shown.
fn is_written(opens: &Leased, project: &Path) -> bool {
    let can_be_typed = |name: &str| print::shown(name) == name && name.trim_ascii() == name;
    match opens {
        Leased::Host(name) | Leased::Read(name) => can_be_typed(name),
        Leased::Port(_) => true,
        // In a project only files are granted for writing, of which the name is opened.
        Leased::Write(name) => can_be_typed(name) && Path::new(name).starts_with(project),
    }
}

/// How far "always" goes beyond the file in question: a profile opens names.
fn reach(opens: &Leased, project: &Path) -> &'static str {
    match opens {
        Leased::Read(path) | Leased::Write(path) if Path::new(path).starts_with(project) => {
            " (each file of this name, in every project) "
        }
        Leased::Host(_) | Leased::Read(_) | Leased::Write(_) | Leased::Port(_) => "",
    }
}

/// Describes what the command tried.
fn tried(opens: &Leased) -> String {
    match opens {
        Leased::Host(host) => format!("reach {host}"),
        Leased::Read(path) => format!("read {path}"),
        Leased::Write(path) => format!("write to {path}"),
        Leased::Port(port) => format!("connect to port {port} of this machine"),
    }
}

/// Asks until there is an answer, with how far "always" goes if that is one. If the terminal is gone, the answer is no.
async fn question(opens: &Leased, always: Option<&str>) -> HostAnswer {
    let ((_, name), can_write) = (opens.parts(), always.is_some());
    let always = match always {
        Some(reach) => [format!("/ always {reach}"), format!("always {name}/")],
        None => [const { String::new() }; 2],
    };
    loop {
        print::question(&format!(
            "the command tried to {}. Allow it and run the command again: once / for this session {}/ no [o/s/{}N]?",
            tried(opens),
            always[0],
            always[1]
        ));
        sleep(SHOWN).await;
        terminal::discard_input();
        match line().await.map(|line| HostAnswer::of(&line, &name)) {
            Ok(Some(HostAnswer::Always)) if !can_write => print::problem(UNKNOWN),
            Ok(Some(answer)) => return answer,
            Ok(None) if can_write => print::problem(&format!(
                "{UNKNOWN}, or `always {name}`, with the name, for good"
            )),
            Ok(None) => print::problem(UNKNOWN),
            Err(_) => return HostAnswer::No,
        }
    }
}

/// A line from the terminal.
async fn line() -> io::Result<Vec<u8>> {
    let input = InputStream::stdin()?;
    let mut bytes = [0; ANSWER_MAX];
    match input.read(&mut bytes).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => Ok(bytes[..length].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_shown_as_it_is_cannot_be_allowed_for_good() {
        for (path, want) in [
            ("/srv/data", true),
            ("/srv/my data", true),
            ("/srv/\u{202e}x", false),
            ("/srv/x ", false),
        ] {
            let project = Path::new("/srv");
            assert_eq!(
                is_written(&Leased::Read(path.into()), project),
                want,
                "{path:?}"
            );
            assert_eq!(
                is_written(&Leased::Write(path.into()), project),
                want,
                "{path:?}"
            );
            assert!(
                !is_written(&Leased::Write(path.into()), Path::new("/home")),
                "a directory of the machine"
            );
        }
    }

    #[test]
    fn only_a_whole_word_is_a_yes() {
        for (line, want) in [
            ("o\n", Some(HostAnswer::Once)),
            ("Once\n", Some(HostAnswer::Once)),
            (" session \n", Some(HostAnswer::Session)),
            ("\n", Some(HostAnswer::No)),
            ("no\n", Some(HostAnswer::No)),
            ("y\n", Some(HostAnswer::Once)),
            ("yes\n", Some(HostAnswer::Once)),
            ("y a.example:443\n", None),
            ("\u{1b}[?1;2c\n", None),
            ("os\n", None),
            ("a\n", None),
            ("always\n", None),
            ("always b.example:443\n", None),
            ("a.example:443\n", None),
            ("once a.example:443\n", None),
            ("a a.example:443\n", Some(HostAnswer::Always)),
            ("ALWAYS  a.example:443 \n", Some(HostAnswer::Always)),
        ] {
            assert_eq!(
                HostAnswer::of(line.as_bytes(), "a.example:443"),
                want,
                "{line:?}"
            );
        }
    }
}
