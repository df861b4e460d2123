//! `lazaret tools`: the catalogue.

use super::{exit, say};
use crate::domain::catalogue::TOOLS;
use broker_protocol::Failed;
use clap::Args;
use serde_json::Value;

/// List the tools and their input
#[derive(Args)]
#[command(after_help = "Example:\n  lazaret tools --json | jq '.[].name'\n\nExit code: 0.")]
pub struct Tools {
    /// Print a JSON array with the schema of each tool's input
    #[arg(long)]
    json: bool,
}

impl Tools {
    /// Prints the list.
    pub fn main(self) -> Result<u8, Failed> {
        match self.json {
            true => say::json(&TOOLS.iter().map(|tool| tool.to_json()).collect::<Vec<Value>>())?,
            false => say::result(table().as_bytes())?,
        }
        Ok(exit::OK)
    }
}

fn table() -> String {
    let mut table = format!(
        "{:<11}{:<9}{:<8}{}\n",
        "TOOL", "CATEGORY", "RISK", "INPUT (* required)  [other names of the tool]"
    );
    for tool in &TOOLS {
        let name = |field: &crate::domain::field::Field| match field.required {
            true => format!("{}*", field.name),
            false => field.name.to_owned(),
        };
        let fields = tool.fields.iter().map(name).collect::<Vec<_>>().join(", ");
        let (category, risk) = (tool.category.name(), tool.risk.name());
        let aliases = tool.aliases.join(", ");
        table.push_str(&format!("{:<11}{category:<9}{risk:<8}{fields}  [{aliases}]\n", tool.name));
    }
    table
}
