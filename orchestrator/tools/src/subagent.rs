//! The question of the tool `subagent`: planned here, permitted by the executor, answered by a front end with models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool's name.
pub const SUBAGENT: &str = "subagent";

/// Has another model answer one question. It reads files and the web, knows nothing of this conversation, and its answer is all
/// that comes back.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subagent {
    /// The question, with all that is needed to answer it.
    #[schemars(length(min = 1, max = 20_000))]
    pub question: String,
    /// weak if absent: for looking up; strong for what needs thought.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["weak", "strong"]))]
    pub model_strength: ModelStrength,
}

/// Which of the user's models answers a subagent's question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelStrength {
    /// The one for looking up.
    #[default]
    Weak,
    /// The one for what needs thought.
    Strong,
}
