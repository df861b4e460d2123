//! `lazaret call`: calls one tool once.

use crate::result;
use crate::tool_options::ToolOptions;
use broker_protocol::{Failed, Open};
use clap::Args;
use orchestrator_confine::{ConfinementProof, Needs};
use orchestrator_engine::executor::Greeting;
use orchestrator_engine::{CallContext, CallResult, FoundIn, Invocation, Session};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, WorkOptions};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::feed::feed;
use orchestrator_launch::stdio::line_reader::LINE_MAX;
use orchestrator_launch::stdio::print;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_launch::stdio::typed;
use orchestrator_mcp_client::SessionServers;
use orchestrator_tools::ToolConfig;
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Longest input of a tool, the same as in a session.
const INPUT_MAX: u64 = LINE_MAX as u64;

const EXAMPLES: &str = "\
Examples:
  lazaret call bash '{\"command\":\"git status\"}'
  lazaret call file_read '{\"path\":\"src/main.rs\",\"offset\":10,\"limit\":20}'
  lazaret call grep '{\"pattern\":\"TODO\",\"include\":\"*.rs\"}' --json
  lazaret call file_write - < input.json
  lazaret call web_fetch '{\"url\":\"https://www.rust-lang.org/\"}'

The tools and their input: `lazaret tools`.";

/// Call one tool and print its result
///
/// The result goes to standard output, an error to standard error. On a terminal, control and invisible characters are
/// escaped; into a pipe goes every byte; JSON has none of these characters, unless --raw-output asks for them. A file that is
/// written or edited is read first, as a session would have to.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Call {
    #[command(flatten)]
    tools: ToolOptions,
    /// Print the whole result as one JSON object
    #[arg(long)]
    json: bool,
    /// Name of the tool
    tool: String,
    /// Its input, a JSON object; `-` reads it from standard input
    #[arg(value_name = "JSON")]
    input: String,
    #[command(flatten)]
    work: WorkOptions,
}

impl FrontEnd for Call {
    const ROW: CommandRow = CommandRow {
        name: "call",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::IfNeeded,
            writes: Writes::Servers,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 done; 1 the tool failed (not found, input or output, a command's code that is not 0); 2 wrong input, or no such \
               tool; 3 violation; 124 time limit; 125 lazaret failed; 126 refused by policy",
    };

    fn wrong_arguments() -> ErrorForm {
        ErrorForm::result(true, "call")
    }

    fn errors(&self) -> ErrorForm {
        ErrorForm::result(self.json, &self.tool)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.work))?;
        let (options, files) = (prepared.options(), prepared.files());
        let input = self.read_input()?;
        let policy = options.policy();
        let network = options.network(policy.as_ref().ok());
        let hooks = prepared.hooks()?;
        let opening = options.open()?;
        let mut servers = SessionServers::of_tool(files, &self.tool, &opening.open, print::problem);
        let reaches_again = !servers.are_none() || !hooks.are_none();
        let endpoint = match reaches_again {
            // A server and a hook run in sessions of their own, not in the call's.
            true => prepared.lasting_endpoint()?,
            false => prepared.endpoint()?,
        };
        let dial = Rc::new(endpoint.clone());
        servers.reach(dial.clone());
        let guard = |open: &Open| hooks.guard(open, dial);
        let mut config = self.tools.config(opening, policy, guard)?;
        config.open.network = network.filter(|_| self.runs_commands(&config));
        let greeting = Greeting::open(&endpoint, config.open.clone())?;
        // A tool that does not exist needs no network.
        let web = config
            .tools
            .get(&self.tool)
            .is_ok_and(|entry| entry.runs_outside());
        let web = web || !servers.are_none();
        let socket = endpoint
            .socket()
            .filter(|_| reaches_again)
            .map(Path::to_owned);
        let confined = prepared.confine(Needs {
            web,
            socket,
            write: servers.directories(),
            ..Needs::default()
        });
        let config = ToolConfig {
            greeting: Some(greeting),
            single_call: true,
            subscribers: vec![confined.log()],
            ..config
        };
        let work = self.perform(config, &servers, input, confined.proof());
        let result = confined.run(call_ended, work)?;
        result::report(&result, self.json)
    }
}

/// Why the run log of a single call ends.
pub(crate) fn call_ended<T>(done: &Result<T, Failed>) -> &'static str {
    match done {
        Ok(_) => "the call has ended",
        Err(_) => "no session could be opened",
    }
}

impl Call {
    /// Whether the tool runs in a cell, or may.
    fn runs_commands(&self, config: &ToolConfig) -> bool {
        let entry = config.tools.get(&self.tool);
        entry.is_ok_and(|entry| ["bash", "run_tests", "batch"].contains(&entry.name()))
    }

    async fn perform(
        &self,
        mut config: ToolConfig,
        servers: &SessionServers,
        input: Value,
        proof: ConfinementProof,
    ) -> Result<Arc<CallResult>, Failed> {
        servers.attach(config.tools.registry()).await;
        let result = self.call(config, input, proof).await;
        servers.close().await;
        result
    }

    async fn call(
        &self,
        config: ToolConfig,
        input: Value,
        proof: ConfinementProof,
    ) -> Result<Arc<CallResult>, Failed> {
        let session = Session::start(config, proof);
        session.open().await?;
        let takes_input = input.get("stdin") == Some(&Value::Bool(true));
        let stdin = takes_input
            .then(InputStream::stdin)
            .transpose()
            .map_err(|error| Failed::internal(error.to_string()))?;
        // Output that is not JSON is printed raw; what goes to a terminal is escaped when it is printed.
        let found = if self.json {
            FoundIn::Text
        } else {
            FoundIn::Metadata
        };
        let context = CallContext {
            raw: !self.json || self.tools.is_raw(),
            found,
            ..CallContext::new("call".into())
        };
        let invocation = Invocation::Tool {
            name: self.tool.clone(),
            input,
        };
        let mut call = session.call(context, invocation);
        let handle = call.handle.clone();
        tokio::select! {
            result = typed::follow(&mut call) => result,
            never = feed(&handle, stdin) => match never {},
        }
    }

    fn read_input(&self) -> Result<Value, Failed> {
        let mut text = String::new();
        let json = match self.input.as_str() {
            "-" => {
                let read = io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text);
                read.map_err(|error| Failed::invalid(format!("cannot read the input: {error}")))?;
                &text
            }
            given => given,
        };
        serde_json::from_str(json)
            .map_err(|error| Failed::invalid(format!("the input is not JSON: {error}")))
    }
}
