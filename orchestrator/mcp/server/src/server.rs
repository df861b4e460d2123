//! Dispatches requests to their handlers.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no log and no roots; clients of today's have"
)]

use crate::call::{self, CallAnswer, ToolCaller};
use crate::listing::Listing;
use crate::log::LogLevel;
use crate::projects::{Projects, SessionRequests};
use crate::resources::{self, Outputs};
use crate::tools;
use crate::transport::ClientLines;
use orchestrator_text::known::redactor;
use orchestrator_text::sanitize::Sanitizer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, ErrorData,
    Implementation, JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResourceContents, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler, serve_server};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Supported versions. The one after them has no roots, log or requests to the client, which projects and approvals need.
pub(crate) const VERSIONS: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
];

/// Maximum number of a client's calls in progress: each waiting call holds its input.
const CALLS_MAX: usize = 64;
/// The error code for a call beyond that: one of those that the protocol leaves to servers.
const TOO_MANY: ErrorCode = ErrorCode(-32000);
/// Requests with parameters that are answered here. With invalid parameters they arrive as unknown requests.
const WITH_PARAMETERS: [&str; 3] = ["tools/call", "resources/read", "logging/setLevel"];

/// The settings of a server.
#[derive(Debug)]
pub struct McpSettings {
    /// The instructions for the client's model.
    pub instructions: String,
    pub tools: Listing,
    /// Whether to keep unsafe characters in results.
    pub raw: bool,
}

/// Serves a client until it is gone. Incoming lines have no line break; outgoing lines have one.
pub async fn serve(
    settings: McpSettings,
    sessions: SessionRequests,
    incoming: Receiver<Vec<u8>>,
    outgoing: Sender<Vec<u8>>,
) {
    let server = Offer::new(settings).server(sessions, None);
    // A client that leaves before it has introduced itself needs nothing.
    let Ok(running) = serve_server(server, ClientLines::new(incoming, outgoing)).await else {
        return;
    };
    let _ = running.waiting().await;
}

/// What every client is offered.
pub(crate) struct Offer {
    tools: Listing,
    output: Arc<JsonObject>,
    instructions: String,
    raw: bool,
}

impl Offer {
    pub(crate) fn new(settings: McpSettings) -> Arc<Self> {
        Arc::new(Self {
            tools: settings.tools,
            output: tools::output_schema(),
            instructions: settings.instructions,
            raw: settings.raw,
        })
    }

    /// The server of one client; it requests sessions through `sessions`. If there may be several clients, `place` is its permit.
    pub(crate) fn server(
        self: Arc<Self>,
        sessions: SessionRequests,
        place: Option<OwnedSemaphorePermit>,
    ) -> ClientServer {
        ClientServer {
            offer: self,
            projects: Projects::new(sessions),
            asker: "mcp".into(),
            log: LogLevel::default(),
            outputs: Outputs::default(),
            calls: Semaphore::new(CALLS_MAX),
            announcing: Mutex::default(),
            _place: place,
        }
    }
}

/// The server of one client.
pub(crate) struct ClientServer {
    offer: Arc<Offer>,
    projects: Projects,
    asker: Arc<str>,
    log: LogLevel,
    outputs: Outputs,
    /// Bounds calls in progress, including cancelled ones that have not ended.
    calls: Semaphore,
    /// Tells the client that the tools have changed.
    announcing: Mutex<JoinSet<()>>,
    /// Released with the server.
    _place: Option<OwnedSemaphorePermit>,
}

/// Clients that show the structured content to the model instead of the text: as JSON on one line, in which a file is hard to read.
/// Seen with Claude Code 2.1.330.
const SHOW_STRUCTURE: [&str; 2] = ["claude-code", "codex-mcp-client"];

/// Whether this client gets structured content besides the text.
fn takes_structure(context: &RequestContext<RoleServer>) -> bool {
    context
        .client_info()
        .is_none_or(|client| !SHOW_STRUCTURE.contains(&client.name.as_str()))
}

impl ServerHandler for ClientServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("lazaret", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.offer.instructions.clone())
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&VERSIONS)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.set(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Ok(mut announcing) = self.announcing.lock() {
            *announcing = self.offer.tools.announce_to(context.peer);
        }
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.projects.forget().await;
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools: Vec<Tool> = self
            .offer
            .tools
            .wait()
            .await
            .iter()
            .filter_map(tools::tool)
            .collect();
        if takes_structure(&context) {
            tools
                .iter_mut()
                .for_each(|tool| tool.output_schema = Some(self.offer.output.clone()));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Ok(_permit) = self.calls.try_acquire() else {
            let message =
                format!("{CALLS_MAX} calls are under way: one has to end before the next begins");
            return Err(ErrorData::new(TOO_MANY, message, None));
        };
        let name = request.name.into_owned();
        let session = match self.projects.session(&context.peer, &self.log).await {
            Ok(session) => session,
            Err(error) => return Ok(call::no_session(&error).into()),
        };
        let input = Value::Object(request.arguments.unwrap_or_default());
        let caller = ToolCaller {
            asker: &self.asker,
            log: &self.log,
            outputs: &self.outputs,
            raw: self.offer.raw,
            structured: takes_structure(&context),
        };
        match caller.call(&session, name, input, &context).await {
            CallAnswer::Result(result) => Ok(result.into()),
            CallAnswer::NoTool(why) => Err(ErrorData::invalid_params(why, None)),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if !WITH_PARAMETERS.contains(&method.as_str()) {
            let message = format!(
                "there is no method {:?}",
                Sanitizer::new(redactor()).text(&method)
            );
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None));
        }
        let call = "; `name` is a string, and `arguments` an object or absent";
        let more = if method == "tools/call" { call } else { "" };
        let message = format!("the parameters of {method} are not those of the protocol{more}");
        Err(ErrorData::invalid_params(message, None))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.outputs.list()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![
            resources::template(),
        ]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let internal =
            |error: broker_protocol::Failed| ErrorData::internal_error(error.message, None);
        let session = self
            .projects
            .session(&context.peer, &self.log)
            .await
            .map_err(internal)?;
        let text = resources::read(&session, &self.asker, &request.uri)
            .await
            .map_err(internal)?;
        let uri = Sanitizer::new(redactor()).text(&request.uri);
        let none = || ErrorData::resource_not_found(format!("there is no resource {uri:?}"), None);
        let contents = ResourceContents::text(text.ok_or_else(none)?, request.uri.clone());
        Ok(ReadResourceResult::new(vec![contents.with_mime_type("text/plain")]).into())
    }
}
