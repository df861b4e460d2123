//! The server of `lazaret serve` with the tools, resources and prompts that `@modelcontextprotocol/conformance` expects of a server that
//! it tests: guard, limits, sessions and streams are the product's, only what is offered is not. See `tests/conformance/run`.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no log and no sampling; the suite tests both"
)]
#![allow(clippy::unwrap_used)]

use broker_protocol::{ErrorKind, Failed, Open, Trust};
use orchestrator_agent::event::ChatEvent;
use orchestrator_agent::hooks::SessionHooks;
use orchestrator_agent::publish::Listener;
use orchestrator_agent::settings::RunSettings;
use orchestrator_confine::ConfinementProof;
use orchestrator_engine::hooks::HookGuard;
use orchestrator_mcp_client::SessionServers;
use orchestrator_mcp_server::{HttpClients, Listing};
use orchestrator_serve::WireCase;
use orchestrator_serve::backends::Backends;
use orchestrator_serve::guard::Guard;
use orchestrator_serve::opener::{Opener, SessionOrder, ToolList};
use orchestrator_serve::server::{self, ListeningSocket, RATE};
use orchestrator_serve::service::{ServeState, Sources};
use orchestrator_serve::token::AccessToken;
use orchestrator_text::known::redactor;
use orchestrator_tools::ToolConfig;
use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

/// A picture and a sound, as small as they come.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
/// How long the suite wants a tool to take between two messages.
const PAUSE: Duration = Duration::from_millis(50);

struct NoRecord;

impl Listener for NoRecord {
    fn hear(&self, _: &ChatEvent) {}
}

fn main() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let token = AccessToken::fresh().unwrap();
    println!(
        "{}",
        json!({ "url": format!("http://{address}"), "token": token.expose() })
    );
    let backends = Backends::new(Default::default(), "none".to_owned(), redactor());
    let mcp = HttpClients::serving(|place| Ok(Fixtures { _place: place }));
    let sources = Sources {
        proof: ConfinementProof::of_test(),
        opener: Box::new(NoSessions),
        backends,
        mcp,
        offered: Listing::default(),
        record: Rc::new(NoRecord),
        transcripts: Box::new(|_| None),
    };
    let case = WireCase::Camel;
    let service = ServeState::new(
        sources,
        RunSettings::new(""),
        Vec::new(),
        case,
        Trust::Guided,
        redactor(),
    );
    let guard = Guard {
        token,
        origins: Vec::new(),
        page: true,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (_arrivals, clients) = unbounded_channel();
    let served = tokio::task::LocalSet::new().block_on(
        &runtime,
        server::serve(
            service,
            guard,
            RATE,
            vec![ListeningSocket::Tcp(listener)],
            clients,
        ),
    );
    panic!("it cannot serve: {served:?}");
}

/// There is no executor here.
struct NoSessions;

impl Opener for NoSessions {
    fn config(&self, _: &SessionOrder) -> Result<ToolConfig, Failed> {
        Err(Failed {
            kind: ErrorKind::InvalidInput,
            message: "there are no sessions".into(),
        })
    }

    fn servers(&self, _: &SessionOrder, open: &Open) -> SessionServers {
        SessionServers::among(Vec::new(), open, |_| ())
    }

    fn hooks(&self, _: &HookGuard) -> Option<Rc<SessionHooks>> {
        None
    }

    fn has_project(&self, _: &SessionOrder) -> bool {
        false
    }

    fn project(&self) -> Option<String> {
        None
    }

    fn tools(&self) -> ToolList<'_> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

struct Fixtures {
    _place: OwnedSemaphorePermit,
}

fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn embedded(uri: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": text } })
}

fn object(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

/// The tools, each with its schema.
fn tools() -> Value {
    let none = object(json!({}));
    let with_text = |name: &str| object(json!({ name: { "type": "string" } }));
    let address = json!({
        "type": "object",
        "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
    });
    let schema_2020_12 = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": address },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "additionalProperties": false,
    });
    let mut tools = vec![
        ("test_sampling", with_text("prompt")),
        ("test_elicitation", with_text("message")),
        ("json_schema_2020_12_tool", schema_2020_12),
    ];
    for name in [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_tool_with_logging",
        "test_tool_with_progress",
        "test_error_handling",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_reconnection",
    ] {
        tools.push((name, none.clone()));
    }
    let described = tools
        .into_iter()
        .map(|(name, schema)| json!({ "name": name, "description": "A fixture.", "inputSchema": schema }));
    json!({ "tools": described.collect::<Vec<_>>() })
}

fn prompts() -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|name| json!({ "name": name, "required": true }))
            .collect();
        json!({ "name": name, "description": "A fixture.", "arguments": arguments })
    };
    json!({ "prompts": [
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
    ] })
}

/// The schema of SEP-1034: a default for each type.
fn defaults() -> Value {
    object(json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    }))
}

/// The schema of SEP-1330: a choice in each way of writing one.
fn choices() -> Value {
    let titled = |words: [&str; 3]| {
        let values = words.iter().enumerate();
        values
            .map(|(at, title)| json!({ "const": format!("value{}", at + 1), "title": title }))
            .collect::<Vec<_>>()
    };
    let options = json!(["option1", "option2", "option3"]);
    object(json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]) },
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) } },
    }))
}

type Context = RequestContext<RoleServer>;

/// Asks the client's user; what was answered, as a text.
async fn elicit(context: &Context, message: &str, schema: Value) -> Result<Value, ErrorData> {
    let requested_schema =
        ElicitationSchema::from_json_schema(schema.as_object().cloned().unwrap_or_default())
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let request = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema,
    };
    let answered = context.peer.create_elicitation(request).await;
    let answered = answered.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let (action, content) = (json!(answered.action), json!(answered.content));
    Ok(text(format!(
        "Elicitation completed: action={action}, content={content}"
    )))
}

async fn sample(context: &Context, prompt: &str) -> Result<Value, ErrorData> {
    let request = made(
        json!({ "messages": [{ "role": "user", "content": text(prompt) }], "maxTokens": 100 }),
    )?;
    let answered = context.peer.create_message(request).await;
    let answered = answered.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(text(format!("LLM response: {}", json!(answered))))
}

async fn log(context: &Context) -> Value {
    for message in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
        let _ = context.peer.notify_logging_message(message).await;
        sleep(PAUSE).await;
    }
    text("It has logged.")
}

async fn progress(context: &Context) -> Value {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
            let _ = context.peer.notify_progress(progress).await;
        }
        sleep(PAUSE).await;
    }
    text("It has made progress.")
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_logging()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("lazaret-fixtures", "0"))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        made(json!({ "completion": { "values": ["test"], "total": 1, "hasMore": false } }))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        made(tools())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let content = match &*request.name {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => image(),
            "test_audio_content" => {
                json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
            }
            "test_embedded_resource" => embedded(
                "test://embedded-resource",
                "This is an embedded resource content.",
            ),
            "test_multiple_content_types" => {
                let mixed = embedded(
                    "test://mixed-content-resource",
                    "{\"test\":\"data\",\"value\":123}",
                );
                let content = [text("Multiple content types test:"), image(), mixed];
                return made::<CallToolResult>(json!({ "content": content })).map(Into::into);
            }
            "test_error_handling" => {
                let content = [text("This tool intentionally returns an error for testing")];
                return made::<CallToolResult>(json!({ "content": content, "isError": true }))
                    .map(Into::into);
            }
            "test_tool_with_logging" => log(&context).await,
            "test_tool_with_progress" => progress(&context).await,
            "test_sampling" => sample(&context, &argument("prompt")).await?,
            "test_elicitation" => {
                let asked =
                    json!({ "username": { "type": "string" }, "email": { "type": "string" } });
                elicit(&context, &argument("message"), object(asked)).await?
            }
            "test_elicitation_sep1034_defaults" => {
                elicit(&context, "Defaults?", defaults()).await?
            }
            "test_elicitation_sep1330_enums" => elicit(&context, "Which?", choices()).await?,
            "json_schema_2020_12_tool" => text("A schema."),
            "test_reconnection" => {
                sleep(2 * PAUSE).await;
                text("Reconnection test completed successfully.")
            }
            name => {
                return Err(ErrorData::invalid_params(
                    format!("there is no tool {name}"),
                    None,
                ));
            }
        };
        made::<CallToolResult>(json!({ "content": [content] })).map(Into::into)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        made(json!({ "resources": [
            { "uri": "test://static-text", "name": "text", "mimeType": "text/plain" },
            { "uri": "test://static-binary", "name": "binary", "mimeType": "image/png" },
            { "uri": "test://watched-resource", "name": "watched", "mimeType": "text/plain" },
        ] }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        made(json!({ "resourceTemplates": [
            { "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json" },
        ] }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (&*uri, id) {
            (_, Some(id)) => {
                let data =
                    json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
            }
            ("test://static-binary", None) => {
                json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })
            }
            ("test://static-text" | "test://watched-resource", None) => {
                json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource." })
            }
            (_, None) => {
                return Err(ErrorData::resource_not_found(
                    format!("there is no {uri}"),
                    None,
                ));
            }
        };
        made::<ReadResourceResult>(json!({ "contents": [contents] })).map(Into::into)
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        made(prompts())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let user = |content: Value| json!({ "role": "user", "content": content });
        let messages = match &*request.name {
            "test_simple_prompt" => vec![user(text("This is a simple prompt for testing."))],
            "test_prompt_with_arguments" => {
                let said = format!(
                    "Prompt with arguments: arg1='{}', arg2='{}'",
                    argument("arg1"),
                    argument("arg2")
                );
                vec![user(text(said))]
            }
            "test_prompt_with_embedded_resource" => vec![
                user(embedded(
                    &argument("resourceUri"),
                    "Embedded resource content for testing.",
                )),
                user(text("Please process the embedded resource above.")),
            ],
            "test_prompt_with_image" => {
                vec![user(image()), user(text("Please analyze the image above."))]
            }
            name => {
                return Err(ErrorData::invalid_params(
                    format!("there is no prompt {name}"),
                    None,
                ));
            }
        };
        made::<GetPromptResult>(json!({ "messages": messages })).map(Into::into)
    }
}
