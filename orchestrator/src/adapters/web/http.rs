//! One request over HTTP to addresses that are already known. Nothing is followed, remembered or looked up: no
//! redirections, no cookies, no proxies of the environment, no second question to a resolver.

use crate::domain::web::{HttpError, Target};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_ENCODING, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt;
use std::cell::OnceCell;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

/// The most bytes of an answer that are read, after unpacking.
pub const BODY_MAX: usize = 2 << 20;

/// What is said of us.
const AGENT: &str = concat!("lazaret/", env!("CARGO_PKG_VERSION"));

/// Makes requests. The machine's certificates are read when they are first needed.
#[derive(Default)]
pub struct Http {
    tls: OnceCell<ClientConfig>,
}

impl Http {
    /// Asks for `target` at one of `addresses` and at no other; returns the answer's head.
    pub async fn get(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
        headers: HeaderMap,
    ) -> Result<Response, HttpError> {
        let builder = Client::builder()
            .tls_backend_preconfigured(self.tls(target.is_plain())?)
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .pool_max_idle_per_host(0)
            .user_agent(AGENT)
            .dns_resolver(Nobody)
            .resolve_to_addrs(target.host(), addresses);
        let client = builder.build().map_err(|error| HttpError::Tls(root(&error)))?;
        let request = client.get(target.url().clone()).headers(headers);
        let response = request.send().await.map_err(|error| HttpError::Connect(root(&error)))?;
        // The connection says itself where it went: what was checked, or nothing is read from it.
        match response.remote_addr() {
            Some(peer)
                if addresses
                    .iter()
                    .any(|address| address.ip() == peer.ip() && address.port() == peer.port()) =>
            {
                Ok(response)
            }
            _ => Err(HttpError::Strayed),
        }
    }

    /// A plain request needs no certificates, and gets none.
    fn tls(&self, plain: bool) -> Result<ClientConfig, HttpError> {
        if plain {
            let builder = tls_builder()?.with_root_certificates(rustls::RootCertStore::empty());
            return Ok(builder.with_no_client_auth());
        }
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let builder =
            tls_builder()?.with_platform_verifier().map_err(|error| HttpError::Tls(error.to_string()))?;
        Ok(self.tls.get_or_init(|| builder.with_no_client_auth()).clone())
    }
}

fn tls_builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, HttpError> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpError::Tls(error.to_string()))
}

/// What comes of an answer.
pub struct Body {
    /// The bytes, unpacked; at most as many as were wanted.
    pub bytes: Vec<u8>,
    /// Whether that is all of them.
    pub whole: bool,
}

/// Reads at most `most` bytes of `response`, unpacked as they come, and then no more.
pub async fn read(mut response: Response, most: usize) -> Result<Body, HttpError> {
    if let Some(packed) = response.headers().get(CONTENT_ENCODING)
        && packed.as_bytes() != b"identity"
    {
        return Err(HttpError::Packed(String::from_utf8_lossy(packed.as_bytes()).chars().take(40).collect()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| HttpError::Broken(root(&error)))? {
        let room = most - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok(Body { bytes, whole: false });
        }
    }
    Ok(Body { bytes, whole: true })
}

/// Headers that say what is wanted.
pub fn accepting(media: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, reqwest::header::HeaderValue::from_static(media))])
}

/// The innermost cause, which is what a person can do something about. It names no URL, and so nothing of a query.
fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().chars().take(200).collect()
}

/// Knows no name: every name that is asked for was looked up, and judged, before.
struct Nobody;

impl Resolve for Nobody {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(async { Err::<Addrs, _>("this name was not looked up before".into()) })
    }
}
