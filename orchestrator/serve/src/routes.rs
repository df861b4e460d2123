//! The routes: which request gets which response. Every request here has passed the guard.

use crate::backends::NoBackend;
use crate::bodies::{
    CancelRequest, CurrentSettings, Health, KeyRequest, KeyState, ModelList, RunRequest, Settings,
};
use crate::case::WireCase;
use crate::incoming::{MESSAGE_MAX, RequestError, read};
use crate::once;
use crate::outbox::outbox;
use crate::response::{EventStream, ResponseBody, error_reply, events_reply, json_reply, refused};
use crate::route_table::{self, ApiEndpoint, RouteMatch};
use crate::run::{Beginner, RunAnswerer, StartedRun, start};
use crate::runs::RunResult;
use crate::schema;
use crate::service::ServeState;
use crate::websocket;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, header};
use orchestrator_agent::error::ProviderError;
use orchestrator_wire::chat_command::{Approve, Cancel};
use orchestrator_wire::error::ErrorCode;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a request may take to send its body.
const BODY: Duration = Duration::from_secs(30);

/// The value read from a request, or an error response.
type RouteInput<T> = Result<T, Box<Response<ResponseBody>>>;

/// Answers a request that has passed the guard.
pub(crate) async fn answer(
    service: Rc<ServeState>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let path = request.uri().path().to_owned();
    match route_table::find(request.method().as_str(), &path) {
        RouteMatch::Endpoint { endpoint, id } => {
            endpoint_answer(service, endpoint, id.unwrap_or_default(), request).await
        }
        RouteMatch::OnlyMethods(methods) => only(&methods),
        RouteMatch::Nowhere => error_reply(StatusCode::NOT_FOUND, ErrorCode::NotFound, "not found"),
    }
}

async fn endpoint_answer(
    service: Rc<ServeState>,
    endpoint: ApiEndpoint,
    id: &str,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    match endpoint {
        ApiEndpoint::Health => json_reply(StatusCode::OK, &health(&service)),
        ApiEndpoint::Models => models(&service, request.uri().query()).await,
        ApiEndpoint::Tools => json_reply(
            StatusCode::OK,
            &json!({ "tools": service.tools.wait().await }),
        ),
        ApiEndpoint::Conversations => json_reply(
            StatusCode::OK,
            &json!({ "conversations": service.conversations() }),
        ),
        ApiEndpoint::Conversation => match service.conversation_detail(id) {
            Ok(detail) => json_reply(StatusCode::OK, &detail),
            Err(error) => refused(&error),
        },
        ApiEndpoint::Settings => json_reply(StatusCode::OK, &settings(&service)),
        ApiEndpoint::ChangeSettings => or_refusal(change_settings(&service, request).await),
        ApiEndpoint::ValidateKey => or_refusal(validate(&service, request).await),
        ApiEndpoint::Run => or_refusal(run(&service, request).await),
        ApiEndpoint::RunStream => or_refusal(run_stream(&service, request).await),
        ApiEndpoint::RunStatus => match service.runs.status(id) {
            Ok(status) => json_reply(StatusCode::OK, &status),
            Err(error) => refused(&error),
        },
        ApiEndpoint::CancelRun => or_refusal(cancel(&service, id, request).await),
        ApiEndpoint::ApproveRun => or_refusal(approve(&service, id, request).await),
        ApiEndpoint::OpenApi => json_reply(StatusCode::OK, &schema::open_api()),
        ApiEndpoint::AsyncApi => json_reply(StatusCode::OK, &schema::async_api()),
        ApiEndpoint::WebSocket => websocket::upgrade(service, request),
        ApiEndpoint::Mcp => or_refusal(mcp(&service, request).await),
    }
}

fn or_refusal(answer: RouteInput<Response<ResponseBody>>) -> Response<ResponseBody> {
    answer.unwrap_or_else(|refusal| *refusal)
}

/// The response for a path that exists, but only with other `methods`.
fn only(methods: &str) -> Response<ResponseBody> {
    let mut response = error_reply(
        StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::MethodNotAllowed,
        &format!("only {methods}"),
    );
    if let Ok(methods) = header::HeaderValue::from_str(methods) {
        response.headers_mut().insert(header::ALLOW, methods);
    }
    response
}

/// The response to a client that writes names in `case`.
fn boxed(error: RequestError, case: WireCase) -> Box<Response<ResponseBody>> {
    Box::new(refused(&error.in_case(case)))
}

/// Reads a JSON body within its limits.
async fn body<T: DeserializeOwned + JsonSchema>(
    request: Request<Incoming>,
) -> RouteInput<(T, WireCase)> {
    let (head, body) = request.into_parts();
    is_json(&head.headers)?;
    let bytes = bytes(&head.headers, body, MESSAGE_MAX).await?;
    let json = once::check(&bytes)
        .and_then(|()| serde_json::from_slice::<Value>(&bytes))
        .map_err(|error| {
            let why = if error.is_data() {
                "has a duplicate name in an object"
            } else {
                "is not JSON"
            };
            let message = format!(
                "the body {why}: line {}, column {}",
                error.line(),
                error.column()
            );
            boxed(RequestError::Invalid(message), WireCase::Camel)
        })?;
    let case = WireCase::of(&json).unwrap_or_default();
    let typed = read(json, case).map_err(|error| boxed(error, case))?;
    Ok((typed, case))
}

/// Whether the header declares the body as JSON: a form of a page cannot send that.
fn is_json(headers: &HeaderMap) -> RouteInput<()> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default()
        .trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the body must be application/json";
    Err(Box::new(error_reply(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorCode::InvalidRequest,
        message,
    )))
}

/// Reads a body within its limits.
async fn bytes(headers: &HeaderMap, body: Incoming, max: usize) -> RouteInput<Bytes> {
    let too_large = || {
        let message = format!("a body has at most {max} bytes");
        Box::new(error_reply(
            StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::TooLarge,
            &message,
        ))
    };
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    if length
        .and_then(|length| length.parse::<u64>().ok())
        .is_some_and(|length| length > max as u64)
    {
        return Err(too_large());
    }
    match timeout(BODY, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let reply = error_reply(
                StatusCode::BAD_REQUEST,
                ErrorCode::InvalidRequest,
                "the body is incomplete",
            );
            Err(Box::new(reply))
        }
        Err(_) => {
            let message = format!("the body takes more than {} s", BODY.as_secs());
            Err(Box::new(error_reply(
                StatusCode::REQUEST_TIMEOUT,
                ErrorCode::Timeout,
                &message,
            )))
        }
    }
}

/// Answers an MCP client.
async fn mcp(
    service: &ServeState,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (head, body) = request.into_parts();
    if head.method == Method::POST {
        is_json(&head.headers)?;
    }
    let body = bytes(&head.headers, body, orchestrator_mcp_server::BODY_MAX).await?;
    match service.mcp.answer(Request::from_parts(head, body)).await {
        Ok(response) => Ok(response.map(ResponseBody::Mcp)),
        Err(refused) => Err(Box::new(error_reply(
            refused.status(),
            refused.code(),
            &refused.to_string(),
        ))),
    }
}

fn health(service: &ServeState) -> Health {
    Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        runs: service.running_count(),
    }
}

fn settings(service: &ServeState) -> CurrentSettings {
    CurrentSettings {
        trust: service.trust.get().name(),
        provider: service.backends.default_name().to_owned(),
        project: service.opener.project(),
    }
}

async fn change_settings(
    service: &ServeState,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (Settings { trust }, _) = body(request).await?;
    service.trust.set(trust.0);
    Ok(json_reply(StatusCode::OK, &settings(service)))
}

/// The query may have only `provider=NAME`.
async fn models(service: &ServeState, query: Option<&str>) -> Response<ResponseBody> {
    let provider = match query
        .filter(|query| !query.is_empty())
        .map(|query| query.split_once('='))
    {
        None => None,
        Some(Some(("provider", name))) => Some(name).filter(|name| !name.is_empty()),
        Some(_) => {
            return refused(&RequestError::Invalid(
                "the query may contain only provider=NAME".to_owned(),
            ));
        }
    };
    let provider = match service.backends.provider(provider, None) {
        Ok(provider) => provider,
        Err(NoBackend::Request(error)) => return refused(&error),
        Err(NoBackend::Provider(error)) => return failed(&error),
    };
    match provider.models().await {
        Ok(mut models) => {
            models.sort_by(|one, other| one.id.cmp(&other.id));
            json_reply(
                StatusCode::OK,
                &ModelList {
                    provider: provider.name().to_owned(),
                    models,
                },
            )
        }
        Err(error) => failed(&error),
    }
}

/// An error of a provider: the request was valid, and the server works.
fn failed(error: &ProviderError) -> Response<ResponseBody> {
    error_reply(
        StatusCode::FAILED_DEPENDENCY,
        error.code(),
        &error.to_string(),
    )
}

async fn validate(
    service: &ServeState,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (KeyRequest { provider, api_key }, case) = body(request).await?;
    let asked = match service
        .backends
        .provider(provider.as_deref(), api_key.as_deref())
    {
        Ok(provider) => provider.models().await.map(drop),
        Err(NoBackend::Provider(error)) => Err(error),
        Err(NoBackend::Request(error)) => return Err(boxed(error, case)),
    };
    let reason = |error: &ProviderError| Some(error.to_string());
    let state = match &asked {
        Ok(()) => KeyState {
            state: "valid",
            reason: None,
        },
        Err(error @ (ProviderError::Auth { .. } | ProviderError::NoKey { .. })) => KeyState {
            state: "invalid",
            reason: reason(error),
        },
        Err(error) => KeyState {
            state: "unknown",
            reason: reason(error),
        },
    };
    Ok(json_reply(StatusCode::OK, &state))
}

/// Begins a run; the requester receives its events from the returned queue.
fn begin(
    service: &Rc<ServeState>,
    (request, case): (RunRequest, WireCase),
) -> RouteInput<(StartedRun, crate::outbox::PacketQueue)> {
    let answers = if request.approvals {
        RunAnswerer::Clients
    } else {
        RunAnswerer::Nobody
    };
    let (outbox, queue) = outbox();
    let stays = request.options.conversation_id.is_some();
    let send = request.into_send().map_err(|error| boxed(error, case))?;
    let beginner = Beginner {
        outbox,
        tools: None,
        answers,
        stays,
    };
    let started = start(service, send, beginner).map_err(|error| boxed(error, case))?;
    Ok((started, queue))
}

async fn run(
    service: &Rc<ServeState>,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (StartedRun { mut ended, .. }, mut queue) = begin(service, body(request).await?)?;
    let result: Option<RunResult> = loop {
        tokio::select! {
            result = &mut ended => break result.ok(),
            // Keeps receiving events, so that the run counts as having a listener.
            Some(_) = queue.next() => {}
        }
    };
    Ok(match result {
        Some(result) => json_reply(StatusCode::OK, &result),
        None => refused(&RequestError::Internal(
            "the run has ended without a result".to_owned(),
        )),
    })
}

async fn run_stream(
    service: &Rc<ServeState>,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (StartedRun { ended, .. }, queue) = begin(service, body(request).await?)?;
    Ok(events_reply(EventStream::new(queue, ended)))
}

/// The conversation of a run in progress.
fn conversation_of(service: &ServeState, run: &str) -> Result<String, RequestError> {
    let status = service.runs.status(run)?;
    match status.ended_at {
        None => Ok(status.conversation_id),
        Some(_) => Err(RequestError::NotRunning(status.run_id)),
    }
}

async fn cancel(
    service: &ServeState,
    run: &str,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (CancelRequest { tools_only }, case) = body(request).await?;
    conversation_of(service, run)
        .and_then(|conversation_id| {
            service.cancel(&Cancel {
                conversation_id,
                tools_only,
            })
        })
        .map_err(|error| boxed(error, case))?;
    Ok(json_reply(StatusCode::ACCEPTED, &json!({ "runId": run })))
}

async fn approve(
    service: &ServeState,
    run: &str,
    request: Request<Incoming>,
) -> RouteInput<Response<ResponseBody>> {
    let (approve, case): (Approve, _) = body(request).await?;
    let refused = |error| boxed(error, case);
    let approve = Approve {
        conversation_id: Some(conversation_of(service, run).map_err(refused)?),
        ..approve
    };
    service.approve(&approve).await.map_err(refused)?;
    Ok(json_reply(StatusCode::OK, &json!({ "runId": run })))
}
