//! Chooses the provider and the model: from the options, then from the settings, then by which keys exist.

use crate::chat::config::{AgentConfig, FallbackConfig, ProviderConfig};
use crate::chat::model_server;
use broker_protocol::Failed;
use clap::Args;
use orchestrator_agent::error::ProviderError;
use orchestrator_agent::fallback::Fallback;
use orchestrator_agent::packs::Pack;
use orchestrator_agent::provider::{Provider, choose};
use orchestrator_agent::providers::mock::{Mock, SCRIPT_MAX, Script};
use orchestrator_agent::providers::{self, Vendor};
use orchestrator_confine::Files;
use orchestrator_keys::error::KeyError;
use orchestrator_keys::find::{FoundKey, KeySource};
use orchestrator_keys::held::find;
use orchestrator_launch::session_options::{SessionOptions, read_text_up_to};
use orchestrator_launch::stdio::print;
use orchestrator_serve::backends::{Backend, BackendSource, Backends};
use orchestrator_text::known::redactor;
use orchestrator_text::known::{ANTHROPIC_KEY, OPENAI_KEY};
use orchestrator_text::secret_environment;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

/// Options of the commands that speak to a model.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// claude, openai, openai-chat, ollama, or mock, which plays a script
    /// [default: by agent.toml, then by the key in the environment, then ollama]
    #[arg(long, value_name = "NAME", value_parser = PROVIDERS)]
    provider: Option<String>,
    /// The model [default: by agent.toml, then the smallest that can chat]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Another server that speaks like the provider, such as http://localhost:8000
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A file of mode 0600 with the key [default: ANTHROPIC_API_KEY or
    /// OPENAI_API_KEY, then the desktop keyring]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// What the provider `mock` plays [default: a tour]
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

/// The names of all providers.
const PROVIDERS: [&str; 5] = ["claude", "openai", "openai-chat", "ollama", "mock"];

/// A provider with its settings.
pub(crate) struct ChosenModel {
    pub provider: Rc<dyn Provider>,
    /// Its settings; those of the command line come first.
    pub config: ProviderConfig,
    /// Where its key was found; `None` if it has no key.
    pub key_source: Option<KeySource>,
}

impl ModelOptions {
    /// The provider. Reads keys and scripts. From then on no string of ours holds the key.
    pub(crate) fn choose(
        &self,
        files: &Files,
        settings: &AgentConfig,
    ) -> Result<ChosenModel, Failed> {
        let name = self
            .provider
            .clone()
            .or(settings.provider.clone())
            .unwrap_or_else(by_environment);
        let config = self.config(&name, settings);
        if name == "mock" {
            return Ok(ChosenModel {
                provider: Rc::new(self.mock(files)?),
                config,
                key_source: None,
            });
        }
        let vendor = Vendor::named(&name).ok_or_else(|| {
            Failed::invalid(format!(
                "there is no provider {name:?}; there are {}",
                PROVIDERS.join(", ")
            ))
        })?;
        // A server with an address of the user's own may need no key.
        let need = match config.base_url {
            Some(_) => KeyNeed::Optional,
            None => KeyNeed::Required,
        };
        let found = key(files, &config, vendor, settings, need)?;
        let key = found.as_ref().map(|found| &found.key);
        let provider = providers::build(vendor, config.base_url.as_deref(), key)
            .map_err(|error| Failed::invalid(error.to_string()))?;
        Ok(ChosenModel {
            provider,
            config,
            key_source: found.map(|found| found.source),
        })
    }
}

impl ModelOptions {
    /// Has the provider's server started if the settings say how, and it does not run.
    pub(crate) fn ensure_available(
        &self,
        files: &Files,
        settings: &AgentConfig,
        options: &SessionOptions,
    ) -> Result<(), Failed> {
        let name = self
            .provider
            .clone()
            .or(settings.provider.clone())
            .unwrap_or_else(by_environment);
        match Vendor::named(&name) {
            Some(vendor) => {
                let config = self.config(&name, settings);
                let executor = options.executor();
                model_server::ensure_available(files, vendor, &config, executor.as_deref())
            }
            None => Ok(()),
        }
    }
}

/// The pack of this name, if one is given.
pub(crate) fn pack(name: Option<&str>, settings: &AgentConfig) -> Result<Option<Pack>, Failed> {
    let named = name.map(|name| Pack::named(name, &settings.packs));
    let named = named.transpose();
    named.map_err(|error| Failed::invalid(error.to_string()))
}

/// The fallback when a model's answers are too poor, if `settings` name one. Reads keys.
pub(crate) fn fallback(files: &Files, settings: &AgentConfig) -> Result<Option<Fallback>, Failed> {
    let Some(FallbackConfig {
        when,
        provider,
        model,
    }) = settings.cloud_fallback.clone()
    else {
        return Ok(None);
    };
    let options = ModelOptions {
        provider: Some(provider),
        model,
        ..ModelOptions::default()
    };
    let wrong = |failed: Failed| Failed {
        message: format!("cloud_fallback: {}", failed.message),
        ..failed
    };
    let ChosenModel {
        provider, config, ..
    } = options.choose(files, settings).map_err(wrong)?;
    Ok(Some(Fallback {
        when,
        provider,
        model: config.model,
    }))
}

impl ModelOptions {
    /// All providers, for clients that name one; the options apply to the default provider, used when none is named. Reads keys and
    /// scripts.
    pub(crate) fn backends(
        &self,
        files: &Files,
        settings: &AgentConfig,
    ) -> Result<Backends, Failed> {
        let default = self
            .provider
            .clone()
            .or(settings.provider.clone())
            .unwrap_or_else(by_environment);
        let mut backends = BTreeMap::new();
        for name in PROVIDERS {
            let is_default = name == default;
            let options = if is_default {
                self.clone()
            } else {
                Self {
                    script: self.script.clone(),
                    ..Self::default()
                }
            };
            let options = Self {
                provider: Some(name.to_owned()),
                ..options
            };
            backends.insert(name.to_owned(), options.backend(files, name, settings)?);
        }
        if !backends.contains_key(&default) {
            let known = PROVIDERS.join(", ");
            return Err(Failed::invalid(format!(
                "there is no provider {default:?}; there are {known}"
            )));
        }
        Ok(Backends::new(backends, default, redactor()))
    }

    fn backend(
        &self,
        files: &Files,
        name: &str,
        settings: &AgentConfig,
    ) -> Result<Backend, Failed> {
        let config = self.config(name, settings);
        let source = match Vendor::named(name) {
            None => BackendSource::Ready(Rc::new(self.mock(files)?)),
            Some(vendor) => {
                // Clients may bring their own keys and may name other providers.
                let found = key(files, &config, vendor, settings, KeyNeed::Optional)?;
                BackendSource::Vendor {
                    vendor,
                    base_url: config.base_url,
                    key: found.map(|found| found.key),
                }
            }
        };
        let ProviderConfig {
            model,
            weak_model,
            strong_model,
            ..
        } = config;
        Ok(Backend {
            source,
            model,
            weak_model,
            strong_model,
        })
    }

    /// The configuration of provider `name`; options come before settings.
    fn config(&self, name: &str, settings: &AgentConfig) -> ProviderConfig {
        let mut config = settings.of(name);
        config.model = self.model.clone().or(config.model);
        config.base_url = self.base_url.clone().or(config.base_url);
        config.key_file = self.key_file.clone().or(config.key_file);
        config
    }

    fn mock(&self, files: &Files) -> Result<Mock, Failed> {
        let script = match &self.script {
            Some(path) => Script::parse(&read_text_up_to(files, path, SCRIPT_MAX)?)
                .map_err(|error| Failed::invalid(format!("{}: {error}", path.display())))?,
            None => Script::tour().map_err(|error| Failed::internal(error.to_string()))?,
        };
        Ok(Mock(script))
    }
}

impl ChosenModel {
    /// The model's name: the configured one, else the smallest model that can chat.
    pub(crate) async fn model(&self) -> Result<String, ProviderError> {
        if let Some(model) = &self.config.model {
            return Ok(model.clone());
        }
        let models = self.provider.models().await?;
        let chosen = choose(None, &models).map(|model| model.id.clone());
        chosen.ok_or_else(|| ProviderError::ModelNotFound {
            model: String::new(),
            reason: format!("{} has none that can chat", self.provider.name()),
        })
    }
}

fn by_environment() -> String {
    if secret_environment::is_set(ANTHROPIC_KEY) {
        "claude".to_owned()
    } else if secret_environment::is_set(OPENAI_KEY) {
        "openai".to_owned()
    } else {
        "ollama".to_owned()
    }
}

/// Whether a provider works without a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyNeed {
    Required,
    Optional,
}

/// The key of `vendor`, if there is one. A failure of the keyring is an error only if the provider cannot work without a key.
fn key(
    files: &Files,
    config: &ProviderConfig,
    vendor: Vendor,
    settings: &AgentConfig,
    need: KeyNeed,
) -> Result<Option<FoundKey>, Failed> {
    let file = config.key_file.as_deref();
    match find(files, vendor.key_names(), file, &settings.keyring) {
        Ok(found) => {
            if found
                .as_ref()
                .is_some_and(|found| found.source == KeySource::Keyring)
            {
                print::note(&format!(
                    "using the key for {} from the desktop keyring",
                    vendor.name()
                ));
            }
            Ok(found)
        }
        Err(error @ (KeyError::Keyring(_) | KeyError::HeldKeyring(_)))
            if need == KeyNeed::Optional =>
        {
            print::problem(&format!("{}: {error}", vendor.name()));
            Ok(None)
        }
        Err(KeyError::Redactor(error)) => Err(Failed::internal(error.to_string())),
        Err(error) => Err(Failed::invalid(error.to_string())),
    }
}
