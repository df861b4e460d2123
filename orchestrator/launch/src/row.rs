//! What a command is, in one row: its sessions, what it may still do once it has confined itself, its records and exit codes. Help,
//! errors and the README's table come from it.

use orchestrator_confine::Needs;

/// A command, as its help and the README's table have it, and as its start enforces it.
#[derive(Clone, Copy, Debug)]
pub struct CommandRow {
    /// The words that select it, such as `run` or `mcp add`.
    pub name: &'static str,
    /// How many sessions it opens.
    pub sessions: Sessions,
    /// What it may do once its files are read.
    pub access: Access,
    /// Whether it has a run log.
    pub log: bool,
    /// The exit code of a command line that is wrong, or that names what is not there.
    pub usage: u8,
    /// All its exit codes, in words.
    pub exit: &'static str,
}

/// How many sessions a command opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// It starts no executor.
    None,
    /// One: a lost session ends the command.
    One,
    /// As many as it needs: another executor can replace a lost one.
    Lasting {
        /// Cells that the executor keeps ready between calls.
        spare: u8,
    },
}

/// What a command may do after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All that its user may: it reads and writes files, and hears nobody but that user.
    Files,
    /// Its terminal and the sockets of sessions that wait for answers.
    Answers,
    /// What the confinement leaves.
    Confined {
        network: Network,
        /// The directories in which it writes.
        writes: Writes,
    },
}

/// Whether a command has the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    None,
    /// If a tool or a server needs it.
    IfNeeded,
    Always,
    /// It accepts connections at sockets that listened before, and makes none.
    Accepts,
}

/// Where a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    Nothing,
    /// Into the directory of MCP servers: their logs, their recorded tools, logins. These servers have sessions of their own.
    Servers,
    /// The same, and into that of conversations.
    ServersAndChats,
    /// Into a directory that it has made and removes.
    Temporary,
}

impl CommandRow {
    /// A command that opens no session and keeps its user's rights.
    pub const fn of_files(name: &'static str, exit: &'static str) -> Self {
        Self {
            name,
            sessions: Sessions::None,
            access: Access::Files,
            log: false,
            usage: crate::exit::USAGE,
            exit,
        }
    }

    /// What of `needs` this command has by its row. What the row does not name, its start cannot get by mistake.
    pub(crate) fn bound(&self, needs: Needs) -> Needs {
        let (network, writes) = match self.access {
            Access::Files | Access::Answers => (Network::None, Writes::Nothing),
            Access::Confined { network, writes } => (network, writes),
        };
        let has_servers = matches!(writes, Writes::Servers | Writes::ServersAndChats);
        let reaches_again = has_servers || matches!(self.sessions, Sessions::Lasting { .. });
        Needs {
            web: needs.web && matches!(network, Network::IfNeeded | Network::Always),
            serves: needs.serves && network == Network::Accepts,
            write: match writes {
                Writes::Nothing => Vec::new(),
                Writes::Servers | Writes::ServersAndChats | Writes::Temporary => needs.write,
            },
            socket: needs.socket.filter(|_| reaches_again),
            ..needs
        }
    }

    /// Cells that the executor keeps ready between calls.
    pub(crate) fn spare(&self) -> u8 {
        match self.sessions {
            Sessions::None | Sessions::One => 0,
            Sessions::Lasting { spare } => spare,
        }
    }

    /// The exit codes below the help of the command.
    pub fn exit_codes(&self) -> String {
        wrapped(&format!("Exit code: {}.", self.exit), 0)
    }

    /// The row of the README's table.
    pub fn markdown(&self) -> String {
        let sessions = match self.sessions {
            Sessions::None => "none",
            Sessions::One => "one",
            Sessions::Lasting { .. } => "lasting",
        };
        let (network, writes) = match self.access {
            Access::Files => ("as its user", "as its user"),
            Access::Answers => ("none", "nothing; sockets of waiting sessions"),
            Access::Confined { network, writes } => (
                match network {
                    Network::None => "none",
                    Network::IfNeeded => "if needed",
                    Network::Always => "yes",
                    Network::Accepts => "accepts connections, makes none",
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

    const fn row(sessions: Sessions, access: Access) -> CommandRow {
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
            let needs = row(sessions, Access::Confined { network, writes }).bound(all.clone());
            (needs.web, needs.write.len(), needs.socket.is_some())
        };
        assert_eq!(
            got(Sessions::One, Network::None, Writes::Nothing),
            (false, 0, false)
        );
        assert_eq!(
            got(Sessions::One, Network::IfNeeded, Writes::Servers),
            (true, 1, true)
        );
        assert_eq!(
            got(
                Sessions::Lasting { spare: 0 },
                Network::Always,
                Writes::Nothing
            ),
            (true, 0, true)
        );
        let accepting = Access::Confined {
            network: Network::Accepts,
            writes: Writes::Nothing,
        };
        let accepting = row(Sessions::One, accepting).bound(all.clone());
        assert!(accepting.serves && !accepting.web);
        let none = row(Sessions::None, Access::Files).bound(all);
        assert!(!none.serves);
        assert!(!none.web && none.write.is_empty() && none.socket.is_none());
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
