//! `lazaret man`: prints a manual page.

use broker_protocol::Failed;
use clap::Args;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;

const EXAMPLES: &str = "\
Examples:
  lazaret man run | man -l -
  lazaret man mcp add > ~/.local/share/man/man1/lazaret-mcp-add.1";

/// Print a command's manual page
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Man {
    /// The command, such as `run` or `mcp add`; the page of `lazaret` itself if absent
    words: Vec<String>,
}

impl FrontEnd for Man {
    const ROW: CommandRow = CommandRow::of_files("man", "0; 2 for a command that does not exist");

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let mut command = launch.command_line();
        // Gives each subcommand its full name.
        command.build();
        let absent = || Failed::invalid(format!("no such command: {}", self.words.join(" ")));
        let found = self.words.iter().try_fold(&command, |command, word| {
            command.find_subcommand(word).ok_or_else(absent)
        })?;
        let release = command.get_version().unwrap_or_default();
        let mut page = Vec::new();
        clap_mangen::Man::new(found.clone())
            .source(format!("lazaret {release}"))
            .render(&mut page)
            .map_err(|error| Failed::internal(error.to_string()))?;
        print::result(&page)?;
        Ok(exit::OK)
    }
}
