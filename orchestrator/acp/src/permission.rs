//! The question to the editor's user whether a call may run.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use broker_protocol::Extent;
use orchestrator_engine::{ApprovalAnswer, ApprovalQuestion};
use orchestrator_text::coverage::for_session;
use orchestrator_text::markdown::code_block;
use serde::Deserialize;
use serde_json::Value;

/// The IDs of the options that are a yes.
const ONCE: &str = "once";
const SESSION: &str = "session";

/// The parameters of a question; `None` if its input is too long to be shown completely: nobody can approve what they have not
/// seen.
pub(crate) fn question(
    session: &str,
    question: &ApprovalQuestion,
) -> Option<RequestPermissionRequest> {
    let rows = question.rows()?;
    let challenge = &question.challenge;
    let (tool, why, rule, risk) = (
        &question.tool,
        &challenge.why,
        &challenge.rule,
        challenge.risk.name(),
    );
    let (count, input) = (rows.len(), rows.join("\n"));
    // The editor shows Markdown, and the command wrote the input: in a block of code nothing of it acts or is hidden.
    let text = code_block(&format!(
        "{why} (rule {rule}, {risk} risk)\nIts input, {count} lines to the end:\n{input}\n(end)"
    ));
    let mut options = vec![PermissionOption::new(
        ONCE,
        "Allow this call",
        PermissionOptionKind::AllowOnce,
    )];
    if let Some(covered) = for_session(challenge, tool) {
        let name = format!("Allow {covered} for this session");
        options.push(PermissionOption::new(
            SESSION,
            name,
            PermissionOptionKind::AllowAlways,
        ));
    }
    options.push(PermissionOption::new(
        "no",
        "No",
        PermissionOptionKind::RejectOnce,
    ));
    let fields = ToolCallUpdateFields::new()
        .title(format!("May `{tool}` run in a cell?"))
        .kind(if tool == "bash" {
            ToolKind::Execute
        } else {
            ToolKind::Other
        })
        .status(ToolCallStatus::Pending)
        .content(vec![text.into()]);
    // If the agent knew this ID, it could overwrite what the editor shows for it.
    let call = ToolCallUpdate::new(format!("lazaret-{}", challenge.nonce), fields);
    Some(RequestPermissionRequest::new(
        session.to_owned(),
        call,
        options,
    ))
}

/// Only an explicit yes is a yes.
pub(crate) fn approval(answer: Option<Value>) -> ApprovalAnswer {
    let answer = answer.and_then(|answer| RequestPermissionResponse::deserialize(answer).ok());
    let Some(RequestPermissionOutcome::Selected(selected)) = answer.map(|answer| answer.outcome)
    else {
        return ApprovalAnswer::No;
    };
    match &*selected.option_id.0 {
        ONCE => ApprovalAnswer::Yes(Extent::Once),
        SESSION => ApprovalAnswer::Yes(Extent::Session),
        _ => ApprovalAnswer::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_explicit_yes_is_accepted() {
        let said = |outcome: Value| approval(Some(json!({ "outcome": outcome })));
        let selected = |option: &str| said(json!({ "outcome": "selected", "optionId": option }));
        assert_eq!(selected("once"), ApprovalAnswer::Yes(Extent::Once));
        assert_eq!(selected("session"), ApprovalAnswer::Yes(Extent::Session));
        assert_eq!(selected("no"), ApprovalAnswer::No);
        assert_eq!(
            said(json!({ "outcome": "cancelled", "optionId": "once" })),
            ApprovalAnswer::No
        );
        assert_eq!(said(json!({ "optionId": "once" })), ApprovalAnswer::No);
        assert_eq!(approval(Some(json!("once"))), ApprovalAnswer::No);
        assert_eq!(approval(None), ApprovalAnswer::No);
    }
}
