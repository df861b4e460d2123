//! `lazaret schema`: prints the schema of the lines that programs exchange with this one.

use broker_protocol::Failed;
use clap::Args;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;
use orchestrator_wire::schema::schema;

const EXAMPLES: &str = "\
Examples:
  lazaret schema > lazaret.schema.json
  lazaret serve --openapi          the same for requests over HTTP,
  lazaret serve --asyncapi         and for messages of the WebSocket";

/// Print the JSON Schema of what programs read and write
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WireSchema {}

impl FrontEnd for WireSchema {
    const ROW: CommandRow = CommandRow::of_files("schema", "0");

    fn main(self, _launch: Launch) -> Result<u8, Failed> {
        print::result(format!("{:#}\n", schema()).as_bytes())?;
        Ok(exit::OK)
    }
}
