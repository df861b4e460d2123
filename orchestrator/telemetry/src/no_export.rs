//! Replaces the export if the program is built without it.

use crate::error::TelemetryError;
use http::HeaderMap;
use tracing_subscriber::layer::Identity;
use url::Url;

pub(crate) const IS_BUILT: bool = false;

pub(crate) enum Export {}

pub(crate) fn open(
    name: &'static str,
    _: Url,
    _: HeaderMap,
) -> Result<(Export, Identity), TelemetryError> {
    Err(TelemetryError::NotBuilt(name))
}

impl Export {
    pub(crate) fn start(&mut self) {
        match *self {}
    }

    pub(crate) async fn end(self) {
        match self {}
    }
}
