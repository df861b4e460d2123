//! `lazaret history`: lists the changes that file tools have made.

use crate::call::call_ended;
use crate::result;
use broker_protocol::{Failed, History as Wanted, Request, limit};
use clap::Args;
use orchestrator_confine::Needs;
use orchestrator_engine::executor::Greeting;
use orchestrator_engine::{Config, HookGuard, Session};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{LogOption, Options, PlaceOptions};
use orchestrator_launch::launch::{Confined, ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::typed;
use orchestrator_text::known::redactor;

const EXAMPLES: &str = "\
Examples:
  lazaret history
  lazaret history --limit 5 --json | jq '.metadata.changes[].path'

A line has the number of the change, its time, what it did, the call that made
it as SESSION:NUMBER, and the file. `lazaret undo` takes the number or the call;
the audit and the run log have the call under the same session and number.
Listed are the changes of `file_write`, `file_edit` and `undo` below these roots,
as many as the policy's limit `undo` has room for. What commands change is not
listed. A command in a cell can forge or delete entries; `lazaret undo` checks
what it restores.";

/// List what the file tools have changed, newest first
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct History {
    /// Print the list as one JSON object
    #[arg(long)]
    json: bool,
    /// At most this many changes
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::CHANGES)))]
    limit: u32,
    #[command(flatten)]
    place: PlaceOptions,
    #[command(flatten)]
    log: LogOption,
}

impl FrontEnd for History {
    const ROW: CommandRow = CommandRow {
        name: "history",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0; 2 wrong arguments; 125 lazaret failed; 126 refused by policy",
    };

    fn wrong_arguments() -> ErrorForm {
        ErrorForm::result(true, "history")
    }

    fn errors(&self) -> ErrorForm {
        ErrorForm::result(self.json, "history")
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.place).and(&self.log))?;
        let (config, confined) = session(prepared)?;
        let proof = confined.proof();
        let listed = confined.run(call_ended, async {
            let session = Session::start(config, proof);
            session.open().await?;
            let wanted = Wanted { limit: self.limit };
            typed::ask(&session, "history", Request::History(wanted)).await
        })?;
        result::report(&listed, self.json)
    }
}

/// The configuration of a session that is used for requests only.
pub(crate) fn session(prepared: Prepared) -> Result<(Config, Confined), Failed> {
    let open = prepared.options().open()?.open;
    let greeting = Greeting::open(&prepared.options().endpoint(), open.clone())?;
    let confined = prepared.confine(Needs::default());
    let config = Config {
        greeting: Some(greeting),
        subscribers: vec![confined.log()],
        ..Config::new(open, redactor(), HookGuard::ByPerson)
    };
    Ok((config, confined))
}
