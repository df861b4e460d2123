//! Scripts, and what is read of the messages that come of them.

use serde_json::{Value, json};

/// A script of turns; a turn is a text and its calls.
pub fn script(turns: &[(&str, &[(&str, Value)])]) -> Value {
    let turn = |(text, calls): &(&str, &[(&str, Value)])| {
        let call = |(name, input): &(&str, Value)| json!({"name": name, "input": input});
        let calls: Vec<Value> = calls.iter().map(call).collect();
        json!({"text": text, "toolCalls": calls})
    };
    json!({"turns": turns.iter().map(turn).collect::<Vec<_>>()})
}

/// The types of messages, one for each that comes several times in a row, each without what stands before its colon.
pub fn order(messages: &[Value]) -> Vec<String> {
    let word = |message: &Value| {
        let kind = message["type"].as_str().unwrap_or_default();
        kind.strip_prefix("chat:").unwrap_or(kind).to_owned()
    };
    let mut order: Vec<String> = messages.iter().map(word).collect();
    order.dedup();
    order
}

/// The payloads of the messages of a type.
pub fn payloads<'a>(messages: &'a [Value], kind: &str) -> Vec<&'a Value> {
    messages
        .iter()
        .filter(|message| message["type"] == kind)
        .map(|message| &message["payload"])
        .collect()
}
