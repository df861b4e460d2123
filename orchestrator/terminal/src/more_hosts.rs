//! The question of `lazaret run` on a terminal, after a command has failed that was refused hosts: whether it may reach them. Then
//! it runs again, in a new cell, and the executor grants what was answered to that call or to this session.

use crate::refused_hosts::RefusedHosts;
use crate::{print, terminal};
use broker_protocol::{Ended, Extent, Wants, limit};
use orchestrator_lines::streams::Input;
use orchestrator_session::CallResult;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Bytes of an answer that are read; a longer one is none.
const ANSWER_MAX: usize = 64;
/// How long a question stands before an answer counts: what a terminal was made to say by the command's output has come by then.
const SHOWN: Duration = Duration::from_millis(400);

/// How long the policy file may take to be written, and bytes of what is said of it.
const WRITTEN: Duration = Duration::from_secs(10);
const LINE_MAX: u64 = 8192;

/// What the person at the terminal has granted.
pub struct MoreHosts {
    /// What the command was refused; `None` where nobody is asked.
    refused: Option<Rc<RefusedHosts>>,
    wants: Wants,
    extent: Extent,
    /// What writes the policy file; absent where an answer from here does not count for good.
    writer: Option<UnixStream>,
}

/// What may be said of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Once,
    Session,
    Always,
    No,
}

impl Answer {
    fn of(line: &[u8]) -> Option<Self> {
        match line.trim_ascii().to_ascii_lowercase().as_slice() {
            b"o" | b"once" => Some(Answer::Once),
            b"s" | b"session" => Some(Answer::Session),
            b"a" | b"always" => Some(Answer::Always),
            b"" | b"n" | b"no" => Some(Answer::No),
            _ => None,
        }
    }
}

impl MoreHosts {
    /// Nothing yet. `refused` hears what the command could not reach, `writer` is told what is allowed for good.
    pub fn new(refused: Option<Rc<RefusedHosts>>, writer: Option<UnixStream>) -> Self {
        Self { refused, wants: Wants::default(), extent: Extent::Session, writer }
    }

    /// Whether somebody sits where the command's errors are shown, and can answer.
    pub fn can_ask() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// What the command wants when it runs next.
    pub fn wants(&self) -> Wants {
        self.wants.clone()
    }

    /// How far the person's yes to that reaches.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Asks about each host that a command was refused which has failed; whether it is to run again.
    pub async fn ask(&mut self, result: &CallResult) -> bool {
        let Some(refused) = self.refused.clone() else { return false };
        if matches!(result.ended, None | Some(Ended::Exited(0) | Ended::Cancelled)) {
            return false;
        }
        let hosts = refused.leasable().into_iter().filter(|host| !self.wants.hosts.contains(host));
        let room = limit::WANTS - self.wants.hosts.len();
        let hosts: Vec<_> = hosts.take(room).collect();
        let mut yes = false;
        for host in hosts {
            let answer = question(&host, self.writer.is_some()).await;
            match answer {
                Answer::No => continue,
                Answer::Once => self.extent = Extent::Once,
                Answer::Session => {}
                Answer::Always => self.write(&host),
            }
            yes = true;
            self.wants.hosts.push(host);
        }
        if yes {
            refused.forget();
        }
        yes
    }

    /// Has `host` written into the policy file, and says what became of that: the command gets it in any case.
    fn write(&mut self, host: &str) {
        let Some(writer) = &mut self.writer else { return };
        let answer = writer.write_all(format!("{host}\n").as_bytes()).and_then(|()| {
            writer.set_read_timeout(Some(WRITTEN))?;
            let mut line = String::new();
            BufReader::new(&*writer).take(LINE_MAX).read_line(&mut line)?;
            Ok(line)
        });
        match answer.as_deref().map(|line| (line.strip_prefix('+'), line.strip_prefix('-'))) {
            Ok((Some(written), _)) => print::problem(written.trim_end()),
            Ok((_, Some(why))) => print::problem(&format!("not written: {}", why.trim_end())),
            Ok((None, None)) | Err(_) => {
                print::problem("not written: no answer from what writes the policy file")
            }
        }
    }
}

/// Asks until there is an answer. None, where the terminal is gone, is a no.
async fn question(host: &str, can_write: bool) -> Answer {
    let always = if can_write { ["/ always ", "a/"] } else { [""; 2] };
    loop {
        print::problem(&format!(
            "the command tried to reach {host}. Allow it and run the command again: once / for this session {}/ no [o/s/{}N]?",
            always[0], always[1]
        ));
        sleep(SHOWN).await;
        terminal::discard_input();
        match line().await.map(|line| Answer::of(&line)) {
            Ok(Some(Answer::Always)) if !can_write => {}
            Ok(Some(answer)) => return answer,
            Ok(None) => {}
            Err(_) => return Answer::No,
        }
    }
}

/// A line from the terminal.
async fn line() -> io::Result<Vec<u8>> {
    let input = Input::stdin()?;
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
    fn only_a_whole_word_is_a_yes() {
        for (line, want) in [
            ("o\n", Some(Answer::Once)),
            ("Once\n", Some(Answer::Once)),
            (" session \n", Some(Answer::Session)),
            ("\n", Some(Answer::No)),
            ("no\n", Some(Answer::No)),
            ("yes\n", None),
            ("\u{1b}[?1;2c\n", None),
            ("os\n", None),
            ("ALWAYS\n", Some(Answer::Always)),
        ] {
            assert_eq!(Answer::of(line.as_bytes()), want, "{line:?}");
        }
    }
}
