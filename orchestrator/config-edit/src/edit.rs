//! The edits of a recipe: applies them to a text, and reverts them.

use crate::document::{Document, DocumentError, Format, shape};
use crate::json::Json;
use crate::text::SettingsText;
use crate::toml::Toml;
use crate::yaml::Yaml;
use serde_json::Value;

/// An edit of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyEdit {
    /// Sets the key to this value.
    Set {
        /// The keys from the outermost object to this key.
        path: Vec<String>,
        /// The value after the edit.
        value: Value,
    },
    /// As [`Self::Set`], for a client that uses the last matching key: no pattern may follow this one.
    SetLast {
        /// The keys from the outermost object to this key.
        path: Vec<String>,
        /// The value after the edit.
        value: Value,
    },
    /// As [`Self::Set`], for a key that several tables may override: also set in those tables that have it.
    SetEach {
        /// The key of the object with the tables.
        tables: &'static str,
        /// The keys from the outermost object, and in each table, to this key.
        path: Vec<String>,
        /// The value after the edit.
        value: Value,
    },
    /// Adds these texts to the list of the key.
    Add {
        /// The keys from the outermost object to this key.
        path: Vec<String>,
        items: Vec<String>,
    },
}

impl KeyEdit {
    /// Sets a key to a value. `path` contains the keys, with dots.
    pub fn set(path: &str, value: impl Into<Value>) -> Self {
        KeyEdit::Set {
            path: keys(path),
            value: value.into(),
        }
    }

    /// Sets a value behind all patterns.
    pub(crate) fn set_last(path: &str, value: impl Into<Value>) -> Self {
        KeyEdit::SetLast {
            path: keys(path),
            value: value.into(),
        }
    }

    /// Sets a value, also in each of `tables` that has it.
    pub(crate) fn set_each(tables: &'static str, path: &str, value: impl Into<Value>) -> Self {
        KeyEdit::SetEach {
            tables,
            path: keys(path),
            value: value.into(),
        }
    }

    /// Sets a key that has a dot in its name.
    pub(crate) fn set_key(name: &str, value: impl Into<Value>) -> Self {
        KeyEdit::Set {
            path: vec![name.to_owned()],
            value: value.into(),
        }
    }

    /// Adds texts to a list.
    pub fn add(path: &str, items: &[&str]) -> Self {
        KeyEdit::Add {
            path: keys(path),
            items: items.iter().map(|item| (*item).to_owned()).collect(),
        }
    }

    fn path(&self) -> Vec<&str> {
        let (KeyEdit::Set { path, .. }
        | KeyEdit::SetLast { path, .. }
        | KeyEdit::SetEach { path, .. }
        | KeyEdit::Add { path, .. }) = self;
        borrowed(path)
    }

    /// The paths of the same key in the tables that have it.
    fn in_tables(&self, document: &dyn Document) -> Vec<Vec<String>> {
        let KeyEdit::SetEach { tables, path, .. } = self else {
            return Vec::new();
        };
        let found = document.get(&[tables]);
        let names = found
            .iter()
            .filter_map(Value::as_object)
            .flat_map(|tables| tables.keys());
        let paths =
            names.map(|name| [&[(*tables).to_owned(), name.clone()], path.as_slice()].concat());
        paths
            .filter(|path| document.get(&borrowed(path)).is_some())
            .collect()
    }

    fn is_there(&self, document: &dyn Document) -> bool {
        let there = document.get(&self.path());
        match self {
            KeyEdit::Set { value, .. } => there.as_ref() == Some(value),
            KeyEdit::SetLast { value, .. } => {
                let is_pattern = |name: &String| name.contains(['*', '?']);
                there.as_ref() == Some(value)
                    && !document.behind(&self.path()).iter().any(is_pattern)
            }
            KeyEdit::SetEach { value, .. } => {
                let mut tables = self.in_tables(document).into_iter();
                there.as_ref() == Some(value)
                    && tables.all(|path| document.get(&borrowed(&path)).as_ref() == Some(value))
            }
            KeyEdit::Add { items, .. } => missing(there.as_ref(), items).is_empty(),
        }
    }

    fn apply(&self, document: &mut dyn Document) -> Result<(), DocumentError> {
        let path = self.path();
        let there = document.get(&path);
        match self {
            KeyEdit::Set { value, .. } => document.set(&path, value),
            KeyEdit::SetLast { value, .. } => {
                document.remove(&path)?;
                document.set(&path, value)
            }
            KeyEdit::SetEach { value, .. } => {
                document.set(&path, value)?;
                self.in_tables(document)
                    .iter()
                    .try_for_each(|path| document.set(&borrowed(path), value))
            }
            KeyEdit::Add { .. } if there.as_ref().is_some_and(|value| !value.is_array()) => {
                Err(shape(&path, "a list"))
            }
            KeyEdit::Add { items, .. } => missing(there.as_ref(), items)
                .iter()
                .try_for_each(|item| document.append(&path, item)),
        }
    }

    /// Reverts the edit as far as it is still present: restores what `before` had.
    fn revert(
        &self,
        document: &mut dyn Document,
        before: &dyn Document,
    ) -> Result<(), DocumentError> {
        let path = self.path();
        let was = before.get(&path);
        if let KeyEdit::SetEach { value, .. } = self {
            for path in self.in_tables(before) {
                let (path, is_ours) = (
                    borrowed(&path),
                    document.get(&borrowed(&path)).as_ref() == Some(value),
                );
                before
                    .get(&path)
                    .filter(|_| is_ours)
                    .map_or(Ok(()), |was| document.set(&path, &was))?;
            }
        }
        match (self, &was) {
            (
                KeyEdit::Set { value, .. }
                | KeyEdit::SetLast { value, .. }
                | KeyEdit::SetEach { value, .. },
                _,
            ) if document.get(&path).as_ref() != Some(value) => {
                return Ok(());
            }
            (
                KeyEdit::Set { .. } | KeyEdit::SetLast { .. } | KeyEdit::SetEach { .. },
                Some(was),
            ) => {
                return document.set(&path, was);
            }
            (KeyEdit::Set { .. } | KeyEdit::SetLast { .. } | KeyEdit::SetEach { .. }, None) => {
                document.remove(&path)?
            }
            (KeyEdit::Add { items, .. }, was) => {
                for item in missing(was.as_ref(), items) {
                    document.remove_item(&path, item)?;
                }
                let is_empty = document
                    .get(&path)
                    .is_some_and(|list| list.as_array().is_some_and(Vec::is_empty));
                if was.is_some() || !is_empty {
                    return Ok(());
                }
                document.remove(&path)?;
            }
        }
        remove_created(document, before, &path)
    }
}

/// Removes the objects that were created for a key that is removed.
fn remove_created(
    document: &mut dyn Document,
    before: &dyn Document,
    path: &[&str],
) -> Result<(), DocumentError> {
    for depth in (1..path.len()).rev() {
        let parent = &path[..depth];
        // In YAML an object without keys counts as absent.
        let is_empty = document.get(parent).is_some_and(|object| {
            object.is_null() || object.as_object().is_some_and(|object| object.is_empty())
        });
        if !is_empty || before.get(parent).is_some() {
            break;
        }
        document.remove(parent)?;
    }
    Ok(())
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

fn keys(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

fn missing<'i>(there: Option<&Value>, items: &'i [String]) -> Vec<&'i String> {
    let list = there.and_then(Value::as_array);
    let has = |item: &String| list.is_some_and(|list| list.iter().any(|one| one == item.as_str()));
    items.iter().filter(|item| !has(item)).collect()
}

/// Parses a text; an empty one has no keys.
pub(crate) fn read(format: Format, text: &str) -> Result<Box<dyn Document>, DocumentError> {
    Ok(match format {
        Format::Json | Format::JsonWithComments | Format::Jsonc => {
            Box::new(Json::read(format, text)?)
        }
        Format::Toml => Box::new(Toml::read(text)?),
        Format::Yaml => Box::new(Yaml::read(text)?),
        Format::Text => Box::new(SettingsText::read(text)),
    })
}

/// Applies all edits to a text.
///
/// # Errors
/// If the text is invalid in its format, or a key has a value of another type.
pub fn apply(format: Format, text: &str, edits: &[KeyEdit]) -> Result<String, DocumentError> {
    let mut document = read(format, text)?;
    for edit in edits.iter() {
        if !edit.is_there(&*document) {
            edit.apply(&mut *document)?;
        }
    }
    let mut changed = document.text();
    if text.is_empty() && !changed.ends_with('\n') {
        changed.push('\n');
    }
    // Parses the result again, to check that it contains all edits.
    let document = read(format, &changed)?;
    match edits.iter().find(|edit| !edit.is_there(&*document)) {
        Some(edit) => Err(DocumentError::Unsupported(edit.path().join("."))),
        None => Ok(changed),
    }
}

/// How many of the edits are in the text.
///
/// # Errors
/// If the text is invalid in its format.
pub fn present(format: Format, text: &str, edits: &[KeyEdit]) -> Result<usize, DocumentError> {
    let document = read(format, text)?;
    Ok(edits
        .iter()
        .filter(|edit| edit.is_there(&*document))
        .count())
}

/// Reverts the edits; `before` is the text without any of them.
///
/// # Errors
/// If one of the texts is invalid in its format.
pub fn revert(
    format: Format,
    text: &str,
    before: &str,
    edits: &[KeyEdit],
) -> Result<String, DocumentError> {
    let before = read(format, before)?;
    let mut document = read(format, text)?;
    for edit in edits.iter().rev() {
        edit.revert(&mut *document, &*before)?;
    }
    Ok(document.text())
}
