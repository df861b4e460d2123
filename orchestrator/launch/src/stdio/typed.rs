//! Calls that a person typed: typing the command has approved the call. If another channel takes answers, this reports which.

use crate::stdio::print;
use broker_protocol::{Challenge, Channel, Extent, Failed, Request};
use orchestrator_engine::{
    ApprovalAnswer, ApprovalQuestion, BatchPlace, Body, Call, CallContext, CallHandle, CallResult,
    FoundIn, Invocation, Session,
};
use orchestrator_text::coverage::answered_elsewhere;
use std::sync::Arc;

/// The result of a request that prints nothing before its end.
pub async fn ask(
    session: &Session,
    asker: &str,
    request: Request,
) -> Result<Arc<CallResult>, Failed> {
    // Unsafe characters are escaped later, or go unchanged to a file or a program.
    let context = CallContext {
        raw: true,
        by_person: true,
        found: FoundIn::Metadata,
        ..CallContext::new(asker.into())
    };
    follow(&mut session.call(context, Invocation::Request(request))).await
}

/// Follows a call to its result.
pub async fn follow(call: &mut Call) -> Result<Arc<CallResult>, Failed> {
    while let Some(event) = call.next().await {
        match &*event.body {
            Body::ApprovalWanted(question) => {
                answer(&call.handle, event.part, question, Extent::Once).await;
            }
            Body::Hook(ran) => print::unheard_hook(ran),
            Body::Result(result) if event.part.is_none() => return Ok(result.clone()),
            _ => {}
        }
    }
    Err(Failed::internal("the call ended without a result"))
}

/// Approves a question, with `extent` if it opens something; or reports where the question has to be answered.
pub async fn answer(
    call: &CallHandle,
    part: Option<BatchPlace>,
    question: &ApprovalQuestion,
    extent: Extent,
) {
    if question.challenge.covers.is_of_program() {
        // Whoever typed the command has not seen what its program sends.
        refuse(call, part, question).await;
        return;
    }
    let approval = match (question.challenge.channel, question.rejected) {
        (Channel::Separate, _) => return print::problem(&waiting(&question.challenge)),
        (Channel::Relay, None) if question.challenge.wants.is_empty() => {
            ApprovalAnswer::Yes(Extent::Once)
        }
        (Channel::Relay, None) => ApprovalAnswer::Yes(extent),
        // An answer from here would not be accepted.
        (Channel::Relay, Some(_)) => ApprovalAnswer::No,
    };
    // The call may have ended meanwhile.
    call.approve(part.map(|part| part.index), approval).await;
}

/// Refuses a question about a call that nobody typed, and reports why; or reports where to answer it. Returns whether it refused.
pub async fn refuse(
    call: &CallHandle,
    part: Option<BatchPlace>,
    question: &ApprovalQuestion,
) -> bool {
    let challenge = &question.challenge;
    match challenge.channel {
        Channel::Separate => {
            print::problem(&waiting(challenge));
            false
        }
        Channel::Relay => {
            let not = match challenge.covers.is_of_program() {
                true => "not sent",
                false => "not run",
            };
            print::problem(&format!(
                "{not}: it needs an approval, and nobody can give one here: {} (rule `{}`); allow it in the policy, or take \
                 answers from `lazaret approve` with approval.channel = \"separate\"",
                challenge.why, challenge.rule
            ));
            // The call may have ended meanwhile.
            call.approve(part.map(|part| part.index), ApprovalAnswer::No)
                .await;
            true
        }
    }
}

fn waiting(challenge: &Challenge) -> String {
    answered_elsewhere(
        challenge.expires_s,
        &challenge.why,
        &challenge.rule,
        challenge.risk.name(),
    )
}
