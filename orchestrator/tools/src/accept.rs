//! Whether an input fits a schema of ours, in one pass and without a compiled schema: most inputs do. What does not, or uses a keyword
//! that our schemas have nowhere, goes to the validator, whose errors name the field.

use serde_json::{Map, Value};

/// A SHA-256 in hexadecimal digits.
pub(crate) const DIGEST: &str = "^[0-9a-fA-F]{64}$";
/// The key of an entry.
pub(crate) const KEY: &str = "^[A-Za-z0-9._-]{1,64}$";

/// Whether `schema` accepts `value`; `None` if only the validator can tell.
pub(crate) fn accepts(schema: &Value, value: &Value) -> Option<bool> {
    let Value::Object(schema) = schema else {
        return schema.as_bool();
    };
    all(schema.iter().map(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "title" | "description" | "default" => Some(true),
        "type" => has_type(rule.as_str()?, value),
        "enum" => is_one_of(rule.as_array()?, value),
        "const" => is_one_of(std::slice::from_ref(rule), value),
        "anyOf" => count(rule.as_array()?, value).map(|count| count > 0),
        "oneOf" => count(rule.as_array()?, value).map(|count| count == 1),
        "minimum" => integers(rule, value, |bound, number| number >= bound),
        "maximum" => integers(rule, value, |bound, number| number <= bound),
        "minLength" => length(value, rule, |bound, count| count >= bound),
        "maxLength" => length(value, rule, |bound, count| count <= bound),
        "minItems" => items(value, rule, |bound, count| count >= bound),
        "maxItems" => items(value, rule, |bound, count| count <= bound),
        "pattern" => matches(rule.as_str()?, value),
        "items" => all(value
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| accepts(rule, item))),
        "properties" => all(rule
            .as_object()?
            .iter()
            .filter_map(|(name, rule)| Some(accepts(rule, value.get(name)?)))),
        "required" => all(rule
            .as_array()?
            .iter()
            .map(|name| Some(!value.is_object() || value.get(name.as_str()?).is_some()))),
        "additionalProperties" => all(others(schema, value).map(|other| accepts(rule, other))),
        _ => None,
    }))
}

/// Whether all of them are true. One that is unknown makes the whole unknown: the validator then decides.
fn all(mut results: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    results.try_fold(true, |all, one| Some(all && one?))
}

/// The fields of `value` that `schema` does not name.
fn others<'v>(schema: &Map<String, Value>, value: &'v Value) -> impl Iterator<Item = &'v Value> {
    let named = schema.get("properties").and_then(Value::as_object);
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter(move |(name, _)| named.is_none_or(|named| !named.contains_key(*name)))
        .map(|(_, value)| value)
}

fn has_type(name: &str, value: &Value) -> Option<bool> {
    match name {
        "string" => Some(value.is_string()),
        "boolean" => Some(value.is_boolean()),
        "object" => Some(value.is_object()),
        "array" => Some(value.is_array()),
        "null" => Some(value.is_null()),
        "number" => Some(value.is_number()),
        // A fraction may still be a whole number.
        "integer" => (!value.is_f64()).then(|| value.is_number()),
        _ => None,
    }
}

/// Texts only: two numbers may be the same in different forms.
fn is_one_of(choices: &[Value], value: &Value) -> Option<bool> {
    let all_texts = choices.iter().all(Value::is_string);
    all_texts.then(|| choices.contains(value))
}

fn count(branches: &[Value], value: &Value) -> Option<usize> {
    branches.iter().try_fold(0, |count, branch| {
        Some(count + usize::from(accepts(branch, value)?))
    })
}

/// Compares whole numbers; a bound says nothing about other values.
fn integers(bound: &Value, value: &Value, fits: fn(i128, i128) -> bool) -> Option<bool> {
    if !value.is_number() {
        return Some(true);
    }
    Some(fits(integer(bound)?, integer(value)?))
}

fn integer(value: &Value) -> Option<i128> {
    value
        .as_u64()
        .map(i128::from)
        .or(value.as_i64().map(i128::from))
}

fn length(value: &Value, bound: &Value, fits: fn(usize, usize) -> bool) -> Option<bool> {
    let bound = usize::try_from(bound.as_u64()?).ok()?;
    Some(
        value
            .as_str()
            .is_none_or(|text| fits(bound, text.chars().count())),
    )
}

fn items(value: &Value, bound: &Value, fits: fn(usize, usize) -> bool) -> Option<bool> {
    let bound = usize::try_from(bound.as_u64()?).ok()?;
    Some(
        value
            .as_array()
            .is_none_or(|items| fits(bound, items.len())),
    )
}

/// The patterns of our schemas; a pattern says nothing about values that are no texts.
fn matches(pattern: &str, value: &Value) -> Option<bool> {
    let Some(text) = value.as_str() else {
        return Some(true);
    };
    match pattern {
        DIGEST => Some(text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
        KEY => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            Some((1..=64).contains(&text.len()) && text.bytes().all(is_plain))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::TOOLS;
    use serde_json::json;

    /// Values of every kind, at the bounds that schemas of ours have.
    fn values() -> Vec<Value> {
        let texts = [0, 1, 64, 65, 128, 129, 1000, 1001].map(|length| json!("a".repeat(length)));
        let numbers = [0, 1, 20, 21, 64, 65].map(|number| json!(number));
        let lists = [0, 1, 3].map(|length| json!(vec!["a"; length]));
        let others = [
            json!(null),
            json!(true),
            json!(-1),
            json!(1.5),
            json!(2.0),
            json!(u64::MAX),
            json!("ä b"),
            json!("weak"),
            json!({}),
            json!({"a": 1}),
            json!([[]]),
            json!([{"old": "a", "new": "b"}]),
            json!([""]),
            json!([{"key": "k", "content": "c", "status": "pending"}]),
            json!("f".repeat(64)),
        ];
        texts
            .into_iter()
            .chain(numbers)
            .chain(lists)
            .chain(others)
            .collect()
    }

    /// Accepts exactly what the validator accepts, for each tool and each of its fields.
    #[test]
    fn each_built_in_tool_accepts_what_its_schema_permits() {
        let (mut accepted, mut known, mut all) = (0, 0, 0);
        for tool in &TOOLS {
            let schema = &tool.to_json()["inputSchema"];
            let validator = jsonschema::draft202012::new(schema).unwrap();
            let mut inputs: Vec<Value> = values();
            let fields = schema["properties"].as_object().unwrap();
            for value in values() {
                for name in fields.keys().map(String::as_str).chain(["no_such_field"]) {
                    let mut input = json!({});
                    for required in schema["required"].as_array().into_iter().flatten() {
                        input[required.as_str().unwrap()] = json!("x");
                    }
                    input[name] = value.clone();
                    inputs.push(input);
                }
            }
            for input in inputs {
                let (ours, theirs) = (accepts(schema, &input), validator.is_valid(&input));
                assert!(
                    ours.is_none_or(|ours| ours == theirs),
                    "{}: {input}",
                    tool.name
                );
                all += 1;
                known += usize::from(ours.is_some());
                accepted += usize::from(ours == Some(true));
            }
        }
        assert!(
            accepted > 200 && known * 10 > all * 9,
            "{accepted} and {known} of {all}"
        );
    }
}
