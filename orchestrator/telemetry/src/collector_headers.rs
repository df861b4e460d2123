//! Headers of requests to collectors, from the environment: the gateway puts in their values.

use crate::error::TelemetryError;
use crate::target;
use http::{HeaderMap, HeaderValue};
use orchestrator_http::ask::{HeldKey, KeyUse};
use orchestrator_http::name_key;
use orchestrator_keys::held;
use orchestrator_text::secret_environment;
use url::Url;

/// The headers of the first of these `variables` that is set, for requests to `url`; `option` has named that. They are named to the gateway,
/// so this comes before the confinement.
///
/// # Errors
/// The headers are wrong, or would cross a network in clear text.
pub(crate) fn of_environment(
    variables: &[&'static str],
    option: &'static str,
    url: &Url,
) -> Result<HeaderMap, TelemetryError> {
    let set = |name: &&&str| secret_environment::is_set(name);
    let Some(variable) = variables.iter().find(set) else {
        return Ok(HeaderMap::new());
    };
    let wrong = || TelemetryError::Headers(variable);
    let named = held::collector_headers(variable).map_err(|_| wrong())?;
    if !named.is_empty() {
        target::check_headers(option, url)?;
    }
    let mut headers = HeaderMap::new();
    for (name, key) in named {
        let mut value = HeaderValue::from_str(key.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        if let Some(held) = HeldKey::whole(&key, KeyUse::Provider, url, name.as_str()) {
            name_key(held);
        }
        headers.insert(name, value);
    }
    Ok(headers)
}
