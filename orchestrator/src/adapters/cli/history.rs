//! `lazaret history`: what the file tools have changed.

use super::call::{ask, report};
use super::place::Place;
use super::runtime;
use crate::adapters::executor::Greeting;
use broker_protocol::{Failed, History as Request, limit};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  lazaret history
  lazaret history --limit 5 --json | jq '.metadata.changes[].path'

A line has the number of the change, its time, what it did, the call that made
it as SESSION:NUMBER, and the file. `lazaret undo` takes the number or the call;
the audit and the run log have the call under the same session and number.
Kept are the changes of `file_write`, `file_edit` and `undo` below these roots,
as many as the policy's limit `undo` has room for. What commands change is not
kept. A command in a cell can forge or delete entries; `lazaret undo` checks
what it restores.

Exit code: 0; 2 wrong arguments; 125 lazaret failed; 126 refused by policy.";

/// List what the file tools have changed, newest first
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct History {
    /// Print the list as one JSON object
    #[arg(long)]
    pub json: bool,
    /// At most this many changes
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::CHANGES)))]
    limit: u32,
}

impl History {
    /// Prints the list; returns our exit code.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        let greeting = Greeting::open(&place.endpoint(), place.open(0)?)?;
        let answer = runtime()?.block_on(async {
            let sandbox = greeting.opened().await?;
            Ok::<_, Failed>(
                ask(&sandbox, broker_protocol::Request::History(Request { limit: self.limit })).await,
            )
        })?;
        report(&answer, self.json)
    }
}
