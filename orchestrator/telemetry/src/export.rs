//! Exports spans to a collector: OTLP, protobuf over HTTP.
//!
//! The libraries' processor and client each need a thread, and their retries block it. Here a finished span is sanitized and put
//! into a bounded queue, and a task of our own runtime sends what is queued. A collector that is slow, down or hostile costs spans,
//! never a call.

use crate::error::TelemetryError;
use crate::fields::clean;
use async_trait::async_trait;
use http::HeaderMap;
use opentelemetry::trace::{Status, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanExporter as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span, SpanData, SpanProcessor};
use orchestrator_http::ask::{By, NamedRequest};
use orchestrator_http::{ClientGateway, HostClient, name_request};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Registry;
use url::Url;

/// Whether the export is built in.
pub(crate) const IS_BUILT: bool = true;

/// Maximum number of queued spans. Further ones are dropped and counted.
const QUEUE: usize = 2048;
/// Maximum number of spans in a batch.
const BATCH: usize = 256;
/// How long a span waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take to accept a batch.
const SEND: Duration = Duration::from_secs(10);
/// The same at the end, for everything that is left.
const LAST: Duration = Duration::from_secs(3);
/// Maximum bytes of a collector's answer.
const ANSWER_MAX: usize = 64 << 10;

/// Sends the spans of the layer.
pub(crate) struct Export {
    waiting: Option<Sender>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Sender {
    exporter: SpanExporter,
    spans: mpsc::Receiver<SpanData>,
    dropped: Arc<AtomicU64>,
    fails: bool,
}

/// The queue's sending end.
#[derive(Debug)]
struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    dropped: Arc<AtomicU64>,
}

/// Creates the layer and its exporter; nothing is sent before [`Export::start`].
pub(crate) fn open(
    _: &'static str,
    url: Url,
    headers: HeaderMap,
) -> Result<(Export, OpenTelemetryLayer<Registry, SdkTracer>), TelemetryError> {
    let failed = |error: &dyn std::fmt::Display| TelemetryError::Export(error.to_string());
    let client = ExportClient::new(&url, headers);
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(url.as_str())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(SEND)
        .with_retry_policy(RetryPolicy::default().with_max_retries(0))
        .build()
        .map_err(|error| failed(&error))?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let name = std::env::var("OTEL_SERVICE_NAME")
        .ok()
        .filter(|name| !name.is_empty());
    let resource =
        Resource::builder().with_service_name(name.unwrap_or_else(|| "lazaret".to_owned()));
    let resource = resource.with_attribute(version).build();
    exporter.set_resource(&resource);
    let (sender, spans) = mpsc::channel(QUEUE);
    let dropped = Arc::<AtomicU64>::default();
    let queue = SpanQueue {
        spans: sender,
        dropped: dropped.clone(),
    };
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_span_processor(queue)
        .build();
    let layer = OpenTelemetryLayer::new(provider.tracer("lazaret"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false);
    let sender = Sender {
        exporter,
        spans,
        dropped,
        fails: false,
    };
    Ok((
        Export {
            waiting: Some(sender),
            running: None,
        },
        layer,
    ))
}

impl Export {
    pub(crate) fn start(&mut self) {
        if let Some(sender) = self.waiting.take() {
            let (end, ended) = oneshot::channel();
            self.running = Some((end, tokio::spawn(sender.run(ended))));
        }
    }

    pub(crate) async fn end(self) {
        let Some((end, task)) = self.running else {
            return;
        };
        // A finished task has nothing left to send.
        let _ = end.send(());
        let _ = timeout(LAST, task).await;
    }
}

impl Sender {
    /// Sends batches until told to end, then what is left.
    async fn run(mut self, mut end: oneshot::Receiver<()>) {
        let mut is_over = false;
        while !is_over {
            let mut batch = Vec::new();
            tokio::select! {
                count = self.spans.recv_many(&mut batch, BATCH) => is_over = count == 0,
                _ = &mut end => is_over = true,
            }
            let until = Instant::now() + DELAY;
            while !is_over && batch.len() < BATCH {
                let room = BATCH - batch.len();
                tokio::select! {
                    count = self.spans.recv_many(&mut batch, room) => is_over = count == 0,
                    () = sleep_until(until) => break,
                    _ = &mut end => is_over = true,
                }
            }
            self.send(batch).await;
        }
        while let Ok(span) = self.spans.try_recv() {
            let mut batch = vec![span];
            batch.extend(std::iter::from_fn(|| self.spans.try_recv().ok()).take(BATCH - 1));
            self.send(batch).await;
        }
    }

    /// Sends a batch, once. The server's log reports when this begins to fail and when it works again.
    async fn send(&mut self, batch: Vec<SpanData>) {
        if batch.is_empty() {
            return;
        }
        let spans = batch.len();
        let sent = timeout(SEND, self.exporter.export(batch)).await;
        let fails = !matches!(sent, Ok(Ok(())));
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if fails && !self.fails {
            tracing::warn!(spans, dropped, "export failed");
        } else if self.fails && !fails {
            tracing::info!(spans, dropped, "export works again");
        } else if dropped > 0 {
            tracing::warn!(dropped, "spans dropped");
        }
        self.fails = fails;
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        clean_span(&mut span);
        if self.spans.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Removes from a span what must not be in a log line either.
fn clean_span(span: &mut SpanData) {
    span.name = Cow::Owned(clean(&span.name));
    clean_attributes(&mut span.attributes);
    for event in &mut span.events.events {
        event.name = Cow::Owned(clean(&event.name));
        clean_attributes(&mut event.attributes);
    }
    if let Status::Error { description } = &mut span.status {
        *description = Cow::Owned(clean(description));
    }
}

fn clean_attributes(attributes: &mut [KeyValue]) {
    for attribute in attributes {
        if let Value::String(text) = &attribute.value {
            attribute.value = Value::String(clean(text.as_str()).into());
        }
    }
}

/// The HTTP client for all requests, by way of the gateway: no redirects, since headers may contain a key.
#[derive(Debug)]
struct ExportClient {
    url: Url,
    headers: HeaderMap,
    client: OnceLock<HostClient>,
}

impl ExportClient {
    fn new(url: &Url, headers: HeaderMap) -> Self {
        name_request(NamedRequest::new("POST", url));
        Self {
            url: url.clone(),
            headers,
            client: OnceLock::new(),
        }
    }
}

#[async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let new = || HostClient::new(ClientGateway::of_process(), By::ProviderSettings, &self.url);
        let client = self.client.get_or_init(new);
        let (head, body) = request.into_parts();
        let url = Url::parse(&head.uri.to_string())?;
        let request = client.to(head.method, &url).headers(head.headers);
        let request = request.headers(self.headers.clone());
        let mut response = request.body(body).send().await?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await? {
            if bytes.len() + piece.len() > ANSWER_MAX {
                return Err("the answer is too long".into());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Response::builder()
            .status(response.status())
            .body(bytes.into())?)
    }
}
