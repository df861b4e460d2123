//! Arguments with templates: `{{file.path}}`, `{{tool}}`. The values are data: they stay within their argument, no shell interprets
//! them, and templates in them are not expanded.

use orchestrator_engine::hooks::Occasion;
use thiserror::Error;

/// The possible values of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Event,
    Conversation,
    Tool,
    ToolId,
    FilePath,
}

const FIELDS: [(&str, Field); 5] = [
    ("event", Field::Event),
    ("conversation", Field::Conversation),
    ("tool", Field::Tool),
    ("tool.id", Field::ToolId),
    ("file.path", Field::FilePath),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Field(Field),
}

/// An argument of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePiece>);

/// Why an argument is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("`{{{{` without `}}}}`")]
    Open,
    #[error("there is no {{{{{name}}}}}; there are {known}")]
    Unknown { name: String, known: String },
}

impl Template {
    /// Parses `text` as an argument.
    ///
    /// # Errors
    /// If it names a template that does not exist.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or(TemplateError::Open)?;
            let known = || FIELDS.map(|(name, _)| format!("{{{{{name}}}}}")).join(", ");
            let field = FIELDS
                .iter()
                .find(|(of, _)| *of == name.trim())
                .map(|(_, field)| *field);
            let field = field.ok_or_else(|| TemplateError::Unknown {
                name: name.to_owned(),
                known: known(),
            })?;
            pieces.extend([
                TemplatePiece::Text(before.to_owned()),
                TemplatePiece::Field(field),
            ]);
            rest = after;
        }
        pieces.push(TemplatePiece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// The argument with the values of the occasion. Missing values are empty.
    pub(crate) fn expand(&self, occasion: &Occasion) -> String {
        let call = occasion.call.as_ref();
        let value = |field: Field| match field {
            Field::Event => occasion.event.name(),
            Field::Conversation => occasion.conversation_id.as_deref().unwrap_or_default(),
            Field::Tool => call.map_or("", |call| &call.tool),
            Field::ToolId => call.map_or("", |call| &call.tool_id),
            Field::FilePath => call
                .and_then(|call| call.file.as_ref())
                .map_or("", |file| &file.path),
        };
        let piece = |piece: &TemplatePiece| match piece {
            TemplatePiece::Text(text) => text.clone(),
            TemplatePiece::Field(field) => value(*field).to_owned(),
        };
        self.0.iter().map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orchestrator_engine::hooks::{HookEvent, HookedCall, HookedFile};
    use serde_json::json;

    fn occasion(path: &str) -> Occasion {
        let call = HookedCall {
            tool_id: "t-1".into(),
            tool: "file_write".into(),
            input: json!({}),
            file: Some(HookedFile { path: path.into() }),
            result: None,
        };
        Occasion {
            event: HookEvent::BeforeTool,
            conversation_id: Some("c".into()),
            call: Some(call),
        }
    }

    #[test]
    fn template_values_stay_data_in_their_argument() {
        for path in [
            "a b",
            "a;rm -rf /",
            "a\nb",
            "$(id)`id`",
            "{{tool}}",
            "{{",
            "'\"\\",
            "-rf",
            "",
        ] {
            let expand = |text: &str| Template::parse(text).unwrap().expand(&occasion(path));
            assert_eq!(expand("{{file.path}}"), path);
            assert_eq!(
                expand("--of={{ tool }}:{{file.path}}."),
                format!("--of=file_write:{path}.")
            );
        }
        let all = Template::parse("{{event}} {{conversation}} {{tool.id}}").unwrap();
        assert_eq!(all.expand(&occasion("x")), "before_tool c t-1");
        let none = Occasion::of_conversation(HookEvent::SessionEnd, "c");
        assert_eq!(
            Template::parse("<{{file.path}}{{tool}}{{tool.id}}>")
                .unwrap()
                .expand(&none),
            "<>"
        );
    }

    #[test]
    fn template_with_an_unknown_name_is_an_error() {
        assert_eq!(Template::parse("a {{tool"), Err(TemplateError::Open));
        let error = Template::parse("{{file.name}}").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no {{file.name}}; there are {{event}}, "),
            "{error}"
        );
        assert_eq!(
            Template::parse("{ } }}").unwrap().expand(&occasion("x")),
            "{ } }}"
        );
    }
}
