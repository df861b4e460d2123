//! What a turn of a model has cost, why it ended, and how full the context is.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model had no more to say, or waits for the results of its calls.
    Done,
    /// It ran into the most tokens that an answer may have.
    Length,
    /// The vendor or the model refused.
    Refused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(rename = "Usage"))]
pub struct TokenUsage {
    /// Tokens of the request, those of the vendor's cache among them.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Those of the request that were in the vendor's cache.
    pub cached_tokens: u64,
}

impl TokenUsage {
    /// Overwrites counts with those that a later report has.
    pub fn update(&mut self, later: TokenUsage) {
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
        self.cached_tokens = self.cached_tokens.max(later.cached_tokens);
    }

    /// Adds the tokens of another turn.
    pub fn add(&mut self, other: TokenUsage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }
}

/// How full the context is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// Tokens that the next request will have, without its answer.
    pub used_tokens: u64,
    /// Tokens that the model has room for.
    pub window: u64,
    /// The one by the other.
    pub share: f64,
}
