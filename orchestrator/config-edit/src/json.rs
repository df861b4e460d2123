//! JSON, parsed as strictly as by the client that reads it.

use crate::document::{BYTE_ORDER_MARK, Document, DocumentError, Format, shape};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) struct Json(CstRootNode);

impl Json {
    /// Parses a text in one of the JSON formats.
    pub(crate) fn read(format: Format, text: &str) -> Result<Self, DocumentError> {
        if text.starts_with(BYTE_ORDER_MARK) {
            let why =
                "it begins with a byte order mark, which readers of JSON refuse; save it without";
            return Err(DocumentError::Syntax(why.into()));
        }
        let syntax = |error: &dyn std::fmt::Display| DocumentError::Syntax(error.to_string());
        // An empty file has no keys.
        if format == Format::Json && !text.trim().is_empty() {
            serde_json::from_str::<IgnoredAny>(text).map_err(|error| syntax(&error))?;
        }
        let root = CstRootNode::parse(text, &options(format)).map_err(|error| syntax(&error))?;
        match root.value() {
            None => {}
            Some(value) if value.as_object().is_some() => once(&value)?,
            Some(_) => return Err(DocumentError::Syntax("it is not an object".into())),
        }
        Ok(Self(root))
    }

    /// The object at `path`, created if missing.
    fn object(&self, path: &[&str]) -> Result<CstObject, DocumentError> {
        let mut object = self.0.object_value_or_set();
        for (depth, name) in path.iter().enumerate() {
            object = object
                .object_value_or_create(name)
                .ok_or_else(|| shape(&path[..=depth], "an object"))?;
        }
        Ok(object)
    }

    /// The object at `path`, if it exists.
    fn find(&self, path: &[&str]) -> Option<CstObject> {
        path.iter()
            .try_fold(self.0.object_value()?, |object, name| {
                object.object_value(name)
            })
    }

    fn array(&self, path: &[&str]) -> Option<CstArray> {
        let (name, parents) = path.split_last()?;
        self.find(parents)?.array_value(name)
    }
}

impl Document for Json {
    fn whole(&self) -> Option<Value> {
        // A value that has no form here counts as one that is no object.
        Some(self.0.value()?.to_serde_value().unwrap_or(Value::Null))
    }

    fn get(&self, path: &[&str]) -> Option<Value> {
        let (name, parents) = path.split_last()?;
        self.find(parents)?.get(name)?.value()?.to_serde_value()
    }

    fn set(&mut self, path: &[&str], value: &Value) -> Result<(), DocumentError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        let object = self.object(parents)?;
        match object.get(name) {
            Some(property) => property.set_value(input(value)),
            None => drop(object.append(name, input(value))),
        }
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) -> Result<(), DocumentError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        if let Some(property) = self.find(parents).and_then(|object| object.get(name)) {
            property.remove();
        }
        Ok(())
    }

    fn append(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        let array = self
            .object(parents)?
            .array_value_or_create(name)
            .ok_or_else(|| shape(path, "a list"))?;
        array.append(CstInputValue::String(item.to_owned()));
        Ok(())
    }

    fn remove_item(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError> {
        let is_item = |node: &CstNode| node.to_serde_value().is_some_and(|value| value == item);
        if let Some(node) = self
            .array(path)
            .and_then(|array| array.elements().into_iter().find(is_item))
        {
            node.remove();
        }
        Ok(())
    }

    fn behind(&self, path: &[&str]) -> Vec<String> {
        let Some((name, parents)) = path.split_last() else {
            return Vec::new();
        };
        let names = self
            .find(parents)
            .into_iter()
            .flat_map(|object| object.properties());
        let names = names.filter_map(|property| property.name()?.decoded_value().ok());
        names.skip_while(|one| one != name).skip(1).collect()
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Options for what the format allows beyond the standard.
fn options(format: Format) -> ParseOptions {
    ParseOptions {
        allow_comments: matches!(format, Format::JsonWithComments | Format::Jsonc),
        allow_trailing_commas: format == Format::Jsonc,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
    }
}

/// Rejects duplicate keys: clients differ in which of two they use, and we might edit the other one.
fn once(value: &CstNode) -> Result<(), DocumentError> {
    let mut names = BTreeSet::new();
    for property in value.as_object().iter().flat_map(CstObject::properties) {
        let name = property.name().map(|name| name.decoded_value()).transpose();
        let name = name
            .map_err(|_| DocumentError::Syntax("a key has an invalid escape".into()))?
            .unwrap_or_default();
        if !names.insert(name.clone()) {
            return Err(DocumentError::Syntax(format!(
                "the key {name:?} is in an object twice"
            )));
        }
        property.value().iter().try_for_each(once)?;
    }
    value
        .as_array()
        .iter()
        .flat_map(CstArray::elements)
        .try_for_each(|element| once(&element))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(fields) => CstInputValue::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), input(value)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused_wherever_it_is() {
        for text in [
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": 1, "\u0061": 2}"#,
            r#"{"x": {"permissions": {}, /* */ "permissions": {}}}"#,
            r#"{"x": [1, {"a": 1, "a": 2}]}"#,
        ] {
            assert!(
                matches!(Json::read(Format::Jsonc, text), Err(DocumentError::Syntax(why)) if why.contains("in an object twice")),
                "{text}"
            );
        }
        for text in ["", "{}", r#"{"a": {"a": 1}, "A": [{"a": 1}, {"a": 2}]}"#] {
            assert!(Json::read(Format::Jsonc, text).is_ok(), "{text}");
        }
    }

    #[test]
    fn each_format_takes_what_its_readers_take() {
        let strict = r#"{"a": [1, -2.5e3, "x"], "b": null}"#;
        let formats = [Format::Json, Format::JsonWithComments, Format::Jsonc];
        let cases = [
            (strict, [true; 3]),
            ("", [true; 3]),
            ("{\"a\": 1} // mine", [false, true, true]),
            ("{\"a\": 1, /* x */ \"b\": 2}", [false, true, true]),
            ("{\"a\": [1,],}", [false, false, true]),
            ("{'a': 1}", [false; 3]),
            ("{a: 1}", [false; 3]),
            ("{\"a\": 1 \"b\": 2}", [false; 3]),
            ("{\"a\": 0x10}", [false; 3]),
            ("{\"a\": +1}", [false; 3]),
            ("\u{feff}{}", [false; 3]),
            ("{} {}", [false; 3]),
        ];
        for (text, wanted) in cases {
            assert_eq!(
                formats.map(|format| Json::read(format, text).is_ok()),
                wanted,
                "{text}"
            );
        }
        let Err(marked) = Json::read(Format::Json, "\u{feff}{}") else {
            panic!()
        };
        assert!(marked.to_string().contains("byte order mark"), "{marked}");
    }
}
