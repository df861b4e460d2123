//! A file that is ours as a whole: a program that a client loads. Its one key is [`KEY`].

use crate::document::{Document, DocumentError, shape};
use serde_json::Value;

/// The key that stands for the whole text.
pub(crate) const KEY: &str = "text";

/// The whole text of such a file.
pub(crate) struct SettingsText(String);

impl SettingsText {
    /// Any text has this form.
    pub(crate) fn read(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn check(path: &[&str]) -> Result<(), DocumentError> {
        if path == [KEY] {
            return Ok(());
        }
        Err(shape(path, "the whole text"))
    }
}

impl Document for SettingsText {
    fn whole(&self) -> Option<Value> {
        self.get(&[KEY])
    }

    fn get(&self, path: &[&str]) -> Option<Value> {
        (path == [KEY] && !self.0.is_empty()).then(|| self.0.as_str().into())
    }

    fn set(&mut self, path: &[&str], value: &Value) -> Result<(), DocumentError> {
        Self::check(path)?;
        self.0 = value
            .as_str()
            .ok_or_else(|| shape(path, "a text"))?
            .to_owned();
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) -> Result<(), DocumentError> {
        Self::check(path)?;
        self.0.clear();
        Ok(())
    }

    fn append(&mut self, path: &[&str], _: &str) -> Result<(), DocumentError> {
        Err(shape(path, "a list"))
    }

    fn remove_item(&mut self, path: &[&str], _: &str) -> Result<(), DocumentError> {
        Err(shape(path, "a list"))
    }

    fn behind(&self, _: &[&str]) -> Vec<String> {
        Vec::new()
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Format;
    use crate::edit::{KeyEdit, apply, present, revert};

    #[test]
    fn a_whole_text_is_put_and_taken_back() {
        let edits = [KeyEdit::set(KEY, "ours\n")];
        for before in ["", "a user's own\n"] {
            let after = apply(Format::Text, before, &edits).unwrap();
            assert_eq!(after, "ours\n");
            assert_eq!(present(Format::Text, &after, &edits), Ok(1));
            assert_eq!(
                revert(Format::Text, &after, before, &edits).unwrap(),
                before
            );
        }
        // What was changed since stays.
        assert_eq!(
            revert(Format::Text, "changed", "", &edits).unwrap(),
            "changed"
        );
        assert!(apply(Format::Text, "", &[KeyEdit::set("other", "x")]).is_err());
    }
}
