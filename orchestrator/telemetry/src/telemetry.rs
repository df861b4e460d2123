//! Installs the subscribers for this process's events and spans. This has to come before the confinement, since files are opened
//! here; connections are made later.

use crate::error::TelemetryError;
use crate::export::{self, Export};
use crate::log_file::LogFile;
use crate::log_layer::LogLayer;
use crate::{collector_headers, target};
use clap::Args;
use orchestrator_text::known::SPAN_HEADERS;
use std::path::PathBuf;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

/// Only our own spans and events are recorded: libraries log headers and addresses.
const OURS: &str = "orchestrator_";

/// Where spans are exported to.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Reports")]
pub struct ExportOptions {
    /// Export spans to the OpenTelemetry collector at URL, such as http://127.0.0.1:4318 [needs the feature `otel`]
    /// [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

/// What a server reports, and where to.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Reports")]
pub struct TelemetryOptions {
    /// Write a line of JSON for each request, run and call to FILE, of mode 0600; `-`: to standard error. Beyond 8 MiB, FILE
    /// becomes FILE.1
    #[arg(long, value_name = "FILE")]
    server_log: Option<PathBuf>,
    #[command(flatten)]
    export: ExportOptions,
}

/// The subscribers for this process's spans and events.
pub struct Telemetry {
    export: Option<Export>,
    is_on: bool,
}

impl TelemetryOptions {
    /// Opens the log and sets up the export. If neither is requested, there is no subscriber, and spans cost nothing. Later errors
    /// are reported to `complain`.
    ///
    /// # Errors
    /// See [`TelemetryError`].
    pub fn begin(&self, complain: fn(&str)) -> Result<Telemetry, TelemetryError> {
        let log = self
            .server_log
            .as_ref()
            .map(|path| LogFile::open(path, complain))
            .transpose()?;
        self.export.begin_with(log, complain)
    }
}

impl ExportOptions {
    /// The same without a log.
    ///
    /// # Errors
    /// See [`TelemetryError`].
    pub fn begin(&self, complain: fn(&str)) -> Result<Telemetry, TelemetryError> {
        self.begin_with(None, complain)
    }

    fn begin_with(
        &self,
        log: Option<LogFile>,
        complain: fn(&str),
    ) -> Result<Telemetry, TelemetryError> {
        let (export, layer) = match self.collector() {
            Some((name, address)) if export::IS_BUILT || name != target::VARIABLE => {
                let url = target::address(name, &address, target::TRACES)?;
                let headers = collector_headers::of_environment(&SPAN_HEADERS, name, &url)?;
                let (export, layer) = export::open(name, url, headers)?;
                (Some(export), Some(layer))
            }
            // The variable is for all programs, so an error in it does not prevent the start.
            Some((name, _)) => {
                complain(&TelemetryError::NotBuilt(name).to_string());
                (None, None)
            }
            None => (None, None),
        };
        let is_on = log.is_some() || export.is_some();
        if is_on {
            let level = if export.is_some() {
                LevelFilter::DEBUG
            } else {
                LevelFilter::INFO
            };
            let is_ours =
                move |of: &Metadata<'_>| of.target().starts_with(OURS) && *of.level() <= level;
            let heard = Registry::default().with(layer).with(log.map(LogLayer));
            let heard = heard.with(filter_fn(is_ours).with_max_level_hint(level));
            tracing::subscriber::set_global_default(heard)
                .map_err(|_| TelemetryError::Subscriber)?;
            tracing::info!(
                version = env!("CARGO_PKG_VERSION"),
                pid = std::process::id(),
                "begin"
            );
        }
        Ok(Telemetry { export, is_on })
    }

    /// The collector's address, and the option or variable it comes from.
    fn collector(&self) -> Option<(&'static str, String)> {
        let of_environment = || {
            std::env::var(target::VARIABLE)
                .ok()
                .filter(|url| !url.is_empty())
        };
        match &self.otlp {
            Some(url) => Some(("--otlp", url.clone())),
            None => of_environment().map(|url| (target::VARIABLE, url)),
        }
    }
}

impl Telemetry {
    /// Exports from now on, as a task of this runtime.
    pub fn start(&mut self) {
        if let Some(export) = &mut self.export {
            export.start();
        }
    }

    /// Writes and sends what is left, within seconds.
    pub async fn end(self) {
        if self.is_on {
            tracing::info!("end");
        }
        if let Some(export) = self.export {
            export.end().await;
        }
    }
}
