//! `lazaret tools`: the catalogue.

use super::{exit, say};
use crate::domain::catalogue::{self, TOOLS, Tool, WEB_TOOLS};
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
            true => say::json(&catalogue::all().collect::<Vec<Value>>())?,
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
    table.extend(TOOLS.iter().map(row).chain(WEB_TOOLS.iter().map(row)));
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
