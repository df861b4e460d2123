//! `lazaret approve --json`: lines for a program that asks the user in its own way.

use super::desk::{Desk, News, Waiting};
use crate::adapters::cli::event::{Lasting, Question};
use crate::adapters::cli::session::reader::{Lines, Next};
use crate::adapters::cli::streams::Input;
use crate::adapters::cli::{event, say};
use crate::domain::proposal::{self, Proposal};
use crate::ports::Approval;
use broker_protocol::{Decision, Extent, Failed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A call that waits, as a line.
#[derive(Serialize)]
pub struct Asked<'a> {
    event: &'static str,
    session: &'a str,
    call: u64,
    approval: Question<'a>,
    tool: &'a str,
    input: Value,
    about: &'a [String],
    body: &'a [String],
    bytes: usize,
}

impl<'a> Asked<'a> {
    /// Puts a call into JSON.
    pub fn new(waiting: &'a Waiting) -> Self {
        let Proposal { about, body, bytes } = &waiting.proposal;
        Self {
            event: "asked",
            session: &waiting.key.0,
            call: waiting.key.1,
            approval: event::Question::from(&waiting.challenge),
            tool: waiting.request.asked_as(),
            input: proposal::input(&waiting.request),
            about,
            body,
            bytes: *bytes,
        }
    }
}

/// A line of the program's.
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

/// Speaks lines until the input ends.
pub async fn serve(mut desk: Desk) -> Result<(), Failed> {
    let input = Input::stdin().map_err(|error| say::internal(error.to_string()))?;
    let mut lines = Lines::new(input);
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        tokio::select! {
            news = desk.next() => tell(news, &mut waiting)?,
            next = lines.next() => match next {
                Next::Line(line) => {
                    if let Err(wrong) = take(&line, &desk, &waiting) {
                        say::json(&json!({ "event": "wrong", "message": wrong }))?;
                    }
                }
                Next::TooLong => say::json(&json!({ "event": "wrong", "message": "the line is too long" }))?,
                Next::End => return Ok(()),
            },
        }
    }
}

fn tell(news: News, waiting: &mut Vec<Waiting>) -> Result<(), Failed> {
    match news {
        News::Session(session, opened) => {
            let opened = json!({
                "project": opened.project,
                "central": opened.central,
                "profile": opened.profile,
                "policy": opened.policy.to_string(),
                "tier": opened.tier.name(),
            });
            say::json(&json!({ "event": "session", "session": session, "opened": opened }))
        }
        News::Over(session, error) => {
            waiting.retain(|waiting| waiting.key.0 != session);
            say::json(&json!({ "event": "over", "session": session, "message": error.to_string() }))
        }
        News::Asked(asked) => {
            say::json(&Asked::new(&asked))?;
            waiting.push(*asked);
            Ok(())
        }
        News::Ended((session, call), decision) => {
            waiting.retain(|waiting| (&waiting.key.0, waiting.key.1) != (&session, call));
            let decision = match decision {
                Decision::Granted(_) => "granted",
                Decision::Refused => "refused",
                Decision::Expired => "expired",
                Decision::Cancelled => "cancelled",
            };
            say::json(&json!({ "event": "ended", "session": session, "call": call, "decision": decision }))
        }
        News::NotTaken(session, not) => say::json(&json!({
            "event": "not_taken", "session": session, "call": not.call, "fault": not.fault.name(),
        })),
        News::Grants(session, grants) => {
            let grants: Vec<Lasting> = grants.iter().map(Lasting::from).collect();
            say::json(&json!({ "event": "grants", "session": session, "grants": grants }))
        }
    }
}

fn take(line: &[u8], desk: &Desk, waiting: &[Waiting]) -> Result<(), String> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match line {
        Line { session, call: Some(call), approve: Some(answer), grants: false, revoke: None } => {
            let meant = waiting.iter().find(|waiting| (&waiting.key.0, waiting.key.1) == (&session, call));
            let meant = meant.ok_or("no such call waits")?;
            desk.answer(meant, answer.into());
            Ok(())
        }
        Line { session, call: None, approve: None, grants: true, revoke: None } => {
            desk.grants(&session, None);
            Ok(())
        }
        Line { session, call: None, approve: None, grants: false, revoke: Some(grant) } => {
            desk.grants(&session, Some(grant));
            Ok(())
        }
        _ => Err("a line has `call` and `approve`, or `grants`, or `revoke`".into()),
    }
}
