//! A command in one row: its sessions, what it may still do once it has confined itself, its records and exit codes. Help,
//! errors and the README's table come from it.

use orchestrator_confine::Needs;

/// A command, as its help and the README's table have it, and as its start enforces it.
#[derive(Clone, Copy, Debug)]
pub struct CommandRow {
    /// The words that select it, such as `run` or `mcp add`.
    pub name: &'static str,
    /// How many sessions it opens.
    pub sessions: SessionCount,
    /// The access that is left once its files are read.
    pub access: CommandAccess,
    /// Whether it has a run log.
    pub log: bool,
    /// The exit code of a command line that is wrong, or that names what is not there.
    pub usage: u8,
    /// All its exit codes, in words.
    pub exit: &'static str,
}

/// How many sessions a command opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCount {
    /// No session: the command starts no executor.
    None,
    /// One: a lost session ends the command.
    One,
    /// As many as it needs: another executor can replace a lost one.
    Lasting {
        /// Cells that the executor keeps ready between calls.
        spare: u8,
    },
}

/// The access of a command after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandAccess {
    /// All that its user may: it reads and writes files, and hears nobody but that user.
    Files,
    /// Its terminal and the sockets of sessions that wait for answers.
    Answers,
    /// Only what its confinement leaves.
    Confined {
        network: NetworkUse,
        /// The directories in which it writes.
        writes: Writes,
    },
}

/// Whether a command has the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkUse {
    None,
    /// If a tool or a server needs it.
    IfNeeded,
    Always,
    /// It accepts connections at sockets that listened before, and makes none.
    Accepts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    Nothing,
    /// Into the directory of MCP servers: their logs, their recorded tools, logins. These servers have sessions of their own.
    Servers,
    /// As [`Self::Servers`], and into that of conversations.
    ServersAndChats,
    /// Into a directory that it has made and removes.
    Temporary,
}

impl CommandRow {
    /// A command that opens no session and keeps its user's rights.
    pub const fn of_files(name: &'static str, exit: &'static str) -> Self {
        Self {
            name,
            sessions: SessionCount::None,
            access: CommandAccess::Files,
            log: false,
            usage: crate::exit::USAGE,
            exit,
        }
    }

    /// The part of `needs` that this command has by its row. What the row does not name, its start cannot get by mistake.
    pub(crate) fn bound(&self, needs: Needs) -> Needs {
        let (network, writes) = match self.access {
            CommandAccess::Files | CommandAccess::Answers => (NetworkUse::None, Writes::Nothing),
            CommandAccess::Confined { network, writes } => (network, writes),
        };
        let has_servers = matches!(writes, Writes::Servers | Writes::ServersAndChats);
        let reaches_again = has_servers || matches!(self.sessions, SessionCount::Lasting { .. });
        Needs {
            web: needs.web && matches!(network, NetworkUse::IfNeeded | NetworkUse::Always),
            serves: needs.serves && network == NetworkUse::Accepts,
            write: match writes {
                Writes::Nothing => Vec::new(),
                Writes::Servers | Writes::ServersAndChats | Writes::Temporary => needs.write,
            },
            socket: needs.socket.filter(|_| reaches_again),
            ..needs
        }
    }

    /// Whether it has the network, or may have it.
    pub(crate) fn may_have_network(&self) -> bool {
        match self.access {
            CommandAccess::Files | CommandAccess::Answers => false,
            CommandAccess::Confined { network, .. } => match network {
                NetworkUse::IfNeeded | NetworkUse::Always => true,
                NetworkUse::None | NetworkUse::Accepts => false,
            },
        }
    }

    /// Whether it hears a model, an agent, a client or a host for as long as it runs: then it starts without secrets. The others do one
    /// thing that their user has typed, and hear of others only a command's output.
    pub fn hears_others(&self) -> bool {
        match self.access {
            CommandAccess::Files | CommandAccess::Answers => false,
            CommandAccess::Confined { network, .. } => match network {
                NetworkUse::IfNeeded | NetworkUse::Always | NetworkUse::Accepts => true,
                NetworkUse::None => matches!(self.sessions, SessionCount::Lasting { .. }),
            },
        }
    }

    /// Cells that the executor keeps ready between calls.
    pub(crate) fn spare(&self) -> u8 {
        match self.sessions {
            SessionCount::None | SessionCount::One => 0,
            SessionCount::Lasting { spare } => spare,
        }
    }

    /// The exit codes below the help of the command.
    pub fn exit_codes(&self) -> String {
        wrapped(&format!("Exit code: {}.", self.exit), 0)
    }

    /// The row of the README's table.
    pub fn markdown(&self) -> String {
        let sessions = match self.sessions {
            SessionCount::None => "none",
            SessionCount::One => "one",
            SessionCount::Lasting { .. } => "lasting",
        };
        let (network, writes) = match self.access {
            CommandAccess::Files => ("as its user", "as its user"),
            CommandAccess::Answers => ("none", "nothing; sockets of waiting sessions"),
            CommandAccess::Confined { network, writes } => (
                match network {
                    NetworkUse::None => "none",
                    NetworkUse::IfNeeded => "if needed",
                    NetworkUse::Always => "yes",
                    NetworkUse::Accepts => "accepts connections, makes none",
                },
                match writes {
                    Writes::Nothing => "nothing",
                    Writes::Servers => "MCP servers' records",
                    Writes::ServersAndChats => "MCP servers' records, conversations",
                    Writes::Temporary => "its own directory",
                },
            ),
        };
        let log = if self.log { "yes" } else { "no" };
        format!(
            "| `{}` | {sessions} | {network} | {writes} | {log} | {} |\n",
            self.name, self.exit
        )
    }
}

/// Rows of at most 80 columns; those after the first are indented.
pub fn wrapped(text: &str, indent: usize) -> String {
    const COLUMNS: usize = 80;
    let (mut page, mut column) = (String::new(), indent);
    for word in text.split_whitespace() {
        let width = word.chars().count() + 1;
        if column + width > COLUMNS {
            page.push('\n');
            page.push_str(&" ".repeat(indent));
            column = indent;
        } else if !page.is_empty() {
            page.push(' ');
        }
        page.push_str(word);
        column += width;
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const fn row(sessions: SessionCount, access: CommandAccess) -> CommandRow {
        CommandRow {
            sessions,
            access,
            ..CommandRow::of_files("x", "0")
        }
    }

    #[test]
    fn a_row_bounds_what_its_command_asks_for() {
        let all = Needs {
            web: true,
            serves: true,
            write: vec![PathBuf::from("/w")],
            socket: Some("/s".into()),
            ..Needs::default()
        };
        let got = |sessions, network, writes| {
            let needs =
                row(sessions, CommandAccess::Confined { network, writes }).bound(all.clone());
            (needs.web, needs.write.len(), needs.socket.is_some())
        };
        assert_eq!(
            got(SessionCount::One, NetworkUse::None, Writes::Nothing),
            (false, 0, false)
        );
        assert_eq!(
            got(SessionCount::One, NetworkUse::IfNeeded, Writes::Servers),
            (true, 1, true)
        );
        assert_eq!(
            got(
                SessionCount::Lasting { spare: 0 },
                NetworkUse::Always,
                Writes::Nothing
            ),
            (true, 0, true)
        );
        let accepting = CommandAccess::Confined {
            network: NetworkUse::Accepts,
            writes: Writes::Nothing,
        };
        let accepting = row(SessionCount::One, accepting).bound(all.clone());
        assert!(accepting.serves && !accepting.web);
        let none = row(SessionCount::None, CommandAccess::Files).bound(all);
        assert!(!none.serves);
        assert!(!none.web && none.write.is_empty() && none.socket.is_none());
    }

    #[test]
    fn a_command_that_hears_others_is_known_by_its_row() {
        let hears = |sessions, network| {
            let writes = Writes::Nothing;
            row(sessions, CommandAccess::Confined { network, writes }).hears_others()
        };
        let lasting = SessionCount::Lasting { spare: 0 };
        assert!(hears(lasting, NetworkUse::None), "acp");
        assert!(hears(lasting, NetworkUse::Accepts), "sandboxd");
        assert!(hears(SessionCount::None, NetworkUse::Always), "models");
        assert!(hears(SessionCount::One, NetworkUse::IfNeeded), "call");
        assert!(!hears(SessionCount::One, NetworkUse::None), "run");
        assert!(!row(lasting, CommandAccess::Files).hears_others());
        assert!(!row(lasting, CommandAccess::Answers).hears_others());
    }

    #[test]
    fn rows_of_text_are_short_and_keep_their_words() {
        let text = "a word ".repeat(40);
        let page = wrapped(&text, 11);
        assert!(page.lines().all(|line| line.len() <= 80), "{page}");
        assert!(
            page.lines()
                .skip(1)
                .all(|line| line.starts_with(&" ".repeat(11)))
        );
        assert!(page.split_whitespace().eq(text.split_whitespace()));
    }
}
