//! The providers of models by name: the configuration of each, and a separate provider for each key that a client brings.

use crate::incoming::RequestError;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::provider::{Provider, choose};
use orchestrator_agent::providers::{self, Vendor};
use orchestrator_http::key::Key;
use orchestrator_text::redact::Redactor;
use policies::secret::Secret;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of different client keys: all output is searched for each of them from then on.
const KEYS_MAX: usize = 256;

pub struct Backend {
    /// The source of its answers.
    pub source: BackendSource,
    /// The model if none is named.
    pub model: Option<String>,
    /// The model of a subagent for simple questions.
    pub weak_model: Option<String>,
    /// The model of a subagent for hard ones.
    pub strong_model: Option<String>,
}

/// The source of a backend's answers.
pub enum BackendSource {
    /// A vendor's server, or a compatible one.
    Vendor {
        /// The vendor, which determines the protocol.
        vendor: Vendor,
        /// Its address, if it is not the vendor's default.
        base_url: Option<String>,
        /// The key of the configuration, if it has one.
        key: Option<Key>,
    },
    /// A provider that needs neither server nor key: a script.
    Ready(Rc<dyn Provider>),
}

/// A provider that exists once for each key.
struct Built {
    name: String,
    /// The client's key, if it brought one.
    key: Option<Key>,
    provider: Rc<dyn Provider>,
}

/// Why there is no provider.
#[derive(Debug)]
pub enum NoBackend {
    /// The request names something that does not exist.
    Request(RequestError),
    /// The provider cannot be used like this; the same error as from a request to it.
    Provider(ProviderError),
}

/// All providers that a client may name.
pub struct Backends {
    by_name: BTreeMap<String, Backend>,
    default: String,
    built: RefCell<Vec<Built>>,
    redactor: &'static Redactor,
}

impl Backends {
    /// These providers; `default` is used if none is named.
    pub fn new(
        by_name: BTreeMap<String, Backend>,
        default: String,
        redactor: &'static Redactor,
    ) -> Self {
        let backends = Self {
            by_name,
            default,
            built: RefCell::default(),
            redactor,
        };
        // Providers with a client's key are made when it names them, and the gateway learns of their hosts before. It also learns where
        // it puts our keys: so those that have one are made now. Why one cannot be made is said to whoever names it.
        for (name, backend) in &backends.by_name {
            match &backend.source {
                BackendSource::Vendor {
                    vendor,
                    base_url,
                    key,
                } => {
                    providers::name_requests(*vendor, base_url.as_deref());
                    let made = key.as_ref().map(|_| backends.provider(Some(name), None));
                    drop(made);
                }
                BackendSource::Ready(_) => {}
            }
        }
        backends
    }

    /// The name of the default provider.
    pub(crate) fn default_name(&self) -> &str {
        &self.default
    }

    /// The configuration of `name`, or of the default.
    ///
    /// # Errors
    /// If there is no provider with this name.
    pub fn backend(&self, name: Option<&str>) -> Result<(&str, &Backend), RequestError> {
        let name = name.unwrap_or(&self.default);
        let unknown = || RequestError::UnknownProvider(crate::incoming::brief(name));
        self.by_name
            .get_key_value(name)
            .map(|(name, backend)| (name.as_str(), backend))
            .ok_or_else(unknown)
    }

    /// The provider `name`, with the client's key if it brings one.
    ///
    /// # Errors
    /// If there is no provider with this name, or it cannot use the key.
    pub fn provider(
        &self,
        name: Option<&str>,
        key: Option<&str>,
    ) -> Result<Rc<dyn Provider>, NoBackend> {
        let (name, backend) = self.backend(name).map_err(NoBackend::Request)?;
        let own = key.map(|key| {
            let wrong = || RequestError::field("apiKey", "empty, or no text of one line");
            Key::new(key).ok_or_else(|| NoBackend::Request(wrong()))
        });
        let own = own.transpose()?;
        let is_meant = |built: &&Built| built.name == name && built.key == own;
        if let Some(built) = self.built.borrow().iter().find(is_meant) {
            return Ok(built.provider.clone());
        }
        if let Some(own) = &own {
            self.learn(own).map_err(NoBackend::Request)?;
        }
        let provider = match &backend.source {
            // It needs no key, but what a client sent as a key is redacted as one.
            BackendSource::Ready(provider) => provider.clone(),
            BackendSource::Vendor {
                vendor,
                base_url,
                key,
            } => {
                let key = own.as_ref().or(key.as_ref());
                providers::build(*vendor, base_url.as_deref(), key).map_err(NoBackend::Provider)?
            }
        };
        let built = Built {
            name: name.to_owned(),
            key: own,
            provider: provider.clone(),
        };
        self.built.borrow_mut().push(built);
        Ok(provider)
    }

    /// Registers the key as a secret: from here on it is removed from everything that is shown or recorded.
    fn learn(&self, key: &Key) -> Result<(), RequestError> {
        if self.built.borrow().len() >= KEYS_MAX + self.by_name.len() {
            return Err(RequestError::Refused(format!(
                "at most {KEYS_MAX} different keys until the next start"
            )));
        }
        let secret = Secret {
            name: "MODEL_KEY".to_owned(),
            value: key.expose().as_bytes().to_vec(),
        };
        self.redactor
            .learn(secret)
            .map_err(|error| RequestError::Internal(error.to_string()))
    }
}

/// The model to use: the requested one, the configured one, or the smallest of `provider` that can chat.
///
/// # Errors
/// If the provider does not list its models, or has none.
pub async fn model(
    provider: &dyn Provider,
    named: Option<&str>,
    backend: &Backend,
) -> Result<String, ProviderError> {
    if let Some(model) = named.or(backend.model.as_deref()) {
        return Ok(model.to_owned());
    }
    let models = provider.models().await?;
    let chosen = choose(None, &models).map(|model| model.id.clone());
    chosen.ok_or_else(|| ProviderError::ModelNotFound {
        model: String::new(),
        reason: format!("{} has none that can chat", provider.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends() -> Backends {
        let redactor: &'static Redactor = Box::leak(Box::new(Redactor::new(vec![]).unwrap()));
        let source = BackendSource::Vendor {
            vendor: Vendor::Claude,
            base_url: None,
            key: None,
        };
        let backend = Backend {
            source,
            model: None,
            weak_model: None,
            strong_model: None,
        };
        Backends::new(
            BTreeMap::from([("claude".to_owned(), backend)]),
            "claude".to_owned(),
            redactor,
        )
    }

    #[test]
    fn a_key_is_taken_out_of_texts_as_soon_as_it_is_known_and_keys_have_a_bound() {
        let backends = backends();
        let key = |number: usize| format!("sk-test-{number:06}-secret");
        for number in 0..KEYS_MAX {
            assert!(
                backends.provider(None, Some(&key(number))).is_ok(),
                "{number}"
            );
        }
        assert_eq!(
            backends.redactor.text(&format!("it is {}", key(7))),
            "it is [redacted:MODEL_KEY]"
        );
        assert!(
            backends.provider(None, Some(&key(7))).is_ok(),
            "one that is known"
        );
        assert!(backends.provider(None, None).is_ok(), "none");
    }

    #[test]
    fn one_key_too_many_is_refused_with_a_name() {
        let backends = backends();
        let mut refused = None;
        for number in 0..=KEYS_MAX + 1 {
            refused = backends
                .provider(None, Some(&format!("sk-test-{number:06}-secret")))
                .err();
        }
        assert!(
            matches!(refused, Some(NoBackend::Request(RequestError::Refused(_)))),
            "{refused:?}"
        );
        let unknown = backends.provider(Some("x"), None);
        assert!(matches!(
            unknown,
            Err(NoBackend::Request(RequestError::UnknownProvider(_)))
        ));
        let wrong = backends.provider(None, Some("a\nb"));
        assert!(matches!(
            wrong,
            Err(NoBackend::Request(RequestError::Field { .. }))
        ));
    }
}
