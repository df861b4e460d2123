//! The address to which spans and log records are sent, as the user names it.

use crate::error::TelemetryError;
use orchestrator_web::base::{self, is_exposed};
use url::Url;

/// The standard variable for a collector's address.
pub(crate) const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The path of traces below a collector's address.
pub(crate) const TRACES: &str = "/v1/traces";
/// The path of log records.
pub(crate) const LOGS: &str = "/v1/logs";

/// A collector's address for what goes to `path`. `name` is the option or the variable that it comes from.
pub(crate) fn address(name: &'static str, text: &str, path: &str) -> Result<Url, TelemetryError> {
    let mut url = base::parse(text).ok_or(TelemetryError::Address(name))?;
    let folder = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{folder}{path}"));
    Ok(url)
}

/// Checks that headers, which may hold a key, cross no network in clear text on their way to this address.
pub(crate) fn check_headers(name: &'static str, url: &Url) -> Result<(), TelemetryError> {
    if is_exposed(url) {
        return Err(TelemetryError::PlainHeaders(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use orchestrator_web::base::BASE_MAX;

    fn at(text: &str) -> Result<String, TelemetryError> {
        address("--otlp", text, TRACES).map(|url| url.to_string())
    }

    #[test]
    fn an_address_is_a_base_without_anything_secret() {
        assert_eq!(
            at("http://127.0.0.1:4318").unwrap(),
            "http://127.0.0.1:4318/v1/traces"
        );
        assert_eq!(
            at("https://otel.example/a/").unwrap(),
            "https://otel.example/a/v1/traces"
        );
        let long = |length: usize| format!("http://h/{}", "x".repeat(length - "http://h/".len()));
        assert!(at(&long(BASE_MAX)).is_ok());
        let above = long(BASE_MAX + 1);
        for wrong in [
            "",
            "4318",
            "h:4318",
            "file:///x",
            "http://u@h",
            "http://u:p@h",
            "http://h?k=1",
            "http://h#x",
            &above,
        ] {
            assert!(
                matches!(at(wrong), Err(TelemetryError::Address("--otlp"))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn headers_cross_no_network_in_clear_text() {
        let with_headers = |text: &str| {
            let url = address("--otlp", text, LOGS)?;
            check_headers("--otlp", &url)
        };
        for local in [
            "http://127.0.0.1:4318",
            "http://[::1]:4318",
            "http://localhost:4318",
            "https://h",
        ] {
            assert!(with_headers(local).is_ok(), "{local}");
        }
        for open in [
            "http://h",
            "http://192.168.1.3:4318",
            "http://localhost.example",
        ] {
            assert!(
                matches!(with_headers(open), Err(TelemetryError::PlainHeaders(_))),
                "{open}"
            );
            assert!(
                at(open).is_ok(),
                "control: {open} is wrong for its headers only"
            );
        }
    }
}
