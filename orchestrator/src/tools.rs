//! `lazaret tools`: prints the catalogue of tools.

use crate::tool_options;
use broker_protocol::Failed;
use clap::Args;
use orchestrator_confine::Needs;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{
    CentralOption, DirectoryOptions, EndpointOptions, Options, ProfileOption, ScopeOption,
};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::print;
use orchestrator_mcp_client::SessionServers;
use orchestrator_text::escape;
use orchestrator_tools::registry::{Entry, Registry};
use serde_json::Value;
use std::path::Path;
use std::rc::Rc;

/// List the tools and their input: those that no rule denies outright, and with --scope only those that it permits
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret tools --json | jq '.[].name'\n  lazaret tools --scope agent.yaml\n\n\
                        `subagent` is for `chat` and `serve`, which have models."
)]
pub(crate) struct Tools {
    /// Print a JSON array with the schema of each tool's input
    #[arg(long)]
    json: bool,
    /// Leave a tool out; may be given more than once
    #[arg(long, value_name = "TOOL")]
    disable: Vec<String>,
    #[command(flatten)]
    directory: DirectoryOptions,
    #[command(flatten)]
    central: CentralOption,
    #[command(flatten)]
    profile: ProfileOption,
    #[command(flatten)]
    endpoint: EndpointOptions,
    #[command(flatten)]
    scope: ScopeOption,
}

impl Tools {
    fn options(&self) -> Options {
        Options::of(&self.directory)
            .and(&self.central)
            .and(&self.profile)
            .and(&self.endpoint)
            .and(&self.scope)
    }
}

impl FrontEnd for Tools {
    const ROW: CommandRow = CommandRow {
        name: "tools",
        sessions: SessionCount::None,
        access: CommandAccess::Confined {
            network: NetworkUse::IfNeeded,
            writes: Writes::Servers,
        },
        log: false,
        usage: exit::USAGE,
        exit: "0; 2 wrong arguments, or the scope is invalid; 125 the policy cannot be used",
    };

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(self.options())?;
        let options = prepared.options();
        let scope = options.scope()?;
        let policy = options
            .policy()
            .map_err(|error| Failed::internal(error.to_string()))?;
        let mut registry = tool_options::registry(&self.disable, Some(policy))?.with_models();
        add_servers(prepared, &mut registry)?;
        let tools = registry.list(scope.as_ref());
        match self.json {
            true => print::json(&tools.iter().map(Entry::to_json).collect::<Vec<Value>>())?,
            false => print::result(table(&tools).as_bytes())?,
        }
        Ok(exit::OK)
    }
}

/// Adds the tools of MCP servers. A server that was never seen before is started to list them.
fn add_servers(prepared: Prepared, registry: &mut Registry) -> Result<(), Failed> {
    let options = prepared.options();
    let mut opening = options.open()?.open;
    opening.scope = options.scope()?;
    let mut servers = SessionServers::of(prepared.files(), &opening, print::problem);
    if servers.are_none() {
        return Ok(());
    }
    let mut socket = None;
    match prepared.lasting_endpoint() {
        Ok(endpoint) => {
            socket = endpoint.socket().map(Path::to_owned);
            servers.reach(Rc::new(endpoint));
        }
        // Tools that are already known are listed anyway.
        Err(error) => print::problem(&error.to_string()),
    }
    let confined = prepared.confine(Needs {
        web: true,
        socket,
        write: servers.directories(),
        ..Needs::default()
    });
    confined.run(|_| "the tools are listed", async {
        servers.attach(registry).await;
        servers.close().await;
        Ok(())
    })
}

fn table(tools: &[Entry]) -> String {
    // Tools of MCP servers have longer names than ours.
    let width = tools
        .iter()
        .map(|tool| tool.name().len() + 1)
        .max()
        .unwrap_or(0)
        .max(17);
    let mut table = format!(
        "{:<width$}{:<9}{:<8}{}\n",
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
        let field = |name: &String| {
            if is_required(name) {
                format!("{name}*")
            } else {
                name.clone()
            }
        };
        let fields: Vec<_> = schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(|all| all.keys())
            .map(field)
            .collect();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let aliases: Vec<_> = json["aliases"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        let (category, risk) = (text(&json["category"]), text(&json["risk"]));
        // Names of a server's tools and of their fields are a stranger's.
        let [name, fields, aliases] =
            [tool.name(), &fields.join(", "), &aliases.join(", ")].map(escape::one_line);
        table.push_str(&format!(
            "{name:<width$}{category:<9}{risk:<8}{fields}  [{aliases}]\n"
        ));
    }
    table
}
