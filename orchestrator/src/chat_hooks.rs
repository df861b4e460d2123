//! `lazaret chat-hooks list|accept`: lists the hooks of `agent.toml` and accepts those that may run.

use crate::chat::config::AgentConfig;
use crate::servers::is_accepted;
use broker_protocol::Failed;
use clap::{Args, Subcommand};
use orchestrator_confine::Files;
use orchestrator_hooks::hooks::{Acceptance, Hook};
use orchestrator_hooks::store::{AcceptedHooks, digest};
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;
use orchestrator_text::escape;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
In ~/.config/lazaret/agent.toml:
  [[hooks]]
  name = \"no-push\"
  event = \"before_tool\"             session_start, before_tool, after_tool, session_end
  program = \"hooks/no-push.py\"      from its first line on (#!), in a cell
  args = [\"{{tool}}\", \"{{file.path}}\"]
  tools = [\"bash\", \"mcp__git__*\"]   all, if absent
  timeout_s = 5
  profile = \"read-only\"

A hook is told what happens as JSON on standard input, and answers with JSON on
standard output: {\"allow\": true}, or {\"allow\": false, \"message\": \"why\"},
which the model reads. With \"input\" the call has another input, which is judged
as any; \"askAgent\" is a text for the model. A before_tool hook that gives no
such answer in time, or is not accepted as it is now, lets no call through.

The SHA-256 of entry and program is accepted: what was changed is not run
before it is accepted again. Hooks hear of the calls of chat, serve, mcp, acp,
session, call and lazaret-bash; session_start and session_end of chat and serve
alone. `lazaret hook` is another thing: what other agents ask before they run a
command.";

/// Your hooks: programs that are told of calls, whoever makes them, and may stop or change them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChatHooks {
    #[command(subcommand)]
    command: HooksCommand,
}

#[derive(Subcommand)]
enum HooksCommand {
    List(ListHooks),
    Accept(AcceptHook),
}

/// List the hooks, and whether each was accepted as it is
#[derive(Args)]
struct ListHooks {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Accept a hook as it is now: its entry and its program
#[derive(Args)]
struct AcceptHook {
    /// Its name
    name: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl FrontEnd for ChatHooks {
    const ROW: CommandRow = CommandRow::of_files(
        "chat-hooks",
        "0; 1 not accepted, or with list: one is not; 2 wrong settings; 125 lazaret failed",
    );

    fn errors(&self) -> ErrorForm {
        match &self.command {
            HooksCommand::List(list) => ErrorForm::object(list.json),
            HooksCommand::Accept(_) => ErrorForm::Text,
        }
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        match self.command {
            HooksCommand::List(list) => list.main(launch.files()),
            HooksCommand::Accept(accept) => accept.main(launch.files()),
        }
    }
}

impl ListHooks {
    fn main(self, files: &Files) -> Result<u8, Failed> {
        let hooks = AgentConfig::read(files)?.read_hooks(files)?;
        if hooks.iter().next().is_none() {
            // On standard error, so that programs read an empty list.
            print::note("there are no hooks; `lazaret chat-hooks --help` has an entry for one");
        }
        match self.json {
            true => print::json(&hooks.iter().map(described).collect::<Vec<_>>())?,
            false => print::result(hooks.iter().map(lines).collect::<String>().as_bytes())?,
        }
        let all = hooks.iter().all(|hook| hook.problem().is_none());
        Ok(if all { exit::OK } else { exit::FAILED })
    }
}

impl AcceptHook {
    fn main(self, files: &Files) -> Result<u8, Failed> {
        let hooks = AgentConfig::read(files)?.read_hooks(files)?;
        let unknown = || Failed::invalid(format!("there is no hook `{}`", self.name));
        let hook = hooks
            .iter()
            .find(|hook| hook.entry.name == self.name)
            .ok_or_else(unknown)?;
        let program = hook
            .program
            .as_ref()
            .map_err(|why| Failed::invalid(why.clone()))?;
        print::result(lines(hook).as_bytes())?;
        if hook.acceptance == Acceptance::Accepted {
            return Ok(exit::OK);
        }
        if !is_accepted(self.yes, true)? {
            return Ok(exit::FAILED);
        }
        let accepted = AcceptedHooks::read().accept(&hook.entry, program);
        accepted.map_err(|error| Failed::internal(format!("cannot record it: {error}")))?;
        Ok(exit::OK)
    }
}

fn described(hook: &Hook) -> Value {
    let mut described = json!(hook.entry);
    described["acceptance"] = hook.acceptance.name().into();
    described["sha256"] = hook
        .program
        .as_ref()
        .ok()
        .map(|program| digest(program).to_string())
        .into();
    described["problem"] = hook.problem().into();
    described
}

fn lines(hook: &Hook) -> String {
    let entry = &hook.entry;
    let tools = entry
        .tools
        .as_ref()
        .map_or_else(String::new, |tools| format!(" of {}", tools.join(", ")));
    let program = match &hook.program {
        Ok(program) => format!("SHA-256 {}", digest(program)),
        Err(why) => why.clone(),
    };
    let text = [
        format!(
            "{} ({}): {}{tools}",
            entry.name,
            hook.acceptance.name(),
            entry.event.name()
        ),
        format!("  {}: {program}", entry.program.display()),
        format!(
            "  arguments {:?}; profile {}, {} s",
            entry.args, entry.profile, entry.timeout_s
        ),
    ];
    text.map(|line| format!("{}\n", escape::line(&line)))
        .concat()
}
