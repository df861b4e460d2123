//! `lazaret credential`: lists, tries, defines and removes the credentials that commands use and do not see.
//!
//! No value is ever read here: a file is looked at from outside, and a program is started by the executor alone, for the gateway.

mod list;
mod edit;
mod source;
mod test;

use broker_protocol::Failed;
use clap::{Args, Subcommand};
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;

/// Manage the credentials that commands use and do not see
///
/// They are defined in policy files, with where their values come from; no command here shows a value.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret credential list\n  lazaret credential add github --profile work\n  \
                  lazaret credential add npm --file ~/.config/tokens/npm\n  lazaret credential test github\n  \
                  lazaret credential remove github"
)]
pub(crate) struct Credential {
    #[command(subcommand)]
    command: CredentialCommand,
}

#[derive(Subcommand)]
enum CredentialCommand {
    List(list::ListCredentials),
    Test(test::TestCredential),
    Add(edit::AddCredential),
    Remove(edit::RemoveCredential),
}

impl FrontEnd for Credential {
    const ROW: CommandRow = CommandRow {
        usage: exit::USAGE,
        ..CommandRow::of_files("credential", "as its subcommands")
    };
    const NESTED: &'static [CommandRow] = &[
        list::ListCredentials::ROW,
        test::TestCredential::ROW,
        edit::AddCredential::ROW,
        edit::RemoveCredential::ROW,
    ];

    fn errors(&self) -> ErrorForm {
        match &self.command {
            CredentialCommand::List(list) => list.errors(),
            CredentialCommand::Test(test) => test.errors(),
            CredentialCommand::Add(add) => add.errors(),
            CredentialCommand::Remove(remove) => remove.errors(),
        }
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        match self.command {
            CredentialCommand::List(list) => list.main(launch),
            CredentialCommand::Test(test) => test.main(launch),
            CredentialCommand::Add(add) => add.main(launch),
            CredentialCommand::Remove(remove) => remove.main(launch),
        }
    }
}
