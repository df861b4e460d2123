//! The fields of spans and events as JSON. They consist of names, numbers and verdicts. Any foreign text in them (a model's name,
//! an ID that a client chose) is cut and loses known secrets and unsafe characters here.

use orchestrator_text::known::redactor;
use orchestrator_text::sanitize::Sanitizer;
use orchestrator_text::utf8::beginning;
use serde_json::Value;
use std::error::Error;
use std::fmt;
use tracing::field::{Field, Visit};

/// Maximum length of a field's text, in bytes.
pub(crate) const TEXT_MAX: usize = 256;
/// Maximum number of fields of a span or an event.
const FIELDS_MAX: usize = 32;
/// Fields with this prefix are only for the exporter.
const FOR_EXPORT: &str = "otel.";

/// Fields by name, without duplicates, in the order of their first value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Takes from `inner` the fields that are missing or different here.
    pub(crate) fn update(&mut self, inner: &Fields) {
        inner
            .0
            .iter()
            .for_each(|(name, value)| self.put(name, value.clone()));
    }

    fn set(&mut self, field: &Field, value: Value) {
        if !field.name().starts_with(FOR_EXPORT) {
            self.put(field.name(), value);
        }
    }

    fn put(&mut self, name: &'static str, value: Value) {
        if let Some((_, old)) = self.0.iter_mut().find(|(of, _)| *of == name) {
            *old = value;
        } else if self.0.len() < FIELDS_MAX {
            self.0.push((name, value));
        }
    }
}

/// A text that is safe to log.
pub(crate) fn clean(text: &str) -> String {
    let text = Sanitizer::new(redactor()).text(text);
    match beginning(&text, TEXT_MAX) {
        whole if whole.len() == text.len() => text,
        start => format!("{start}…"),
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.set(field, i64::try_from(value).unwrap_or(i64::MAX).into());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.set(field, u64::try_from(value).unwrap_or(u64::MAX).into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, clean(value).into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field, clean(&value.to_string()).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, clean(&format!("{value:?}")).into());
    }
}
