//! The common settings of all our HTTP clients. TLS is rustls with ring and the machine's certificates.

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::{Arc, OnceLock};

/// TLS configurations. Reads the machine's certificates when they are first needed.
#[derive(Default)]
pub struct Tls(OnceLock<ClientConfig>);

impl Tls {
    /// A client builder with our common settings: follows no redirect, because a request may carry a key, and uses no proxy from
    /// the environment. For `plain` requests it needs no certificates and loads none.
    ///
    /// # Errors
    /// Why the certificates cannot be used, as text.
    pub fn client(&self, plain: bool) -> Result<ClientBuilder, String> {
        let builder = Client::builder().tls_backend_preconfigured(self.config(plain)?);
        let builder = builder.redirect(Policy::none()).no_proxy().referer(false);
        Ok(builder.user_agent(concat!("lazaret/", env!("CARGO_PKG_VERSION"))))
    }

    fn config(&self, plain: bool) -> Result<ClientConfig, String> {
        if plain {
            let builder = builder()?.with_root_certificates(rustls::RootCertStore::empty());
            return Ok(builder.with_no_client_auth());
        }
        if let Some(config) = self.0.get() {
            return Ok(config.clone());
        }
        let builder = builder()?
            .with_platform_verifier()
            .map_err(|error| error.to_string())?;
        Ok(self.0.get_or_init(|| builder.with_no_client_auth()).clone())
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}
