//! A collector of log records: OTLP, JSON over HTTP, by way of the gateway. One request at a time; its answer is an acknowledgement, a
//! reason to try again later, or a refusal, as OTLP has it.

use crate::error::TelemetryError;
use crate::{collector_headers, target};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use orchestrator_http::ask::{By, NamedRequest, NetworkFault};
use orchestrator_http::{
    ClientGateway, ClientGatewayError, HostClient, HttpFailure, Response, name_request,
};
use orchestrator_text::known::LOG_HEADERS;
use serde_json::Value;
use std::cell::OnceCell;
use std::time::Duration;
use thiserror::Error;
use tokio::time::timeout;
use url::Url;

/// How long the collector may take for a request and its whole answer.
const SEND: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// Maximum characters of a collector's message.
const MESSAGE_MAX: usize = 300;
/// The longest wait that a collector can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Why the collector has not acknowledged the log records of a request.
#[derive(Debug, Error)]
pub enum NotAcknowledged {
    /// It may take them later; if it says when, not before that.
    #[error("{why}")]
    Later {
        /// The wait that it asks for.
        after: Option<Duration>,
        /// The reason of this attempt alone.
        why: CollectorFault,
    },
    /// No further attempt can work; a person decides.
    #[error(transparent)]
    Refused(CollectorFault),
}

/// Reasons why a collector has acknowledged nothing.
#[derive(Debug, Error)]
pub enum CollectorFault {
    /// There is no answer, or not all of it.
    #[error(transparent)]
    Http(#[from] HttpFailure),
    /// Its answer takes longer than the limit.
    #[error("no whole answer within {} s", SEND.as_secs())]
    Silent,
    /// Its answer has another status.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// It sends on to another address.
    #[error("it answered {0}: redirects are not followed; name the address that they lead to")]
    Redirect(StatusCode),
    /// Its answer has no bound that we accept.
    #[error("its answer is longer than {ANSWER_MAX} bytes")]
    Long,
    /// Something else than a collector has answered.
    #[error("its answer is not that of a collector of OTLP with JSON")]
    Form,
    /// It has rejected some, and does not say which.
    #[error("it rejected {rejected} of them: {message}")]
    Partial {
        /// Number of log records that it rejected.
        rejected: u64,
        /// The reason that it gives, shortened.
        message: String,
    },
}

/// A collector that the user has named.
pub struct LogCollector {
    url: Url,
    headers: HeaderMap,
    client: OnceCell<HostClient>,
}

impl LogCollector {
    /// The collector at `address`, with the headers of the environment. Its host is named to the gateway, so this comes before the
    /// confinement.
    ///
    /// # Errors
    /// The address or the headers are wrong, or these would cross a network in clear text.
    pub fn of_settings(address: &str) -> Result<Self, TelemetryError> {
        let url = target::address("--otlp", address, target::LOGS)?;
        let headers = collector_headers::of_environment(&LOG_HEADERS, "--otlp", &url)?;
        name_request(NamedRequest::new("POST", &url));
        Ok(Self {
            url,
            headers,
            client: OnceCell::new(),
        })
    }

    /// Sends an `ExportLogsServiceRequest`. Returns the message of a collector that has taken all of it.
    ///
    /// # Errors
    /// [`NotAcknowledged`]: then it may have some of the log records, or none.
    pub async fn send(&self, body: Vec<u8>) -> Result<Option<String>, NotAcknowledged> {
        match timeout(SEND, self.exchange(body)).await {
            Ok(answered) => answered,
            Err(_) => Err(later(None, CollectorFault::Silent)),
        }
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<Option<String>, NotAcknowledged> {
        let new = || HostClient::new(ClientGateway::of_process(), By::ProviderSettings, &self.url);
        let client = self.client.get_or_init(new);
        let json = HeaderValue::from_static("application/json");
        let request = client
            .to(Method::POST, &self.url)
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, json)
            .body(body);
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(NotAcknowledged::Refused(CollectorFault::Redirect(status)));
        }
        if !status.is_success() {
            return Err(refused(&response));
        }
        acknowledged(&read(&mut response).await?)
    }
}

/// The whole body of an answer.
async fn read(response: &mut Response) -> Result<Vec<u8>, NotAcknowledged> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        if bytes.len() + piece.len() > ANSWER_MAX {
            return Err(later(None, CollectorFault::Long));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn later(after: Option<Duration>, why: CollectorFault) -> NotAcknowledged {
    NotAcknowledged::Later { after, why }
}

/// Where another attempt may work: the host is not reached now, or has broken off.
fn failed(failure: HttpFailure) -> NotAcknowledged {
    let is_passing = match &failure {
        HttpFailure::Fault(fault) => match fault {
            NetworkFault::Reach(_) | NetworkFault::Connect(_) | NetworkFault::Tls(_) => true,
            NetworkFault::PlainImage
            | NetworkFault::NotNamed(_)
            | NetworkFault::NotRequest(_)
            | NetworkFault::NotOfLogin(_)
            | NetworkFault::Login(_)
            | NetworkFault::NoTicket
            | NetworkFault::NotPolicy => false,
        },
        HttpFailure::Gateway(error) => match error {
            ClientGatewayError::Busy | ClientGatewayError::Io(_) => true,
            ClientGatewayError::None
            | ClientGatewayError::Gone
            | ClientGatewayError::TooLong(_) => false,
        },
        HttpFailure::Broken(_) => true,
        HttpFailure::Malformed(_) | HttpFailure::Elsewhere => false,
    };
    match is_passing {
        true => later(None, failure.into()),
        false => NotAcknowledged::Refused(failure.into()),
    }
}

/// An answer without success. OTLP names the four statuses that pass.
fn refused(response: &Response) -> NotAcknowledged {
    const PASSING: [StatusCode; 4] = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    let status = response.status();
    let fault = CollectorFault::Status(status);
    match PASSING.contains(&status) {
        true => later(retry_after(response.headers()), fault),
        false => NotAcknowledged::Refused(fault),
    }
}

/// The wait in seconds, which is the form that collectors use, up to the longest.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok();
    seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// An answer with success: of nothing, or an `ExportLogsServiceResponse`.
fn acknowledged(body: &[u8]) -> Result<Option<String>, NotAcknowledged> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let wrong = || NotAcknowledged::Refused(CollectorFault::Form);
    let answer: Value = serde_json::from_slice(body).map_err(|_| wrong())?;
    let partial = &answer.as_object().ok_or_else(wrong)?.get("partialSuccess");
    let Some(partial) = partial.filter(|partial| !partial.is_null()) else {
        return Ok(None);
    };
    let partial = partial.as_object().ok_or_else(wrong)?;
    let message = match partial.get("errorMessage") {
        None | Some(Value::Null) => "",
        Some(message) => message.as_str().ok_or_else(wrong)?,
    };
    let message: String = message.chars().take(MESSAGE_MAX).collect();
    // 64 bits are a string in the JSON of protobuf, and a number is read too.
    let rejected = match partial.get("rejectedLogRecords") {
        None | Some(Value::Null) => Some(0),
        Some(Value::String(digits)) => digits.parse().ok(),
        Some(number) => number.as_u64(),
    };
    match rejected.ok_or_else(wrong)? {
        0 => Ok((!message.is_empty()).then_some(message)),
        rejected => Err(NotAcknowledged::Refused(CollectorFault::Partial {
            rejected,
            message,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_acknowledgement_is_empty_or_says_that_nothing_was_rejected() {
        let of = |answer: Value| acknowledged(answer.to_string().as_bytes());
        assert!(matches!(acknowledged(b" \n"), Ok(None)));
        for whole in [
            json!({}),
            json!({ "partialSuccess": {} }),
            json!({ "partialSuccess": null }),
            json!({ "partialSuccess": { "rejectedLogRecords": "0" } }),
        ] {
            assert!(matches!(of(whole.clone()), Ok(None)), "{whole}");
        }
        let warned =
            of(json!({ "partialSuccess": { "errorMessage": "é".repeat(MESSAGE_MAX + 1) } }));
        assert_eq!(warned.unwrap().unwrap(), "é".repeat(MESSAGE_MAX));
        for rejected in [json!("3"), json!(3)] {
            let partial = of(json!({ "partialSuccess": { "rejectedLogRecords": rejected } }));
            assert!(matches!(
                partial,
                Err(NotAcknowledged::Refused(CollectorFault::Partial {
                    rejected: 3,
                    ..
                }))
            ));
        }
        for wrong in [
            json!([]),
            json!("x"),
            json!({ "partialSuccess": 1 }),
            json!({ "partialSuccess": { "rejectedLogRecords": "-1" } }),
            json!({ "partialSuccess": { "rejectedLogRecords": {} } }),
            json!({ "partialSuccess": { "errorMessage": 1 } }),
        ] {
            let answered = of(wrong.clone());
            let is_form = matches!(
                answered,
                Err(NotAcknowledged::Refused(CollectorFault::Form))
            );
            assert!(is_form, "{wrong}");
        }
        assert!(acknowledged(b"<html>").is_err());
    }

    #[test]
    fn a_wait_is_in_seconds_and_has_a_bound() {
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("300"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait("301"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert_eq!(wait("-1"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
