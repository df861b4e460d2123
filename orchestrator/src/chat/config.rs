//! The user's settings for chats: `agent.toml` beside the policy. No file of a project is read as settings.

use broker_protocol::Failed;
use orchestrator_agent::fallback::FallbackWhen;
use orchestrator_agent::limits::RunLimits;
use orchestrator_agent::packs::Pack;
use orchestrator_confine::Files;
use orchestrator_hooks::cell::for_sessions;
use orchestrator_hooks::hooks::Hooks;
use orchestrator_hooks::settings::HookEntry;
use orchestrator_http::key::Key;
use orchestrator_keys::held;
use orchestrator_keys::keyring::Keyring;
use orchestrator_launch::hooks::{self, UserHooks};
use orchestrator_launch::stdio::print;
use orchestrator_text::known::BRAVE_KEY;
use orchestrator_web::{EngineKind, WebClient, name_brave_key};
use policies::source;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

/// Maximum size of the file in bytes.
const MAX: usize = 256 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentConfig {
    /// The provider to use if none is named.
    pub provider: Option<String>,
    /// Instructions for every run.
    pub instructions: String,
    /// Limits of every run whose pack sets no others.
    pub limits: RunLimits,
    /// The search engines, where the environment names none.
    pub search: SearchConfig,
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The provider that takes over when a model's answers are too poor.
    pub cloud_fallback: Option<FallbackConfig>,
    /// Packs that the user has defined.
    pub packs: Vec<Pack>,
    /// The user's programs that are notified of calls.
    pub hooks: Vec<HookEntry>,
    /// `false`: do not look for keys in the desktop keyring.
    pub keyring: Keyring,
}

/// Search engines for `web_search`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SearchConfig {
    /// The address of a SearXNG instance.
    pub searxng_url: Option<String>,
    /// A file of mode 0600 with the key for Brave.
    pub brave_key_file: Option<PathBuf>,
}

/// The search engines with their key.
#[derive(Clone)]
pub(crate) struct Engines {
    searxng: Option<String>,
    brave: Option<Key>,
}

impl SearchConfig {
    pub(crate) fn engines(&self, files: &Files) -> Result<Engines, Failed> {
        let key = |file: &PathBuf| held::in_file(files, BRAVE_KEY, file);
        let brave = self.brave_key_file.as_ref().map(key).transpose();
        self.searxng_url
            .as_deref()
            .into_iter()
            .for_each(|base| EngineKind::SearXng.name_engine(base));
        let brave = brave.map_err(|error| Failed::invalid(format!("search: {error}")))?;
        brave.iter().for_each(name_brave_key);
        Ok(Engines {
            searxng: self.searxng_url.clone(),
            brave,
        })
    }
}

impl Engines {
    /// The client with these engines.
    pub(crate) fn of(&self, web: WebClient) -> WebClient {
        let brave = self.brave.as_ref().map(|key| key.expose().to_owned());
        web.or_engines(self.searxng.clone(), brave)
    }
}

/// Another provider, and when it takes over a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FallbackConfig {
    pub when: FallbackWhen,
    /// The provider; it is configured by its table in `providers`.
    pub provider: String,
    /// The model, if it differs from the one in the provider's table.
    pub model: Option<String>,
}

/// The settings of one provider.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProviderConfig {
    pub base_url: Option<String>,
    /// The model to use if none is named.
    pub model: Option<String>,
    /// The model of a subagent for simple questions.
    pub weak_model: Option<String>,
    /// The model of a subagent for hard ones.
    pub strong_model: Option<String>,
    /// A file of mode 0600 with the key.
    pub key_file: Option<PathBuf>,
    /// The command that starts its server on this machine if nobody listens there.
    pub start: Vec<String>,
}

/// The words of an error with the number of its line, and not the line: that may have a key in it.
fn placed(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", error.message())
}

impl AgentConfig {
    /// Reads the file, if it exists.
    pub(crate) fn read(_: &Files) -> Result<Self, Failed> {
        let path = path();
        let wrong = |error: String| Failed::invalid(format!("{}: {error}", path.display()));
        if hooks::are_absent(&path) {
            return Ok(Self::default());
        }
        let text = source::read_named(&path, MAX).map_err(|error| wrong(error.to_string()))?;
        let config: Self = toml::from_str(&text).map_err(|error| wrong(placed(&text, &error)))?;
        config
            .limits
            .check()
            .map_err(|error| wrong(format!("limits: {error}")))?;
        for pack in &config.packs {
            pack.check().map_err(|error| wrong(error.to_string()))?;
        }
        Ok(config)
    }

    /// The hooks for the sessions of a front end. The user hears which of them are not run.
    pub(crate) fn hooks(&self, files: &Files) -> Result<UserHooks, Failed> {
        let hooks = self.read_hooks(files)?;
        hooks
            .problems()
            .for_each(|problem| print::problem(&problem));
        Ok(for_sessions(hooks))
    }

    /// The hooks with their programs.
    pub(crate) fn read_hooks(&self, files: &Files) -> Result<Rc<Hooks>, Failed> {
        let path = path();
        let folder = path.parent().unwrap_or(&path);
        let hooks = Hooks::read(files, self.hooks.clone(), folder);
        hooks
            .map(Rc::new)
            .map_err(|error| Failed::invalid(format!("{}: {error}", path.display())))
    }

    pub(crate) fn of(&self, provider: &str) -> ProviderConfig {
        self.providers.get(provider).cloned().unwrap_or_default()
    }
}

fn path() -> PathBuf {
    hooks::agent_settings()
}
