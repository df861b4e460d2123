//! TLS as all our clients speak it: rustls with ring, and the machine's certificates.

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::{Arc, OnceLock};

/// Configurations of TLS. The machine's certificates are read when they are first needed.
#[derive(Default)]
pub struct Tls(OnceLock<ClientConfig>);

impl Tls {
    /// The configuration of a client. A `plain` request needs no certificates, and gets none.
    ///
    /// # Errors
    /// Why the certificates cannot be used, in words.
    pub fn config(&self, plain: bool) -> Result<ClientConfig, String> {
        if plain {
            let builder = builder()?.with_root_certificates(rustls::RootCertStore::empty());
            return Ok(builder.with_no_client_auth());
        }
        if let Some(config) = self.0.get() {
            return Ok(config.clone());
        }
        let builder = builder()?.with_platform_verifier().map_err(|error| error.to_string())?;
        Ok(self.0.get_or_init(|| builder.with_no_client_auth()).clone())
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}
