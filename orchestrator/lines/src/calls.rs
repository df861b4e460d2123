//! The calls of the client. Each has an ID until its one result is written.

use crate::line::{LineError, RejectedLine};
use crate::under_way::{CallInput, UnderWay};
use crate::writer::Writer;
use broker_protocol::{Channel, ErrorKind, Failed, Opened, Roots, Wants, ZonePath, limit};
use orchestrator_engine::execution::{Execution, Executions, OutsideReply};
use orchestrator_engine::{
    ApprovalAnswer, Body, Call, CallContext, CallPermits, Event, Invocation, LiveOutput, NewTool,
    Registered, Session, StdinChunk, ToolOrigin,
};
use orchestrator_tools::registry;
use orchestrator_wire::approval::Answer;
use orchestrator_wire::client_tool::Registration;
use orchestrator_wire::error::ErrorBody;
use orchestrator_wire::event_line::EventLine;
use orchestrator_wire::json;
use orchestrator_wire::ready::{Announced, Ready};
use serde::Serialize;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// All calls of the client.
pub struct ClientCalls {
    session: Session,
    writer: Writer,
    announced: Announced,
    /// Whether to keep unsafe characters in results.
    raw: bool,
    asker: Arc<str>,
    /// Receives calls of the client's own tools.
    executions: Executions,
    /// Calls by the JSON of their ID.
    by_id: RefCell<HashMap<String, Rc<UnderWay>>>,
    /// The ID of the session whose `ready` was written last.
    ready: RefCell<String>,
    /// The locations of its zones.
    roots: RefCell<Option<Roots>>,
    /// Bounds the results that wait for the client to read: further calls wait, while their lines are still read.
    unread: CallPermits,
    /// Counts calls whose result is not written yet.
    unwritten: Cell<usize>,
    written: Notify,
    /// Whether the input has ended, so that no more answers can come.
    input_ended: Cell<bool>,
}

impl ClientCalls {
    /// Starts with no calls. Take the calls of the client's own tools from the returned receiver.
    pub fn new(
        session: Session,
        writer: Writer,
        announced: Announced,
        raw: bool,
    ) -> (Rc<Self>, UnboundedReceiver<Execution>) {
        let (executions, received) = mpsc::unbounded_channel();
        let calls = Self {
            session,
            writer,
            announced,
            raw,
            asker: "lines".into(),
            executions,
            by_id: RefCell::default(),
            ready: RefCell::default(),
            roots: RefCell::default(),
            unread: CallPermits::new(limit::CALLS),
            unwritten: Cell::new(0),
            written: Notify::new(),
            input_ended: Cell::new(false),
        };
        (Rc::new(calls), received)
    }

    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Opens the session and announces it.
    pub async fn open(&self) -> Result<(), Failed> {
        let opened = self.session.open().await?;
        self.announce(&opened).await;
        Ok(())
    }

    /// Writes `ready`, once for each session.
    async fn announce(&self, opened: &Opened) {
        let Opened {
            project, central, ..
        } = opened.clone();
        self.roots.replace(Some(Roots { project, central }));
        if self.ready.replace(opened.session.clone()) != opened.session {
            self.write(&EventLine::Ready(Ready::new(opened, &self.announced)))
                .await;
        }
    }

    /// The zone path that the client means by `text`.
    pub fn path(&self, text: &str) -> Result<ZonePath, LineError> {
        let roots = self.roots.borrow();
        Ok(roots.as_ref().ok_or(LineError::NotOpen)?.parse(text)?)
    }

    /// Starts a call with `wants` beyond what the session has. `permit` is released when the executor has the call.
    pub fn start(
        self: &Rc<Self>,
        id: Value,
        (invocation, wants): (Invocation, Wants),
        permit: OwnedSemaphorePermit,
    ) -> Result<(), RejectedLine> {
        let key = id.to_string();
        if self.by_id.borrow().contains_key(&key) {
            return Err(RejectedLine {
                id,
                error: LineError::IdInUse.into(),
            });
        }
        let takes_input = match &invocation {
            Invocation::Tool { input, .. } => input.get("stdin") == Some(&Value::Bool(true)),
            Invocation::Request(_) => false,
        };
        let unread = self.unread.permit();
        let context = CallContext {
            client_id: Some(id.clone()),
            live: LiveOutput::Sanitized,
            raw: self.raw,
            wants,
            permit: Some(unread.clone()),
            ..CallContext::new(self.asker.clone())
        };
        let call = self.session.call(context, invocation);
        let under_way = Rc::new(UnderWay::new(
            call.handle.clone(),
            if takes_input {
                CallInput::Open
            } else {
                CallInput::None
            },
            permit,
        ));
        self.by_id
            .borrow_mut()
            .insert(key.clone(), under_way.clone());
        self.unwritten.set(self.unwritten.get() + 1);
        let calls = self.clone();
        tokio::task::spawn_local(async move {
            calls.forward(&id, &key, call, &under_way).await;
            drop(unread);
            calls.unwritten.set(calls.unwritten.get() - 1);
            calls.written.notify_one();
        });
        Ok(())
    }

    /// Writes the events of a call as lines, up to its result.
    async fn forward(&self, id: &Value, key: &str, mut call: Call, under_way: &UnderWay) {
        while let Some(event) = call.next().await {
            match &*event.body {
                Body::SessionOpened(opened) => {
                    self.announce(opened).await;
                    continue;
                }
                Body::RequestSent { .. } => under_way.drop_permit(),
                // From here on the ID is free: a client that has read the result may reuse it at once.
                Body::Result(_) if event.part.is_none() => {
                    drop(self.by_id.borrow_mut().remove(key))
                }
                _ => {}
            }
            if event.part.is_some() {
                under_way.set_batch();
            }
            if let Some(line) = EventLine::new(id, &event) {
                self.write(&line).await;
            }
            self.follow_question(&event, under_way).await;
        }
    }

    /// Keeps the list of open questions. Answers no to one that only the client could answer, once its input has ended.
    async fn follow_question(&self, event: &Event, under_way: &UnderWay) {
        let part = event.part.map(|part| part.index);
        match &*event.body {
            Body::ApprovalWanted(question) if question.challenge.channel == Channel::Relay => {
                under_way.asked(part);
                if self.input_ended.get() {
                    under_way.handle.approve(part, ApprovalAnswer::No).await;
                }
            }
            Body::ApprovalGiven { .. } => under_way.answered(part),
            _ => {}
        }
    }

    /// Cancels a call. A call that already ended gets no notice: the client may not have read its result yet.
    pub(crate) fn cancel(&self, id: &Value) {
        if let Some(under_way) = self.find(id) {
            under_way.handle.cancel();
        }
    }

    pub fn cancel_all(&self) {
        self.session.cancel_all();
    }

    /// Answers a call's question. An answer without a question gets a notice, so that no approval is lost silently.
    pub async fn approve(&self, id: &Value, part: Option<usize>, answer: Answer) {
        let Some(under_way) = self.find(id) else {
            return self.notice(id, &LineError::NotAsked.into()).await;
        };
        // A batch continues without a part that was refused.
        let is_batch = under_way.is_batch();
        if !under_way.handle.approve(part, answer.into()).await {
            return self.notice(id, &LineError::NotAsked.into()).await;
        }
        if answer.stops() {
            let key = id.to_string();
            for (other, call) in &*self.by_id.borrow() {
                if is_batch || *other != key {
                    call.handle.cancel();
                }
            }
        }
    }

    /// Lists the grants that last for the session, after revoking one of them if given.
    pub(crate) async fn grants(&self, id: &Value, revoke: Option<u64>) {
        let standing = async {
            self.open().await?;
            self.session.grants(revoke).await
        };
        match standing.await {
            Ok(standing) => self.write(&EventLine::grants(id, &standing)).await,
            Err(failed) => self.notice(id, &failed).await,
        }
    }

    /// Registers a tool of the client.
    pub async fn register(&self, id: &Value, tool: Registration) {
        let new = NewTool {
            origin: ToolOrigin::Client { tool: tool.name },
            description: tool.description,
            schema: tool.input_schema,
            risk: tool.risk,
            timeout_s: tool.timeout.unwrap_or(registry::TIMEOUT_S),
            executions: self.executions.clone(),
        };
        let registered = self.session.register(id.clone(), new).await;
        match registered {
            Ok(Registered { name, .. }) => {
                self.write(&EventLine::Registered { id, tool: &name }).await
            }
            Err(error) => self.reject(id, error).await,
        }
    }

    /// Unregisters it. Calls in progress continue.
    pub(crate) async fn unregister(&self, id: &Value, tool: String) {
        let gone = self.session.unregister(id.clone(), tool.clone()).await;
        match gone {
            Ok(()) => {
                self.write(&EventLine::Unregistered { id, tool: &tool })
                    .await
            }
            Err(error) => self.reject(id, error).await,
        }
    }

    /// Lists the tools that a model may see.
    pub async fn tools(&self, id: &Value) {
        let tools = self.session.tools().await;
        self.write(&EventLine::Tools { id, tools }).await;
    }

    /// Feeds a call's standard input.
    pub fn stdin(
        &self,
        id: Value,
        bytes: Vec<u8>,
        end: bool,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), RejectedLine> {
        let Some(under_way) = self.find(&id) else {
            return Ok(());
        };
        match under_way.input() {
            CallInput::Open => {}
            CallInput::None => {
                return Err(RejectedLine {
                    id,
                    error: LineError::NoInput.into(),
                });
            }
            CallInput::Ended => {
                return Err(RejectedLine {
                    id,
                    error: LineError::InputEnded.into(),
                });
            }
        }
        under_way.handle.input(StdinChunk {
            bytes,
            permit: Some(permit),
        });
        if end {
            under_way.end_input();
        }
        Ok(())
    }

    /// Sends calls of the client's own tools to the client.
    pub async fn hand_out(&self, mut executions: UnboundedReceiver<Execution>) {
        while let Some(execution) = executions.recv().await {
            self.execute(execution).await;
        }
    }

    async fn execute(&self, execution: Execution) {
        let id = execution
            .client_id
            .clone()
            .filter(|_| execution.asker == self.asker);
        let found = id.and_then(|id| Some((self.find(&id)?, id)));
        let refused = match &found {
            // The owner of the tool would not know the call.
            None => Some((
                ErrorKind::Internal,
                "a tool of the client was called by another front end",
            )),
            Some(_) if self.input_ended.get() => Some((ErrorKind::Cancelled, UNANSWERED)),
            Some(_) => None,
        };
        if let Some((kind, message)) = refused {
            // The call may have been cancelled meanwhile.
            let _ = execution.reply.send(Err(Failed {
                kind,
                message: message.into(),
            }));
            return;
        }
        if let Some((under_way, id)) = found {
            let Execution {
                part,
                tool,
                input,
                reply,
                ..
            } = execution;
            under_way.executing(part, reply);
            self.write(&EventLine::Execute {
                id: &id,
                part,
                tool: &tool,
                input: &input,
            })
            .await;
        }
    }

    /// Receives the client's answer to an `execute`. An unexpected answer gets a notice.
    pub(crate) async fn executed(
        &self,
        id: &Value,
        part: Option<usize>,
        result: Result<OutsideReply, Failed>,
    ) {
        if !self
            .find(id)
            .is_some_and(|under_way| under_way.executed(part, result))
        {
            self.notice(id, &LineError::NotExecuting.into()).await;
        }
    }

    /// Answers an invalid line.
    pub(crate) async fn reject_line(&self, RejectedLine { id, error }: RejectedLine) {
        self.reject(&id, (*error).into()).await;
    }

    /// Reports an error about `id`. A call in progress has a single result, which this is not, so it gets a notice.
    async fn reject(&self, id: &Value, failed: Failed) {
        match self.find(id) {
            Some(_) => self.notice(id, &failed).await,
            None => {
                self.write(&json::failed_result(Some(id), "", &failed))
                    .await
            }
        }
    }

    async fn notice(&self, id: &Value, failed: &Failed) {
        self.write(&EventLine::Notice {
            id,
            error: ErrorBody::from(failed),
        })
        .await;
    }

    /// Whether the violations have ended the session.
    pub fn are_over(&self) -> bool {
        self.session.is_over()
    }

    /// Handles the end of the input: pending questions and executions are answered, then every call's result is written.
    pub async fn finish(&self) {
        self.input_ended.set(true);
        let under_way: Vec<_> = self.by_id.borrow().values().cloned().collect();
        for call in under_way {
            if call.input() == CallInput::Open {
                call.end_input();
            }
            call.fail_executions(&Failed {
                kind: ErrorKind::Cancelled,
                message: UNANSWERED.into(),
            });
            for part in call.open_questions() {
                call.handle.approve(part, ApprovalAnswer::No).await;
            }
        }
        while self.unwritten.get() > 0 {
            self.written.notified().await;
        }
    }

    fn find(&self, id: &Value) -> Option<Rc<UnderWay>> {
        self.by_id.borrow().get(&id.to_string()).cloned()
    }

    /// Writes a line. If the output is closed, this is ignored: the session then ends for that reason.
    async fn write(&self, line: &impl Serialize) {
        let _ = self.writer.line(line).await;
    }
}

/// The error for a pending call of a client's tool when the input ends.
const UNANSWERED: &str = "the input ended before the client had answered";

impl From<LineError> for Failed {
    fn from(error: LineError) -> Self {
        Failed {
            kind: ErrorKind::InvalidInput,
            message: error.to_string(),
        }
    }
}
