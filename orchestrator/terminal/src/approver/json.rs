//! `lazaret approve --json`: lines for a program that asks the user in its own way.

use crate::approver::queue::{ApprovalQueue, PendingCall, QueueEvent};
use broker_protocol::{Decision, Failed};
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_results::proposal::{self, Proposal};
use orchestrator_wire::approval::{AnswerName, ApprovalRequest, NotOffered};
use orchestrator_wire::approver::{ApproverCommand, ApproverEvent, OpenedJson, PendingLine};
use orchestrator_wire::error::{ErrorBody, ErrorCode};
use orchestrator_wire::json::GrantJson;
use thiserror::Error;

/// The line for a pending call.
pub fn pending_line(pending: &PendingCall) -> PendingLine<'_> {
    let Proposal { about, body, bytes } = &pending.proposal;
    PendingLine {
        session: &pending.key.0,
        call: pending.key.1,
        approval: ApprovalRequest::new(&pending.challenge, pending.request.asked_as(), None),
        tool: pending.request.asked_as(),
        input: proposal::input(&pending.request),
        about,
        body,
        bytes: *bytes,
    }
}

/// The answers that an approver may give: it is no client of the session, and ends nothing in it.
const ANSWERS: &[AnswerName] = &[
    AnswerName::Once,
    AnswerName::Session,
    AnswerName::Minutes,
    AnswerName::No,
];

/// Why a line is not carried out.
#[derive(Debug, Error)]
enum ApproverLineError {
    #[error("the line is too long")]
    TooLong,
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("a line has `call` and `approve`, or `grants`, or `revoke`")]
    Fields,
    #[error("no such call waits")]
    NotWaiting,
    #[error(transparent)]
    NotOffered(#[from] NotOffered),
}

/// Exchanges lines until the input ends.
pub async fn serve(mut queue: ApprovalQueue) -> Result<(), Failed> {
    let input = InputStream::stdin().map_err(|error| Failed::internal(error.to_string()))?;
    let mut lines = StdinLines::new(input);
    let mut waiting: Vec<PendingCall> = Vec::new();
    loop {
        tokio::select! {
            event = queue.next() => report(event, &mut waiting)?,
            next = lines.next() => match next {
                NextLine::Line(line) => {
                    if let Err(error) = follow(&line, &queue, &waiting) {
                        reject(&error)?;
                    }
                }
                NextLine::TooLong => reject(&ApproverLineError::TooLong)?,
                NextLine::End => return Ok(()),
            },
        }
    }
}

impl ApproverLineError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooLong | Self::Json(_) | Self::Fields => ErrorCode::InvalidInput,
            Self::NotWaiting => ErrorCode::NotWaiting,
            Self::NotOffered(_) => ErrorCode::NotOffered,
        }
    }
}

fn reject(error: &ApproverLineError) -> Result<(), Failed> {
    let error = ErrorBody::new(error.code(), error.to_string());
    print::json(&ApproverEvent::Notice { error })
}

fn report(event: QueueEvent, waiting: &mut Vec<PendingCall>) -> Result<(), Failed> {
    match event {
        QueueEvent::SessionOpened(session, opened) => {
            let opened = OpenedJson {
                project: &opened.project,
                central: &opened.central,
                profile: &opened.profile,
                policy: opened.policy.to_string(),
                tier: opened.tier.name(),
            };
            print::json(&ApproverEvent::Session {
                session: &session,
                opened,
            })
        }
        QueueEvent::SessionEnded(session, error) => {
            waiting.retain(|pending| pending.key.0 != session);
            let error = ErrorBody::from(&Failed::from(error));
            print::json(&ApproverEvent::Over {
                session: &session,
                error,
            })
        }
        QueueEvent::Pending(pending) => {
            print::json(&ApproverEvent::Approval(Box::new(pending_line(&pending))))?;
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
            print::json(&ApproverEvent::Ended {
                session: &session,
                call,
                decision,
            })
        }
        QueueEvent::Rejected(session, rejected) => print::json(&ApproverEvent::NotTaken {
            session: &session,
            call: rejected.call,
            not_taken: rejected.fault.name(),
        }),
        QueueEvent::Grants(session, standing) => print::json(&ApproverEvent::Grants {
            session: &session,
            grants: standing.iter().map(GrantJson::from).collect(),
        }),
    }
}

fn follow(
    line: &[u8],
    queue: &ApprovalQueue,
    waiting: &[PendingCall],
) -> Result<(), ApproverLineError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let line: ApproverCommand = serde_json::from_slice(line)?;
    match line {
        ApproverCommand {
            session,
            call: Some(call),
            approve: Some(answer),
            grants: false,
            revoke: None,
        } => {
            let meant = waiting
                .iter()
                .find(|pending| (&pending.key.0, pending.key.1) == (&session, call));
            let answer = answer.among(ANSWERS)?;
            queue.answer(meant.ok_or(ApproverLineError::NotWaiting)?, answer.into());
        }
        ApproverCommand {
            session,
            call: None,
            approve: None,
            grants: true,
            revoke: None,
        } => {
            queue.grants(&session, None);
        }
        ApproverCommand {
            session,
            call: None,
            approve: None,
            grants: false,
            revoke: Some(grant),
        } => {
            queue.grants(&session, Some(grant));
        }
        _ => return Err(ApproverLineError::Fields),
    }
    Ok(())
}
