//! The fields of a tool's input: one table gives both the schema that the model reads and the check of what it sends,
//! so the two cannot differ.

use serde_json::{Map, Value, json};
use thiserror::Error;

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text.
    Text,
    /// A text that names a place in one of the zones.
    Path,
    /// A whole number between two bounds.
    Whole {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// True or false.
    Flag,
    /// A text for the shell, or a list of texts for a program.
    Command,
    /// A SHA-256 digest in hexadecimal.
    Digest,
    /// A list of objects.
    List {
        /// The fields of each.
        fields: &'static [Field],
        /// How many there may be; at least one.
        most: usize,
    },
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The canonical name.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it may hold.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// For the model: what it means.
    pub about: &'static str,
}

impl Field {
    /// A field that must be there.
    pub const fn must(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, aliases: &[], kind, required: true, about }
    }

    /// A field that may be there.
    pub const fn may(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, aliases: &[], kind, required: false, about }
    }

    /// The same field, with other names.
    pub const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// What is wrong with an input.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The input is something else.
    #[error("the input must be a JSON object, this is {0}")]
    NotAnObject(String),
    /// No such field.
    #[error("field `{name}`: not a field here; there are {known}")]
    Unknown {
        /// Its name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// It is not there.
    #[error("field `{0}`: required, and missing")]
    Missing(String),
    /// It is there under two names.
    #[error("field `{0}`: given twice, under two of its names")]
    Twice(String),
    /// Its value breaks a rule.
    #[error("field `{name}`: {rule}, this is {found}")]
    Rule {
        /// Its name.
        name: String,
        /// The rule.
        rule: String,
        /// The value.
        found: String,
    },
}

/// Input that was checked against its fields: canonical names only, and each value of its kind.
#[derive(Debug, Default)]
pub struct Input(Map<String, Value>);

impl Input {
    /// Checks `values` against `fields`. A field that is `null` counts as absent: models often send it so.
    pub fn check(fields: &[Field], values: Value) -> Result<Self, FieldError> {
        Self::check_below("", fields, values)
    }

    fn check_below(above: &str, fields: &[Field], values: Value) -> Result<Self, FieldError> {
        let Value::Object(values) = values else { return Err(FieldError::NotAnObject(shown(&values))) };
        let mut checked = Map::new();
        for (name, value) in values {
            let Some(field) = fields.iter().find(|field| field.answers_to(&name)) else {
                return Err(FieldError::Unknown { name: format!("{above}{name}"), known: names(fields) });
            };
            if value.is_null() {
                continue;
            }
            let full = format!("{above}{}", field.name);
            let value = field.kind.check(&full, value)?;
            if checked.insert(field.name.to_owned(), value).is_some() {
                return Err(FieldError::Twice(full));
            }
        }
        match fields.iter().find(|field| field.required && !checked.contains_key(field.name)) {
            Some(field) => Err(FieldError::Missing(format!("{above}{}", field.name))),
            None => Ok(Self(checked)),
        }
    }

    /// Takes a text.
    pub fn text(&mut self, name: &str) -> Option<String> {
        match self.0.remove(name)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number.
    pub fn whole(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    /// A whole number whose kind keeps it in 32 bits.
    pub fn small(&self, name: &str) -> Option<u32> {
        self.whole(name).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Whether a flag is there and true.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    /// Takes any value.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Takes a list of objects that were checked too.
    pub fn list(&mut self, name: &str) -> Vec<Input> {
        let Some(Value::Array(items)) = self.0.remove(name) else { return Vec::new() };
        let object = |item| if let Value::Object(map) = item { Input(map) } else { Input::default() };
        items.into_iter().map(object).collect()
    }
}

impl Kind {
    /// Returns `value` in its canonical form, or says which rule of field `name` it breaks.
    fn check(self, name: &str, value: Value) -> Result<Value, FieldError> {
        let broken = |rule: String, value: &Value| {
            Err(FieldError::Rule { name: name.to_owned(), rule, found: shown(value) })
        };
        match self {
            Kind::Text | Kind::Path if value.is_string() => Ok(value),
            Kind::Text | Kind::Path => broken("a text".into(), &value),
            Kind::Flag if value.is_boolean() => Ok(value),
            Kind::Flag => broken("true or false".into(), &value),
            Kind::Digest if value.as_str().is_some_and(is_digest) => Ok(value),
            Kind::Digest => broken("64 hexadecimal digits".into(), &value),
            Kind::Whole { least, most } => match whole(&value) {
                Some(number) if (least..=most).contains(&number) => Ok(number.into()),
                _ => broken(range(least, most), &value),
            },
            Kind::Command if value.is_string() || is_texts(&value) => Ok(value),
            Kind::Command => broken("a text, or a list of at least one text".into(), &value),
            Kind::List { fields, most } => match value {
                Value::Array(items) if (1..=most).contains(&items.len()) => check_items(name, fields, items),
                value => broken(format!("a list of 1 to {most} objects"), &value),
            },
        }
    }

    /// This kind as JSON Schema.
    fn schema(self) -> Value {
        match self {
            Kind::Text | Kind::Path => json!({ "type": "string" }),
            Kind::Whole { least, most: u64::MAX } => json!({ "type": "integer", "minimum": least }),
            Kind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Digest => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{64}$" }),
            Kind::Command => json!({ "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ]}),
            Kind::List { fields, most } => {
                json!({ "type": "array", "items": object_schema(fields), "minItems": 1, "maxItems": most })
            }
        }
    }
}

/// The JSON Schema of an object with `fields` and nothing else.
pub fn object_schema(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = field.kind.schema();
        schema["description"] = json!(field.about);
        properties.insert(field.name.to_owned(), schema);
    }
    let required: Vec<_> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn check_items(name: &str, fields: &[Field], items: Vec<Value>) -> Result<Value, FieldError> {
    let check = |(index, item)| {
        Input::check_below(&format!("{name}[{index}]."), fields, item).map(|input| Value::Object(input.0))
    };
    items.into_iter().enumerate().map(check).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

/// A number without a fraction: in JSON Schema, `5.0` is an integer.
fn whole(value: &Value) -> Option<u64> {
    let integral = |number: &f64| number.fract() == 0.0 && (0.0..9e15).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(integral).map(|number| number as u64))
}

fn range(least: u64, most: u64) -> String {
    match most {
        u64::MAX => format!("a whole number from {least} on"),
        _ => format!("between {least} and {most}"),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty() && items.iter().all(Value::is_string))
}

fn names(fields: &[Field]) -> String {
    fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
}

/// A value for an error message: JSON, not long.
fn shown(value: &Value) -> String {
    const MOST: usize = 80;
    let text = match value {
        Value::String(text) if text.len() > MOST => format!("a text of {} bytes", text.len()),
        Value::Array(items) if items.len() > 8 => format!("a list of {}", items.len()),
        value => value.to_string(),
    };
    if text.len() > MOST { "something longer".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field::must("path", Kind::Path, "").or(&["file_path"]),
        Field::may("timeout", Kind::Whole { least: 1, most: 86_400 }, ""),
        Field::may("all", Kind::Flag, ""),
        Field::may("command", Kind::Command, ""),
        Field::may("sha", Kind::Digest, ""),
        Field::may(
            "edits",
            Kind::List {
                fields: &[Field::must("old", Kind::Text, ""), Field::may("new", Kind::Text, "")],
                most: 2,
            },
            "",
        ),
    ];

    fn error(input: Value) -> String {
        Input::check(FIELDS, input).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_field_rule_and_value() {
        let cases = [
            (json!([]), "the input must be a JSON object, this is []"),
            (json!({}), "field `path`: required, and missing"),
            (json!({"path": null}), "field `path`: required, and missing"),
            (json!({"path": 1}), "field `path`: a text, this is 1"),
            (json!({"path": "a", "file_path": "b"}), "field `path`: given twice, under two of its names"),
            (json!({"path": "a", "timeout": 0}), "field `timeout`: between 1 and 86400, this is 0"),
            (json!({"path": "a", "timeout": -1}), "field `timeout`: between 1 and 86400, this is -1"),
            (json!({"path": "a", "timeout": 1.5}), "field `timeout`: between 1 and 86400, this is 1.5"),
            (json!({"path": "a", "timeout": 1e300}), "field `timeout`: between 1 and 86400, this is 1e+300"),
            (json!({"path": "a", "timeout": "9"}), "field `timeout`: between 1 and 86400, this is \"9\""),
            (json!({"path": "a", "all": "yes"}), "field `all`: true or false, this is \"yes\""),
            (
                json!({"path": "a", "command": []}),
                "field `command`: a text, or a list of at least one text, this is []",
            ),
            (
                json!({"path": "a", "command": [1]}),
                "field `command`: a text, or a list of at least one text, this is [1]",
            ),
            (json!({"path": "a", "sha": "zz"}), "field `sha`: 64 hexadecimal digits, this is \"zz\""),
            (json!({"path": "a", "edits": []}), "field `edits`: a list of 1 to 2 objects, this is []"),
            (
                json!({"path": "a", "edits": [{"old": "x"}, {}]}),
                "field `edits[1].old`: required, and missing",
            ),
            (json!({"path": "a", "edits": [7]}), "the input must be a JSON object, this is 7"),
            (
                json!({"path": "a", "edits": [{"old": "x", "nwe": ""}]}),
                "field `edits[0].nwe`: not a field here; there are old, new",
            ),
        ];
        for (input, want) in cases {
            assert_eq!(error(input.clone()), want, "{input}");
        }
        assert!(
            error(json!({"path": "a", "nope": 1}))
                .starts_with("field `nope`: not a field here; there are path,")
        );
        assert_eq!(
            error(json!({"path": "a", "sha": "x".repeat(1000)})),
            "field `sha`: 64 hexadecimal digits, this is a text of 1000 bytes"
        );
    }

    #[test]
    fn good_input_comes_out_under_canonical_names() {
        let values =
            json!({"file_path": "a", "timeout": 5.0, "all": true, "edits": [{"old": "x"}], "command": null});
        let mut input = Input::check(FIELDS, values).unwrap();
        assert_eq!(input.text("path").as_deref(), Some("a"));
        assert_eq!(input.small("timeout"), Some(5));
        assert!(input.flag("all"));
        assert_eq!(input.list("edits").remove(0).text("old").as_deref(), Some("x"));
        assert!(input.value("command").is_none());
    }
}
