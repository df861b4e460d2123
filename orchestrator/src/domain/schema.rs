//! The input of tools that are not built in: whatever JSON Schema their maker wrote, checked by the `jsonschema` crate.
//!
//! A schema is a stranger's too. It is bounded, it is never fetched from anywhere, and its patterns run in linear time.

use super::field::{FieldError, shown};
use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use thiserror::Error;

/// Bytes of a schema as JSON.
pub const SCHEMA: usize = 64 << 10;
/// Bytes of a compiled pattern.
const PATTERN: usize = 1 << 20;
/// Bytes of a rule in an error message.
const RULE: usize = 200;

/// A schema that inputs can be checked against.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    length: usize,
    validator: Validator,
}

/// Why a schema is none.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// It is too long.
    #[error("a schema of {0} bytes; {SCHEMA} are allowed")]
    TooLong(usize),
    /// It does not describe an object.
    #[error("a tool's schema must have the type \"object\"")]
    NotAnObject,
    /// It refers to something outside, or around in a circle.
    #[error("a schema may refer only to its own `$defs`, and not in a circle")]
    Reference,
    /// It is not JSON Schema 2020-12.
    #[error("not a JSON Schema: {0}")]
    Invalid(String),
}

impl Schema {
    /// Takes a schema.
    pub fn new(value: Value) -> Result<Self, SchemaError> {
        let length = value.to_string().len();
        if length > SCHEMA {
            return Err(SchemaError::TooLong(length));
        }
        if value.get("type") != Some(&Value::from("object")) {
            return Err(SchemaError::NotAnObject);
        }
        if has_foreign_reference(&value) {
            return Err(SchemaError::Reference);
        }
        let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
        let options = jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(patterns);
        let validator = options.build(&value).map_err(|error| SchemaError::Invalid(rule(&error)))?;
        Ok(Self { value, length, validator })
    }

    /// The schema as it was given.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Its bytes as JSON.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Checks an input: of all that is wrong with it, what comes first in the order exists, required, types, values.
    pub fn check(&self, input: &Value) -> Result<(), FieldError> {
        if !input.is_object() {
            return Err(FieldError::NotAnObject(shown(input)));
        }
        match self.validator.iter_errors(input).min_by_key(rank) {
            None => Ok(()),
            Some(error) => Err(told(&error)),
        }
    }
}

/// `$ref` that leaves the schema, or that may lead to itself: everything but `#/$defs/NAME` with no further reference
/// right at its head.
fn has_foreign_reference(schema: &Value) -> bool {
    fn walk(value: &Value, root: &Value) -> bool {
        match value {
            Value::Object(fields) => fields.iter().any(|(name, value)| match (name.as_str(), value) {
                ("$ref", Value::String(target)) => !is_own(target, root),
                (
                    "$dynamicRef" | "$recursiveRef" | "$id" | "$anchor" | "$dynamicAnchor",
                    Value::String(_),
                ) => true,
                _ => walk(value, root),
            }),
            Value::Array(items) => items.iter().any(|item| walk(item, root)),
            _ => false,
        }
    }
    walk(schema, schema)
}

fn is_own(target: &str, root: &Value) -> bool {
    let Some(name) = target.strip_prefix("#/$defs/").filter(|name| !name.contains(['/', '~', '%'])) else {
        return false;
    };
    let Some(Value::Object(definition)) = root.get("$defs").and_then(|defs| defs.get(name)) else {
        return false;
    };
    // Keywords that are applied to the same value again would go round without an end.
    ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"]
        .iter()
        .all(|keyword| !definition.contains_key(*keyword))
}

fn rank(error: &ValidationError<'_>) -> u8 {
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { .. }
        | ValidationErrorKind::UnevaluatedProperties { .. }
        | ValidationErrorKind::FalseSchema => 0,
        ValidationErrorKind::Required { .. } => 1,
        ValidationErrorKind::Type { .. } => 2,
        _ => 3,
    }
}

/// Field, rule and value of an error, each bounded.
fn told(error: &ValidationError<'_>) -> FieldError {
    let at = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            FieldError::Missing(cut(&below(property.as_str().unwrap_or_default())))
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => FieldError::Unknown {
            name: cut(&below(unexpected.first().map_or("", String::as_str))),
            known: "those of its schema".to_owned(),
        },
        _ => {
            let name = if at.is_empty() { "input".to_owned() } else { cut(&at) };
            FieldError::Rule { name, rule: rule(error), found: shown(error.instance()) }
        }
    }
}

/// What is asked, without the value: that is shown by itself, and bounded.
fn rule(error: &ValidationError<'_>) -> String {
    cut(&error.masked_with("the value").to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(RULE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::new(json!({
            "type": "object",
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
                "kind": {"enum": ["a", "b"]},
                "list": {"type": "array", "items": {"type": "number"}, "maxItems": 2, "uniqueItems": true},
                "at": {"$ref": "#/$defs/point"},
                "one": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
                "ten": {"multipleOf": 10},
                "fix": {"const": 7},
            },
            "required": ["name"],
            "additionalProperties": false,
        }))
        .unwrap()
    }

    #[test]
    fn an_error_names_field_rule_and_value() {
        let cases = [
            (json!([]), "the input must be a JSON object, this is []"),
            (json!({}), "field `name`: required, and missing"),
            (json!({"name": "ab", "x": 1}), "field `x`: not a field here; there are those of its schema"),
            (json!({"name": 1}), "field `name`: the value is not of type \"string\", this is 1"),
            (json!({"name": "a"}), "field `name`: the value is shorter than 2 characters, this is \"a\""),
            (
                json!({"name": "abcde"}),
                "field `name`: the value is longer than 4 characters, this is \"abcde\"",
            ),
            (json!({"name": "AB"}), "field `name`: the value does not match \"^[a-z]+$\", this is \"AB\""),
            (
                json!({"name": "ab", "count": 0}),
                "field `count`: the value is less than the minimum of 1, this is 0",
            ),
            (
                json!({"name": "ab", "count": 10}),
                "field `count`: the value is greater than the maximum of 9, this is 10",
            ),
            (
                json!({"name": "ab", "count": 1.5}),
                "field `count`: the value is not of type \"integer\", this is 1.5",
            ),
            (
                json!({"name": "ab", "kind": "c"}),
                "field `kind`: the value is not one of \"a\" or \"b\", this is \"c\"",
            ),
            (
                json!({"name": "ab", "list": [1, "x"]}),
                "field `list.1`: the value is not of type \"number\", this is \"x\"",
            ),
            (
                json!({"name": "ab", "list": [1, 2, 3]}),
                "field `list`: the value has more than 2 items, this is [1,2,3]",
            ),
            (
                json!({"name": "ab", "list": [1, 1]}),
                "field `list`: the value has non-unique elements, this is [1,1]",
            ),
            (json!({"name": "ab", "at": {}}), "field `at.x`: required, and missing"),
            (
                json!({"name": "ab", "at": {"x": "y"}}),
                "field `at.x`: the value is not of type \"integer\", this is \"y\"",
            ),
            (
                json!({"name": "ab", "one": 1}),
                "field `one`: the value is not valid under any of the schemas listed in the 'oneOf' keyword, this is 1",
            ),
            (json!({"name": "ab", "ten": 15}), "field `ten`: the value is not a multiple of 10, this is 15"),
            (json!({"name": "ab", "fix": 8}), "field `fix`: 7 was expected, this is 8"),
        ];
        for (input, want) in cases {
            assert_eq!(schema().check(&input).unwrap_err().to_string(), want, "{input}");
        }
        assert_eq!(schema().check(&json!({"name": "ab", "count": 5.0, "at": {"x": 1}})), Ok(()));
    }

    #[test]
    fn existence_comes_before_presence_then_types_then_values() {
        let error = |input: Value| schema().check(&input).unwrap_err().to_string();
        assert!(error(json!({"x": 1, "count": "a"})).contains("`x`"));
        assert!(error(json!({"count": "a", "kind": "c"})).contains("`name`"));
        assert!(error(json!({"name": "A", "count": "a"})).contains("`count`"));
    }

    #[test]
    fn what_an_error_shows_is_bounded() {
        let long = schema().check(&json!({"name": "x".repeat(5000)})).unwrap_err().to_string();
        assert!(long.ends_with("this is a text of 5000 bytes"), "{long}");
        let name = schema().check(&json!({"name": "ab", "n".repeat(5000): 1})).unwrap_err().to_string();
        assert!(name.len() < 1000, "{name}");
    }

    #[test]
    fn a_strangers_schema_is_bounded_and_refers_to_nothing_outside() {
        let error = |extra: Value| {
            let mut schema = json!({"type": "object"});
            schema.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            Schema::new(schema).unwrap_err()
        };
        assert!(matches!(error(json!({"description": "x".repeat(SCHEMA)})), SchemaError::TooLong(_)));
        assert_eq!(Schema::new(json!({})).unwrap_err(), SchemaError::NotAnObject);
        assert_eq!(Schema::new(json!(true)).unwrap_err(), SchemaError::NotAnObject);
        for reference in [
            "http://127.0.0.1:1/x",
            "file:///etc/passwd",
            "#",
            "#/properties/a",
            "other.json",
            "#/$defs/none",
        ] {
            let properties = json!({"properties": {"a": {"$ref": reference}}});
            assert_eq!(error(properties), SchemaError::Reference, "{reference}");
        }
        let circle = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}});
        assert_eq!(error(circle), SchemaError::Reference);
        assert_eq!(error(json!({"$id": "http://x/"})), SchemaError::Reference);
        assert!(matches!(error(json!({"properties": 5})), SchemaError::Invalid(_)));
        let pattern = json!({"properties": {"a": {"pattern": "(a{1000}){1000}"}}});
        assert!(matches!(error(pattern), SchemaError::Invalid(_)));
        let backtracking = json!({"properties": {"a": {"pattern": "(a)\\1"}}});
        assert!(matches!(error(backtracking), SchemaError::Invalid(_)));
    }

    #[test]
    fn a_slow_pattern_is_not_slow() {
        let schema =
            Schema::new(json!({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})).unwrap();
        let input = json!({"a": format!("{}!", "a".repeat(50_000))});
        let start = std::time::Instant::now();
        assert!(schema.check(&input).is_err());
        assert!(start.elapsed().as_secs() < 5);
    }

    #[test]
    fn a_list_may_hold_itself_in_depth() {
        let tree = json!({"type": "object", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
            "properties": {"root": {"$ref": "#/$defs/node"}}});
        let schema = Schema::new(tree).unwrap();
        assert_eq!(schema.check(&json!({"root": {"next": {"next": {}}}})), Ok(()));
        assert!(schema.check(&json!({"root": {"next": {"next": 1}}})).is_err());
    }
}
