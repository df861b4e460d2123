//! The interface to a model, the same for every vendor.

use crate::chunk::Chunks;
use crate::error::ProviderError;
use crate::message::Message;
use futures_util::future::LocalBoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A source of answers. A new provider implements this, or [`crate::wire::Wire`] if it uses HTTP.
pub trait Provider {
    /// The name in events and on the command line.
    fn name(&self) -> &str;

    /// The models that it offers.
    fn models(&self) -> LocalBoxFuture<'_, Result<Vec<Model>, ProviderError>>;

    /// Describes one model; asks the provider only if nothing else can tell.
    fn model<'a>(&'a self, id: &'a str) -> LocalBoxFuture<'a, Result<Model, ProviderError>>;

    /// Requests the answer to `prompt`. On return all chunks were sent, an end as the last one; dropping the future stops at once.
    fn answer<'a>(
        &'a self,
        prompt: &'a ModelRequest<'a>,
        chunks: Chunks,
    ) -> LocalBoxFuture<'a, Result<(), ProviderError>>;
}

/// A request to a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The model.
    pub model: &'a str,
    /// Its instructions.
    pub system: &'a str,
    /// The conversation, the newest message last.
    pub messages: &'a [Message],
    /// The tools that are listed to it.
    pub tools: &'a [ToolDefinition],
    /// Whether it may call them; if not, it has to answer.
    pub may_call: bool,
    /// Maximum tokens of the answer, if the user has set it.
    pub max_tokens: Option<u32>,
    /// Tokens for thoughts; 0 for none.
    pub thinking_tokens: u32,
    /// How many tokens the model reads and writes together, if known.
    pub context_window: Option<u64>,
    /// Whether to leave out what a server may not know: the server has rejected the request with it.
    pub minimal: bool,
}

/// A tool as it is described to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its input, as JSON Schema.
    pub schema: Value,
    /// Whether its calls change nothing, so that several may run at once.
    pub runs_in_parallel: bool,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Model {
    /// Its name at the provider.
    pub id: String,
    /// Whether it can call tools; null if unknown.
    pub supports_tools: Option<bool>,
    /// Whether it can hold a conversation: others make vectors or pictures.
    pub chat: bool,
    /// Its context size in tokens, for input and output.
    pub context_window: Option<u64>,
    /// Parameters in billions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_b: Option<f64>,
    /// `local`, `low`, `medium` or `high`; null where nobody says.
    pub price_class: Option<&'static str>,
}

impl Model {
    /// A model of which only the name is known.
    pub fn named(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            supports_tools: None,
            chat: true,
            context_window: None,
            size_b: None,
            price_class: None,
        }
    }
}

/// The error for a model without tools; it lists models that have them, if the provider can tell.
pub async fn no_tools(provider: &dyn Provider, model: &Model) -> ProviderError {
    let models = provider.models().await.unwrap_or_default();
    let capable = models
        .into_iter()
        .filter(|model| model.supports_tools == Some(true))
        .take(20);
    ProviderError::NoTools {
        model: model.id.clone(),
        capable: capable.map(|model| model.id).collect(),
    }
}

/// The model to use: the configured one, else the smallest that can chat, preferring those that call tools.
pub fn choose<'a>(configured: Option<&str>, models: &'a [Model]) -> Option<&'a Model> {
    if let Some(configured) = configured {
        return models.iter().find(|model| model.id == configured);
    }
    let size = |model: &Model| model.size_b.unwrap_or(f64::MAX);
    let rank = |model: &Model| (model.supports_tools == Some(false), size(model));
    let ordered = |a: &&Model, b: &&Model| {
        let ((a_lacks, a_size), (b_lacks, b_size)) = (rank(a), rank(b));
        a_lacks
            .cmp(&b_lacks)
            .then(a_size.total_cmp(&b_size))
            .then(a.id.cmp(&b.id))
    };
    models.iter().filter(|model| model.chat).min_by(ordered)
}

/// The model to use where the named one does not exist: the smallest of those that can chat and call tools. Only where sizes are
/// known, as with models on this machine: of a vendor's models none stands for another.
pub(crate) fn instead(models: &[Model]) -> Option<&Model> {
    let fits = |model: &&Model| model.chat && model.supports_tools != Some(false);
    let sized = |model: &'_ Model| model.size_b.is_some();
    let all = models.iter().filter(fits).filter(|model| sized(model));
    all.min_by(|one, other| {
        let size = |model: &Model| model.size_b.unwrap_or(f64::MAX);
        size(one)
            .total_cmp(&size(other))
            .then(one.id.cmp(&other.id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_chat_model_is_taken_by_its_number_and_not_by_its_text() {
        let sized = |id: &str, size_b: f64, chat| Model {
            chat,
            size_b: Some(size_b),
            ..Model::named(id)
        };
        let models = [
            sized("ten", 10.0, true),
            sized("eight", 8.0, true),
            sized("embed", 0.1, false),
        ];
        assert_eq!(choose(None, &models).unwrap().id, "eight");
        assert_eq!(choose(Some("ten"), &models).unwrap().id, "ten");
        assert_eq!(choose(Some("none"), &models), None);
        let toolless = Model {
            supports_tools: Some(false),
            ..sized("tiny", 1.0, true)
        };
        assert_eq!(
            choose(None, &[models.to_vec(), vec![toolless]].concat())
                .unwrap()
                .id,
            "eight"
        );
    }
}
