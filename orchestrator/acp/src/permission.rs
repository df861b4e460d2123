//! The question to the editor's user whether a call may run.

use broker_protocol::{Coverage, Extent};
use orchestrator_session::{Approval, ApprovalQuestion};
use serde_json::{Value, json};

pub const METHOD: &str = "session/request_permission";

/// The parameters of a question; `None` if its input is too long to be shown completely: nobody can approve what they have not
/// seen.
pub fn question(session: &str, question: &ApprovalQuestion) -> Option<Value> {
    let rows = question.rows()?;
    let challenge = &question.challenge;
    let (tool, why, rule, risk) = (&question.tool, &challenge.why, &challenge.rule, challenge.risk.name());
    let (count, input) = (rows.len(), rows.join("\n"));
    let text =
        format!("{why} (rule `{rule}`, {risk} risk)\nIts input, {count} lines to the end:\n{input}\n(end)");
    let mut options = vec![json!({ "optionId": "once", "name": "Allow this call", "kind": "allow_once" })];
    let covered = match challenge.covers {
        Coverage::Rule => Some("all calls that this rule is about"),
        Coverage::Call => Some("this same call"),
        Coverage::Wants => Some("what it wants"),
        Coverage::Once => None,
    };
    if let Some(covered) = covered {
        let name = format!("Allow {covered} for this session");
        options.push(json!({ "optionId": "session", "name": name, "kind": "allow_always" }));
    }
    options.push(json!({ "optionId": "no", "name": "No", "kind": "reject_once" }));
    Some(json!({
        "sessionId": session,
        "toolCall": {
            // If the agent knew this ID, it could overwrite what the editor shows for it.
            "toolCallId": format!("lazaret-{}", challenge.nonce),
            "title": format!("May `{tool}` run in a cell?"),
            "kind": if tool == "bash" { "execute" } else { "other" },
            "status": "pending",
            "content": [{ "type": "content", "content": { "type": "text", "text": text } }],
        },
        "options": options,
    }))
}

/// Only an explicit yes is a yes.
pub fn approval(answer: Option<&Value>) -> Approval {
    let outcome = answer.map(|answer| &answer["outcome"]);
    let said = outcome.map(|outcome| (outcome["outcome"].as_str(), outcome["optionId"].as_str()));
    match said {
        Some((Some("selected"), Some("once"))) => Approval::Yes(Extent::Once),
        Some((Some("selected"), Some("session"))) => Approval::Yes(Extent::Session),
        _ => Approval::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_in_so_many_words_is_one() {
        let said = |outcome: Value| approval(Some(&json!({ "outcome": outcome })));
        let selected = |option: &str| said(json!({ "outcome": "selected", "optionId": option }));
        assert_eq!(selected("once"), Approval::Yes(Extent::Once));
        assert_eq!(selected("session"), Approval::Yes(Extent::Session));
        assert_eq!(selected("no"), Approval::No);
        assert_eq!(said(json!({ "outcome": "cancelled", "optionId": "once" })), Approval::No);
        assert_eq!(said(json!({ "optionId": "once" })), Approval::No);
        assert_eq!(approval(Some(&json!("once"))), Approval::No);
        assert_eq!(approval(None), Approval::No);
    }
}
