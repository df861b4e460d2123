//! A tool as it is listed to a client.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// Tools that change state other than project files, and start no program.
const KEEP_STATE: [&str; 7] = [
    "background_kill",
    "checkpoint",
    "finish_task",
    "goal_complete",
    "goal_create",
    "goal_switch",
    "todo_write",
];

/// The tool in one entry of a list of tools.
pub(crate) fn tool(listed: &Value) -> Option<Tool> {
    let name = listed["name"].as_str()?;
    let Value::Object(input) = &listed["inputSchema"] else {
        return None;
    };
    let description = listed["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let tool = Tool::new(name.to_owned(), description, Arc::new(input.clone()));
    let annotations = annotations(name, &listed["risk"], &listed["category"]);
    Some(tool.with_annotations(annotations))
}

fn annotations(name: &str, risk: &Value, category: &Value) -> ToolAnnotations {
    let changes =
        risk != "low" || KEEP_STATE.contains(&name) || name == "memory" || name == "batch";
    let is_open =
        category == "web" || category == "remote" || name == "batch" || name == "view_image";
    ToolAnnotations::from_raw(
        None,
        Some(!changes),
        Some(risk != "low" || name == "batch"),
        None,
        Some(is_open),
    )
}

/// The schema of every tool's structured result.
pub(crate) fn output_schema() -> Arc<JsonObject> {
    let schema = json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["success", "error"] },
            "result": { "type": "string", "description": "What the tool found or the command printed." },
            "error": {
                "type": "object",
                "properties": {
                    "code": { "type": "string", "description": "Such as exit_nonzero, denied_policy, violation, not_found." },
                    "layer": { "type": "string" },
                    "message": { "type": "string" },
                    "advice": { "type": "string", "description": "What to do about it." }
                },
                "required": ["code", "message"]
            },
            "metadata": {
                "type": "object",
                "description": "What is known besides: exitCode, truncated, and what only this tool knows.",
                "properties": { "exitCode": { "type": "integer" }, "signal": { "type": "integer" } }
            }
        },
        "required": ["status", "result", "metadata"]
    });
    let Value::Object(schema) = schema else {
        return Arc::default();
    };
    Arc::new(schema)
}
