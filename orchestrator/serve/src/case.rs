//! The case of names on the wire. Lazaret writes `toolId`; older clients expect `tool_id`. Both are understood.
//!
//! Only our own names are converted: names chosen by a model, a tool or a client stay as they are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How to write names on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireCase {
    /// `toolId`, as everything of ours.
    #[default]
    Camel,
    /// `tool_id`, for clients that expect it.
    Snake,
}

/// Fields of a payload that are objects with names of ours.
const NESTED: [&str; 3] = ["usage", "context", "error"];

impl WireCase {
    /// The case in which a client has written the names of a payload, if one of them tells.
    pub fn of(payload: &Value) -> Option<Self> {
        let names = payload.as_object()?;
        let has = |is: fn(char) -> bool| names.keys().any(|name| name.chars().skip(1).any(is));
        if has(|letter| letter == '_') {
            Some(Self::Snake)
        } else {
            has(|letter| letter.is_ascii_uppercase()).then_some(Self::Camel)
        }
    }

    /// A name of ours in this case.
    pub fn name(self, camel: &str) -> String {
        match self {
            Self::Camel => camel.to_owned(),
            Self::Snake => to_snake(camel),
        }
    }

    /// The schema of a payload, with its names in this case.
    pub fn schema(self, mut schema: Value) -> Value {
        if let Some(fields) = schema["properties"].as_object_mut() {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, field)| (self.name(&name), field))
                .collect();
        }
        if let Some(required) = schema["required"].as_array_mut() {
            for name in required {
                *name = self.name(name.as_str().unwrap_or_default()).into();
            }
        }
        schema
    }

    /// Converts the payload of an event for sending.
    pub fn write(self, payload: Value) -> Value {
        match (self, payload) {
            (Self::Snake, Value::Object(fields)) => {
                Value::Object(fields.into_iter().map(renamed).collect())
            }
            (_, payload) => payload,
        }
    }
}

fn renamed((name, value): (String, Value)) -> (String, Value) {
    let value = if NESTED.contains(&name.as_str()) {
        WireCase::Snake.write(value)
    } else {
        value
    };
    (to_snake(&name), value)
}

fn to_snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Converts a client's payload to the names that we write.
///
/// # Errors
/// A name that occurs in both cases: another reader could use the other value.
pub(crate) fn read(payload: Value) -> Result<Value, String> {
    let Value::Object(fields) = payload else {
        return Ok(payload);
    };
    let mut read = Map::new();
    for (name, value) in fields {
        let camel = to_camel(&name);
        if read.insert(camel.clone(), value).is_some() {
            return Err(camel);
        }
    }
    Ok(Value::Object(read))
}

fn to_camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut raise = false;
    for letter in name.chars() {
        match letter {
            '_' if !camel.is_empty() => raise = true,
            letter if raise => {
                camel.push(letter.to_ascii_uppercase());
                raise = false;
            }
            letter => camel.push(letter),
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_of_ours_change_and_those_of_others_stay() {
        let payload =
            json!({"toolId": "t", "input": {"maxResults": 1}, "usage": {"inputTokens": 2}});
        let want =
            json!({"tool_id": "t", "input": {"maxResults": 1}, "usage": {"input_tokens": 2}});
        assert_eq!(WireCase::Snake.write(payload.clone()), want);
        assert_eq!(WireCase::Camel.write(payload.clone()), payload);
        let given =
            json!({"conversation_id": "c", "history": [{"tool_call_id": 1}], "toolId": "t"});
        let want = json!({"conversationId": "c", "history": [{"tool_call_id": 1}], "toolId": "t"});
        assert_eq!(read(given), Ok(want));
        for twice in [
            json!({"toolId": 1, "tool_id": 2}),
            json!({"tool_id": 1, "tool__id": 1}),
        ] {
            assert_eq!(read(twice), Err("toolId".to_owned()));
        }
    }
}
