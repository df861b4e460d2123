//! How full the context is: one figure, used in events and for the loop's own decisions.

use crate::chunk::Usage;
use crate::message::{Message, Part};
use schemars::JsonSchema;
use serde::Serialize;

/// The context window if its size is unknown, in tokens: every current model has at least this.
pub const WINDOW_UNKNOWN: u64 = 32_768;
/// Bytes per token, estimated cautiously.
const BYTES_PER_TOKEN: u64 = 3;
/// Tokens of an image: the largest number that vendors count.
const IMAGE_TOKENS: u64 = 1_600;

/// How full the context is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// Tokens that the next request will have, without its answer.
    pub used_tokens: u64,
    /// Tokens that the model has room for.
    pub window: u64,
    /// The one by the other.
    pub share: f64,
}

/// Counts the tokens of the context.
#[derive(Debug)]
pub struct Budget {
    window: u64,
    /// Tokens reserved for the answer.
    reserve: u64,
    /// Tokens up to some message, as the vendor counted them.
    counted: u64,
    /// How many messages that count covers.
    messages: usize,
}

impl Budget {
    /// Nothing counted yet. Reserves `answer` tokens, but at most an eighth of the window.
    pub fn new(window: Option<u64>, answer: u32) -> Self {
        let window = window.unwrap_or(WINDOW_UNKNOWN);
        Self { window, reserve: u64::from(answer).min(window / 8), counted: 0, messages: 0 }
    }

    /// Stores the vendor's count up to the last of `messages`, its answer.
    pub fn count(&mut self, usage: Usage, messages: &[Message]) {
        let counted = usage.input_tokens.saturating_add(usage.output_tokens);
        // A missing count must not be taken as zero.
        if usage.input_tokens > 0 {
            (self.counted, self.messages) = (counted, messages.len());
        }
    }

    /// How full the context is with `messages`.
    pub fn context(&self, messages: &[Message]) -> Context {
        let rest = messages.get(self.messages..).unwrap_or_default();
        let used_tokens = self.counted.saturating_add(rest.iter().map(tokens).sum());
        Context { used_tokens, window: self.window, share: used_tokens as f64 / self.window.max(1) as f64 }
    }

    /// Whether there is no room for another round of calls.
    pub fn is_spent(&self, messages: &[Message]) -> bool {
        self.context(messages).used_tokens.saturating_add(self.reserve) >= self.window
    }

    /// Maximum bytes of each answer to one of `calls` calls, so that the model still has room for its own answer.
    pub fn bytes_per_answer(&self, messages: &[Message], calls: usize) -> usize {
        let used = self.context(messages).used_tokens;
        let free = self.window.saturating_sub(used).saturating_sub(self.reserve);
        let bytes = free.saturating_mul(BYTES_PER_TOKEN) / (calls.max(1) as u64);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// The estimated tokens of a message.
fn tokens(message: &Message) -> u64 {
    let bytes = |length: usize| (length as u64).div_ceil(BYTES_PER_TOKEN);
    match message {
        Message::User { text } => bytes(text.len()),
        Message::Assistant { parts } => parts
            .iter()
            .map(|part| match part {
                Part::Text { text } => bytes(text.len()),
                Part::Thinking { text, signature } => {
                    bytes(text.len() + signature.as_ref().map_or(0, String::len))
                }
                Part::Sealed { data, .. } => bytes(data.to_string().len()),
                Part::ToolCall(call) => bytes(call.name.len() + call.input.to_string().len()),
            })
            .sum(),
        Message::Tools { answers } => answers
            .iter()
            .map(|answer| bytes(answer.text.len()) + answer.image.as_ref().map_or(0, |_| IMAGE_TOKENS))
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendors_count_is_taken_and_what_came_since_is_guessed() {
        let mut messages = vec![Message::user("x".repeat(300))];
        let mut budget = Budget::new(Some(1000), 100);
        assert_eq!(budget.context(&messages).used_tokens, 100);
        messages.push(Message::Assistant { parts: vec![] });
        budget.count(Usage { input_tokens: 700, output_tokens: 50, cached_tokens: 0 }, &messages);
        assert_eq!(budget.context(&messages), Context { used_tokens: 750, window: 1000, share: 0.75 });
        assert!(!budget.is_spent(&messages));
        assert_eq!(budget.bytes_per_answer(&messages, 3), 150);
        messages.push(Message::user("x".repeat(450)));
        assert!(budget.is_spent(&messages));
        assert_eq!(budget.bytes_per_answer(&messages, 3), 0);
        // A vendor that reports no count changes nothing.
        budget.count(Usage::default(), &messages);
        assert_eq!(budget.context(&messages).used_tokens, 900);
    }
}
