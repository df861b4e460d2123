//! Logins at servers with an address: OAuth 2.1 with PKCE, done by the library. Its requests follow our rules, and tokens are
//! stored for the user alone.
//!
//! A server names the address of its logins, and that names further addresses. All of them are untrusted, so each address is
//! checked (`NamedBy::ServerOf`), and no redirect is followed. Sessions that renew a login reach only the hosts that took part in it.

use crate::settings::LoginSettings;
use crate::store::ServerFiles;
use async_trait::async_trait;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use orchestrator_http::ask::HostOrigin;
use orchestrator_reach::target::{Target, TargetError};
use orchestrator_text::known::redactor;
use orchestrator_web::error::WebError;
use orchestrator_web::named::{NamedBy, NamedHost, body};
use policies::secret::{SEALED_TOKEN, Secret};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, CredentialRefreshGuard, CredentialStore,
    OAuthClientConfig, OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture,
    OAuthHttpRequest, OAuthState, StoredCredentials,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::time::{sleep, timeout};

/// Maximum bytes of an answer to a login request.
const ANSWER_MAX: usize = 1 << 20;
/// Time limit of a login request.
const REQUEST: Duration = Duration::from_secs(30);
/// How long another process may take to renew the same login, and how often we look.
const RENEWAL: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
const CLIENT: &str = "lazaret";

/// Why there is no login.
#[derive(Debug, Error)]
pub enum LoginError {
    #[error("{0}")]
    Web(#[from] WebError),
    #[error("it needs no login")]
    NotWanted,
    /// An error of the library as text; the server's parts of it are bounded there.
    #[error("{0}")]
    Refused(String),
    #[error("the login cannot be kept: {0}")]
    Kept(#[from] std::io::Error),
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Hosts that were asked in one login.
type AskedHosts = Arc<Mutex<BTreeSet<HostOrigin>>>;

/// The requests for logins at one server.
struct Requests {
    /// The server itself.
    server: HostOrigin,
    asked: AskedHosts,
}

impl OAuthHttpClient for Requests {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let (server, request) = (self.server.clone(), request.request);
        let asked = self.asked.clone();
        Box::pin(async move {
            if let Ok(target) = Target::parse(&request.uri().to_string()) {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.insert(HostOrigin::of(target.url()));
            }
            timeout(REQUEST, perform(server, request))
                .await
                .unwrap_or_else(|error| Err(error.into()))
        })
    }
}

/// Makes one request, to addresses that were checked. A redirect is returned like any other response.
async fn perform(
    server: HostOrigin,
    request: http::Request<Vec<u8>>,
) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
    let target = Target::parse(&request.uri().to_string())?;
    let host = NamedHost::find(target.clone(), NamedBy::ServerOf(server)).await?;
    let (parts, bytes) = request.into_parts();
    let sent = host
        .client()
        .to(parts.method, target.url())
        .headers(parts.headers)
        .body(bytes);
    let answer = host.send(sent).await?;
    let mut response = http::Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        response = response.header(name, value);
    }
    Ok(response.body(body(answer, ANSWER_MAX).await?)?)
}

/// The login of one server, stored in a file.
struct StoredLogin {
    place: ServerFiles,
    /// The text whose tokens were registered last: it is read for each request.
    known: Mutex<String>,
}

impl StoredLogin {
    fn read(&self) -> Option<StoredCredentials> {
        let text = self.place.login()?;
        let stored = serde_json::from_str(&text).ok()?;
        is_sealed(&stored).then(|| self.learn(&stored, text))?;
        Some(stored)
    }

    /// Registers tokens as secrets, so that they are removed from everything that is shown.
    fn learn(&self, stored: &StoredCredentials, text: String) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != text {
            for (name, token) in tokens(stored) {
                learn_secret(name, &token);
            }
            *known = text;
        }
    }
}

/// The tokens of a login, with their names: texts that the gateway alone can read.
fn tokens(stored: &StoredCredentials) -> Vec<(&'static str, String)> {
    let tokens = serde_json::to_value(&stored.token_response).unwrap_or_default();
    let text = |name: &'static str| Some((name, tokens.get(name)?.as_str()?.to_owned()));
    let names = ["access_token", "refresh_token", "id_token"];
    names.into_iter().filter_map(text).collect()
}

/// Whether all tokens are encrypted. Others are none of the gateway's, and would come into the memory of this process.
fn is_sealed(stored: &StoredCredentials) -> bool {
    let tokens = tokens(stored);
    tokens
        .iter()
        .all(|(_, text)| text.starts_with(SEALED_TOKEN))
}

/// Registers a value as a secret, to be removed from all that is shown. A redactor that cannot search for it withholds more, not less.
pub(crate) fn learn_secret(name: &str, value: &str) {
    let _ = redactor().learn(Secret {
        name: name.to_owned(),
        value: value.as_bytes().to_vec(),
    });
}

fn unkept(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for StoredLogin {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.read())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        if !is_sealed(&credentials) {
            return Err(unkept("its tokens are not encrypted"));
        }
        let text = serde_json::to_string(&credentials).map_err(unkept)?;
        self.learn(&credentials, text.clone());
        self.place.write_login(&text).map_err(unkept)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.place.forget_login();
        Ok(())
    }

    /// A refresh token works only once: two sessions that renew at the same time would end the login.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let file = self.place.lock_file().map_err(unkept)?;
        let locked = async {
            while file.try_lock().is_err() {
                sleep(LOOK).await;
            }
        };
        timeout(RENEWAL, locked).await.map_err(unkept)?;
        Ok(Some(CredentialRefreshGuard::new(file)))
    }
}

async fn authorization(
    host: &NamedHost,
    place: &ServerFiles,
    asked: AskedHosts,
) -> Result<AuthorizationManager, AuthError> {
    let requests = Arc::new(Requests {
        server: HostOrigin::of(host.target().url()),
        asked,
    });
    let url = host.target().url().clone();
    let mut manager = AuthorizationManager::new_with_oauth_http_client(url, requests).await?;
    manager.set_credential_store(StoredLogin {
        place: place.clone(),
        known: Mutex::default(),
    });
    Ok(manager)
}

/// The stored login for a server, renewed if necessary; `None` if there is none, or it belongs to a different server by now.
///
/// # Errors
/// If what is needed to renew it cannot be found.
pub async fn kept(
    host: &NamedHost,
    login: &LoginSettings,
    place: &ServerFiles,
) -> Result<Option<AuthorizationManager>, LoginError> {
    if place.login().is_none() {
        return Ok(None);
    }
    let mut manager = authorization(host, place, AskedHosts::default()).await?;
    if !manager.initialize_from_store().await? {
        return Ok(None);
    }
    if let (Some(id), Some(secret)) = (&login.client_id, &login.client_secret) {
        // The stored login does not contain our client secret.
        manager.configure_client(
            OAuthClientConfig::new(id, "http://127.0.0.1/").with_client_secret(secret),
        )?;
    }
    Ok(Some(manager))
}

/// A login that a person has to complete.
pub struct Begun {
    state: OAuthState,
    place: ServerFiles,
    asked: AskedHosts,
}

impl Begun {
    /// Begins a login at a server that refuses us without one. The browser will be sent back to `redirect`.
    ///
    /// # Errors
    /// If the server needs no login, or does not describe it.
    pub async fn at(
        host: &NamedHost,
        login: &LoginSettings,
        place: &ServerFiles,
        redirect: &str,
    ) -> Result<Self, LoginError> {
        let challenge = match place.challenge() {
            Some(challenge) => challenge,
            None => challenge(host).await?.ok_or(LoginError::NotWanted)?,
        };
        let mut request = AuthorizationRequest::new(redirect).with_client_name(CLIENT);
        if !challenge.is_empty() {
            request = request.with_challenge(challenge);
        }
        if let Some(scopes) = &login.scopes {
            request = request.with_scopes(scopes);
        }
        if let Some(id) = &login.client_id {
            request = request.with_preregistered_client(id);
        }
        if let Some(secret) = &login.client_secret {
            request = request.with_client_secret(secret);
        }
        let asked = AskedHosts::default();
        let authorization = authorization(host, place, asked.clone()).await?;
        let mut state = OAuthState::Unauthorized(authorization);
        state.start_authorization(request).await?;
        Ok(Self {
            state,
            place: place.clone(),
            asked,
        })
    }

    /// The address for the person to open.
    ///
    /// # Errors
    /// If the server named no address that a browser may be sent to.
    pub async fn address(&self) -> Result<Target, LoginError> {
        let url = self.state.get_authorization_url().await?;
        let wrong = |error: TargetError| {
            LoginError::Refused(format!("the address of its login is invalid: not {error}"))
        };
        Target::parse(&url).map_err(wrong)
    }

    /// Takes the address that the browser was sent back to, and stores the login.
    ///
    /// # Errors
    /// If it answers another login, or the server issues no token for it.
    pub async fn finish(&mut self, returned: &str) -> Result<(), LoginError> {
        self.state.handle_callback_url(returned).await?;
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.place.write_login_hosts(&asked)?;
        self.place.forget_challenge();
        Ok(())
    }
}

/// The server's challenge when it refuses us; `None` if it does not.
async fn challenge(host: &NamedHost) -> Result<Option<String>, LoginError> {
    let hello = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": CLIENT, "version": env!("CARGO_PKG_VERSION") },
        },
    });
    let request = host.client().post(host.target()).body(hello.to_string());
    let request = request
        .header(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        )
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = timeout(REQUEST, host.send(request)).await;
    let answer = answer
        .map_err(|_| WebError::TimedOut(REQUEST.as_secs() as u32))?
        .map_err(WebError::from)?;
    let value = answer
        .headers()
        .get(WWW_AUTHENTICATE)
        .and_then(|value| value.to_str().ok());
    Ok((answer.status() == 401).then(|| value.unwrap_or_default().to_owned()))
}
