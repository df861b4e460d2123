//! What can be derived from the names of OpenAI's models: the list of models has only names.

use crate::provider::Model;
use serde_json::Value;

/// Path of the list of models.
pub(crate) const PATH: &str = "/v1/models";

/// Parts of the names of models that cannot chat.
const NO_CHAT: [&str; 13] = [
    "embedding",
    "whisper",
    "tts",
    "dall-e",
    "moderation",
    "image",
    "audio",
    "realtime",
    "transcribe",
    "sora",
    "babbage",
    "davinci",
    "instruct",
];
/// Prefixes of model names with their windows in tokens; the first match counts.
const WINDOWS: [(&str, u64); 9] = [
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4", 8_192),
    ("gpt-3.5", 16_385),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
];

/// The models of a list.
pub(crate) fn listed(list: &Value) -> Vec<Model> {
    let ids = list["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|model| model["id"].as_str());
    ids.map(of_name).collect()
}

/// The properties of a model, by its name. Compatible servers have other models, for which it is unknown whether they call tools.
pub(crate) fn of_name(id: &str) -> Model {
    let chat = !NO_CHAT.iter().any(|part| id.contains(part));
    let known = WINDOWS
        .iter()
        .find(|(beginning, _)| id.starts_with(beginning));
    let price_class = known.map(|_| {
        if id.contains("nano") || id.contains("mini") || id.starts_with("gpt-3.5") {
            "low"
        } else if id.contains("pro") || id.starts_with("o1") {
            "high"
        } else {
            "medium"
        }
    });
    let supports_tools = if chat {
        known.map(|_| true)
    } else {
        Some(false)
    };
    Model {
        supports_tools,
        chat,
        context_window: known.map(|(_, tokens)| *tokens),
        price_class,
        ..Model::named(id)
    }
}

/// Whether it is a model of the vendor's, by its name.
pub(crate) fn is_known(id: &str) -> bool {
    WINDOWS
        .iter()
        .any(|(beginning, _)| id.starts_with(beginning))
}

/// Whether a model thinks, so that its encrypted thoughts have to be returned to it.
pub(crate) fn thinks(id: &str) -> bool {
    ["o1", "o3", "o4", "gpt-5"]
        .iter()
        .any(|beginning| id.starts_with(beginning))
        && !id.contains("chat")
}
