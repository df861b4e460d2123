//! `lazaret history`: lists the changes that file tools have made.

use crate::result;
use broker_protocol::{Failed, History as Wanted, Request, limit};
use clap::Args;
use orchestrator_confine::{Needs, confine};
use orchestrator_options::session_options::SessionOptions;
use orchestrator_records::runlog::RunLog;
use orchestrator_session::executor::Greeting;
use orchestrator_session::{Config, Session};
use orchestrator_terminal::runtime::runtime;
use orchestrator_terminal::typed;
use orchestrator_text::known::redactor;
use std::rc::Rc;

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
    /// Prints the list; returns the exit code.
    pub fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let log = Rc::new(options.log("history"));
        let config = session(options, &log)?;
        let listed = runtime()?.block_on(async {
            let session = Session::start(config);
            session.open().await?;
            let wanted = Wanted { limit: self.limit };
            typed::ask(&session, "history", Request::History(wanted)).await
        });
        log.end(if listed.is_ok() {
            "the call has ended"
        } else {
            "no session could be opened"
        });
        result::report(&*listed?, self.json)
    }
}

/// The configuration of a session that is used for requests only. Confines this process.
pub fn session(options: &SessionOptions, log: &Rc<RunLog>) -> Result<Config, Failed> {
    let open = options.open(0)?.open;
    let greeting = Greeting::open(&options.endpoint(), open.clone())?;
    confine(&Needs::default());
    let config = Config::new(open, redactor());
    Ok(Config {
        greeting: Some(greeting),
        subscribers: vec![log.clone()],
        ..config
    })
}
