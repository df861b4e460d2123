//! What the commands about other people's servers have in common.

use clap::Args;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{DirectoryOptions, Options, VerboseOption};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};

/// What selects the project whose servers are meant.
#[derive(Args)]
pub(crate) struct ServerPlace {
    #[command(flatten)]
    directory: DirectoryOptions,
    #[command(flatten)]
    verbose: VerboseOption,
}

impl ServerPlace {
    pub(crate) fn options(&self) -> Options {
        Options::of(&self.directory).and(&self.verbose)
    }
}

/// The row of a command that starts servers.
pub(crate) const fn row(name: &'static str, exit: &'static str) -> CommandRow {
    CommandRow {
        name,
        sessions: SessionCount::None,
        access: CommandAccess::Confined {
            network: NetworkUse::Always,
            writes: Writes::Servers,
        },
        log: false,
        usage: exit::USAGE,
        exit,
    }
}
