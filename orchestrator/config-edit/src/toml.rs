//! TOML settings, edited in place.

use crate::document::{Document, DocumentError, Frame, shape};
use serde_json::{Map, Value};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike};

pub(crate) struct Toml(DocumentMut, Frame);

impl Toml {
    pub(crate) fn read(text: &str) -> Result<Self, DocumentError> {
        let (frame, text) = Frame::take(text)?;
        let read = text
            .parse()
            .map_err(|error: toml_edit::TomlError| DocumentError::Syntax(error.to_string()))?;
        Ok(Self(read, frame))
    }

    fn table(&mut self, path: &[&str]) -> Result<&mut dyn TableLike, DocumentError> {
        let mut table: &mut dyn TableLike = self.0.as_table_mut();
        for (depth, name) in path.iter().enumerate() {
            if table.get(name).is_none() {
                let mut made = Table::new();
                // A table's own heading is written only if it has keys of its own.
                made.set_implicit(depth + 1 < path.len());
                table.insert(name, Item::Table(made));
            }
            table = table
                .get_mut(name)
                .and_then(Item::as_table_like_mut)
                .ok_or_else(|| shape(&path[..=depth], "a table"))?;
        }
        Ok(table)
    }

    fn item(&self, path: &[&str]) -> Option<&Item> {
        path.iter().try_fold(self.0.as_item(), |item, name| {
            item.as_table_like()?.get(name)
        })
    }

    fn array(&mut self, path: &[&str]) -> Result<&mut Array, DocumentError> {
        let (name, parents) = path.split_last().ok_or_else(|| shape(path, "a list"))?;
        let table = self.table(parents)?;
        if table.get(name).is_none() {
            table.insert(name, toml_edit::value(Array::new()));
        }
        table
            .get_mut(name)
            .and_then(Item::as_array_mut)
            .ok_or_else(|| shape(path, "a list"))
    }

    /// Gives a key at the top another name.
    fn rename(&mut self, before: &str, now: &str) {
        let decor = self.0.key(before).map(|key| key.leaf_decor().clone());
        let Some(item) = self.0.remove(before) else {
            return;
        };
        self.0.insert(now, item);
        if let (Some(mut key), Some(decor)) = (self.0.key_mut(now), decor) {
            *key.leaf_decor_mut() = decor;
        }
    }

    /// The list of tables with this heading.
    fn tables(&mut self, name: &str) -> Result<&mut ArrayOfTables, DocumentError> {
        let item = self
            .0
            .entry(name)
            .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        item.as_array_of_tables_mut()
            .ok_or_else(|| shape(&[name], "a list of tables"))
    }
}

impl Document for Toml {
    fn whole(&self) -> Option<Value> {
        Some(all_keys(self.0.as_item()))
    }

    fn get(&self, path: &[&str]) -> Option<Value> {
        from_item(self.item(path)?)
    }

    fn set(&mut self, path: &[&str], value: &Value) -> Result<(), DocumentError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        if let Value::Object(fields) = value {
            for (field, value) in fields {
                let path: Vec<&str> = path.iter().copied().chain([field.as_str()]).collect();
                self.set(&path, value)?;
            }
            return Ok(());
        }
        let mut new = into_value(value).ok_or_else(|| shape(path, "a value of TOML"))?;
        let table = self.table(parents)?;
        match table.get_mut(name) {
            Some(Item::Value(old)) => {
                *new.decor_mut() = old.decor().clone();
                *old = new;
            }
            Some(Item::None) | None => drop(table.insert(name, Item::Value(new))),
            Some(Item::Table(_) | Item::ArrayOfTables(_)) => {
                return Err(shape(path, "a plain value"));
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) -> Result<(), DocumentError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        if self.item(path).is_some() {
            self.table(parents)?.remove(name);
        }
        Ok(())
    }

    fn append(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError> {
        self.array(path)?.push(item);
        Ok(())
    }

    fn remove_item(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError> {
        if self.item(path).is_some() {
            self.array(path)?
                .retain(|value| value.as_str() != Some(item));
        }
        Ok(())
    }

    fn behind(&self, _: &[&str]) -> Vec<String> {
        Vec::new()
    }

    fn text(&self) -> String {
        self.1.put(&self.0.to_string())
    }
}

fn into_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => number.as_i64()?.into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => {
            toml_edit::Value::Array(items.iter().map(into_value).collect::<Option<Array>>()?)
        }
        Value::Null | Value::Object(_) => return None,
    })
}

/// The value of an item with every key in it, those too whose value has no form in JSON.
fn all_keys(item: &Item) -> Value {
    let Some(table) = item.as_table_like() else {
        return from_item(item).unwrap_or(Value::Null);
    };
    table
        .iter()
        .map(|(name, item)| (name.to_owned(), all_keys(item)))
        .collect::<Map<_, _>>()
        .into()
}

fn from_item(item: &Item) -> Option<Value> {
    if let Some(table) = item.as_table_like() {
        let fields = table
            .iter()
            .filter_map(|(name, item)| Some((name.to_owned(), from_item(item)?)));
        return Some(Value::Object(fields.collect::<Map<_, _>>()));
    }
    from_value(item.as_value()?)
}

fn from_value(value: &toml_edit::Value) -> Option<Value> {
    Some(match value {
        toml_edit::Value::String(text) => Value::String(text.value().clone()),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(value) => Value::Bool(*value.value()),
        toml_edit::Value::Array(items) => {
            items.iter().map(from_value).collect::<Option<Value>>()?
        }
        toml_edit::Value::Float(_)
        | toml_edit::Value::Datetime(_)
        | toml_edit::Value::InlineTable(_) => {
            return None;
        }
    })
}

/// Adds `item` to the list of a key, which is created if missing, after a comment line. A list that already has it stays unchanged.
///
/// # Errors
/// If the text is not TOML, or the key has a value of another type.
pub(crate) fn add_to_list(
    text: &str,
    path: &[&str],
    item: impl Into<toml_edit::Value>,
    comment: &str,
) -> Result<String, DocumentError> {
    let mut toml = Toml::read(text)?;
    let list = toml.array(path)?;
    let mut value = item.into();
    let parts = |value: &toml_edit::Value| (value.as_str().map(str::to_owned), value.as_integer());
    if list.iter().any(|known| parts(known) == parts(&value)) {
        return Ok(text.to_owned());
    }
    value.decor_mut().set_prefix(format!("\n  # {comment}\n  "));
    list.push_formatted(value);
    list.set_trailing_comma(true);
    list.set_trailing("\n");
    Ok(toml.text())
}

/// Gives a key a value, with a comment above it.
///
/// # Errors
/// If the text is not TOML, or has something else in its place.
pub(crate) fn set_key(
    text: &str,
    path: &[&str],
    value: &str,
    comment: &str,
) -> Result<String, DocumentError> {
    let mut toml = Toml::read(text)?;
    toml.set(path, &value.into())?;
    if let Some((name, parents)) = path.split_last()
        && let Some(mut key) = toml.table(parents)?.key_mut(name)
    {
        key.leaf_decor_mut().set_prefix(format!("# {comment}\n"));
    }
    Ok(toml.text())
}

/// Sets a key to a table of one key, on one line.
///
/// # Errors
/// If the text is not TOML, or has something else in its place.
pub(crate) fn set_inline(
    text: &str,
    path: &[&str],
    (key, value): (&str, Value),
) -> Result<String, DocumentError> {
    let mut toml = Toml::read(text)?;
    let Some((name, parents)) = path.split_last() else {
        return Ok(text.to_owned());
    };
    let value = into_value(&value).ok_or_else(|| shape(path, "a value of TOML"))?;
    let inline: InlineTable = [(key, value)].into_iter().collect();
    let value = Item::Value(toml_edit::Value::InlineTable(inline));
    toml.table(parents)?.insert(name, value);
    Ok(toml.text())
}

/// Adds a profile that extends another one to a policy file.
///
/// # Errors
/// If the text is not TOML, or has something else in its place.
pub fn extend(text: &str, profile: &str, base: &str) -> Result<String, DocumentError> {
    let mut toml = Toml::read(text)?;
    // A name under `profile` stands in a file without profiles only.
    if toml.item(&["profile"]).is_some_and(Item::is_str) {
        toml.rename("profile", "default_profile");
    }
    toml.set(&["profile", profile, "extends"], &base.into())?;
    Ok(toml.text())
}

/// The sessions that get another profile than before, by the names of a policy file.
#[derive(Debug)]
pub struct Choices<'a> {
    /// The profile before and now.
    pub profile: (&'a str, &'a str),
    /// Whether sessions that name none get it.
    pub(crate) is_default: bool,
    /// Entries of `auto` to append: files and a profile.
    pub more: Vec<(Vec<&'a str>, &'a str)>,
    /// A comment on the new entry.
    pub(crate) comment: &'a str,
}

/// Changes the choices of a policy file. The entries of `auto` that it has get the new profile where they have the one before.
///
/// # Errors
/// If the text is not TOML, or has something else in its place.
pub fn choose(text: &str, choices: &Choices) -> Result<String, DocumentError> {
    let mut toml = Toml::read(text)?;
    let Choices {
        profile: (before, now),
        is_default,
        more,
        comment,
    } = choices;
    let head = format!("# {comment}\n");
    if *is_default {
        let is_new = toml.item(&["default_profile"]).is_none();
        toml.set(&["default_profile"], &(*now).into())?;
        if let Some(mut key) = toml.0.key_mut("default_profile").filter(|_| is_new) {
            key.leaf_decor_mut().set_prefix(&head);
        }
    }
    for table in toml.tables("auto")?.iter_mut() {
        if let Some(Item::Value(value)) = table.get_mut("profile")
            && value.as_str() == Some(before)
        {
            let decor = value.decor().clone();
            *value = (*now).into();
            *value.decor_mut() = decor;
        }
    }
    for (files, profile) in more {
        let mut table = Table::new();
        table.insert(
            "files",
            toml_edit::value(files.iter().copied().collect::<Array>()),
        );
        table.insert("profile", toml_edit::value(*profile));
        // The others are copies of entries elsewhere, which keep their order: nobody has allowed anything by them.
        let head = if profile == now { &head } else { "" };
        table.decor_mut().set_prefix(format!("\n{head}"));
        toml.tables("auto")?.push(table);
    }
    Ok(toml.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_change_what_they_name_and_nothing_else() {
        let text = "version = 1\n# Mine\nprofile = 'auto' # so\n";
        let extended = extend(text, "my-rust", "rust").unwrap();
        let want = "version = 1\n# Mine\ndefault_profile = 'auto' # so\n\n[profile.my-rust]\nextends = \"rust\"\n";
        assert_eq!(extended, want);
        let more = vec![
            (vec!["package.json"], "node"),
            (vec!["Cargo.toml"], "my-rust"),
        ];
        let by_auto = Choices {
            profile: ("rust", "my-rust"),
            is_default: false,
            more,
            comment: "Why",
        };
        let chosen = choose(want, &by_auto).unwrap();
        let copy = "\n[[auto]]\nfiles = [\"package.json\"]\nprofile = \"node\"\n";
        let entry = "\n# Why\n[[auto]]\nfiles = [\"Cargo.toml\"]\nprofile = \"my-rust\"\n";
        assert_eq!(chosen, format!("{want}{copy}{entry}"));
        let default = Choices {
            is_default: true,
            more: vec![],
            ..by_auto
        };
        let named = choose(
            "version = 1\n[[auto]]\nfiles = []\nprofile = 'rust' # here\n",
            &default,
        )
        .unwrap();
        let want = "version = 1\n# Why\ndefault_profile = \"my-rust\"\n[[auto]]\nfiles = []\nprofile = \"my-rust\" # here\n";
        assert_eq!(named, want);
        assert_eq!(choose(want, &default).unwrap(), want, "once");
        assert!(choose("auto = [{ files = [], profile = 'rust' }]\n", &default).is_err());
    }

    fn added(text: &str) -> Result<String, DocumentError> {
        add_to_list(
            text,
            &["profile", "p", "network", "allow"],
            "a.example:443",
            "Why",
        )
    }

    #[test]
    fn an_item_comes_behind_its_comment_and_nothing_else_changes() {
        let want =
            "version = 1\n\n[profile.p.network]\nallow = [\n  # Why\n  \"a.example:443\",\n]\n";
        assert_eq!(added("version = 1\n").unwrap(), want);
        assert_eq!(added(want).unwrap(), want, "it is there");
        let list =
            added("# Mine\n[profile.p.network] # here\nallow = [ 'b.example' ] # hosts\n").unwrap();
        assert_eq!(
            list,
            "# Mine\n[profile.p.network] # here\nallow = [ 'b.example' ,\n  # Why\n  \"a.example:443\",\n] # hosts\n"
        );
        let inline = added("profile.p.network = { presets = ['npm'] }\n").unwrap();
        let read: toml_edit::DocumentMut = inline.parse().unwrap();
        assert_eq!(
            read["profile"]["p"]["network"]["allow"][0].as_str(),
            Some("a.example:443"),
            "{inline}"
        );
        for text in [
            "profile = 'auto'\n",
            "[profile.p.network]\nallow = 'x'\n",
            "no toml",
        ] {
            assert!(added(text).is_err(), "{text}");
        }
    }
}
