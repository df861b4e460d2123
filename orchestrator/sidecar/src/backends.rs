//! The providers of models, by their names: what the configuration knows of each, and a provider of one's own for each key that a
//! client brings.

use crate::incoming::RequestError;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::http::Key;
use orchestrator_agent::provider::{Provider, choose};
use orchestrator_agent::providers::{self, Vendor};
use orchestrator_text::redact::Redactor;
use policies::secret::Secret;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Most different keys that clients may bring: each is looked for in everything that is shown from then on.
const KEYS_MAX: usize = 256;

/// A provider as it is configured.
pub struct Backend {
    /// How its answers are had.
    pub source: Source,
    /// The model where none is named.
    pub model: Option<String>,
    /// The model of a subagent for simple questions.
    pub weak_model: Option<String>,
    /// The model of a subagent for hard ones.
    pub strong_model: Option<String>,
}

/// How the answers of a backend are had.
pub enum Source {
    /// From a server that speaks like a vendor's.
    Vendor {
        /// How it is spoken to.
        vendor: Vendor,
        /// Where it is, if not where the vendor has it.
        base_url: Option<String>,
        /// The key of the configuration, if it has one.
        key: Option<Key>,
    },
    /// From one that needs neither server nor key: a script.
    Ready(Rc<dyn Provider>),
}

/// A provider of which there may be several: for each key its own.
struct Built {
    name: String,
    /// That of a client, where it has brought one.
    key: Option<Key>,
    provider: Rc<dyn Provider>,
}

/// Why there is no provider.
#[derive(Debug)]
pub enum Refused {
    /// The request names what there is not.
    Request(RequestError),
    /// The provider cannot be used so: as an answer of its own would say.
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
    /// These, of which the one called `default` is taken where none is named.
    pub fn new(by_name: BTreeMap<String, Backend>, default: String, redactor: &'static Redactor) -> Self {
        Self { by_name, default, built: RefCell::default(), redactor }
    }

    /// The name of the one that is taken where none is named.
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// What is configured for `name`, or for the default.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn backend(&self, name: Option<&str>) -> Result<(&str, &Backend), RequestError> {
        let name = name.unwrap_or(&self.default);
        let unknown = || RequestError::UnknownProvider(crate::incoming::brief(name));
        self.by_name.get_key_value(name).map(|(name, backend)| (name.as_str(), backend)).ok_or_else(unknown)
    }

    /// The provider `name`, with the key that a client brings, if it brings one.
    ///
    /// # Errors
    /// There is none of this name, or the key cannot be used there.
    pub fn provider(&self, name: Option<&str>, key: Option<&str>) -> Result<Rc<dyn Provider>, Refused> {
        let (name, backend) = self.backend(name).map_err(Refused::Request)?;
        let own = key.map(|key| {
            let wrong = || RequestError::Invalid("apiKey: empty, or no text of one line".to_owned());
            Key::new(key).ok_or_else(|| Refused::Request(wrong()))
        });
        let own = own.transpose()?;
        let is_meant = |built: &&Built| built.name == name && built.key == own;
        if let Some(built) = self.built.borrow().iter().find(is_meant) {
            return Ok(built.provider.clone());
        }
        if let Some(own) = &own {
            self.learn(own).map_err(Refused::Request)?;
        }
        let provider = match &backend.source {
            // It needs no key, and yet what a client has sent as one is one.
            Source::Ready(provider) => provider.clone(),
            Source::Vendor { vendor, base_url, key } => {
                let key = own.as_ref().or(key.as_ref());
                providers::build(*vendor, base_url.as_deref(), key).map_err(Refused::Provider)?
            }
        };
        let built = Built { name: name.to_owned(), key: own, provider: provider.clone() };
        self.built.borrow_mut().push(built);
        Ok(provider)
    }

    /// From here on the key is in nothing that is shown or recorded.
    fn learn(&self, key: &Key) -> Result<(), RequestError> {
        if self.built.borrow().len() >= KEYS_MAX + self.by_name.len() {
            return Err(RequestError::Refused(format!(
                "at most {KEYS_MAX} different keys until the next start"
            )));
        }
        let secret = Secret { name: "MODEL_KEY".to_owned(), value: key.expose().as_bytes().to_vec() };
        self.redactor.learn(secret).map_err(|error| RequestError::Internal(error.to_string()))
    }
}

/// The model to take: that of the order, the configured one, or the smallest of `provider` that can chat.
///
/// # Errors
/// The provider does not say what it has, or has none.
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
        let source = Source::Vendor { vendor: Vendor::Claude, base_url: None, key: None };
        let backend = Backend { source, model: None, weak_model: None, strong_model: None };
        Backends::new(BTreeMap::from([("claude".to_owned(), backend)]), "claude".to_owned(), redactor)
    }

    #[test]
    fn a_key_is_taken_out_of_texts_as_soon_as_it_is_known_and_keys_have_a_bound() {
        let backends = backends();
        let key = |number: usize| format!("sk-test-{number:06}-secret");
        for number in 0..KEYS_MAX {
            assert!(backends.provider(None, Some(&key(number))).is_ok(), "{number}");
        }
        assert_eq!(backends.redactor.text(&format!("it is {}", key(7))), "it is [redacted:MODEL_KEY]");
        assert!(backends.provider(None, Some(&key(7))).is_ok(), "one that is known");
        assert!(backends.provider(None, None).is_ok(), "none");
    }

    #[test]
    fn one_key_too_many_is_refused_with_a_name() {
        let backends = backends();
        let mut refused = None;
        for number in 0..=KEYS_MAX + 1 {
            refused = backends.provider(None, Some(&format!("sk-test-{number:06}-secret"))).err();
        }
        assert!(matches!(refused, Some(Refused::Request(RequestError::Refused(_)))), "{refused:?}");
        let unknown = backends.provider(Some("x"), None);
        assert!(matches!(unknown, Err(Refused::Request(RequestError::UnknownProvider(_)))));
        let wrong = backends.provider(None, Some("a\nb"));
        assert!(matches!(wrong, Err(Refused::Request(RequestError::Invalid(_)))));
    }
}
