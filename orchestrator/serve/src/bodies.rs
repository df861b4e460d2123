//! The bodies of HTTP requests and responses. The API description is generated from the same types.

use crate::incoming::{RequestError, Send, TrustLevel, is_content, non_empty};
use orchestrator_agent::provider::Model;
use orchestrator_tools::scope_file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The request for a run over HTTP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunRequest {
    /// What the user says, at most 1 MiB.
    pub prompt: String,
    /// What the run is for: `engineering`, `research`, or a pack of the configuration.
    #[serde(default, deserialize_with = "non_empty")]
    pub pack: Option<String>,
    /// The model; absent, as in `chat:send`.
    #[serde(default, deserialize_with = "non_empty")]
    pub model: Option<String>,
    /// The model too: the name that other systems have for it.
    #[serde(default, deserialize_with = "non_empty")]
    pub model_key: Option<String>,
    /// The provider; absent, that of the start.
    #[serde(default, deserialize_with = "non_empty")]
    pub provider: Option<String>,
    /// The key for the provider.
    #[serde(default, deserialize_with = "non_empty")]
    pub api_key: Option<String>,
    /// `false`: no web tools, and no network for commands.
    #[serde(default)]
    pub network_allowed: Option<bool>,
    /// The conversation to continue; if absent, a new one that is dropped after the run.
    #[serde(default, deserialize_with = "non_empty")]
    pub conversation_id: Option<String>,
    /// The project root, as in `chat:send`.
    #[serde(default, deserialize_with = "non_empty")]
    pub project: Option<PathBuf>,
    /// What the session is narrowed to, as in `chat:send`.
    #[serde(default)]
    pub scope: Option<Map<String, Value>>,
    /// Which calls need approval, as in `chat:send`.
    #[serde(default)]
    pub trust: Option<TrustLevel>,
    /// The policy profile, as in `chat:send`.
    #[serde(default, deserialize_with = "non_empty")]
    pub profile: Option<String>,
    /// Instructions for this run, as in `chat:send`.
    #[serde(default, deserialize_with = "non_empty")]
    pub system_prompt: Option<String>,
    /// Whether questions wait for an answer, over a WebSocket or `POST /runs/{id}/approve`; if absent, each call that needs approval is denied at once.
    #[serde(default)]
    pub approvals: bool,
}

/// Settings that a client can change while the server runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Which calls need approval if a client sets no trust.
    pub trust: TrustLevel,
}

/// A key to check with its provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRequest {
    /// The provider; absent, that of the start.
    #[serde(default, deserialize_with = "non_empty")]
    pub provider: Option<String>,
    /// The key; absent, the configured one.
    #[serde(default, deserialize_with = "non_empty")]
    pub api_key: Option<String>,
}

/// Whether a provider accepts a key.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KeyState {
    /// `valid`, `invalid`, or `unknown` where the provider cannot be asked.
    pub state: &'static str,
    /// What the provider has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of the server.
#[derive(Serialize, JsonSchema)]
pub struct Health {
    pub status: &'static str,
    pub version: &'static str,
    /// The number of runs in progress.
    pub runs: usize,
}

/// The default settings of runs and conversations.
#[derive(Serialize, JsonSchema)]
pub struct CurrentSettings {
    pub trust: &'static str,
    pub provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// A conversation that the server keeps.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationStatus {
    pub conversation_id: String,
    /// The beginning of the user's first prompt.
    pub title: String,
    /// Whether a run is in progress.
    pub running: bool,
    /// How many of its calls wait for approval.
    pub waiting: usize,
    /// How long it has been idle, in seconds.
    pub idle_s: u64,
}

/// The same with what its user has said.
#[derive(Serialize, JsonSchema)]
pub struct ConversationDetail {
    #[serde(flatten)]
    pub status: ConversationStatus,
    /// What the last runs were begun with; the oldest ones, and what is long of one, are not remembered.
    pub asked: Vec<RunPrompt>,
}

/// The prompt of one run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPrompt {
    pub message_id: String,
    pub content: String,
}

/// The models that a provider has.
#[derive(Serialize)]
pub struct Models {
    pub provider: String,
    pub models: Vec<Model>,
}

/// Which part of a run to end.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {
    /// Whether only the calls in progress end, and the run continues.
    #[serde(default)]
    pub tools_only: bool,
}

impl RunRequest {
    /// The same as a message of a WebSocket.
    ///
    /// # Errors
    /// It is beyond a limit, or contradicts itself.
    pub fn into_send(self) -> Result<Send, RequestError> {
        let network_closed = self.network_allowed == Some(false);
        if network_closed && self.scope.is_some() {
            let message = "a scope decides on the network tool by tool";
            return Err(RequestError::field("networkAllowed", message));
        }
        is_content("prompt", &self.prompt)?;
        let scope = if network_closed {
            Some(scope_file::without_network())
        } else {
            self.scope
        };
        Send {
            content: self.prompt,
            conversation_id: self.conversation_id,
            project: self.project,
            scope,
            trust: self.trust,
            profile: self.profile,
            provider: self.provider,
            model: self.model.or(self.model_key),
            api_key: self.api_key,
            system_prompt: self.system_prompt,
            pack: self.pack,
            ..Send::default()
        }
        .checked()
    }
}
