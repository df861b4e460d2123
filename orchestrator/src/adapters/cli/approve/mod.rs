//! `lazaret approve`: answers for the user where the policy takes answers from nobody else.
//!
//! Three faces of one desk: a terminal, lines of text, lines of JSON.

mod desk;
mod json;
mod lines;
mod page;
mod terminal;

use super::{exit, runtime, say};
use crate::adapters::executor::ExecutorError;
use broker_protocol::Failed;
use clap::Args;
use desk::{Desk, News, Waiting};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// How long a list waits for sessions to say what waits.
const LIST: Duration = Duration::from_millis(1500);

const EXAMPLES: &str = r#"Keys on a terminal:
  y   allow this call          s   allow it, and for the rest of its session
  n   do not allow it              each call of the tool that the rule asks about,
                                   or, where that is not sure, this very call
  space, b, e   next page, page before, the end       q   leave
A call of several pages is allowed only when its end has been on the screen.

Lines with --json, out and in:
  {"event":"session","session":"81-0af3...","opened":{...}}
  {"event":"asked","session":"...","call":7,"approval":{...},"tool":"bash",
      "input":{...},"about":[...],"body":[...],"bytes":6}
  {"event":"ended","session":"...","call":7,"decision":"granted"}
  {"event":"not_taken","session":"...","call":7,"fault":"not_waiting"}
  {"event":"grants","session":"...","grants":[...]}
  {"session":"...","call":7,"approve":"once"}    or "session", "no"
  {"session":"...","grants":true}
  {"session":"...","revoke":1}

A session is found where its policy says: [approval] channel = "separate". Its
own client may not answer, nor what that has started; use a terminal of its own.

Exit code: 0 at the end; 125 lazaret failed."#;

/// Answer for the calls that wait, of all your sessions
///
/// Shows each call with everything in it that hides made visible, and for a file what would change.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Approve {
    /// Say what waits, and leave
    #[arg(long)]
    list: bool,
    /// Speak JSON lines
    #[arg(long)]
    json: bool,
}

impl Approve {
    /// Answers until there is nobody left to ask; returns our exit code.
    pub fn main(self) -> Result<u8, Failed> {
        // What another process of this user could read or change in us, it could make us say.
        nix::sys::prctl::set_dumpable(false).map_err(|error| say::internal(error.to_string()))?;
        runtime()?.block_on(async {
            let desk = Desk::open();
            match (self.list, self.json) {
                (true, json) => list(desk, json).await?,
                (false, true) => json::serve(desk).await?,
                (false, false) if io::stdin().is_terminal() && io::stdout().is_terminal() => {
                    terminal::serve(desk).await?;
                }
                (false, false) => lines::serve(desk).await?,
            }
            Ok(exit::OK)
        })
    }
}

/// Why a session takes no answers any more.
fn over(session: &str, error: &ExecutorError) -> String {
    match error {
        ExecutorError::Lost => format!("{session}: the session has ended"),
        error => format!("{session}: {error}"),
    }
}

async fn list(mut desk: Desk, json: bool) -> Result<(), Failed> {
    let until = tokio::time::Instant::now() + LIST;
    let mut waiting: Vec<Waiting> = Vec::new();
    while let Ok(news) = tokio::time::timeout_at(until, desk.next()).await {
        match news {
            News::Asked(asked) => waiting.push(*asked),
            News::Ended(key, _) => waiting.retain(|waiting| waiting.key != key),
            News::Over(session, error) => say::problem(&over(&session, &error)),
            News::Session(..) | News::NotTaken(..) | News::Grants(..) => {}
        }
    }
    if json {
        return waiting.iter().try_for_each(|waiting| say::json(&json::Asked::new(waiting)));
    }
    let page: String = waiting.iter().map(|waiting| format!("{}\n", page::title(waiting))).collect();
    say::result(if page.is_empty() { "nothing waits\n" } else { &page }.as_bytes())
}
