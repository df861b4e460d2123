//! The bodies of HTTP requests and responses. The API description is generated from the same types.

use crate::incoming::{RequestError, checked, is_content};
use orchestrator_agent::provider::Model;
use orchestrator_tools::scope_file;
use orchestrator_wire::chat_command::{RunOptions, Send, TrustLevel, non_empty};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The request for a run over HTTP. A new conversation is dropped after the run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// The user's text, at most 1 MiB.
    pub prompt: String,
    #[serde(flatten)]
    pub options: RunOptions,
    /// The model too: the name that other systems have for it.
    #[serde(default, deserialize_with = "non_empty")]
    pub(crate) model_key: Option<String>,
    /// `false`: no web tools, and no network for commands.
    #[serde(default)]
    pub network_allowed: Option<bool>,
    /// Whether questions wait for an answer, over a WebSocket or `POST /runs/{id}/approve`; if absent, each call that needs approval is denied at once.
    #[serde(default)]
    pub(crate) approvals: bool,
}

/// Settings that a client can change while the server runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The calls that need approval if a client sets no trust.
    pub trust: TrustLevel,
}

/// A key to check with its provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KeyRequest {
    /// The provider; absent, that of the start.
    #[serde(default, deserialize_with = "non_empty")]
    pub provider: Option<String>,
    /// The key; absent, the configured one.
    #[serde(default, deserialize_with = "non_empty")]
    pub(crate) api_key: Option<String>,
}

/// Whether a provider accepts a key.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyState {
    /// `valid`, `invalid`, or `unknown` where the provider cannot be asked.
    pub state: &'static str,
    /// What the provider has said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of the server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    pub status: &'static str,
    pub version: &'static str,
    /// The number of runs in progress.
    pub(crate) runs: usize,
}

/// The default settings of runs and conversations.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CurrentSettings {
    pub trust: &'static str,
    pub provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// A conversation that the server keeps.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationStatus {
    pub(crate) conversation_id: String,
    /// The beginning of the user's first prompt.
    pub title: String,
    /// Whether a run is in progress.
    pub(crate) running: bool,
    /// How many of its calls wait for approval.
    pub waiting: usize,
    /// How long it has been idle, in seconds.
    pub(crate) idle_s: u64,
}

/// The same with what its user has said.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConversationDetail {
    #[serde(flatten)]
    pub status: ConversationStatus,
    /// What the last runs were begun with; the oldest ones, and what is long of one, are not remembered.
    pub asked: Vec<RunPrompt>,
}

/// The prompt of one run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunPrompt {
    pub(crate) message_id: String,
    pub content: String,
}

/// The models that a provider has.
#[derive(Serialize)]
pub(crate) struct ModelList {
    pub provider: String,
    pub models: Vec<Model>,
}

/// Which part of a run to end.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CancelRequest {
    /// Whether only the calls in progress end, and the run continues.
    #[serde(default)]
    pub(crate) tools_only: bool,
}

impl RunRequest {
    /// The same as a message of a WebSocket.
    ///
    /// # Errors
    /// It is beyond a limit, or contradicts itself.
    pub(crate) fn into_send(self) -> Result<Send, RequestError> {
        let mut options = self.options;
        if self.network_allowed == Some(false) {
            if options.scope.is_some() {
                let message = "a scope decides on the network tool by tool";
                return Err(RequestError::field("networkAllowed", message));
            }
            options.scope = Some(scope_file::without_network());
        }
        is_content("prompt", &self.prompt)?;
        options.model = options.model.or(self.model_key);
        checked(Send {
            content: self.prompt,
            options,
            ..Send::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::WireCase;
    use crate::incoming::read;
    use serde_json::json;

    #[test]
    fn run_and_message_take_the_same_options_and_refuse_unknown_ones() {
        let send = |payload| read::<Send>(payload, WireCase::Camel).map(|send| send.options);
        let run = |body| read::<RunRequest>(body, WireCase::Camel).map(|run| run.options);
        let options = json!({"conversationId": "c", "project": "/p", "scope": {}, "trust": "guided", "profile": "local",
            "provider": "mock", "model": "m", "apiKey": "k", "systemPrompt": "s", "pack": "research"});
        for (name, value) in options.as_object().unwrap() {
            let sent = send(json!({"content": "x", name: value})).unwrap();
            let ran = run(json!({"prompt": "x", name: value})).unwrap();
            assert_eq!(format!("{sent:?}"), format!("{ran:?}"), "{name}");
            assert_ne!(
                format!("{sent:?}"),
                format!("{:?}", send(json!({"content": "x"})).unwrap()),
                "{name}"
            );
        }
        for wrong in [
            send(json!({"content": "x", "other": 1})),
            send(json!({"content": "x", "approvals": true})),
            send(json!({"prompt": "x"})),
            run(json!({"prompt": "x", "other": 1})),
            run(json!({"prompt": "x", "history": []})),
            run(json!({"content": "x"})),
        ] {
            assert!(wrong.is_err(), "{wrong:?}");
        }
    }
}
