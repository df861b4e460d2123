//! `lazaret approve`: answers approval questions for the user when the policy accepts answers from no other channel.
//!
//! There is one queue of questions. It is answered on a terminal, as lines of text or as lines of JSON.

use broker_protocol::Failed;
use clap::Args;
use nix::unistd::Uid;
use orchestrator_engine::executor::ExecutorError;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, SessionCount};
use orchestrator_launch::state_directory;
use orchestrator_launch::stdio::print;
use orchestrator_terminal::approver::json::pending_line;
use orchestrator_terminal::approver::queue::{ApprovalQueue, PendingCall, QueueEvent, end_message};
use orchestrator_terminal::approver::{json, keys, lines, page};
use orchestrator_wire::approver::ApproverEvent;
use policies::directories;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// How long `--list` waits for sessions to report their pending questions.
const LIST: Duration = Duration::from_millis(1500);

const EXAMPLES: &str = r#"Keys on a terminal:
  y   allow this call          s   allow it, and for the rest of its session
  n   do not allow it              each call of the tool that the rule asks about,
                                   or, where that is not sure, this very call
  space, b, e   next page, page before, the end       q   leave
A call of several pages is allowed only when its end has been on the screen.
Without a terminal, words on lines: `once 7`, `session 7` for call 7, `no`.

Lines with --json, out and in:
  {"event":"session","session":"81-0af3...","opened":{...}}
  {"event":"approval","session":"...","call":7,"approval":{...},"tool":"bash",
      "input":{...},"about":[...],"body":[...],"bytes":6}
  {"event":"ended","session":"...","call":7,"decision":"granted"}
  {"event":"not_taken","session":"...","call":7,"notTaken":"not_waiting"}
  {"event":"grants","session":"...","grants":[...]}
  {"event":"over","session":"...","error":{"code":"executor_lost","message":"..."}}
  {"event":"notice","error":{"code":"not_waiting","message":"..."}}
  {"session":"...","call":7,"approve":"once"}    or "session", "no",
      {"minutes":10}
  {"session":"...","grants":true}
  {"session":"...","revoke":1}

A session is found where its policy says: [approval] channel = "separate". Its
own client may not answer, nor what has started that, nor what these start; use
a terminal of its own. A program without one answers only where the policy says
terminal = false."#;

/// Approve or deny pending calls of all sessions
///
/// Shows each call with its invisible characters escaped, and for a file what would change.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Approve {
    /// List what waits, and end
    #[arg(long)]
    list: bool,
    /// Speak JSON lines
    #[arg(long)]
    json: bool,
}

impl FrontEnd for Approve {
    const ROW: CommandRow = CommandRow {
        name: "approve",
        sessions: SessionCount::None,
        access: CommandAccess::Answers,
        log: false,
        usage: exit::USAGE,
        exit: "0 at the end; 1 with --list where a session takes no answers of this process; 2 wrong arguments; 125 lazaret failed",
    };

    fn wrong_arguments() -> ErrorForm {
        ErrorForm::Fault
    }

    fn errors(&self) -> ErrorForm {
        ErrorForm::fault(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        // Another process of this user that could read or modify this one could answer in its place.
        nix::sys::prctl::set_dumpable(false)
            .map_err(|error| Failed::internal(error.to_string()))?;
        let uid = Uid::effective().as_raw();
        let directories =
            directories::approvals(&state_directory::home(), uid, &state_directory::variable);
        let confined = launch.confine_approver::<Self>(&directories);
        let proof = confined.proof();
        confined.run(|_| "the answers have ended", async {
            let queue = ApprovalQueue::new(directories);
            match (self.list, self.json) {
                (true, json) => return list(queue, json).await,
                (false, true) => json::serve(queue).await?,
                (false, false) if io::stdin().is_terminal() && io::stdout().is_terminal() => {
                    keys::serve(queue, proof).await?;
                }
                (false, false) => lines::serve(queue).await?,
            }
            Ok(exit::OK)
        })
    }
}

/// The exit code: where a session takes no answers of ours, nobody can say what waits there.
async fn list(mut queue: ApprovalQueue, json: bool) -> Result<u8, Failed> {
    let until = tokio::time::Instant::now() + LIST;
    let mut waiting: Vec<PendingCall> = Vec::new();
    let mut is_refused = false;
    while let Ok(event) = tokio::time::timeout_at(until, queue.next()).await {
        match event {
            QueueEvent::Pending(pending) => waiting.push(*pending),
            QueueEvent::Decided(key, _) => waiting.retain(|pending| pending.key != key),
            QueueEvent::SessionEnded(session, error) => {
                is_refused |= matches!(error, ExecutorError::Fault(_));
                print::problem(&end_message(&session, &error));
            }
            QueueEvent::SessionOpened(..) | QueueEvent::Rejected(..) | QueueEvent::Grants(..) => {}
        }
    }
    if json {
        waiting.iter().try_for_each(|pending| {
            print::json(&ApproverEvent::Approval(Box::new(pending_line(pending))))
        })?;
    } else {
        let line = |pending| {
            format!(
                "{} s left: {}\n",
                page::seconds_left(pending),
                page::title(pending)
            )
        };
        let page: String = waiting.iter().map(line).collect();
        let nothing = if is_refused { "" } else { "nothing waits\n" };
        print::result(if page.is_empty() { nothing } else { &page }.as_bytes())?;
    }
    Ok(if is_refused { exit::FAILED } else { exit::OK })
}
