//! `lazaret hook`: what an agent asks before it runs a command. The answer is the same command in a cell, or a no.
//!
//! An agent's hook is handed a call as JSON on standard input and answers on standard output. Each agent has its own names for the
//! same few things: one small file each, which maps and decides nothing.

mod decision;
#[cfg(test)]
mod tests;

use broker_protocol::Failed;
use clap::{Args, ValueEnum};
use decision::Judge;
use orchestrator_confine::{Needs, confine};
use orchestrator_install::hook::shape::{Reading, Shape};
use orchestrator_install::hook::{CLAUDE, CODEX, COPILOT, CRUSH, GEMINI, QWEN};
use orchestrator_options::exit;
use orchestrator_options::session_options::SessionOptions;
use orchestrator_terminal::print;
use serde_json::Value;
use std::io::{self, Read};

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
and the agent cannot. Calls of other tools get no answer. The project is --project, LAZARET_PROJECT, what the agent says
it is, or the repository around the working directory.

Exit code: 0 answered; 2 the call is not understood, which is a no to an agent;
125 no policy.";

/// Answer an agent's hook: run its shell commands in cells
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Hook {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: Agent,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Agent {
    Claude,
    Codex,
    Gemini,
    Qwen,
    Crush,
    Copilot,
}

impl Agent {
    fn shape(self) -> &'static Shape {
        match self {
            Agent::Claude => &CLAUDE,
            Agent::Codex => &CODEX,
            Agent::Gemini => &GEMINI,
            Agent::Qwen => &QWEN,
            Agent::Crush => &CRUSH,
            Agent::Copilot => &COPILOT,
        }
    }
}

impl Hook {
    /// Answers one call; the exit code.
    pub fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let shape = self.agent.shape();
        let judge = Judge::new(options)?;
        confine(&Needs::default());
        let (answer, wrong) = match read_call().map(|call| shape.read(&call)) {
            Ok(Reading::OtherTool) => return Ok(exit::OK),
            Ok(Reading::Shell(call)) => (shape.answer(&call, &judge.decide(&call)), None),
            Ok(Reading::OtherShell) => (shape.refuse_other_shell(), None),
            Ok(Reading::Unknown(why)) => (shape.refuse(why), Some(why.to_owned())),
            Err(why) => (shape.refuse(&why), Some(why)),
        };
        print::json(&answer)?;
        // Agents read the reason of this code there.
        let Some(why) = wrong else { return Ok(exit::OK) };
        print::problem(&format!("the call is not understood, and so not run: {why}"));
        Ok(exit::USAGE)
    }
}

fn read_call() -> Result<Value, String> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(CALL_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| format!("standard input cannot be read: {error}"))?;
    if text.len() as u64 > CALL_MAX {
        return Err(format!("the call has more than {CALL_MAX} bytes"));
    }
    serde_json::from_slice(&text).map_err(|error| format!("the call is not JSON: {error}"))
}
