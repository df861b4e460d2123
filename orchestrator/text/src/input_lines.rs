//! The input of a call as lines, for the person who has to approve it.

use crate::escape;
use crate::truncate::counted;
use serde_json::Value;

/// The complete input of a call, from [`crate::sanitize::Sanitizer::input`], as escaped lines for the person who has to approve it.
/// Short fields, such as a path, come before long ones: a model does not choose the order. Different inputs give different lines.
pub fn input_lines(input: &Value) -> Vec<String> {
    let mut input = input.clone();
    input.sort_all_objects();
    let Some(fields) = input.as_object() else {
        return escape::lines_of_input(&input.to_string());
    };
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    // A text that looks like a number or a list is marked as text.
    let is_json = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| serde_json::from_str::<Value>(text).is_ok())
    };
    let named = |(name, value): (&String, &Value)| {
        (
            format!(
                "{}{}",
                field_name(name),
                if is_json(value) { ", a text" } else { "" }
            ),
            text(value),
        )
    };
    let mut fields: Vec<(String, String)> = fields.iter().map(named).collect();
    fields.sort_by_key(|(_, text)| text.len());
    fields
        .iter()
        .flat_map(|(name, text)| field_lines(name, text))
        .collect()
}

/// Quoted if the following text could be taken for a part of it.
fn field_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        escape::one_line(&format!("{name:?}"))
    }
}

fn field_lines(name: &str, text: &str) -> Vec<String> {
    let lines = escape::lines_of_input(text);
    match &lines[..] {
        [] => vec![format!("{name} is empty")],
        [line] if !text.ends_with('\n') => vec![format!("{name}: {line}")],
        several => {
            let end = if text.ends_with('\n') {
                ""
            } else {
                ", the last open"
            };
            let head = format!("{name}, {}{end}:", counted(several.len() as u64, "line"));
            [head]
                .into_iter()
                .chain(several.iter().map(|line| format!("  {line}")))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_fields_are_shown_alike_in_any_order() {
        let of = |text| input_lines(&serde_json::from_str(text).unwrap());
        let shown = of(r#"{"b":"xy","a":"xy","c":{"e":1,"d":2}}"#);
        assert_eq!(shown, ["a: xy", "b: xy", r#"c: {"d":2,"e":1}"#]);
        assert_eq!(of(r#"{"c":{"d":2,"e":1},"a":"xy","b":"xy"}"#), shown);
    }
}
