//! `lazaret undo`: brings back what a change of a file tool has replaced.

use super::call::{ask, report};
use super::place::Place;
use super::{runtime, say};
use crate::adapters::executor::{Connection, Greeting};
use crate::domain::answer::{Answer, Details};
use crate::ports::Sandbox;
use broker_protocol::{Failed, History, Request, Undo as Wanted, ZonePath, limit};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  lazaret history          numbers the changes
  lazaret undo 12          restores what change 12 replaced
  lazaret undo 13          undoes that again, if it was change 13
  lazaret undo 12 --force  although the file has changed since

A file that the change has made is removed; folders made for it stay. A file
that is no longer what the change left is not touched without --force.

Exit code: 0; 1 no such change, or what it replaced is not kept any more;
2 wrong arguments, or the file has changed since; 3 violation; 125 lazaret
failed; 126 refused by policy.";

/// Undo a change of a file tool
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Undo {
    /// Also when the file is no longer what the change left
    #[arg(long)]
    force: bool,
    /// Print the whole result as one JSON object
    #[arg(long)]
    json: bool,
    /// The change, by its number in `lazaret history` and in the call's result
    #[arg(value_name = "CALL")]
    change: u64,
}

impl Undo {
    /// Undoes it; returns our exit code.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        let greeting = Greeting::open(&place.endpoint(), place.open(0)?)?;
        let answer = runtime()?.block_on(async { self.perform(&greeting.opened().await?).await })?;
        report(&answer, self.json)
    }

    /// The broker decides on a path, and so it has to be said with the number.
    async fn perform(&self, sandbox: &Connection) -> Result<Answer, Failed> {
        let history = ask(sandbox, Request::History(History { limit: limit::CHANGES })).await;
        let Details::Changes { changes } = &history.about.details else { return Ok(history) };
        let listed = changes.iter().find(|listed| listed.number == self.change);
        // What is not listed has no path; the answer says that there is no such change.
        let path = match listed {
            Some(listed) => sandbox.roots().parse(&listed.path),
            None => ZonePath::new(broker_protocol::Zone::Project, ""),
        };
        let path = path.map_err(|error| say::invalid(error.to_string()))?;
        Ok(ask(sandbox, Request::Undo(Wanted { change: self.change, path, force: self.force })).await)
    }
}
