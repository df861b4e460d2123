//! How full the context is: one figure, used in events and for the loop's own decisions.

use crate::chunk::TokenUsage;
use crate::message::{Message, MessagePart};
use crate::provider::ToolDefinition;
pub use orchestrator_wire::usage::Context;

/// The context window if its size is unknown, in tokens: every current model has at least this.
pub(crate) const WINDOW_UNKNOWN: u64 = 32_768;
/// Bytes per token, estimated cautiously.
const BYTES_PER_TOKEN: u64 = 3;
/// The largest window, in tokens, for which results are shown as to a model with a small context.
const WINDOW_SMALL: u64 = 32_768;
/// All answers of one turn get one part in this many of the room that is left, so that each turn leaves room for others.
const ROUNDS: u64 = 4;
/// Tokens of an image: the largest number that vendors count.
const IMAGE_TOKENS: u64 = 1_600;

/// Counts the tokens of the context.
#[derive(Debug)]
pub(crate) struct Budget {
    window: u64,
    /// Tokens reserved for the answer.
    reserve: u64,
    /// Tokens up to some message, as the vendor counted them.
    counted: u64,
    /// How many messages that count covers.
    messages: usize,
}

impl Budget {
    /// Nothing counted yet. Reserves `reserve` tokens, but at most half of the window; by default `answer`, at most an eighth.
    pub(crate) fn new(window: Option<u64>, answer: u32, reserve: Option<u32>) -> Self {
        let window = window.unwrap_or(WINDOW_UNKNOWN);
        let reserve = match reserve {
            Some(reserve) => u64::from(reserve).min(window / 2),
            None => u64::from(answer).min(window / 8),
        };
        Self {
            window,
            reserve,
            counted: 0,
            messages: 0,
        }
    }

    /// Counts the instructions and the tools, which each request has, as long as no vendor has.
    pub(crate) fn with_prompt(mut self, system: &str, tools: &[ToolDefinition]) -> Self {
        let tool = |tool: &ToolDefinition| {
            tokens_of(tool.name.len() + tool.description.len() + tool.schema.to_string().len())
        };
        self.counted = tokens_of(system.len()) + tools.iter().map(tool).sum::<u64>();
        self
    }

    /// Whether results must be brief so that several have room.
    pub(crate) fn is_small(&self) -> bool {
        self.window <= WINDOW_SMALL
    }

    /// Stores the vendor's count up to the last of `messages`, its answer.
    pub(crate) fn count(&mut self, usage: TokenUsage, messages: &[Message]) {
        let counted = usage.input_tokens.saturating_add(usage.output_tokens);
        // A missing count must not be taken as zero.
        if usage.input_tokens > 0 {
            (self.counted, self.messages) = (counted, messages.len());
        }
    }

    /// How full the context is with `messages`.
    pub(crate) fn context(&self, messages: &[Message]) -> Context {
        let rest = messages.get(self.messages..).unwrap_or_default();
        let used_tokens = self.counted.saturating_add(rest.iter().map(tokens).sum());
        Context {
            used_tokens,
            window: self.window,
            share: used_tokens as f64 / self.window.max(1) as f64,
        }
    }

    /// Whether there is no room for another round of calls.
    pub(crate) fn is_spent(&self, messages: &[Message]) -> bool {
        self.context(messages)
            .used_tokens
            .saturating_add(self.reserve)
            >= self.window
    }

    /// Maximum bytes of each answer to one of `calls` calls: together a share of the room that is left.
    pub(crate) fn bytes_per_answer(&self, messages: &[Message], calls: usize) -> usize {
        let used = self.context(messages).used_tokens;
        let free = self
            .window
            .saturating_sub(used)
            .saturating_sub(self.reserve);
        let bytes = (free / ROUNDS).saturating_mul(BYTES_PER_TOKEN) / (calls.max(1) as u64);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// The estimated tokens of a text with this many bytes.
fn tokens_of(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// The estimated tokens of a message.
fn tokens(message: &Message) -> u64 {
    let bytes = tokens_of;
    match message {
        Message::User { text } => bytes(text.len()),
        Message::Assistant { parts } => parts
            .iter()
            .map(|part| match part {
                MessagePart::Text { text } => bytes(text.len()),
                MessagePart::Thinking { text, signature } => {
                    bytes(text.len() + signature.as_ref().map_or(0, String::len))
                }
                MessagePart::Sealed { data, .. } => bytes(data.to_string().len()),
                MessagePart::ToolCall(call) => {
                    bytes(call.name.len() + call.input.to_string().len())
                }
            })
            .sum(),
        Message::Tools { answers } => answers
            .iter()
            .map(|answer| {
                bytes(answer.text.len()) + answer.image.as_ref().map_or(0, |_| IMAGE_TOKENS)
            })
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_count_is_the_vendors_plus_an_estimate_of_later_text() {
        let mut messages = vec![Message::user("x".repeat(300))];
        let mut budget = Budget::new(Some(1000), 100, None);
        assert_eq!(budget.context(&messages).used_tokens, 100);
        messages.push(Message::Assistant { parts: vec![] });
        budget.count(
            TokenUsage {
                input_tokens: 700,
                output_tokens: 50,
                cached_tokens: 0,
            },
            &messages,
        );
        assert_eq!(
            budget.context(&messages),
            Context {
                used_tokens: 750,
                window: 1000,
                share: 0.75
            }
        );
        assert!(!budget.is_spent(&messages));
        assert_eq!(budget.bytes_per_answer(&messages, 3), 37);
        messages.push(Message::user("x".repeat(450)));
        assert!(budget.is_spent(&messages));
        assert_eq!(budget.bytes_per_answer(&messages, 3), 0);
        // A vendor that reports no count changes nothing.
        budget.count(TokenUsage::default(), &messages);
        assert_eq!(budget.context(&messages).used_tokens, 900);
    }

    #[test]
    fn instructions_and_tools_count_until_the_vendor_has_counted() {
        let schema = serde_json::json!({});
        let tool = ToolDefinition {
            name: "t".repeat(10),
            description: "d".repeat(18),
            schema,
            runs_in_parallel: true,
        };
        let mut budget = Budget::new(Some(1000), 100, None).with_prompt(&"s".repeat(300), &[tool]);
        let messages = [Message::user("x".repeat(30))];
        assert_eq!(budget.context(&messages).used_tokens, 100 + 10 + 10);
        budget.count(
            TokenUsage {
                input_tokens: 50,
                output_tokens: 1,
                cached_tokens: 0,
            },
            &messages,
        );
        assert_eq!(budget.context(&messages).used_tokens, 51);
    }

    #[test]
    fn the_reserve_can_be_set_up_to_half_of_the_window() {
        let is_spent = |reserve, bytes: usize| {
            Budget::new(Some(1000), 100, reserve).is_spent(&[Message::user("x".repeat(bytes))])
        };
        assert_eq!(
            [is_spent(None, 2_697), is_spent(None, 2_700)],
            [false, true]
        );
        assert_eq!(
            [is_spent(Some(10), 2_967), is_spent(Some(10), 2_970)],
            [false, true]
        );
        assert_eq!(
            [is_spent(Some(5_000), 1_497), is_spent(Some(5_000), 1_500)],
            [false, true]
        );
    }
}
