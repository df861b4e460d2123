//! The fields of a tool's input: one table gives both the schema that the model reads and the check of what it sends,
//! so the two cannot differ.

use broker_protocol::limit;
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
        /// How many there must be.
        least: usize,
        /// How many there may be.
        most: usize,
    },
    /// A text of 1 to this many characters.
    Short(usize),
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A name for a value: 1 to [`KEY`] letters, digits, `.`, `_`, `-`.
    Key,
    /// A list of at most so many texts, each of 1 to [`ITEM`] characters.
    Texts(usize),
    /// An object that somebody else checks.
    Object,
    /// Any value.
    Any,
}

/// Characters of a key.
pub const KEY: usize = 64;
/// Characters of one text in a list of texts.
pub const ITEM: usize = 2000;

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
    /// Checks `values` against `fields`, in this order: each field exists, what is required is there, each value is of its
    /// type, each value keeps its rule. A field that is `null` counts as absent: models often send it so.
    pub fn check(fields: &[Field], values: Value) -> Result<Self, FieldError> {
        Self::check_below("", fields, values)
    }

    fn check_below(above: &str, fields: &[Field], values: Value) -> Result<Self, FieldError> {
        let mut given = Self::named(above, fields, values)?;
        if let Some(field) = fields.iter().find(|field| field.required && !given.contains_key(field.name)) {
            return Err(FieldError::Missing(format!("{above}{}", field.name)));
        }
        let present = || fields.iter().filter(|field| given.contains_key(field.name));
        if let Some(field) = present().find(|field| !field.kind.fits(&given[field.name])) {
            let (name, rule) = (format!("{above}{}", field.name), field.kind.type_name());
            return Err(FieldError::Rule { name, rule, found: shown(&given[field.name]) });
        }
        let mut checked = Map::new();
        for field in fields {
            if let Some(value) = given.remove(field.name) {
                let value = field.kind.check(&format!("{above}{}", field.name), value)?;
                checked.insert(field.name.to_owned(), value);
            }
        }
        Ok(Self(checked))
    }

    /// The values that are there, under the canonical names of their fields.
    fn named(above: &str, fields: &[Field], values: Value) -> Result<Map<String, Value>, FieldError> {
        let Value::Object(values) = values else {
            let found = shown(&values);
            return Err(match above.strip_suffix('.') {
                None => FieldError::NotAnObject(found),
                Some(name) => FieldError::Rule { name: name.to_owned(), rule: "an object".into(), found },
            });
        };
        let mut named = Map::new();
        for (name, value) in values {
            let Some(field) = fields.iter().find(|field| field.answers_to(&name)) else {
                let name = format!("{above}{}", bounded(&name));
                return Err(FieldError::Unknown { name, known: names(fields) });
            };
            if !value.is_null() && named.insert(field.name.to_owned(), value).is_some() {
                return Err(FieldError::Twice(format!("{above}{}", field.name)));
            }
        }
        Ok(named)
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

    /// A time limit in seconds, at most what any may be.
    pub fn seconds(&self, name: &str) -> Option<u32> {
        self.small(name).map(|seconds| seconds.min(limit::TIMEOUT_S))
    }

    /// Whether a flag is there and true.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    /// Takes any value.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Takes a list of texts.
    pub fn texts(&mut self, name: &str) -> Vec<String> {
        let Some(Value::Array(items)) = self.0.remove(name) else { return Vec::new() };
        items
            .into_iter()
            .filter_map(|item| if let Value::String(text) = item { Some(text) } else { None })
            .collect()
    }

    /// All of it, under canonical names.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// Takes a list of objects that were checked too.
    pub fn list(&mut self, name: &str) -> Vec<Input> {
        let Some(Value::Array(items)) = self.0.remove(name) else { return Vec::new() };
        let object = |item| if let Value::Object(map) = item { Input(map) } else { Input::default() };
        items.into_iter().map(object).collect()
    }
}

impl Kind {
    /// Whether `value` is of this kind's type, whatever it holds.
    fn fits(self, value: &Value) -> bool {
        match self {
            Kind::Text | Kind::Path | Kind::Digest | Kind::Short(_) | Kind::Choice(_) | Kind::Key => {
                value.is_string()
            }
            Kind::Whole { .. } => {
                value.is_i64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            Kind::Flag => value.is_boolean(),
            Kind::Command => value.is_string() || value.is_array(),
            Kind::List { .. } | Kind::Texts(_) => value.is_array(),
            Kind::Object => value.is_object(),
            Kind::Any => true,
        }
    }

    /// Its type in words.
    fn type_name(self) -> String {
        match self {
            Kind::Text | Kind::Path | Kind::Short(_) | Kind::Key => "a text".into(),
            Kind::Choice(of) => format!("one of the texts {}", of.join(", ")),
            Kind::Digest => "a text of 64 hexadecimal digits".into(),
            Kind::Whole { least, most } => range(least, most),
            Kind::Flag => "true or false".into(),
            Kind::Command => "a text, or a list of at least one text".into(),
            Kind::List { .. } => "a list of objects".into(),
            Kind::Texts(_) => "a list of texts".into(),
            Kind::Object => "an object".into(),
            Kind::Any => "any value".into(),
        }
    }

    /// Returns `value`, which is of the right type, in its canonical form, or says which rule of field `name` it breaks.
    fn check(self, name: &str, value: Value) -> Result<Value, FieldError> {
        let broken = |rule: String, value: &Value| {
            Err(FieldError::Rule { name: name.to_owned(), rule, found: shown(value) })
        };
        let text = value.as_str().unwrap_or_default();
        match self {
            Kind::Text | Kind::Path | Kind::Flag | Kind::Object | Kind::Any => Ok(value),
            Kind::Digest if is_digest(text) => Ok(value),
            Kind::Digest => broken("64 hexadecimal digits".into(), &value),
            Kind::Short(most) if has_length(text, most) => Ok(value),
            Kind::Short(most) => broken(format!("1 to {most} characters"), &value),
            Kind::Choice(of) if of.contains(&text) => Ok(value),
            Kind::Choice(of) => broken(format!("one of {}", of.join(", ")), &value),
            Kind::Key if is_key(text) => Ok(value),
            Kind::Key => broken(format!("1 to {KEY} letters, digits, '.', '_' or '-'"), &value),
            Kind::Whole { least, most } => match whole(&value) {
                Some(number) if (least..=most).contains(&number) => Ok(number.into()),
                _ => broken(range(least, most), &value),
            },
            Kind::Command if value.is_string() || is_texts(&value) => Ok(value),
            Kind::Command => broken("a text, or a list of at least one text".into(), &value),
            Kind::List { fields, least, most } => match value {
                Value::Array(items) if (least..=most).contains(&items.len()) => {
                    check_items(name, fields, items)
                }
                value => broken(format!("a list of {least} to {most} objects"), &value),
            },
            Kind::Texts(most) => match &value {
                Value::Array(items) if items.len() <= most => {
                    match items.iter().position(|item| !is_item(item)) {
                        None => Ok(value),
                        Some(at) => {
                            let (name, found) = (format!("{name}[{at}]"), shown(&items[at]));
                            Err(FieldError::Rule {
                                name,
                                rule: format!("a text of 1 to {ITEM} characters"),
                                found,
                            })
                        }
                    }
                }
                value => broken(format!("a list of at most {most} texts"), value),
            },
        }
    }

    /// This kind as JSON Schema.
    fn schema(self) -> Value {
        match self {
            Kind::Text | Kind::Path => json!({ "type": "string" }),
            Kind::Short(most) => json!({ "type": "string", "minLength": 1, "maxLength": most }),
            Kind::Choice(of) => json!({ "type": "string", "enum": of }),
            Kind::Key => json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{KEY}}}$") }),
            Kind::Whole { least, most: u64::MAX } => json!({ "type": "integer", "minimum": least }),
            Kind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Digest => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{64}$" }),
            Kind::Command => json!({ "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ]}),
            Kind::List { fields, least, most } => {
                json!({ "type": "array", "items": object_schema(fields), "minItems": least, "maxItems": most })
            }
            Kind::Texts(most) => {
                json!({ "type": "array", "items": Kind::Short(ITEM).schema(), "maxItems": most })
            }
            Kind::Object => json!({ "type": "object" }),
            Kind::Any => json!({}),
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
        _ => format!("a whole number between {least} and {most}"),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn has_length(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().take(most + 1).count())
}

fn is_key(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=KEY).contains(&text.len()) && text.bytes().all(plain)
}

fn is_item(value: &Value) -> bool {
    value.as_str().is_some_and(|text| has_length(text, ITEM))
}

fn is_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty() && items.iter().all(Value::is_string))
}

fn names(fields: &[Field]) -> String {
    fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
}

/// Longest value, and longest name of a field, in an error message.
const SHOWN: usize = 80;

/// A value for an error message: JSON, not long.
pub fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) if text.len() > SHOWN => format!("a text of {} bytes", text.len()),
        Value::Array(items) if items.len() > 8 => format!("a list of {}", items.len()),
        // Measured before it is written out: what is refused may be large.
        Value::Object(fields) if fields.len() > 8 => format!("an object of {} fields", fields.len()),
        value => value.to_string(),
    };
    if text.len() > SHOWN { "something longer".to_owned() } else { text }
}

/// The name of a field that does not exist, not long.
fn bounded(name: &str) -> String {
    if name.len() > SHOWN { format!("a name of {} bytes", name.len()) } else { name.to_owned() }
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
                least: 1,
                most: 2,
            },
            "",
        ),
        Field::may("level", Kind::Choice(&["low", "high"]), ""),
        Field::may("title", Kind::Short(5), ""),
        Field::may("key", Kind::Key, ""),
        Field::may("notes", Kind::Texts(2), ""),
        Field::may("more", Kind::Object, ""),
        Field::may("value", Kind::Any, ""),
    ];

    fn error(input: Value) -> String {
        Input::check(FIELDS, input).unwrap_err().to_string()
    }

    /// Checks `path` and one more field, which must be refused with `want`.
    fn refused(field: &str, value: Value, want: &str) {
        assert_eq!(error(json!({"path": "a", field: value.clone()})), want, "{field}: {value}");
    }

    #[test]
    fn an_error_names_field_rule_and_value() {
        for (input, want) in [
            (json!([]), "the input must be a JSON object, this is []"),
            (json!("x"), "the input must be a JSON object, this is \"x\""),
            (json!({}), "field `path`: required, and missing"),
            (json!({"path": null}), "field `path`: required, and missing"),
            (json!({"path": 1}), "field `path`: a text, this is 1"),
            (json!({"path": ["a"]}), "field `path`: a text, this is [\"a\"]"),
            (json!({"path": "a", "file_path": "b"}), "field `path`: given twice, under two of its names"),
        ] {
            assert_eq!(error(input.clone()), want, "{input}");
        }
        for (field, value, want) in [
            ("timeout", json!(0), "field `timeout`: a whole number between 1 and 86400, this is 0"),
            ("timeout", json!(86_401), "field `timeout`: a whole number between 1 and 86400, this is 86401"),
            ("timeout", json!(-1), "field `timeout`: a whole number between 1 and 86400, this is -1"),
            ("timeout", json!(1.5), "field `timeout`: a whole number between 1 and 86400, this is 1.5"),
            ("timeout", json!(1e300), "field `timeout`: a whole number between 1 and 86400, this is 1e+300"),
            ("timeout", json!("9"), "field `timeout`: a whole number between 1 and 86400, this is \"9\""),
            ("timeout", json!(true), "field `timeout`: a whole number between 1 and 86400, this is true"),
            ("all", json!("yes"), "field `all`: true or false, this is \"yes\""),
            ("all", json!(1), "field `all`: true or false, this is 1"),
            ("command", json!([]), "field `command`: a text, or a list of at least one text, this is []"),
            ("command", json!([1]), "field `command`: a text, or a list of at least one text, this is [1]"),
            ("command", json!({}), "field `command`: a text, or a list of at least one text, this is {}"),
            ("sha", json!("zz"), "field `sha`: 64 hexadecimal digits, this is \"zz\""),
            ("sha", json!(5), "field `sha`: a text of 64 hexadecimal digits, this is 5"),
            ("edits", json!([]), "field `edits`: a list of 1 to 2 objects, this is []"),
            ("edits", json!({}), "field `edits`: a list of objects, this is {}"),
            ("edits", json!([{}, {}, {}]), "field `edits`: a list of 1 to 2 objects, this is [{},{},{}]"),
            ("edits", json!([{"old": "x"}, {}]), "field `edits[1].old`: required, and missing"),
            ("edits", json!([{"old": 1}]), "field `edits[0].old`: a text, this is 1"),
            ("edits", json!([7]), "field `edits[0]`: an object, this is 7"),
            (
                "edits",
                json!([{"old": "x", "nwe": ""}]),
                "field `edits[0].nwe`: not a field here; there are old, new",
            ),
            ("level", json!("mid"), "field `level`: one of low, high, this is \"mid\""),
            ("level", json!(3), "field `level`: one of the texts low, high, this is 3"),
            ("title", json!(""), "field `title`: 1 to 5 characters, this is \"\""),
            ("title", json!("éééééé"), "field `title`: 1 to 5 characters, this is \"éééééé\""),
            ("key", json!("a/b"), "field `key`: 1 to 64 letters, digits, '.', '_' or '-', this is \"a/b\""),
            ("key", json!(""), "field `key`: 1 to 64 letters, digits, '.', '_' or '-', this is \"\""),
            ("notes", json!("x"), "field `notes`: a list of texts, this is \"x\""),
            (
                "notes",
                json!(["a", "b", "c"]),
                "field `notes`: a list of at most 2 texts, this is [\"a\",\"b\",\"c\"]",
            ),
            ("notes", json!(["a", ""]), "field `notes[1]`: a text of 1 to 2000 characters, this is \"\""),
            ("notes", json!(["a", 2]), "field `notes[1]`: a text of 1 to 2000 characters, this is 2"),
            ("more", json!([]), "field `more`: an object, this is []"),
        ] {
            refused(field, value, want);
        }
        let nope = error(json!({"path": "a", "nope": 1}));
        assert!(nope.starts_with("field `nope`: not a field here; there are path,"), "{nope}");
    }

    #[test]
    fn what_an_error_shows_is_bounded() {
        refused(
            "sha",
            json!("x".repeat(1000)),
            "field `sha`: 64 hexadecimal digits, this is a text of 1000 bytes",
        );
        refused("all", json!(vec![1; 1000]), "field `all`: true or false, this is a list of 1000");
        let long = "n".repeat(1000);
        assert!(
            error(json!({"path": "a", long: 1}))
                .starts_with("field `a name of 1000 bytes`: not a field here")
        );
        assert!(error(json!({"path": {"a": "x".repeat(500)}})).ends_with("this is something longer"));
    }

    #[test]
    fn existence_comes_before_presence_then_types_then_values() {
        let input = json!({"nope": 1, "timeout": "x", "all": 1, "level": "mid"});
        assert!(error(input).contains("`nope`"));
        assert!(error(json!({"timeout": "x", "level": "mid"})).contains("`path`"));
        assert!(error(json!({"path": "a", "timeout": 0, "more": 1})).contains("`more`"));
        assert!(error(json!({"path": "a", "timeout": 0, "more": {}})).contains("`timeout`"));
    }

    #[test]
    fn each_bound_holds_at_its_edge() {
        for (field, value) in [
            ("timeout", json!(1)),
            ("timeout", json!(86_400)),
            ("title", json!("ééééé")),
            ("key", json!("k".repeat(64))),
            ("notes", json!(["a", "b"])),
            ("notes", json!([])),
            ("notes", json!(["x".repeat(ITEM)])),
        ] {
            let input = Input::check(FIELDS, json!({"path": "a", field: value.clone()}));
            assert!(input.is_ok(), "{field}: {value}");
        }
        assert!(error(json!({"path": "a", "key": "k".repeat(65)})).contains("`key`"));
        assert!(error(json!({"path": "a", "notes": ["x".repeat(ITEM + 1)]})).contains("`notes[0]`"));
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
