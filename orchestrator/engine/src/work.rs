//! A call as its tool carries it out: what it may know of the session, and what it may do in it.

use crate::caller::Caller;
use crate::conclude::conclude_member;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::executor::ExecutorConnection;
use crate::publish::RawEvent;
use crate::request::{self, EndedRequest};
use crate::spans;
use broker_protocol::{CallId, Failed, FileReply, Request, Roots, Scope, Spill, ZonePath};
use orchestrator_results::metadata::Metadata;
use orchestrator_results::profile::ModelProfile;
use orchestrator_results::result::ToolResult;
use orchestrator_text::numbered::LineForm;
use orchestrator_text::redact::Redactor;
use serde_json::Value;
use tracing::{Instrument, Span};

/// A call under way, in its session.
#[derive(Clone, Copy)]
pub struct CallWork<'c> {
    pub(crate) engine: &'c Engine,
    pub(crate) connection: &'c ExecutorConnection,
    pub(crate) caller: &'c Caller,
}

impl<'c> CallWork<'c> {
    pub fn tool(&self) -> &'c str {
        &self.caller.tool
    }

    /// The number of the call in its session.
    pub fn number(&self) -> u64 {
        self.caller.number
    }

    /// The context that the front end supplied with the call.
    pub fn context(&self) -> &'c CallContext {
        &self.caller.context
    }

    /// How much of the result is shown.
    pub fn profile(&self) -> &'static ModelProfile {
        self.caller.profile(self.engine)
    }

    /// Where the two zones are.
    pub fn roots(&self) -> &'c Roots {
        self.connection.roots()
    }

    /// Other paths of the project root.
    pub fn names(&self) -> &'c [String] {
        self.engine.names()
    }

    /// The working directory of commands that name none; `None` for the project root.
    pub fn directory(&self) -> Option<&'c ZonePath> {
        self.engine.directory.as_ref()
    }

    /// Whether the session has a single call.
    pub fn is_single(&self) -> bool {
        self.engine.single_call
    }

    /// The scope of the session, if it has one.
    pub fn scope(&self) -> Option<&'c Scope> {
        self.engine.scope.as_ref()
    }

    /// The scope's time limit, in seconds, for a call of `tool` that the orchestrator carries out.
    pub fn scope_timeout_s(&self, tool: &str) -> u32 {
        self.engine.scope_timeout_s(tool)
    }

    /// The redactor, which knows the secrets to remove.
    pub fn redactor(&self) -> &'static Redactor {
        self.engine.hub.sanitizer.redactor()
    }

    /// Refuses every call once the violations have ended the session.
    ///
    /// # Errors
    /// If they have.
    pub fn check_violations(&self) -> Result<(), Failed> {
        self.engine.check_violations()
    }

    /// Makes a request, unless the call has already been cancelled.
    ///
    /// # Errors
    /// The result of a request that was not made.
    pub async fn run(&self, request: Request) -> Result<EndedRequest, Box<ToolResult>> {
        request::run(self.connection, self.caller, request).await
    }

    /// Makes a request whose reply is used by the tool; returns the reply with its metadata.
    ///
    /// # Errors
    /// The result of a request without a reply.
    pub async fn exchange(
        &self,
        request: Request,
    ) -> Result<(FileReply, Metadata), Box<ToolResult>> {
        request::exchange(self.engine, self.connection, self.caller, request).await
    }

    /// Makes a request and returns its result as the call's; a file is shown in `form`.
    pub async fn result(&self, request: Request, form: LineForm) -> ToolResult {
        let profile = self.profile();
        request::result(
            self.engine,
            self.connection,
            self.caller,
            request,
            form,
            profile,
        )
        .await
    }

    /// The result of a call that consists of this request.
    pub fn rendered(&self, ended: EndedRequest) -> ToolResult {
        ended.result(self.engine, self.connection, self.profile())
    }

    /// Saves the whole text of the request `number` for `file_read`, if there is room.
    pub async fn save_output(&self, number: CallId, text: &[u8]) -> Option<Spill> {
        self.connection.save_output(number, text).await
    }

    /// Publishes output of the call, as a command's. Returns whether somebody still listens.
    pub async fn publish_output(&self, bytes: &[u8]) -> bool {
        let output = RawEvent::Output {
            stderr: false,
            bytes,
        };
        self.caller.publish(output).await.is_ok()
    }

    /// Announces the call, unless it was announced before.
    pub async fn announce(&self) {
        self.caller.announce().await;
    }

    /// Makes the call at `index` of this batch, with all events that a call of its own would have.
    pub async fn member(
        &self,
        index: usize,
        tool: String,
        input: Value,
        perform: impl AsyncFnOnce(CallWork<'_>) -> ToolResult,
    ) -> ToolResult {
        let caller = self.caller.member(self.engine, index, tool, input);
        let span = spans::call(
            &Span::current(),
            caller.number,
            &caller.context,
            &caller.tool,
        );
        span.record("tier", self.connection.opened().tier.name());
        let made = async {
            caller.announce().await;
            let result = perform(CallWork {
                caller: &caller,
                ..*self
            })
            .await;
            conclude_member(self.engine, &caller, result).await
        };
        made.instrument(span).await
    }
}
