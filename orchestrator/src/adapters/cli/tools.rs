//! `lazaret tools`: the catalogue.

use super::place::Place;
use super::{exit, say};
use crate::domain::catalogue::{self, TOOLS, Tool, WEB_TOOLS};
use broker_protocol::Failed;
use clap::Args;
use serde_json::Value;

/// List the tools and their input, with --scope only those that it permits
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret tools --json | jq '.[].name'\n  lazaret tools --scope agent.yaml\n\n\
                        Exit code: 0; 125 if the scope is no scope."
)]
pub struct Tools {
    /// Print a JSON array with the schema of each tool's input
    #[arg(long)]
    json: bool,
}

impl Tools {
    /// Prints the list.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        let scope = place.scope()?;
        let permitted = |tool: &str| scope.as_ref().is_none_or(|scope| scope.permits(tool));
        match self.json {
            true => say::json(
                &catalogue::all()
                    .filter(|tool| permitted(tool["name"].as_str().unwrap_or_default()))
                    .collect::<Vec<Value>>(),
            )?,
            false => say::result(table(permitted).as_bytes())?,
        }
        Ok(exit::OK)
    }
}

fn table(permitted: impl Fn(&str) -> bool) -> String {
    let mut table = format!(
        "{:<11}{:<9}{:<8}{}\n",
        "TOOL", "CATEGORY", "RISK", "INPUT (* required)  [other names of the tool]"
    );
    table.extend(TOOLS.iter().filter(|tool| permitted(tool.name)).map(row));
    table.extend(WEB_TOOLS.iter().filter(|tool| permitted(tool.name)).map(row));
    table
}

fn row<B>(tool: &Tool<B>) -> String {
    let name = |field: &crate::domain::field::Field| match field.required {
        true => format!("{}*", field.name),
        false => field.name.to_owned(),
    };
    let fields = tool.fields.iter().map(name).collect::<Vec<_>>().join(", ");
    let (category, risk) = (tool.category.name(), tool.risk.name());
    let aliases = tool.aliases.join(", ");
    format!("{:<11}{category:<9}{risk:<8}{fields}  [{aliases}]\n", tool.name)
}
