//! Checks inputs against JSON Schemas: those of our tools, generated from the structs of their inputs, and those that a client
//! wrote for its own tools.
//!
//! A client's schema is untrusted. It is bounded, nothing is fetched for it, its patterns are few and small and run in linear time,
//! and the number of steps for an input is computed before the first step. A server's schema is only passed on to the model: the
//! server checks its own input, so no pattern of a stranger's is compiled here.

use crate::accept::accepts;
use crate::input_error::{FieldError, excerpt};
use crate::schema_cost::{SchemaCost, TooComplex};
use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};
use std::sync::OnceLock;
use thiserror::Error;

/// Most bytes of a schema as JSON.
pub(crate) const SCHEMA_MAX: usize = 64 << 10;
/// Maximum size of a compiled pattern, in bytes.
const PATTERN_MAX: usize = 32 << 10;
/// Maximum number of patterns in a schema. Each keeps its compiled form and a cache of up to 32 KiB.
pub(crate) const PATTERNS_MAX: usize = 64;
/// Maximum number of steps to check one input.
const STEPS_MAX: u64 = 4_000_000;
/// Steps that a pattern counts for each [step of text](crate::schema_cost): at worst each byte takes one for each state of the
/// compiled pattern, and the largest has some thousands.
const PATTERN_STEPS: u64 = 512;
/// Maximum number of steps for which all errors are collected, to report the most important. An error takes a few hundred bytes.
const COLLECTED_MAX: u64 = 20_000;
/// Maximum characters of a rule in an error message.
const RULE_MAX: usize = 200;

/// A schema that inputs can be checked against.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    length: usize,
    checks: Checks,
}

/// How inputs are checked against a schema.
#[derive(Debug)]
enum Checks {
    /// Not: the server of the tool does it.
    ByServer,
    Foreign(Box<Checker>),
    /// By our own reading. The validator is compiled for the first input that this does not accept, to name what is wrong: it takes
    /// milliseconds, and few inputs are wrong.
    BuiltIn(OnceLock<Option<Box<Checker>>>),
}

#[derive(Debug)]
struct Checker {
    validator: Validator,
    /// How long a check takes.
    cost: SchemaCost,
    /// How many errors there can be.
    errors: SchemaCost,
}

/// Why a schema is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// It has more than [`SCHEMA_MAX`] bytes.
    #[error("a schema of {0} bytes; {SCHEMA_MAX} are allowed")]
    TooLong(usize),
    /// It does not describe an object.
    #[error("a tool's schema must have the type \"object\"")]
    NotAnObject,
    /// It refers to something outside, or in a circle.
    #[error("a schema may refer only to its own `$defs`, and not in a circle")]
    Reference,
    /// The cost of checking an input cannot be computed in few steps.
    #[error("a schema with too many parts that refer to each other")]
    TooComplex,
    /// It has more than [`PATTERNS_MAX`] patterns.
    #[error("a schema with {0} patterns; {PATTERNS_MAX} are allowed")]
    Patterns(usize),
    /// It is not JSON Schema 2020-12.
    #[error("not a JSON Schema: {0}")]
    Invalid(String),
}

impl Schema {
    /// Compiles a schema, to check inputs against it.
    ///
    /// # Errors
    /// See [`SchemaError`].
    pub fn new(value: Value) -> Result<Self, SchemaError> {
        let length = bounded(&value)?;
        if has_foreign_reference(&value) {
            return Err(SchemaError::Reference);
        }
        let patterns = patterns(&value);
        if patterns > PATTERNS_MAX {
            return Err(SchemaError::Patterns(patterns));
        }
        let checker = Checker::compile(&value, PATTERN_STEPS)?;
        Ok(Self {
            value,
            length,
            checks: Checks::Foreign(Box::new(checker)),
        })
    }

    /// The schema of a built-in tool.
    ///
    /// # Errors
    /// [`SchemaError::TooLong`] and [`SchemaError::NotAnObject`].
    pub(crate) fn built_in(value: Value) -> Result<Self, SchemaError> {
        let length = bounded(&value)?;
        Ok(Self {
            value,
            length,
            checks: Checks::BuiltIn(OnceLock::new()),
        })
    }

    /// Takes the schema of a server's tool, which inputs are not checked against.
    ///
    /// # Errors
    /// [`SchemaError::TooLong`], [`SchemaError::NotAnObject`], and [`SchemaError::Invalid`], as model vendors refuse a whole
    /// request for one schema that is not valid.
    pub fn of_server(value: Value) -> Result<Self, SchemaError> {
        let length = bounded(&value)?;
        let valid = jsonschema::draft202012::meta::validate(&value);
        valid.map_err(|error| SchemaError::Invalid(masked(&error)))?;
        Ok(Self {
            value,
            length,
            checks: Checks::ByServer,
        })
    }

    /// The schema as it was given.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Its bytes as JSON.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Checks an input.
    ///
    /// # Errors
    /// The first of all errors, in this order: unknown fields, missing fields, types, values.
    pub fn check(&self, input: &Value) -> Result<(), FieldError> {
        if !input.is_object() {
            return Err(FieldError::NotAnObject(excerpt(input)));
        }
        let checker = match &self.checks {
            Checks::ByServer => return Ok(()),
            Checks::Foreign(checker) => checker,
            Checks::BuiltIn(_) if accepts(&self.value, input) == Some(true) => return Ok(()),
            // Their patterns cost no more than reading the text.
            Checks::BuiltIn(checker) => checker
                .get_or_init(|| Checker::compile(&self.value, 1).ok().map(Box::new))
                .as_ref()
                .ok_or_else(|| rule("expected a schema that can be compiled", input))?,
        };
        let Checker {
            validator,
            cost,
            errors,
        } = &**checker;
        if cost.of(input) > STEPS_MAX {
            return Err(rule(
                "expected less: this schema would take too many steps to check it",
                input,
            ));
        }
        if validator.is_valid(input) {
            return Ok(());
        }
        let error = match errors.of(input) {
            ..=COLLECTED_MAX => validator.iter_errors(input).min_by_key(rank),
            // All errors of each branch would be collected.
            _ if errors.branches() => {
                return Err(rule(
                    "expected something that matches the tool's schema",
                    input,
                ));
            }
            _ => validator.validate(input).err(),
        };
        error.map_or(Ok(()), |error| Err(self.field_error(&error, input)))
    }

    /// Path, rule and value of an error, each with bounded length.
    fn field_error(&self, error: &ValidationError<'_>, input: &Value) -> FieldError {
        let at = path(error.instance_path().as_str());
        let parent = if at.is_empty() {
            String::new()
        } else {
            format!("{at}.")
        };
        // The schema of the invalid value: the keyword is the last part of the error's own location.
        let place = error.schema_path().as_str();
        let schema = place
            .rsplit_once('/')
            .and_then(|(schema, _)| self.value.pointer(schema));
        let known = || {
            let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
            properties
                .into_iter()
                .flat_map(|names| names.keys().cloned())
                .collect()
        };
        match error.kind() {
            ValidationErrorKind::Required { property } => FieldError::Missing(cut(&format!(
                "{parent}{}",
                property.as_str().unwrap_or_default()
            ))),
            ValidationErrorKind::AdditionalProperties { unexpected } => FieldError::unknown(
                &cut(&parent),
                unexpected.first().map_or("", String::as_str),
                known(),
            ),
            // An object that may have no fields at all.
            ValidationErrorKind::FalseSchema if place.ends_with("/additionalProperties") => {
                let fields = input
                    .pointer(error.instance_path().as_str())
                    .and_then(Value::as_object);
                let first = fields.and_then(|fields| fields.keys().next());
                FieldError::unknown(&cut(&parent), first.map_or("", String::as_str), known())
            }
            _ => {
                let name = if at.is_empty() {
                    "input".to_owned()
                } else {
                    cut(&at)
                };
                let expected = schema
                    .and_then(describe)
                    .map(|expected| format!("expected {}", cut(&expected)));
                let rule = expected.unwrap_or_else(|| masked(error));
                FieldError::Rule {
                    name,
                    rule,
                    found: excerpt(error.instance()),
                }
            }
        }
    }
}

impl Checker {
    /// Compiles a schema; a step of a pattern counts as `pattern_steps`.
    fn compile(value: &Value, pattern_steps: u64) -> Result<Self, SchemaError> {
        let cost = |pattern_steps| {
            SchemaCost::new(value, pattern_steps).map_err(|TooComplex| SchemaError::TooComplex)
        };
        let (cost, errors) = (cost(pattern_steps)?, cost(1)?);
        let patterns = PatternOptions::regex()
            .size_limit(PATTERN_MAX)
            .dfa_size_limit(PATTERN_MAX);
        let options = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(patterns);
        let validator = options
            .build(value)
            .map_err(|error| SchemaError::Invalid(masked(&error)))?;
        Ok(Self {
            validator,
            cost,
            errors,
        })
    }
}

/// The bytes of a schema, if it is not too long and describes an object.
fn bounded(schema: &Value) -> Result<usize, SchemaError> {
    let length = schema.to_string().len();
    if length > SCHEMA_MAX {
        return Err(SchemaError::TooLong(length));
    }
    if schema.get("type") != Some(&Value::from("object")) {
        return Err(SchemaError::NotAnObject);
    }
    Ok(length)
}

/// How many patterns a schema may have compiled, counted wherever the keywords stand.
fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(keyword, value)| {
                let own = match (keyword.as_str(), value) {
                    ("pattern", Value::String(_)) => 1,
                    ("patternProperties", Value::Object(map)) => map.len(),
                    _ => 0,
                };
                own + patterns(value)
            })
            .sum(),
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// An error about the whole input.
fn rule(rule: &str, input: &Value) -> FieldError {
    FieldError::Rule {
        name: "input".into(),
        rule: rule.into(),
        found: excerpt(input),
    }
}

/// `edits[1].old` for the JSON pointer `/edits/1/old`.
fn path(pointer: &str) -> String {
    pointer
        .split('/')
        .skip(1)
        .fold(String::new(), |path, part| match part.parse::<usize>() {
            Ok(index) => format!("{path}[{index}]"),
            Err(_) if path.is_empty() => part.to_owned(),
            Err(_) => format!("{path}.{part}"),
        })
}

/// Describes in words what a schema accepts; `None` if it is too complex for that.
fn describe(schema: &Value) -> Option<String> {
    const DESCRIBED: [&str; 14] = [
        "type",
        "enum",
        "anyOf",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "pattern",
        "items",
        "properties",
        "description",
        "default",
    ];
    let fields = schema.as_object()?;
    let other = ["required", "additionalProperties", "title", "oneOf"];
    if !fields
        .keys()
        .all(|name| DESCRIBED.contains(&name.as_str()) || other.contains(&name.as_str()))
    {
        return None;
    }
    // An enumeration whose values have descriptions is a list of schemas.
    if let Some(Value::Array(choices)) = fields.get("enum").or_else(|| fields.get("oneOf")) {
        let value = |one: &Value| {
            one.get("const")
                .or(Some(one).filter(|one| !one.is_object()))
                .map(plain)
        };
        let values = choices.iter().map(value).collect::<Option<Vec<_>>>()?;
        return Some(format!("one of {}", values.join(", ")));
    }
    if let Some(Value::Array(either)) = fields.get("anyOf") {
        let either = either.iter().map(describe).collect::<Option<Vec<_>>>()?;
        return Some(either.join(" or "));
    }
    describe_type(fields)
}

/// Describes a schema with one type.
fn describe_type(fields: &Map<String, Value>) -> Option<String> {
    let range = |min: &str, max: &str| (fields.get(min).map(plain), fields.get(max).map(plain));
    match fields.get("type")?.as_str()? {
        "string" => match (fields.get("pattern"), range("minLength", "maxLength")) {
            (Some(pattern), _) => Some(format!("a string that matches {}", plain(pattern))),
            (None, (None, None)) => Some("a string".into()),
            (None, lengths) => Some(format!("a string of {} characters", between(lengths, "to"))),
        },
        "integer" => Some(match range("minimum", "maximum") {
            (None, None) => "an integer".to_owned(),
            (Some(min), None) => format!("an integer of at least {min}"),
            bounds => format!("an integer from {}", between(bounds, "to")),
        }),
        "number" => Some("a number".into()),
        "boolean" => Some("true or false".into()),
        "object" => Some(
            fields
                .get("properties")
                .and_then(sole)
                .and_then(|(name, field)| Some(format!("{{{name}: {}}}", describe(field)?)))
                .unwrap_or_else(|| "an object".into()),
        ),
        "array" => {
            let things = match fields
                .get("items")
                .and_then(|items| items.get("type")?.as_str())
            {
                Some("object") => "objects",
                Some("string") => "strings",
                _ => "values",
            };
            Some(match range("minItems", "maxItems") {
                (None, None) => format!("an array of {things}"),
                bounds => format!("an array of {} {things}", between(bounds, "to")),
            })
        }
        _ => None,
    }
}

/// The only property of an object.
fn sole(properties: &Value) -> Option<(&String, &Value)> {
    let mut properties = properties.as_object()?.iter();
    properties.next().filter(|_| properties.next().is_none())
}

fn between(bounds: (Option<String>, Option<String>), word: &str) -> String {
    match bounds {
        (Some(min), Some(max)) => format!("{min} {word} {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, max) => format!("at most {}", max.unwrap_or_default()),
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether a `$ref` leaves the schema or may lead to itself: anything but `#/$defs/NAME` without another reference at the start of
/// that definition.
fn has_foreign_reference(schema: &Value) -> bool {
    fn walk(value: &Value, root: &Value) -> bool {
        match value {
            Value::Object(fields) => {
                fields
                    .iter()
                    .any(|(name, value)| match (name.as_str(), value) {
                        ("$ref", Value::String(target)) => !is_own(target, root),
                        (
                            "$dynamicRef" | "$recursiveRef" | "$id" | "$anchor" | "$dynamicAnchor",
                            Value::String(_),
                        ) => true,
                        _ => walk(value, root),
                    })
            }
            Value::Array(items) => items.iter().any(|item| walk(item, root)),
            _ => false,
        }
    }
    walk(schema, schema)
}

fn is_own(target: &str, root: &Value) -> bool {
    let Some(name) = target
        .strip_prefix("#/$defs/")
        .filter(|name| !name.contains(['/', '~', '%']))
    else {
        return false;
    };
    let Some(Value::Object(definition)) = root.get("$defs").and_then(|defs| defs.get(name)) else {
        return false;
    };
    // Keywords that apply to the same value again would recurse without end.
    [
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
    ]
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

/// The rule in the validator's words, without the value, which is shown separately and bounded.
fn masked(error: &ValidationError<'_>) -> String {
    cut(&error.masked_with("the value").to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(RULE_MAX) {
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
                "each": {"oneOf": [{"const": "a", "description": "A."}, {"const": "b"}]},
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
            (json!({}), "missing field `name`"),
            (
                json!({"name": "ab", "x": 1}),
                "unknown field `x`, expected one of `name`, `count`, `kind`, `list`, `at`, `one`, `each`, `ten`, `fix`",
            ),
            (
                json!({"name": 1}),
                "field `name`: expected a string that matches ^[a-z]+$, this is 1",
            ),
            (
                json!({"name": "a"}),
                "field `name`: expected a string that matches ^[a-z]+$, this is \"a\"",
            ),
            (
                json!({"name": "abcde"}),
                "field `name`: expected a string that matches ^[a-z]+$, this is \"abcde\"",
            ),
            (
                json!({"name": "AB"}),
                "field `name`: expected a string that matches ^[a-z]+$, this is \"AB\"",
            ),
            (
                json!({"name": "ab", "each": "c"}),
                "field `each`: expected one of a, b, this is \"c\"",
            ),
            (
                json!({"name": "ab", "count": 0}),
                "field `count`: expected an integer from 1 to 9, this is 0",
            ),
            (
                json!({"name": "ab", "count": 10}),
                "field `count`: expected an integer from 1 to 9, this is 10",
            ),
            (
                json!({"name": "ab", "count": 1.5}),
                "field `count`: expected an integer from 1 to 9, this is 1.5",
            ),
            (
                json!({"name": "ab", "kind": "c"}),
                "field `kind`: expected one of a, b, this is \"c\"",
            ),
            (
                json!({"name": "ab", "list": [1, "x"]}),
                "field `list[1]`: expected a number, this is \"x\"",
            ),
            (
                json!({"name": "ab", "list": [1, 2, 3]}),
                "field `list`: the value has more than 2 items, this is [1,2,3]",
            ),
            (
                json!({"name": "ab", "list": [1, 1]}),
                "field `list`: the value has non-unique elements, this is [1,1]",
            ),
            (json!({"name": "ab", "at": {}}), "missing field `at.x`"),
            (
                json!({"name": "ab", "at": {"x": "y"}}),
                "field `at.x`: expected an integer, this is \"y\"",
            ),
            (
                json!({"name": "ab", "one": 1}),
                "field `one`: the value is not valid under any of the schemas listed in the 'oneOf' keyword, this is 1",
            ),
            (
                json!({"name": "ab", "ten": 15}),
                "field `ten`: the value is not a multiple of 10, this is 15",
            ),
            (
                json!({"name": "ab", "fix": 8}),
                "field `fix`: 7 was expected, this is 8",
            ),
        ];
        for (input, want) in cases {
            assert_eq!(
                schema().check(&input).unwrap_err().to_string(),
                want,
                "{input}"
            );
        }
        assert_eq!(
            schema().check(&json!({"name": "ab", "count": 5.0, "at": {"x": 1}})),
            Ok(())
        );
    }

    #[test]
    fn existence_comes_before_presence_then_types_then_values() {
        let error = |input: Value| schema().check(&input).unwrap_err().to_string();
        assert!(error(json!({"x": 1, "count": "a"})).contains("`x`"));
        assert!(error(json!({"count": "a", "kind": "c"})).contains("`name`"));
        assert!(error(json!({"name": "A", "count": "a"})).contains("`count`"));
    }

    #[test]
    fn schema_errors_are_limited() {
        let long = schema()
            .check(&json!({"name": "x".repeat(5000)}))
            .unwrap_err()
            .to_string();
        assert!(long.ends_with("this is a string of 5000 bytes"), "{long}");
        let name = schema()
            .check(&json!({"name": "ab", "n".repeat(5000): 1}))
            .unwrap_err()
            .to_string();
        assert!(name.len() < 1000, "{name}");
    }

    #[test]
    fn a_strangers_schema_is_bounded_and_refers_to_nothing_outside() {
        let error = |extra: Value| {
            let mut schema = json!({"type": "object"});
            schema
                .as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            Schema::new(schema).unwrap_err()
        };
        assert!(matches!(
            error(json!({"description": "x".repeat(SCHEMA_MAX)})),
            SchemaError::TooLong(_)
        ));
        assert_eq!(
            Schema::new(json!({})).unwrap_err(),
            SchemaError::NotAnObject
        );
        assert_eq!(
            Schema::new(json!(true)).unwrap_err(),
            SchemaError::NotAnObject
        );
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
        assert!(matches!(
            error(json!({"properties": 5})),
            SchemaError::Invalid(_)
        ));
        let pattern = json!({"properties": {"a": {"pattern": "(a{1000}){1000}"}}});
        assert!(matches!(error(pattern), SchemaError::Invalid(_)));
        let backtracking = json!({"properties": {"a": {"pattern": "(a)\\1"}}});
        assert!(matches!(error(backtracking), SchemaError::Invalid(_)));
    }

    #[test]
    fn a_slow_pattern_is_not_slow() {
        let schema =
            Schema::new(json!({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}))
                .unwrap();
        let input = json!({"a": format!("{}!", "a".repeat(50_000))});
        let start = std::time::Instant::now();
        assert!(schema.check(&input).is_err());
        assert!(start.elapsed().as_secs() < 5);
    }

    #[test]
    fn patterns_of_everyday_schemas_compile() {
        for pattern in [
            r"^\w+@\w+\.\w+$",
            r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
            r"^\d{4}-\d{2}-\d{2}$",
            r"^[\w.-]{1,64}$",
        ] {
            let schema = json!({"type": "object", "properties": {"a": {"pattern": pattern}}});
            assert!(Schema::new(schema).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn patterns_are_bounded_in_number_size_and_work() {
        let with = |pattern: &str, number: usize| {
            let choices: Vec<_> = (0..number)
                .map(|n| json!({"pattern": format!("{pattern}{n}")}))
                .collect();
            Schema::new(json!({"type": "object", "properties": {"a": {"anyOf": choices}}}))
        };
        assert!(with("x", PATTERNS_MAX).is_ok());
        assert_eq!(
            with("x", PATTERNS_MAX + 1).unwrap_err(),
            SchemaError::Patterns(PATTERNS_MAX + 1)
        );
        assert!(matches!(
            with(r"[\x80-\u{10ffff}]{1,400}", 1),
            Err(SchemaError::Invalid(_))
        ));
        let texts = |bytes: usize| json!({"a": "ж".repeat(bytes / 2)});
        let heavy = with("[a-d].{30}|^x", 12).unwrap();
        let error = heavy.check(&texts(60_000)).unwrap_err().to_string();
        assert!(error.contains("too many steps"), "{error}");
        assert!(
            heavy
                .check(&texts(2_000))
                .unwrap_err()
                .to_string()
                .contains("anyOf")
        );
    }

    /// 1,000 patterns of a megabyte each would take seconds and gigabytes.
    #[test]
    fn a_servers_patterns_are_not_compiled() {
        let many: serde_json::Map<_, _> = (0..1000)
            .map(|n| (format!("p{n}"), json!({"pattern": r"\w{1,60}x"})))
            .collect();
        let before = peak_memory();
        let schema = Schema::of_server(json!({"type": "object", "properties": many})).unwrap();
        assert_eq!(
            schema.check(&json!({"p0": 1, "other": "x".repeat(100_000)})),
            Ok(())
        );
        assert!(schema.check(&json!([])).is_err());
        assert!(
            peak_memory() - before < 32 << 10,
            "{} KiB more",
            peak_memory() - before
        );
        assert!(matches!(
            Schema::of_server(json!({"type": "object", "properties": 5})),
            Err(SchemaError::Invalid(_))
        ));
        assert_eq!(
            Schema::of_server(json!({})).unwrap_err(),
            SchemaError::NotAnObject
        );
        let long = json!({"type": "object", "description": "x".repeat(SCHEMA_MAX)});
        assert!(matches!(
            Schema::of_server(long),
            Err(SchemaError::TooLong(_))
        ));
    }

    #[test]
    fn a_list_may_hold_itself_in_depth() {
        let tree = json!({"type": "object", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
            "properties": {"root": {"$ref": "#/$defs/node"}}});
        let schema = Schema::new(tree).unwrap();
        assert_eq!(
            schema.check(&json!({"root": {"next": {"next": {}}}})),
            Ok(())
        );
        assert!(
            schema
                .check(&json!({"root": {"next": {"next": 1}}}))
                .is_err()
        );
    }

    /// Each level of the input is checked twice by the level above it.
    #[test]
    fn references_below_combinators_take_so_many_steps_and_no_more() {
        let node = json!({"type": "object", "properties": {
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"allOf": [{"$ref": "#/$defs/node"}]}]}, "end": {"type": "null"}}});
        let doubling = json!({"type": "object", "$defs": {"node": node}, "properties": {"root": {"$ref": "#/$defs/node"}}});
        let doubling = Schema::new(doubling).unwrap();
        let nested = |depth: usize, end: Value| json!({"root": (0..depth).fold(json!({"end": end}), |inner, _| json!({"next": inner}))});
        assert_eq!(doubling.check(&nested(5, Value::Null)), Ok(()));
        assert!(
            doubling
                .check(&nested(5, json!(1)))
                .unwrap_err()
                .to_string()
                .contains("anyOf")
        );
        let begun = std::time::Instant::now();
        for depth in [20, 30, 100] {
            let error = doubling
                .check(&nested(depth, json!(1)))
                .unwrap_err()
                .to_string();
            assert!(error.contains("too many steps"), "{depth}: {error}");
        }
        // Without a combinator the same depth is cheap, in both branches.
        let tree = json!({"type": "object", "$defs": {"node": {"type": "object", "properties": {
            "next": {"$ref": "#/$defs/node"}, "other": {"$ref": "#/$defs/node"}, "end": {"type": "null"}}}},
            "properties": {"root": {"$ref": "#/$defs/node"}}});
        let tree = Schema::new(tree).unwrap();
        assert_eq!(tree.check(&nested(100, Value::Null)), Ok(()));
        assert!(tree.check(&nested(100, json!(1))).is_err());
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn chains_of_definitions_do_not_double_with_each_link() {
        let link = |n: usize| {
            let next = format!("#/$defs/d{}", n + 1);
            (
                format!("d{n}"),
                json!({"properties": {"a": {"anyOf": [{"$ref": next}, {"$ref": next}]}, "b": {"$ref": next}}}),
            )
        };
        let mut defs: serde_json::Map<_, _> = (0..40).map(link).collect();
        defs.insert("d40".into(), json!({"type": "null"}));
        let begun = std::time::Instant::now();
        let schema = Schema::new(
            json!({"type": "object", "$defs": defs, "properties": {"a": {"$ref": "#/$defs/d0"}}}),
        );
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
        let deep = (0..40).fold(json!(1), |inner, _| json!({"a": inner}));
        assert!(schema.is_ok_and(|schema| schema.check(&deep).is_err()));
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn one_schema_error_of_many_is_reported() {
        let items = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}});
        let input = json!({"a": vec![1; 1_000_000]});
        let error = Schema::new(items.clone())
            .unwrap()
            .check(&input)
            .unwrap_err()
            .to_string();
        assert!(error.contains("a[0]"), "{error}");
        let either = json!({"type": "object", "anyOf": [items, {"required": ["b"]}]});
        let before = peak_memory();
        let error = Schema::new(either)
            .unwrap()
            .check(&input)
            .unwrap_err()
            .to_string();
        assert!(error.contains("matches the tool's schema"), "{error}");
        assert!(
            peak_memory() - before < 64 << 10,
            "{} KiB more",
            peak_memory() - before
        );
        let choices: Vec<u32> = (0..5000).collect();
        let large = json!({"type": "object", "properties": {"a": {"items": {"enum": choices}}}});
        let error = Schema::new(large)
            .unwrap()
            .check(&input)
            .unwrap_err()
            .to_string();
        assert!(error.contains("too many steps"), "{error}");
    }

    /// The peak memory of this process, in KiB.
    #[allow(clippy::disallowed_methods)] // A test may read what it likes.
    fn peak_memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}
