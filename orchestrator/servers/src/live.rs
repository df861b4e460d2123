//! One server at work: a program in a cell, a client of it, and what is seen of both.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no roots and no log; servers of today's have"
)]

use crate::blocks;
use crate::log::{Ring, one_line};
use crate::messages::{LineCutter, Messages, read};
use crate::pins::ListedTool;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_session::Decision;
use orchestrator_session::service::{RunningService, ServiceEvent, ServiceInput, how_ended};
use orchestrator_text::redact::Redactor;
use orchestrator_tools::denials;
use orchestrator_tools::remote::Reply;
use orchestrator_tools::render::Finished;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, ErrorCode, ErrorData,
    Implementation, ListRootsResult, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProtocolVersion, Root, RootsCapabilities,
};
use rmcp::service::{
    NotificationContext, Peer, RequestContext, RoleClient, RunningService as RunningClient, RxJsonRpcMessage,
    ServiceError,
};
use rmcp::{ClientHandler, serve_client};
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

/// How long a server may take to be there: its start, its greeting, its tools.
pub const CONNECT: Duration = Duration::from_secs(30);
/// How long it may take to read a message. Then it is lost: nobody waits for it longer.
const READS: Duration = Duration::from_secs(30);
/// How long it has to end when its input has ended.
const ENDING: Duration = Duration::from_secs(2);
/// Messages that wait for it to read them, and those of its that wait for us.
const WAITING: usize = 64;
/// Messages, and bytes of both streams, that it may send without a call of it being made or answered.
pub const UNASKED_MESSAGES: u32 = 10_000;
pub const UNASKED_BYTES: u64 = 64 << 20;
/// Most tools of a server, pages of a list of them, bytes of a tool's name, and bytes of all descriptions and schemas.
pub const TOOLS_MAX: usize = 256;
pub const PAGES_MAX: usize = 64;
pub const TOOL_NAME_MAX: usize = 128;
pub const TOOLS_BYTES_MAX: usize = 2 << 20;

/// What is known of a server whether it is at work or not.
pub struct Watched {
    /// Its name.
    pub name: String,
    /// Its last lines.
    pub log: RefCell<Ring>,
    /// Takes secrets out of what it says.
    pub redactor: &'static Redactor,
}

impl Watched {
    /// Writes a line of ours into its log.
    pub fn note(&self, line: &str) {
        // It may quote what the server said, which begins no line of ours.
        self.log.borrow_mut().push(&format!("[lazaret] {}", one_line(line.as_bytes(), self.redactor)));
    }

    /// Writes what a connection came to, where it did not come about.
    pub fn connection(&self, decision: &Decision) {
        if let Some(why) = &decision.why {
            let Decision { host, port, verdict, .. } = decision;
            self.note(&format!("connection to {host}:{port}: {}: {why}", verdict.name()));
        }
    }

    fn failed(&self, kind: ErrorKind, why: &str) -> Failed {
        Failed { kind, message: format!("the server `{}` {why}", self.name) }
    }
}

/// A server at work. Dropped, it ends.
pub struct Live {
    watched: Rc<Watched>,
    client: RunningClient<RoleClient, Handler>,
    input: ServiceInput,
    state: Rc<State>,
    pump: JoinHandle<()>,
}

/// What those who feed and hear a server share.
#[derive(Default)]
struct State {
    /// Why it is gone.
    end: RefCell<Option<String>>,
    gone: Notify,
    messages: Cell<u32>,
    bytes: Cell<u64>,
}

impl State {
    /// Says why it is gone; the first reason counts.
    fn end(&self, why: String) {
        self.end.borrow_mut().get_or_insert(why);
        self.gone.notify_waiters();
    }

    /// A call was made or answered: what comes now was asked for.
    fn asked(&self) {
        self.messages.set(0);
        self.bytes.set(0);
    }

    fn count(&self, messages: usize, bytes: usize) -> Result<(), String> {
        self.messages.set(self.messages.get().saturating_add(u32::try_from(messages).unwrap_or(u32::MAX)));
        self.bytes.set(self.bytes.get().saturating_add(bytes as u64));
        if self.messages.get() > UNASKED_MESSAGES {
            return Err(format!("sent more than {UNASKED_MESSAGES} messages that nobody asked for"));
        }
        if self.bytes.get() > UNASKED_BYTES {
            return Err(format!("sent more than {UNASKED_BYTES} bytes that nobody asked for"));
        }
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl Live {
    /// Greets a program that has been started, and lists its tools. `root` is what it may see of the project, as an address.
    ///
    /// # Errors
    /// It does not answer in time, or not as the protocol has it, or passes a bound.
    pub async fn connect(
        service: RunningService,
        watched: Rc<Watched>,
        root: Option<String>,
        changed: Arc<Notify>,
    ) -> Result<(Self, Vec<ListedTool>), Failed> {
        let state = Rc::new(State::default());
        let input = service.input();
        let (incoming, received) = mpsc::channel(WAITING);
        let (outgoing, sent) = mpsc::channel(WAITING);
        let (said, hears) = mpsc::channel(WAITING);
        let pump = spawn_local(pump(service, incoming, sent, hears, watched.clone(), state.clone()));
        let pump = Aborted(Some(pump));
        let handler = Handler { root, changed, said };
        let ready = async {
            let greeted = serve_client(handler, Messages::new(received, outgoing)).await;
            let client = greeted.map_err(|error| {
                let why = state.end.borrow().clone();
                let why =
                    why.unwrap_or_else(|| format!("did not greet as the protocol has it: {}", named(&error)));
                watched.failed(ErrorKind::Io, &why)
            })?;
            let tools = list(&client, &watched, &state).await?;
            Ok((client, tools))
        };
        let late = || {
            let seconds = CONNECT.as_secs();
            watched.failed(ErrorKind::Timeout, &format!("was not there within {seconds} s"))
        };
        let (client, tools) = timeout(CONNECT, ready).await.unwrap_or_else(|_| Err(late()))?;
        let pump = pump.release();
        Ok((Self { watched, client, input, state, pump }, tools))
    }

    /// Whether it is still there.
    pub fn is_alive(&self) -> bool {
        self.state.end.borrow().is_none() && !self.client.is_transport_closed()
    }

    /// Its tools as they are now.
    ///
    /// # Errors
    /// It passes a bound, or is gone.
    pub async fn list(&self) -> Result<Vec<ListedTool>, Failed> {
        list(&self.client, &self.watched, &self.state).await
    }

    /// Calls a tool. Dropped before its answer, the server is told that nobody wants it any more.
    ///
    /// # Errors
    /// Those of the tool, and of a server that is gone.
    pub async fn call(&self, tool: String, input: Map<String, Value>) -> Result<Reply, Failed> {
        self.state.asked();
        let request = CallToolRequestParams::new(tool).with_arguments(input);
        let answer = self.client.peer().call_tool_once(request).await;
        self.state.asked();
        match answer {
            Ok(CallToolResponse::Complete(result)) => blocks::reply(&self.watched.name, result),
            Ok(_) => Err(self.watched.failed(ErrorKind::Io, "wants more than an answer can give")),
            Err(error) => Err(failed(&error, &self.watched, &self.state)),
        }
    }

    /// Ends it: first its input, and what does not end by itself with its cell.
    pub async fn close(self) {
        self.input.end();
        let gone = self.state.gone.notified();
        if self.state.end.borrow().is_none() {
            // What it is asked in vain, its cell's end does.
            let _ = timeout(ENDING, gone).await;
        }
    }
}

/// A task that ends with this value.
struct Aborted(Option<JoinHandle<()>>);

impl Aborted {
    fn release(mut self) -> JoinHandle<()> {
        self.0.take().unwrap_or_else(|| spawn_local(async {}))
    }
}

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// An error of the library in few words: what a server sent is not repeated.
fn named(error: &rmcp::service::ClientInitializeError) -> &'static str {
    use rmcp::service::ClientInitializeError as Error;
    match error {
        Error::ConnectionClosed(_) | Error::TransportError { .. } => "it was gone before",
        Error::JsonRpcError(_) => "it answered with an error",
        Error::NoCompatibleProtocolVersion { .. } => "it speaks no version that is known here",
        _ => "its answer is another one",
    }
}

fn failed(error: &ServiceError, watched: &Watched, state: &State) -> Failed {
    if let Some(why) = &*state.end.borrow() {
        return watched.failed(ErrorKind::Io, why);
    }
    match error {
        ServiceError::McpError(error) => {
            let kind = match error.code {
                ErrorCode::INVALID_PARAMS => ErrorKind::InvalidInput,
                _ => ErrorKind::Io,
            };
            watched.failed(kind, &format!("says: {}", blocks::brief(&error.message)))
        }
        ServiceError::Cancelled { .. } => watched.failed(ErrorKind::Cancelled, "has given the call up"),
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            watched.failed(ErrorKind::Io, "is gone")
        }
        _ => watched.failed(ErrorKind::Io, "did not answer as the protocol has it"),
    }
}

/// The tools of a server, page by page, within bounds.
async fn list(
    client: &RunningClient<RoleClient, Handler>,
    watched: &Watched,
    state: &State,
) -> Result<Vec<ListedTool>, Failed> {
    state.asked();
    if client.peer_info().is_some_and(|server| server.capabilities.tools.is_none()) {
        return Ok(Vec::new());
    }
    let peer: &Peer<RoleClient> = client.peer();
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let mut page = PaginatedRequestParams::default();
        page.cursor = cursor;
        let page = peer.list_tools(Some(page)).await.map_err(|error| failed(&error, watched, state))?;
        tools.extend(page.tools.into_iter().take(TOOLS_MAX + 1).map(|tool| ListedTool {
            name: tool.name.into_owned(),
            description: tool.description.unwrap_or_default().into_owned(),
            schema: Value::Object((*tool.input_schema).clone()),
        }));
        check_list(&tools).map_err(|why| watched.failed(ErrorKind::ResourceLimit, &why))?;
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(watched.failed(ErrorKind::ResourceLimit, &format!("lists its tools on more than {PAGES_MAX} pages")))
}

/// Whether a list of tools is within bounds.
pub(crate) fn check_list(tools: &[ListedTool]) -> Result<(), String> {
    if tools.len() > TOOLS_MAX {
        return Err(format!("lists more than {TOOLS_MAX} tools"));
    }
    if tools.iter().any(|tool| tool.name.is_empty() || tool.name.len() > TOOL_NAME_MAX) {
        return Err(format!("lists a tool whose name has not 1 to {TOOL_NAME_MAX} bytes"));
    }
    let mut names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("lists two tools of one name".to_owned());
    }
    let bytes: usize = tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    if bytes > TOOLS_BYTES_MAX {
        return Err(format!("lists descriptions and schemas of more than {TOOLS_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// What a server may ask of us, and tell us: little.
struct Handler {
    root: Option<String>,
    /// Its tools are others now.
    changed: Arc<Notify>,
    /// What it says for a log; more than is read in time is left out.
    said: mpsc::Sender<String>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapabilities::default());
        ClientConfig::new(capabilities, Implementation::new("lazaret", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.root.iter().map(Root::new).collect()))
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let text = match &message.data {
            Value::String(text) => text.clone(),
            data => data.to_string(),
        };
        let _ = self.said.try_send(text);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

/// Feeds a program and hears it until one of both ends, or it passes a bound: then it is lost, by name.
async fn pump(
    mut service: RunningService,
    incoming: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
    mut said: mpsc::Receiver<String>,
    watched: Rc<Watched>,
    state: Rc<State>,
) {
    let input = service.input();
    let feed = async {
        while let Some(line) = outgoing.recv().await {
            if timeout(READS, input.feed(&line)).await.is_err() {
                return format!("does not read what it is sent: it was ended after {} s", READS.as_secs());
            }
        }
        // The client is gone: what it may still say, nobody hears.
        input.end();
        "was told to end".to_owned()
    };
    let listen = async {
        while let Some(text) = said.recv().await {
            watched.log.borrow_mut().push_said(text.as_bytes(), watched.redactor);
        }
        std::future::pending().await
    };
    let heard = hear(&mut service, &incoming, &watched, &state);
    let why = tokio::select! {
        why = feed => why,
        why = heard => why,
        why = listen => why,
    };
    watched.log.borrow_mut().finish(watched.redactor);
    watched.note(&why);
    state.end(why);
}

/// Hears a program until it has ended, or passes a bound; says why.
async fn hear(
    service: &mut RunningService,
    incoming: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    watched: &Watched,
    state: &State,
) -> String {
    let mut lines = LineCutter::default();
    loop {
        match service.next().await {
            ServiceEvent::Output { stderr, bytes } => {
                let heard = match stderr {
                    true => {
                        watched.log.borrow_mut().push_bytes(&bytes, watched.redactor);
                        state.count(0, bytes.len())
                    }
                    false => take(&mut lines, &bytes, incoming, watched, state).await,
                };
                if let Err(why) = heard {
                    return why;
                }
                service.taken(bytes.len());
            }
            ServiceEvent::WaitsForApproval => watched.note("waits for an answer of `lazaret approve`"),
            ServiceEvent::Ended(ended) => return how(&ended, watched),
        }
    }
}

/// Takes a piece of standard output.
async fn take(
    lines: &mut LineCutter,
    bytes: &[u8],
    incoming: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    watched: &Watched,
    state: &State,
) -> Result<(), String> {
    let cut = lines.push(bytes).map_err(|error| error.to_string().replacen("it ", "", 1))?;
    state.count(cut.len(), bytes.len())?;
    for line in cut {
        match read(&line) {
            Ok(message) => {
                // A client that is gone ends all of this.
                let _ = incoming.send(message).await;
            }
            Err(crate::messages::MessageError::Other) => {
                watched.log.borrow_mut().push_said(&line[..line.len().min(4096)], watched.redactor);
            }
            Err(error @ crate::messages::MessageError::TooMany) => {
                return Err(error.to_string().replacen("it ", "", 1));
            }
        }
    }
    Ok(())
}

/// How a program ended, in words; what its cell refused it goes to the log.
fn how(ended: &Result<Finished, Failed>, watched: &Watched) -> String {
    if let Ok(finished) = ended
        && let Some(line) = denials::line(&finished.denied, true)
    {
        watched.note(&line);
    }
    how_ended(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: String, bytes: usize) -> ListedTool {
        ListedTool { name, description: "x".repeat(bytes), schema: json!({}) }
    }

    #[test]
    fn each_bound_of_a_list_holds_at_its_edge() {
        let many = |count: usize| (0..count).map(|n| tool(n.to_string(), 0)).collect::<Vec<_>>();
        assert!(check_list(&many(TOOLS_MAX)).is_ok() && check_list(&many(TOOLS_MAX + 1)).is_err());
        let named = |name: String| check_list(&[tool(name, 0)]);
        assert!(named("n".repeat(TOOL_NAME_MAX)).is_ok() && named("n".repeat(TOOL_NAME_MAX + 1)).is_err());
        assert!(named(String::new()).is_err());
        let described = |bytes: usize| check_list(&[tool("a".into(), bytes)]);
        assert!(described(TOOLS_BYTES_MAX - 2).is_ok() && described(TOOLS_BYTES_MAX - 1).is_err());
        assert!(check_list(&[tool("a".into(), 0), tool("a".into(), 1)]).is_err());
    }

    #[test]
    fn what_nobody_asked_for_is_bounded() {
        let state = State::default();
        assert!(state.count(UNASKED_MESSAGES as usize, UNASKED_BYTES as usize).is_ok());
        assert!(state.count(1, 0).is_err());
        state.asked();
        assert!(state.count(0, UNASKED_BYTES as usize).is_ok() && state.count(0, 1).is_err());
    }
}
