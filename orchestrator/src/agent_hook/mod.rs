//! `lazaret hook`: agents run it before they run a command. It answers with the same command in a cell, or refuses.
//!
//! The agent's hook receives a call as JSON on standard input and answers on standard output. Agents use different names for the
//! same few things; each has a small file here that maps them and decides nothing.

mod decision;
#[cfg(test)]
mod tests;

use broker_protocol::Failed;
use clap::{Args, ValueEnum};
use decision::HookJudge;
use orchestrator_config_edit::agent_hook::shape::{HookCallKind, HookShape};
use orchestrator_config_edit::agent_hook::{CLAUDE, CODEX, COPILOT, CRUSH, GEMINI, QWEN};
use orchestrator_confine::Needs;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, ProfileOption, ProjectOption, TrustOption};
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::print;
use serde_json::Value;
use std::io::{self, Read, Write};

/// Longest call that is read, in bytes.
const CALL_MAX: u64 = 4 << 20;

const EXAMPLES: &str = "\
In an agent's settings, with an absolute path, as its `PATH` need not be yours:
  claude    hooks.PreToolUse: {\"matcher\": \"Bash|Monitor|PowerShell\", \"hooks\": [{
            \"type\": \"command\", \"command\": \"/path/to/lazaret hook claude\"}]}
  gemini    hooks.BeforeTool, matcher run_shell_command

The answer is a command that runs the same one with `lazaret-bash`; a no with
its reason, where the policy denies the command, where the command starts
`lazaret`, where another shell than bash would run it, or where the policy asks
and the agent cannot. For a command in a cell Claude Code gets `allow` and asks
no question of its own; with --trust guided it gets `ask`, and asks.
Calls of other tools get no answer. The project is --project, LAZARET_PROJECT, what the agent says
it is, or the repository around the working directory.";

/// Answer an agent's hook: run its shell commands in cells
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Hook {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: HookAgent,
    #[command(flatten)]
    project: ProjectOption,
    #[command(flatten)]
    profile: ProfileOption,
    #[command(flatten)]
    trust: TrustOption,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HookAgent {
    Claude,
    Codex,
    Gemini,
    Qwen,
    Crush,
    Copilot,
}

impl HookAgent {
    fn shape(self) -> &'static HookShape {
        match self {
            HookAgent::Claude => &CLAUDE,
            HookAgent::Codex => &CODEX,
            HookAgent::Gemini => &GEMINI,
            HookAgent::Qwen => &QWEN,
            HookAgent::Crush => &CRUSH,
            HookAgent::Copilot => &COPILOT,
        }
    }
}

impl HookAgent {
    /// Its name in `lazaret install`.
    fn client(self) -> &'static str {
        match self {
            HookAgent::Claude => "claude-code",
            HookAgent::Codex => "codex",
            HookAgent::Gemini => "gemini",
            HookAgent::Qwen => "qwen",
            HookAgent::Crush => "crush",
            HookAgent::Copilot => "copilot",
        }
    }
}

impl FrontEnd for Hook {
    const ROW: CommandRow = CommandRow {
        name: "hook",
        sessions: SessionCount::None,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: false,
        usage: REFUSED,
        exit: "0 answered; 2 not run, as the call is not understood or nothing can decide it: a wrong policy file, a wrong \
               LAZARET_TRUST",
    };

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        Ok(self.answer(launch))
    }
}

impl Hook {
    /// Answers one call; returns the exit code. An agent runs a call unchanged if its hook fails, so every failure here is a refusal.
    fn answer(self, launch: Launch) -> u8 {
        let shape = self.agent.shape();
        end_panics_with_a_no(shape);
        let options = Options::of(&self.project)
            .and(&self.profile)
            .and(&self.trust)
            .under_environment();
        let (judge, confined) = match options {
            Ok((options, environment)) => {
                let prepared = launch.prepare_with::<Self>(options, environment);
                let judge = HookJudge::new(&prepared, self.agent.client());
                (judge, prepared.confine(Needs::default()))
            }
            Err(failed) => (Err(failed), launch.confine::<Self>(Needs::default())),
        };
        // It waits for no events.
        drop(confined);
        let answer = match read_call().map(|call| shape.read(&call)) {
            Ok(HookCallKind::OtherTool) => return exit::OK,
            Ok(HookCallKind::Shell(call)) => match &judge {
                Ok(judge) => Ok(shape.answer(&call, &judge.decide(&call))),
                Err(failed) => Err(failed.message.clone()),
            },
            Ok(HookCallKind::OtherShell) => Ok(shape.refuse_other_shell()),
            Ok(HookCallKind::Unknown(why)) => Err(format!("it is not understood: {why}")),
            Err(why) => Err(why),
        };
        let written = match &answer {
            Ok(answer) => write(answer),
            Err(why) => write(&shape.refuse(why)),
        };
        let Err(why) = answer.and(written) else {
            return exit::OK;
        };
        // With this exit code, agents read the reason from standard error.
        print::problem(&format!("the call is not run: {why}"));
        REFUSED
    }
}

/// The exit code that every agent takes as a refusal, whatever is on standard output. Agents ignore a failure with other codes.
pub(crate) const REFUSED: u8 = exit::USAGE;

/// Makes a panic a refusal: agents would ignore the exit code of a panic.
fn end_panics_with_a_no(shape: &'static HookShape) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        // If this write fails, the exit code still refuses.
        let _ = write(&shape.refuse("lazaret has failed"));
        std::process::exit(REFUSED.into());
    }));
}

/// Writes the answer; an error if it was not written completely.
fn write(answer: &Value) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{answer}").and_then(|()| out.flush());
    written.map_err(|error| format!("the answer cannot be written: {error}"))
}

fn read_call() -> Result<Value, String> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(CALL_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| format!("standard input cannot be read: {error}"))?;
    if text.len() as u64 > CALL_MAX {
        return Err(format!(
            "it is not understood: it has more than {CALL_MAX} bytes"
        ));
    }
    serde_json::from_slice(&text)
        .map_err(|error| format!("it is not understood: it is not JSON: {error}"))
}
