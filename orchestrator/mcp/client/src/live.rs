//! One running server: a program in a cell or a machine with an address, our client for it, and the supervision of both.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no roots and no log; servers of today's have"
)]

use crate::blocks;
use crate::http::RemoteServer;
use crate::log::{Ring, one_line};
use crate::messages::{Excess, MESSAGE_MAX, MessageError, Messages, read};
use crate::pins::ListedTool;
use crate::settings::Speech;
use crate::sse;
use crate::state::ServerState;
use broker_protocol::paste::shell_word;
use broker_protocol::{ConnectionReport, ErrorKind, Failed, Findings};
use orchestrator_engine::execution::OutsideReply;
use orchestrator_engine::explain;
use orchestrator_engine::service::{RunningService, ServiceEvent, ServiceInput, how_ended};
use orchestrator_results::denials;
use orchestrator_results::findings;
use orchestrator_results::render::FinishedRequest;
use orchestrator_text::line_cutter::{CutLine, LineCutter, Terminator};
use orchestrator_text::redact::Redactor;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, ErrorCode,
    ErrorData, Implementation, ListRootsResult, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProtocolVersion, Root, RootsCapabilities,
};
use rmcp::service::{
    NotificationContext, Peer, RequestContext, RoleClient, RunningService as RunningClient,
    RxJsonRpcMessage, ServiceError,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::auth::{AuthClient, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use rmcp::{ClientHandler, serve_client};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

/// How long a server may take to be ready: start, initialization and list of tools.
pub(crate) const CONNECT: Duration = Duration::from_secs(30);
/// How long it may take to read a message. After that it is treated as lost.
const READS: Duration = Duration::from_secs(30);
/// How long it may take to end after its input has ended.
const ENDING: Duration = Duration::from_secs(2);
/// How many messages may wait in each direction.
const WAITING: usize = 64;
/// Limits of a server: number of tools, pages of a list, bytes of a tool's name, and bytes of all descriptions and schemas.
pub(crate) const TOOLS_MAX: usize = 256;
pub(crate) const PAGES_MAX: usize = 64;
pub(crate) const TOOL_NAME_MAX: usize = 128;
pub(crate) const TOOLS_BYTES_MAX: usize = 2 << 20;

/// The knowledge about a server, whether it runs or not.
pub(crate) struct ServerWatch {
    pub name: String,
    pub log: RefCell<Ring>,
    /// Removes secrets from what it prints.
    pub redactor: &'static Redactor,
}

impl ServerWatch {
    /// Writes a line of our own into its log.
    pub(crate) fn note(&self, line: &str) {
        // It may quote the server, whose text must not begin a line of ours.
        self.log.borrow_mut().push(&format!(
            "[lazaret] {}",
            one_line(line.as_bytes(), self.redactor)
        ));
    }

    /// Logs a connection that failed or was refused.
    pub(crate) fn connection(&self, report: &ConnectionReport) {
        if let Some(why) = explain(report) {
            let ConnectionReport {
                host,
                port,
                verdict,
                count,
                ..
            } = report;
            let times = match count {
                1 => String::new(),
                count => format!(" ({count} more times)"),
            };
            self.note(&format!(
                "connection to {host}:{port}{times}: {}: {why}",
                verdict.name()
            ));
        }
    }

    fn failed(&self, kind: ErrorKind, why: &str) -> Failed {
        Failed {
            kind,
            message: format!("the server `{}` {why}", self.name),
        }
    }
}

/// A running server. Dropping it ends it.
pub(crate) struct LiveServer {
    watched: Rc<ServerWatch>,
    client: RunningClient<RoleClient, Handler>,
    means: ServerEnd,
    state: Arc<ServerState>,
    pump: Aborted,
}

/// The means to end a server, and to explain why it does not answer.
enum ServerEnd {
    Program(ServiceInput),
    Address(RemoteServer),
}

impl LiveServer {
    /// Initializes a program that has been started, and lists its tools. `root` is the address of what it may see of the project.
    ///
    /// # Errors
    /// If it does not answer in time, violates the protocol, or exceeds a bound.
    pub(crate) async fn connect(
        service: RunningService,
        watched: Rc<ServerWatch>,
        root: Option<String>,
        changed: Arc<Notify>,
    ) -> Result<(Self, Vec<ListedTool>), Failed> {
        let state = Arc::new(ServerState::default());
        let means = ServerEnd::Program(service.input());
        let (incoming, received) = mpsc::channel(WAITING);
        let (outgoing, sent) = mpsc::channel(WAITING);
        let (said, hears) = mpsc::channel(WAITING);
        let pump = spawn_local(pump(
            service,
            incoming,
            sent,
            hears,
            watched.clone(),
            state.clone(),
        ));
        let live = Uninitialized {
            watched,
            means,
            state,
            pump: Aborted(pump),
        };
        live.greet(
            Messages::new(received, outgoing),
            Handler {
                root,
                changed,
                said,
            },
        )
        .await
    }

    /// Initializes a server with an address, with its login if there is one, and lists its tools.
    ///
    /// # Errors
    /// The same as for `connect`.
    pub(crate) async fn reach(
        remote: RemoteServer,
        speech: Speech,
        login: Option<AuthorizationManager>,
        watched: Rc<ServerWatch>,
        state: Arc<ServerState>,
        changed: Arc<Notify>,
    ) -> Result<(Self, Vec<ListedTool>), Failed> {
        let (said, hears) = mpsc::channel(WAITING);
        let (root, means) = (None, ServerEnd::Address(remote.clone()));
        let handler = Handler {
            root,
            changed,
            said,
        };
        let listen = listen(hears, watched.clone());
        match (speech, login) {
            (Speech::Sse, _) => {
                let (messages, pump) = sse::connect(remote, state.clone());
                let pump = Aborted(pump);
                let task = spawn_local(async move {
                    let _pump = pump;
                    listen.await
                });
                let live = Uninitialized {
                    watched,
                    means,
                    state,
                    pump: Aborted(task),
                };
                live.greet(messages, handler).await
            }
            (Speech::Http, login) => {
                let live = Uninitialized {
                    watched,
                    means,
                    state,
                    pump: Aborted(spawn_local(listen)),
                };
                match login {
                    Some(login) => {
                        let uri = remote.host().target().url().to_string();
                        live.greet(streamable(AuthClient::new(remote, login), uri), handler)
                            .await
                    }
                    None => {
                        let uri = remote.host().target().url().to_string();
                        live.greet(streamable(remote, uri), handler).await
                    }
                }
            }
        }
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.state.why_gone().is_none() && !self.client.is_transport_closed()
    }

    /// The current list of its tools.
    ///
    /// # Errors
    /// If it exceeds a bound, or is gone.
    pub(crate) async fn list(&self) -> Result<Vec<ListedTool>, Failed> {
        list(&self.client, &self.state)
            .await
            .map_err(|error| self.listing(error))
    }

    fn listing(&self, error: ListError) -> Failed {
        listing(error, &self.watched, &self.means, &self.state)
    }

    /// Calls a tool. Dropping the future before its answer tells the server that the call is cancelled.
    ///
    /// # Errors
    /// Errors of the tool, or that the server is gone.
    pub(crate) async fn call(
        &self,
        tool: String,
        input: Map<String, Value>,
    ) -> Result<OutsideReply, Failed> {
        self.state.asked();
        let request = CallToolRequestParams::new(tool).with_arguments(input);
        let gone = self.state.gone.notified();
        let answer = tokio::select! {
            answer = self.client.peer().call_tool_once(request) => answer,
            () = gone => Err(ServiceError::TransportClosed),
        };
        self.state.asked();
        match answer {
            Ok(CallToolResponse::Complete(result)) => blocks::reply(&self.watched.name, result),
            Ok(_) => Err(self
                .watched
                .failed(ErrorKind::Io, "needs several answers, which is unsupported")),
            Err(error) => Err(failed(&error, &self.watched, &self.means, &self.state)),
        }
    }

    /// Its challenge when it refused us for a missing login, if it has an address.
    pub(crate) fn challenge(&self) -> Option<String> {
        match &self.means {
            ServerEnd::Program(_) => None,
            ServerEnd::Address(remote) => remote.challenge(),
        }
    }

    /// Ends it: closes its input, and ends its cell if it does not end by itself. A server with an address is told that the session ends.
    pub(crate) async fn close(self) {
        let Self {
            client,
            means,
            state,
            pump: _pump,
            ..
        } = self;
        match means {
            ServerEnd::Program(input) => {
                input.end();
                let gone = state.gone.notified();
                if state.why_gone().is_none() {
                    // If it does not end on request, the end of its cell does it.
                    let _ = timeout(ENDING, gone).await;
                }
            }
            ServerEnd::Address(_) => {
                let _ = timeout(ENDING, client.cancel()).await;
            }
        }
    }
}

/// A task that ends with this value.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The library's transport to a server with an address.
fn streamable<C: StreamableHttpClient + Sync>(
    client: C,
    uri: String,
) -> StreamableHttpClientTransport<C> {
    StreamableHttpClientTransport::with_client(
        client,
        StreamableHttpClientTransportConfig::with_uri(uri),
    )
}

/// A server that has not been initialized yet.
struct Uninitialized {
    watched: Rc<ServerWatch>,
    means: ServerEnd,
    state: Arc<ServerState>,
    pump: Aborted,
}

impl Uninitialized {
    async fn greet<T, E, A>(
        self,
        transport: T,
        handler: Handler,
    ) -> Result<(LiveServer, Vec<ListedTool>), Failed>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let Self {
            watched,
            means,
            state,
            pump,
        } = self;
        let ready = async {
            let greeted = serve_client(handler, transport).await;
            let client = greeted.map_err(|error| {
                let why = why(&watched, &means, &state);
                let why = why.unwrap_or_else(|| {
                    format!("broke the protocol in its greeting: {}", named(&error))
                });
                watched.failed(ErrorKind::Io, &why)
            })?;
            let tools = list(&client, &state).await;
            let tools = tools.map_err(|error| listing(error, &watched, &means, &state))?;
            Ok((client, tools))
        };
        let late = || {
            let seconds = CONNECT.as_secs();
            watched.failed(
                ErrorKind::Timeout,
                &format!("was not ready within {seconds} s"),
            )
        };
        let (client, tools) = timeout(CONNECT, ready)
            .await
            .unwrap_or_else(|_| Err(late()))?;
        Ok((
            LiveServer {
                watched,
                client,
                means,
                state,
                pump,
            },
            tools,
        ))
    }
}

/// Why a server is gone or does not answer, where that is known.
fn why(watched: &ServerWatch, means: &ServerEnd, state: &ServerState) -> Option<String> {
    match (state.why_gone(), means) {
        (Some(why), _) => Some(why.to_owned()),
        (None, ServerEnd::Program(_)) => None,
        (None, ServerEnd::Address(remote)) if remote.challenge().is_some() => Some(format!(
            "wants a login: run `lazaret mcp login {}`",
            shell_word(&watched.name)
        )),
        (None, ServerEnd::Address(remote)) => {
            remote.trouble().map(|why| format!("cannot be used: {why}"))
        }
    }
}

/// A short name for an error of the library, without repeating what the server sent.
fn named(error: &rmcp::service::ClientInitializeError) -> &'static str {
    use rmcp::service::ClientInitializeError as Error;
    match error {
        Error::ConnectionClosed(_) | Error::TransportError { .. } => "it ended before",
        Error::JsonRpcError(_) => "it answered with an error",
        Error::NoCompatibleProtocolVersion { .. } => "it speaks no supported version",
        _ => "its answer is invalid",
    }
}

fn failed(
    error: &ServiceError,
    watched: &ServerWatch,
    means: &ServerEnd,
    state: &ServerState,
) -> Failed {
    if let Some(why) = state.why_gone() {
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
        ServiceError::Cancelled { .. } => {
            watched.failed(ErrorKind::Cancelled, "has cancelled the call")
        }
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            let why = why(watched, means, state);
            watched.failed(ErrorKind::Io, why.as_deref().unwrap_or("is gone"))
        }
        _ => watched.failed(ErrorKind::Io, "broke the protocol in its answer"),
    }
}

/// Why there is no list.
enum ListError {
    Service(ServiceError),
    Bound(String),
}

fn listing(
    error: ListError,
    watched: &ServerWatch,
    means: &ServerEnd,
    state: &ServerState,
) -> Failed {
    match error {
        ListError::Service(error) => failed(&error, watched, means, state),
        ListError::Bound(why) => watched.failed(ErrorKind::ResourceLimit, &why),
    }
}

/// Lists the tools of a server page by page, within bounds.
async fn list(
    client: &RunningClient<RoleClient, Handler>,
    state: &ServerState,
) -> Result<Vec<ListedTool>, ListError> {
    state.asked();
    if client
        .peer_info()
        .is_some_and(|server| server.capabilities.tools.is_none())
    {
        return Ok(Vec::new());
    }
    let peer: &Peer<RoleClient> = client.peer();
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let mut page = PaginatedRequestParams::default();
        page.cursor = cursor;
        let page = peer
            .list_tools(Some(page))
            .await
            .map_err(ListError::Service)?;
        tools.extend(
            page.tools
                .into_iter()
                .take(TOOLS_MAX + 1)
                .map(|tool| ListedTool {
                    name: tool.name.into_owned(),
                    description: tool.description.unwrap_or_default().into_owned(),
                    schema: Value::Object((*tool.input_schema).clone()),
                }),
        );
        check_list(&tools).map_err(ListError::Bound)?;
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(ListError::Bound(format!(
        "lists its tools on more than {PAGES_MAX} pages"
    )))
}

/// Checks that a list of tools is within bounds.
pub(crate) fn check_list(tools: &[ListedTool]) -> Result<(), String> {
    if tools.len() > TOOLS_MAX {
        return Err(format!("lists more than {TOOLS_MAX} tools"));
    }
    if tools
        .iter()
        .any(|tool| tool.name.is_empty() || tool.name.len() > TOOL_NAME_MAX)
    {
        return Err(format!(
            "lists a tool whose name does not have 1 to {TOOL_NAME_MAX} bytes"
        ));
    }
    let mut names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("lists two tools with the same name".to_owned());
    }
    let bytes: usize = tools
        .iter()
        .map(|tool| tool.description.len() + tool.schema.to_string().len())
        .sum();
    if bytes > TOOLS_BYTES_MAX {
        return Err(format!(
            "lists descriptions and schemas of more than {TOOLS_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// The few requests and notifications that a server may send us.
struct Handler {
    root: Option<String>,
    /// Signals that its tools have changed.
    changed: Arc<Notify>,
    /// Its log messages; those that are not read in time are dropped.
    said: mpsc::Sender<String>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapabilities::default());
        ClientConfig::new(
            capabilities,
            Implementation::new("lazaret", env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(
            self.root.iter().map(Root::new).collect(),
        ))
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

/// Feeds a program and reads its output until one of both ends, or it exceeds a bound: then it is lost, and the reason is named.
async fn pump(
    mut service: RunningService,
    incoming: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
    said: mpsc::Receiver<String>,
    watched: Rc<ServerWatch>,
    state: Arc<ServerState>,
) {
    let input = service.input();
    let feed = async {
        while let Some(line) = outgoing.recv().await {
            if timeout(READS, input.feed(&line)).await.is_err() {
                return format!(
                    "does not read its input and was ended after {} s",
                    READS.as_secs()
                );
            }
        }
        // The client is gone, so further output is not read.
        input.end();
        "was told to end".to_owned()
    };
    let listen = async {
        listen(said, watched.clone()).await;
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

/// Writes the server's log messages into its log.
async fn listen(mut said: mpsc::Receiver<String>, watched: Rc<ServerWatch>) {
    while let Some(text) = said.recv().await {
        watched
            .log
            .borrow_mut()
            .push_said(text.as_bytes(), watched.redactor);
    }
}

/// Reads a program's output until it ends or exceeds a bound; returns why.
async fn hear(
    service: &mut RunningService,
    incoming: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    watched: &ServerWatch,
    state: &ServerState,
) -> String {
    let mut lines = LineCutter::new(Terminator::Lf, MESSAGE_MAX);
    loop {
        match service.next().await {
            ServiceEvent::Output { stderr, bytes } => {
                let heard = match stderr {
                    true => {
                        watched
                            .log
                            .borrow_mut()
                            .push_bytes(&bytes, watched.redactor);
                        state.count(0, bytes.len())
                    }
                    false => take(&mut lines, &bytes, incoming, watched, state).await,
                };
                if let Err(excess) = heard {
                    return excess.to_string();
                }
                service.taken(bytes.len());
            }
            ServiceEvent::WaitsForApproval => {
                watched.note("waits for an answer from `lazaret approve`")
            }
            ServiceEvent::Ended(ended) => return how(&ended, &service.take_found(), watched),
        }
    }
}

/// Handles a piece of standard output.
async fn take(
    lines: &mut LineCutter,
    bytes: &[u8],
    incoming: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    watched: &ServerWatch,
    state: &ServerState,
) -> Result<(), Excess> {
    state.count(0, bytes.len())?;
    lines.push(bytes);
    while let Some(line) = lines.next_line() {
        let CutLine::Whole(line) = line else {
            return Err(Excess::Line);
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        state.count(1, 0)?;
        match read(&line) {
            Ok(message) => {
                // If the client is gone, all of this ends.
                let _ = incoming.send(message).await;
            }
            Err(MessageError::Other) => {
                watched
                    .log
                    .borrow_mut()
                    .push_said(&line[..line.len().min(4096)], watched.redactor);
            }
            Err(MessageError::TooMany) => return Err(Excess::Values),
        }
    }
    Ok(())
}

/// How a program ended, as text; what its cell denied goes to the log.
fn how(ended: &Result<FinishedRequest, Failed>, found: &Findings, watched: &ServerWatch) -> String {
    if let Some(lines) = findings::lines(found) {
        lines.lines().for_each(|line| watched.note(line));
    }
    if let Ok(finished) = ended
        && let Some(line) = denials::line(&finished.denied)
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
        ListedTool {
            name,
            description: "x".repeat(bytes),
            schema: json!({}),
        }
    }

    #[test]
    fn each_bound_of_a_list_holds_at_its_edge() {
        let many = |count: usize| {
            (0..count)
                .map(|n| tool(n.to_string(), 0))
                .collect::<Vec<_>>()
        };
        assert!(check_list(&many(TOOLS_MAX)).is_ok() && check_list(&many(TOOLS_MAX + 1)).is_err());
        let named = |name: String| check_list(&[tool(name, 0)]);
        assert!(
            named("n".repeat(TOOL_NAME_MAX)).is_ok()
                && named("n".repeat(TOOL_NAME_MAX + 1)).is_err()
        );
        assert!(named(String::new()).is_err());
        let described = |bytes: usize| check_list(&[tool("a".into(), bytes)]);
        assert!(described(TOOLS_BYTES_MAX - 2).is_ok() && described(TOOLS_BYTES_MAX - 1).is_err());
        assert!(check_list(&[tool("a".into(), 0), tool("a".into(), 1)]).is_err());
    }
}
