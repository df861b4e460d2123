//! `lazaret tools`: the catalogue.

use super::place::Place;
use super::{exit, say, toolbox};
use crate::application::registry::Entry;
use broker_protocol::Failed;
use clap::Args;
use serde_json::Value;

/// List the tools and their input: those that no rule denies outright, and with --scope only those that it permits
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret tools --json | jq '.[].name'\n  lazaret tools --scope agent.yaml\n\n\
                        Exit code: 0; 2 if the scope is no scope; 125 if the\n\
                        policy cannot be used."
)]
pub struct Tools {
    /// Print a JSON array with the schema of each tool's input
    #[arg(long)]
    json: bool,
    /// Leave a tool out; may be given more than once
    #[arg(long, value_name = "TOOL")]
    disable: Vec<String>,
}

impl Tools {
    /// Prints the list.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        let scope = place.scope()?;
        let policy = place.policy().map_err(|error| say::internal(error.to_string()))?;
        let tools = toolbox::registry(&self.disable, Some(policy))?.list(scope.as_ref());
        match self.json {
            true => say::json(&tools.iter().map(Entry::to_json).collect::<Vec<Value>>())?,
            false => say::result(table(&tools).as_bytes())?,
        }
        Ok(exit::OK)
    }
}

fn table(tools: &[Entry]) -> String {
    let mut table = format!(
        "{:<17}{:<9}{:<8}{}\n",
        "TOOL", "CATEGORY", "RISK", "INPUT (* required)  [other names of the tool]"
    );
    for tool in tools {
        let json = tool.to_json();
        let schema = &json["inputSchema"];
        let is_required = |name: &String| {
            schema["required"]
                .as_array()
                .is_some_and(|required| required.iter().any(|one| one == name.as_str()))
        };
        let field = |name: &String| if is_required(name) { format!("{name}*") } else { name.clone() };
        let fields: Vec<_> =
            schema["properties"].as_object().into_iter().flat_map(|all| all.keys()).map(field).collect();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let aliases: Vec<_> = json["aliases"].as_array().into_iter().flatten().map(text).collect();
        let (category, risk) = (text(&json["category"]), text(&json["risk"]));
        let (fields, aliases) = (fields.join(", "), aliases.join(", "));
        table.push_str(&format!("{:<17}{category:<9}{risk:<8}{fields}  [{aliases}]\n", tool.name()));
    }
    table
}
