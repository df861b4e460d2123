//! `lazaret approve --json`: lines for a program that asks the user in its own way.

use crate::approver::queue::{ApprovalQueue, PendingCall, QueueEvent};
use broker_protocol::{Decision, Extent, Failed};
use orchestrator_results::proposal::{self, Proposal};
use orchestrator_session::Approval;
use orchestrator_wire::json::{ChallengeJson, GrantJson};
use orchestrator_stdio::line_reader::{Lines, Next};
use orchestrator_stdio::print;
use orchestrator_stdio::streams::Input;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A pending call, as a line.
#[derive(Serialize)]
pub struct PendingLine<'a> {
    event: &'static str,
    session: &'a str,
    call: u64,
    approval: ChallengeJson<'a>,
    tool: &'a str,
    input: Value,
    about: &'a [String],
    body: &'a [String],
    bytes: usize,
}

impl<'a> PendingLine<'a> {
    /// The line for a pending call.
    pub fn new(pending: &'a PendingCall) -> Self {
        let Proposal { about, body, bytes } = &pending.proposal;
        Self {
            event: "asked",
            session: &pending.key.0,
            call: pending.key.1,
            approval: ChallengeJson::from(&pending.challenge),
            tool: pending.request.asked_as(),
            input: proposal::input(&pending.request),
            about,
            body,
            bytes: *bytes,
        }
    }
}

/// A line from that program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    session: String,
    call: Option<u64>,
    approve: Option<Answer>,
    #[serde(default)]
    grants: bool,
    revoke: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Once,
    Session,
    No,
}

impl From<Answer> for Approval {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Once => Approval::Yes(Extent::Once),
            Answer::Session => Approval::Yes(Extent::Session),
            Answer::No => Approval::No,
        }
    }
}

/// Exchanges lines until the input ends.
pub async fn serve(mut queue: ApprovalQueue) -> Result<(), Failed> {
    let input = Input::stdin().map_err(|error| Failed::internal(error.to_string()))?;
    let mut lines = Lines::new(input);
    let mut waiting: Vec<PendingCall> = Vec::new();
    loop {
        tokio::select! {
            event = queue.next() => report(event, &mut waiting)?,
            next = lines.next() => match next {
                Next::Line(line) => {
                    if let Err(error) = follow(&line, &queue, &waiting) {
                        print::json(&json!({ "event": "wrong", "message": error }))?;
                    }
                }
                Next::TooLong => {
                    print::json(&json!({ "event": "wrong", "message": "the line is too long" }))?;
                }
                Next::End => return Ok(()),
            },
        }
    }
}

fn report(event: QueueEvent, waiting: &mut Vec<PendingCall>) -> Result<(), Failed> {
    match event {
        QueueEvent::SessionOpened(session, opened) => {
            let opened = json!({
                "project": opened.project,
                "central": opened.central,
                "profile": opened.profile,
                "policy": opened.policy.to_string(),
                "tier": opened.tier.name(),
            });
            print::json(&json!({ "event": "session", "session": session, "opened": opened }))
        }
        QueueEvent::SessionEnded(session, error) => {
            waiting.retain(|pending| pending.key.0 != session);
            print::json(
                &json!({ "event": "over", "session": session, "message": error.to_string() }),
            )
        }
        QueueEvent::Pending(pending) => {
            print::json(&PendingLine::new(&pending))?;
            waiting.push(*pending);
            Ok(())
        }
        QueueEvent::Decided((session, call), decision) => {
            waiting.retain(|pending| (&pending.key.0, pending.key.1) != (&session, call));
            let decision = match decision {
                Decision::Granted(_) => "granted",
                Decision::Refused => "refused",
                Decision::Expired => "expired",
                Decision::Cancelled => "cancelled",
            };
            print::json(
                &json!({ "event": "ended", "session": session, "call": call, "decision": decision }),
            )
        }
        QueueEvent::Rejected(session, rejected) => print::json(&json!({
            "event": "not_taken", "session": session, "call": rejected.call, "fault": rejected.fault.name(),
        })),
        QueueEvent::Grants(session, standing) => {
            let grants: Vec<GrantJson> = standing.iter().map(GrantJson::from).collect();
            print::json(&json!({ "event": "grants", "session": session, "grants": grants }))
        }
    }
}

fn follow(line: &[u8], queue: &ApprovalQueue, waiting: &[PendingCall]) -> Result<(), String> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match line {
        Line {
            session,
            call: Some(call),
            approve: Some(answer),
            grants: false,
            revoke: None,
        } => {
            let meant = waiting
                .iter()
                .find(|pending| (&pending.key.0, pending.key.1) == (&session, call));
            queue.answer(meant.ok_or("no such call waits")?, answer.into());
        }
        Line {
            session,
            call: None,
            approve: None,
            grants: true,
            revoke: None,
        } => {
            queue.grants(&session, None);
        }
        Line {
            session,
            call: None,
            approve: None,
            grants: false,
            revoke: Some(grant),
        } => {
            queue.grants(&session, Some(grant));
        }
        _ => return Err("a line has `call` and `approve`, or `grants`, or `revoke`".into()),
    }
    Ok(())
}
