//! Makes one tool call for the agent: its approval questions go to the editor's user, its result is returned.

use crate::links::Links;
use crate::permission;
use crate::rpc_message::failure;
use agent_client_protocol_schema::v1::{CLIENT_METHOD_NAMES, Error, ErrorCode};
use broker_protocol::{Channel, ErrorKind, Failed};
use orchestrator_engine::{
    ApprovalAnswer, ApprovalQuestion, Body, Call, CallContext, CallResult, FoundIn, Invocation,
    LiveOutput, Session,
};
use orchestrator_launch::stdio::print;
use orchestrator_results::error_body::ErrorBody;
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::AbortHandle;

pub(crate) struct AgentCalls {
    session: Session,
    links: Rc<Links>,
    asker: Arc<str>,
}

/// A pending question to the editor's user. Dropping it stops waiting for the answer.
struct EditorQuestion(AbortHandle);

impl Drop for EditorQuestion {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl AgentCalls {
    pub(crate) fn new(session: Session, links: Rc<Links>) -> Self {
        Self {
            session,
            links,
            asker: "acp".into(),
        }
    }

    /// Starts a call. Without live output its result keeps unsafe characters, because an agent writes back what it has read of a file.
    pub(crate) fn start(&self, tool: &str, input: Value, live: LiveOutput) -> Call {
        let found = if live == LiveOutput::Off {
            FoundIn::LaterResult
        } else {
            FoundIn::Metadata
        };
        let context = CallContext {
            live,
            raw: live == LiveOutput::Off,
            found,
            ..CallContext::new(self.asker.clone())
        };
        self.session.call(
            context,
            Invocation::Tool {
                name: tool.to_owned(),
                input,
            },
        )
    }

    /// Follows a call for the agent's session `of` to its result; `None` if our session has ended.
    pub(crate) async fn follow(
        &self,
        of: &str,
        mut call: Call,
        mut output: impl FnMut(&[u8]),
    ) -> Option<Arc<CallResult>> {
        let mut asking: Option<EditorQuestion> = None;
        while let Some(event) = call.next().await {
            match &*event.body {
                Body::Output { bytes, .. } => output(bytes),
                // Answered elsewhere, or after an invalid answer: then the question is not put again.
                Body::ApprovalWanted(question)
                    if question.challenge.channel == Channel::Separate => {}
                Body::ApprovalWanted(question) => asking = self.ask(of, &call, question),
                Body::ApprovalGiven { .. } | Body::RequestSent { .. } => drop(asking.take()),
                // The agent reads in its result what became of a call; an editor has no place for more.
                Body::Hook(ran) => print::unheard_hook(ran),
                Body::Result(result) => return Some(result.clone()),
                Body::SessionOpened(_)
                | Body::ToolRegistered { .. }
                | Body::ToolUnregistered { .. }
                | Body::Requested { .. }
                | Body::Suspended
                | Body::Violation(_)
                | Body::Connection(_) => {}
            }
        }
        None
    }

    /// Asks the editor's user; answers no if that is impossible.
    fn ask(&self, of: &str, call: &Call, question: &ApprovalQuestion) -> Option<EditorQuestion> {
        let handle = call.handle.clone();
        let params = match question.rejected {
            None => permission::question(of, question),
            Some(_) => None,
        };
        let links = self.links.clone();
        let task = tokio::task::spawn_local(async move {
            let approval = match params {
                Some(params) => {
                    let method = CLIENT_METHOD_NAMES.session_request_permission;
                    permission::approval(links.ask_editor(method, params).await)
                }
                None => ApprovalAnswer::No,
            };
            handle.approve(None, approval).await;
        });
        Some(EditorQuestion(task.abort_handle()))
    }

    /// Makes a call and waits for its result.
    pub(crate) async fn make(
        &self,
        of: &str,
        tool: &str,
        input: Value,
    ) -> Result<Arc<CallResult>, Error> {
        let call = self.start(tool, input, LiveOutput::Off);
        let result = self.follow(of, call, |_| {}).await.ok_or_else(ended)?;
        match &result.error {
            Some(failed) => Err(error(failed)),
            None => Ok(result),
        }
    }
}

/// Our session has ended: no more calls are possible.
pub(crate) fn ended() -> Error {
    failure(ErrorCode::InternalError, "the session has ended")
}

/// The error that an agent gets for a failed call.
fn error(failed: &Failed) -> Error {
    let code = match failed.kind {
        ErrorKind::InvalidInput | ErrorKind::UnknownTool => ErrorCode::InvalidParams,
        ErrorKind::NotFound => ErrorCode::ResourceNotFound,
        ErrorKind::DeniedPolicy
        | ErrorKind::DeniedUser
        | ErrorKind::ApprovalTimeout
        | ErrorKind::Violation
        | ErrorKind::Timeout
        | ErrorKind::IdleTimeout
        | ErrorKind::Io
        | ErrorKind::ExitNonzero
        | ErrorKind::ResourceLimit
        | ErrorKind::Cancelled
        | ErrorKind::ExecutorLost
        | ErrorKind::Protocol
        | ErrorKind::Internal => ErrorCode::InternalError,
    };
    let data = json!(ErrorBody::from(failed));
    failure(code, &failed.message).data(data)
}
