//! One HTTP client for model servers, by way of the gateway: follows no redirects, because requests carry a key; no cookies.

use crate::error::{ProviderError, brief};
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use orchestrator_http::ask::{
    By, HeldKey, HostOrigin, KeyPlace, KeyUse, NamedRequest, NetworkFault,
};
use orchestrator_http::key::Key;
use orchestrator_http::{
    ClientGateway, HostClient, HostRequest, HttpFailure, Response, name_key, name_request,
};
use orchestrator_web::base::{self, is_exposed};
use serde_json::Value;
use std::cell::OnceCell;
use std::time::Duration;
use url::Url;

/// Maximum bytes of an answer that is no stream: a list of models or an error.
const BODY_MAX: usize = 4 << 20;

/// The address of a provider, and the client for it.
pub(crate) struct ProviderHttp {
    base: Url,
    headers: HeaderMap,
    client: OnceCell<HostClient>,
    /// A hint for the error when nothing listens there.
    hint: Option<&'static str>,
}

impl ProviderHttp {
    /// A server at `base`, which gets these requests; each carries `headers`, which have the `key`. The requests are named to the client's
    /// gateway, if it has not started yet: later it takes no more.
    ///
    /// # Errors
    /// [`ProviderError::BaseUrl`]; [`ProviderError::PlainKey`] if a key would cross a network in clear text.
    pub(crate) fn new(
        base: &str,
        requests: &[(&str, &str)],
        headers: Vec<(&'static str, String)>,
        key: Option<&Key>,
        hint: Option<&'static str>,
    ) -> Result<Self, ProviderError> {
        let wrong = || ProviderError::BaseUrl(base.chars().take(200).collect());
        let base = base::parse(base).ok_or_else(wrong)?;
        if key.is_some() && is_exposed(&base) {
            return Err(ProviderError::PlainKey { host: host(&base) });
        }
        let mut map = HeaderMap::new();
        let held = key.and_then(|key| Some((key.number()?, key.expose())));
        for (name, value) in headers {
            if let Some((number, place)) = held
                && value.contains(place)
            {
                name_key(HeldKey {
                    number,
                    used: KeyUse::Provider,
                    origin: HostOrigin::of(&base),
                    place: KeyPlace::Header(name.to_owned()),
                    template: value.clone(),
                });
            }
            let mut value = HeaderValue::from_str(&value).map_err(ProviderError::malformed)?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        name_requests(&base, requests);
        Ok(Self {
            base,
            headers: map,
            client: OnceCell::new(),
            hint,
        })
    }

    /// Posts `body` to `path` below the base; returns the response if its status is 200.
    ///
    /// # Errors
    /// The error for the status, with the vendor's reason.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Response, ProviderError> {
        let request = self.request(Method::POST, path);
        let json = HeaderValue::from_static("application/json");
        let request = request.header(CONTENT_TYPE, json);
        self.send(request.body(body.to_string())).await
    }

    /// Requests JSON from `path`.
    ///
    /// # Errors
    /// The error for the status; also if the answer is no JSON or too long.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ProviderError> {
        let response = self.send(self.request(Method::GET, path)).await?;
        self.json(response).await
    }

    /// Parses a response as JSON.
    ///
    /// # Errors
    /// If it is no JSON or too long.
    pub(crate) async fn json(&self, mut response: Response) -> Result<Value, ProviderError> {
        let bytes = self.read(&mut response).await?;
        serde_json::from_slice(&bytes).map_err(ProviderError::malformed)
    }

    /// The next piece of a stream; `None` at its end.
    ///
    /// # Errors
    /// If the connection broke.
    pub(crate) async fn piece(
        &self,
        response: &mut Response,
    ) -> Result<Option<Vec<u8>>, ProviderError> {
        let piece = response.chunk().await.map_err(|_| ProviderError::Cut)?;
        Ok(piece.map(Vec::from))
    }

    async fn read(&self, response: &mut Response) -> Result<Vec<u8>, ProviderError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(response).await? {
            if bytes.len() + piece.len() > BODY_MAX {
                return Err(ProviderError::TooLarge {
                    what: "bytes",
                    max: BODY_MAX,
                });
            }
            bytes.extend(piece);
        }
        Ok(bytes)
    }

    fn request(&self, method: Method, path: &str) -> HostRequest {
        let request = self.client().to(method, &below(&self.base, path));
        request.headers(self.headers.clone())
    }

    /// The client, which this process can have once it has a gateway.
    fn client(&self) -> &HostClient {
        let new = || {
            HostClient::new(
                ClientGateway::of_process(),
                By::ProviderSettings,
                &self.base,
            )
        };
        self.client.get_or_init(new)
    }

    async fn send(&self, request: HostRequest) -> Result<Response, ProviderError> {
        let mut response = request
            .send()
            .await
            .map_err(|failure| self.unreachable(reason(failure)))?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        // If the body cannot be read, the error has no reason.
        let body = self.read(&mut response).await.unwrap_or_default();
        Err(of_status(status, retry_after, &body))
    }

    fn unreachable(&self, reason: String) -> ProviderError {
        ProviderError::Connection {
            host: host(&self.base),
            reason,
            hint: self.hint,
        }
    }
}

/// Names these requests below `base` for the gateway.
pub(crate) fn name_requests(base: &Url, requests: &[(&str, &str)]) {
    for (method, path) in requests {
        name_request(NamedRequest::new(method, &below(base, path)));
    }
}

/// The URL of `path` below a base. Users often write a base that already ends with the version in the path.
fn below(base: &Url, path: &str) -> Url {
    let (path, query) = path
        .split_once('?')
        .map_or((path, None), |(path, query)| (path, Some(query)));
    let folder = base.path().trim_end_matches('/');
    let folder = if path.starts_with("/v1/") {
        folder.strip_suffix("/v1").unwrap_or(folder)
    } else {
        folder
    };
    let mut url = base.clone();
    url.set_path(&format!("{folder}{path}"));
    url.set_query(query);
    url
}

fn host(url: &Url) -> String {
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// How long a server asks us to wait: in seconds, or OpenAI's milliseconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    number("retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))
}

/// The error for a status other than 200.
fn of_status(status: u16, retry_after: Option<Duration>, body: &[u8]) -> ProviderError {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &body["error"];
    let reason = error["message"]
        .as_str()
        .or(error.as_str())
        .or(body["message"].as_str());
    let reason = brief(reason.unwrap_or_default());
    match status {
        401 | 403 => ProviderError::Auth { reason },
        404 => ProviderError::ModelNotFound {
            model: String::new(),
            reason,
        },
        // Waiting does not restore a quota.
        429 if error["code"] == "insufficient_quota" => ProviderError::Invalid { reason },
        429 => ProviderError::RateLimit {
            retry_after,
            reason,
        },
        503 | 529 => ProviderError::Overloaded {
            retry_after,
            reason,
        },
        400 => ProviderError::BadRequest { reason },
        401..=499 => ProviderError::Invalid { reason },
        300..=399 => ProviderError::Invalid {
            reason: "it redirects, and a key goes nowhere else".into(),
        },
        _ => ProviderError::Server {
            status,
            retry_after,
            reason,
        },
    }
}

/// Why there is no connection to a server.
fn reason(failure: HttpFailure) -> String {
    match failure {
        HttpFailure::Fault(NetworkFault::Connect(why)) | HttpFailure::Broken(why) => brief(&why),
        HttpFailure::Fault(_)
        | HttpFailure::Gateway(_)
        | HttpFailure::Malformed(_)
        | HttpFailure::Elsewhere => brief(&failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_crosses_no_network_in_clear_text() {
        let key = Key::new("sk-a-key").unwrap();
        let new = |base: &str, key| ProviderHttp::new(base, &[], vec![], key, None).map(drop);
        for local in [
            "http://127.0.0.1:11434",
            "http://localhost:1/v1",
            "http://[::1]:3",
        ] {
            assert_eq!(new(local, Some(&key)), Ok(()), "{local}");
        }
        for open in [
            "http://api.example",
            "http://192.168.1.3:1234",
            "http://127.0.0.1.example",
            "http://localhost.example",
        ] {
            assert!(
                matches!(new(open, Some(&key)), Err(ProviderError::PlainKey { .. })),
                "{open}"
            );
            assert_eq!(new(open, None), Ok(()));
        }
        for wrong in [
            "",
            "x",
            "ftp://h",
            "https://u:p@h",
            "https://h?key=1",
            "https://h#x",
            "file:///x",
        ] {
            assert!(
                matches!(new(wrong, None), Err(ProviderError::BaseUrl(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_base_may_have_a_folder_and_the_version() {
        let url = |base: &str, path: &str| below(&base::parse(base).unwrap(), path).to_string();
        let models = "/v1/models?limit=10";
        assert_eq!(url("https://h", models), "https://h/v1/models?limit=10");
        assert_eq!(
            url("https://h/api/v1/", models),
            "https://h/api/v1/models?limit=10"
        );
        assert_eq!(url("http://h:1/x", "/api/chat"), "http://h:1/x/api/chat");
    }

    #[test]
    fn each_status_has_its_error() {
        let body = br#"{"type":"error","error":{"type":"x","message":"why"}}"#;
        let code = |status| of_status(status, None, body).code().name();
        let codes = [400, 401, 403, 404, 413, 429, 500, 503, 529].map(code);
        let want = [
            "invalid_request",
            "auth_error",
            "auth_error",
            "model_not_found",
            "invalid_request",
            "rate_limit",
            "provider_error",
            "overloaded",
            "overloaded",
        ];
        assert_eq!(codes, want);
        let quota = br#"{"error":{"code":"insufficient_quota","message":"pay"}}"#;
        assert!(!of_status(429, None, quota).is_transient());
        assert_eq!(
            of_status(400, None, br#"{"error":"why"}"#),
            ProviderError::BadRequest {
                reason: "why".into()
            }
        );
        assert!(of_status(302, None, b"").to_string().contains("redirects"));
        assert!(of_status(400, None, &[b'x'; 9999]).to_string().len() < 700);
    }
}
