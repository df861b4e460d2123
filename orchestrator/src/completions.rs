//! `lazaret completions`: prints the script with which a shell completes our command line.

use broker_protocol::Failed;
use clap::{Args, ValueEnum};
use clap_complete::aot;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;

const EXAMPLES: &str = "\
Examples:
  lazaret completions bash > ~/.local/share/bash-completion/completions/lazaret
  lazaret completions zsh > ~/.zfunc/_lazaret      (a directory of your fpath)
  lazaret completions fish > ~/.config/fish/completions/lazaret.fish";

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell that completes command lines
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl FrontEnd for Completions {
    const ROW: CommandRow = CommandRow::of_files("completions", "0; 2 for another shell");

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let mut command = launch.command_line();
        let shell = match self.shell {
            Shell::Bash => aot::Shell::Bash,
            Shell::Zsh => aot::Shell::Zsh,
            Shell::Fish => aot::Shell::Fish,
        };
        let mut script = Vec::new();
        aot::generate(shell, &mut command, "lazaret", &mut script);
        print::result(&script)?;
        Ok(exit::OK)
    }
}
