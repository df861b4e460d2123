//! Puts the question whether a call may run to the client's user by elicitation, if the client supports it.

use broker_protocol::{Channel, Extent};
use futures_util::stream::FuturesUnordered;
use orchestrator_engine::{ApprovalAnswer, ApprovalQuestion, CallHandle};
use orchestrator_text::coverage::answered_elsewhere;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Who answers a question.
#[derive(Debug)]
pub(crate) enum Answerer {
    /// The client's user was asked; the answer goes to the call by itself.
    User,
    /// It is answered elsewhere; holds what to report meanwhile.
    Elsewhere(String),
    /// Nobody can be asked: the call was refused for this reason.
    Nobody(String),
}

/// Pending questions to the client's user, polled by the call that asks: only from that call's own task does `rmcp` send them on
/// the stream of the call's request.
pub(crate) type Asking = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Asks the question. A pending question to the user is added to `asking`.
pub(crate) async fn ask(
    peer: &Peer<RoleServer>,
    call: &CallHandle,
    part: Option<usize>,
    question: &ApprovalQuestion,
    asking: &mut Asking,
) -> Answerer {
    let challenge = &question.challenge;
    let why = format!(
        "{} (rule `{}`, {} risk)",
        challenge.why,
        challenge.rule,
        challenge.risk.name()
    );
    if challenge.channel == Channel::Separate {
        return Answerer::Elsewhere(answered_elsewhere(
            challenge.expires_s,
            &challenge.why,
            &challenge.rule,
            challenge.risk.name(),
        ));
    }
    let declared = peer
        .peer_info()
        .and_then(|client| client.capabilities.elicitation.clone());
    // Without a mode it means forms: the first version of the protocol declared them like this.
    let has_forms =
        declared.is_some_and(|declared| declared.form.is_some() || declared.url.is_none());
    let rows = question.rows();
    // After an invalid answer, the question is not put again.
    let (true, None, Some(rows)) = (has_forms, &question.rejected, &rows) else {
        // The call may have ended meanwhile.
        call.approve(part, ApprovalAnswer::No).await;
        let hindrance = if has_forms && rows.is_none() {
            "its input is too long to be shown whole"
        } else {
            "the user of this client cannot be asked"
        };
        return Answerer::Nobody(format!(
            "Not run: it needs an approval, and {hindrance}: {why}. The user can allow it in the policy, start \
             Lazaret with another --trust, or answer with `lazaret approve` (approval.channel = \"separate\")."
        ));
    };
    let (peer, call) = (peer.clone(), call.clone());
    let request = form(question, &why, rows);
    let wait = Duration::from_secs(challenge.expires_s.into());
    asking.push(Box::pin(async move {
        let answer = peer
            .create_elicitation_with_timeout(request, Some(wait))
            .await;
        let approval = answer.map_or(ApprovalAnswer::No, |answer| approval(&answer));
        call.approve(part, approval).await;
    }));
    Answerer::User
}

fn form(question: &ApprovalQuestion, why: &str, rows: &[String]) -> ElicitRequestParams {
    let (count, input) = (rows.len(), rows.join("\n"));
    let message = format!(
        "May `{}` run? {why}\nIts input, {count} lines to the end:\n{input}\n(end)",
        question.tool
    );
    // A client may offer the first value as the default.
    let mut answers = vec!["no", "once"];
    if question.challenge.covers.is_lasting() {
        answers.push("session");
    }
    let schema = json!({
        "type": "object",
        "properties": { "answer": { "type": "string", "title": "Answer", "enum": answers } },
        "required": ["answer"]
    });
    let Value::Object(schema) = schema else {
        unreachable!("an object was written")
    };
    let requested_schema = ElicitationSchema::from_json_schema(schema)
        .unwrap_or_else(|_| ElicitationSchema::new(Default::default()));
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema,
    }
}

/// Only an explicit yes is a yes.
fn approval(answer: &ElicitResult) -> ApprovalAnswer {
    let said = answer
        .content
        .as_ref()
        .and_then(|content| content["answer"].as_str());
    match (&answer.action, said) {
        (ElicitationAction::Accept, Some("once")) => ApprovalAnswer::Yes(Extent::Once),
        (ElicitationAction::Accept, Some("session")) => ApprovalAnswer::Yes(Extent::Session),
        _ => ApprovalAnswer::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_is_accepted() {
        let answered = |action, content| approval(&ElicitResult::new(action).with_content(content));
        assert_eq!(
            answered(ElicitationAction::Accept, json!({"answer": "once"})),
            ApprovalAnswer::Yes(Extent::Once)
        );
        assert_eq!(
            answered(ElicitationAction::Accept, json!({"answer": "session"})),
            ApprovalAnswer::Yes(Extent::Session)
        );
        for content in [
            json!({}),
            json!({"answer": "no"}),
            json!({"answer": true}),
            json!("once"),
            json!(null),
        ] {
            assert_eq!(
                answered(ElicitationAction::Accept, content),
                ApprovalAnswer::No
            );
        }
        for action in [ElicitationAction::Decline, ElicitationAction::Cancel] {
            assert_eq!(
                answered(action, json!({"answer": "once"})),
                ApprovalAnswer::No
            );
        }
        assert_eq!(
            approval(&ElicitResult::new(ElicitationAction::Accept)),
            ApprovalAnswer::No
        );
    }
}
