//! What all inputs have in common: a schema, and a conversion into a plan.

use crate::input_error::{FieldError, InputError};
use crate::plan::{Plan, PlanContext};
use crate::schema::Schema;
use broker_protocol::{ZonePath, limit};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The input of a tool.
pub(crate) trait ToolInput: DeserializeOwned + JsonSchema {
    /// The plan of a call with this input.
    ///
    /// # Errors
    /// If fields contradict each other, or a path lies outside the zones.
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError>;
}

/// The JSON Schema of an input, without references; its description is the tool's.
pub fn schema_of<I: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<I>();
    schema.remove("title");
    // Some model providers require it in every object.
    schema
        .ensure_object()
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    PlainSchema.transform(&mut schema);
    schema.to_value()
}

/// Explains why a value is no `I`, in the same words as for any invalid input.
pub fn explain<I: JsonSchema>(value: &Value) -> Option<FieldError> {
    explain_by(schema_of::<I>(), value)
}

/// Explains what in a value differs from a schema of ours.
pub fn explain_by(schema: Value, value: &Value) -> Option<FieldError> {
    Schema::built_in(schema).ok()?.check(value).err()
}

/// Removes what a model does not need: that an absent field may be `null`, number formats, line breaks in a description.
struct PlainSchema;

impl Transform for PlainSchema {
    fn transform(&mut self, schema: &mut schemars::Schema) {
        transform_subschemas(self, schema);
        schema.remove("format");
        if schema.get("default") == Some(&Value::Null) {
            schema.remove("default");
        }
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|name| name != "null");
            if let [one] = &types[..] {
                let one = one.clone();
                schema.insert("type".into(), one);
            }
        }
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        if let Some(Value::Array(either)) = schema.get_mut("anyOf") {
            either.retain(|one| one["type"] != "null");
            if let [Value::Object(one)] = &either[..] {
                let one = one.clone();
                schema.remove("anyOf");
                for (name, value) in one {
                    schema.ensure_object().entry(name).or_insert(value);
                }
            }
        }
        match schema
            .get("description")
            .and_then(Value::as_str)
            .map(|text| text.replace('\n', " "))
        {
            Some(text) if text.is_empty() => drop(schema.remove("description")),
            Some(text) => drop(schema.insert("description".into(), text.into())),
            None => {}
        }
    }
}

/// A time limit in seconds, at most the protocol's maximum.
pub fn seconds(asked: Option<u64>) -> Option<u32> {
    asked.map(|seconds| {
        u32::try_from(seconds)
            .unwrap_or(u32::MAX)
            .min(limit::TIMEOUT_S)
    })
}

/// A path of one of the zones; by default, the directory that relative paths start from.
pub(crate) fn path_or_project(
    path: Option<&str>,
    context: &PlanContext<'_>,
) -> Result<ZonePath, InputError> {
    Ok(match path {
        Some(path) => context.path(path)?,
        None => context
            .paths_from
            .cloned()
            .unwrap_or_else(|| ZonePath::root(broker_protocol::Zone::Project)),
    })
}
