//! `lazaret accept`: the user has looked at what a project sets for agents, and accepts it as it is now.

use broker_protocol::Failed;
use clap::Args;
use orchestrator_install::project::Accepted;
use orchestrator_options::session_options::SessionOptions;
use orchestrator_options::{agent_settings, exit};
use orchestrator_terminal::print;
use std::io::{self, BufRead, IsTerminal, Read};

/// Maximum length of an answer in bytes.
const ANSWER_MAX: u64 = 100;

const EXAMPLES: &str = "\
A repository can bring settings for agents that undo Lazaret: `opencode.json`,
`.mcp.json`, `.claude/settings.json`, `.codex/config.toml` and others. Until you
accept them, `lazaret mcp`, `lazaret-bash`, `lazaret hook` and `lazaret acp`
refuse to work in it. Look at each file first: what it allows or starts runs
outside cells. A file that changes has to be accepted again.

Exit code: 0 accepted, or nothing to accept; 1 not accepted; 2 something that
cannot be accepted; 125 lazaret failed.";

/// Accept what a project sets for agents, as it is now
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Accept {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Accept {
    /// Lists the settings, asks, and records them; returns the exit code.
    pub fn main(self, options: &SessionOptions) -> Result<u8, Failed> {
        let found = agent_settings::findings(&[&options.project_root()?], None)?;
        if found.is_empty() {
            print::result(
                b"nothing to accept: the project sets nothing for agents that may undo Lazaret\n",
            )?;
            return Ok(exit::OK);
        }
        let lines: String = found
            .iter()
            .map(|finding| format!("{}\n", print::shown(&finding.to_string())))
            .collect();
        print::result(lines.as_bytes())?;
        let known = found
            .iter()
            .map(|finding| Some((finding.path.as_path(), finding.digest?)));
        let Some(known) = known.collect::<Option<Vec<_>>>() else {
            return Err(Failed::invalid(
                "what cannot be examined cannot be accepted; remove it",
            ));
        };
        if !self.yes && !asked()? {
            return Ok(exit::FAILED);
        }
        let failed = |error: io::Error| Failed::internal(format!("cannot record it: {error}"));
        let mut accepted = Accepted::read().map_err(failed)?;
        known
            .into_iter()
            .for_each(|(path, digest)| accepted.add(path, digest));
        accepted.write().map_err(failed)?;
        print::result(b"accepted, as long as these files stay as they are\n")?;
        Ok(exit::OK)
    }
}

fn asked() -> Result<bool, Failed> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failed::invalid(
            "this asks before it accepts: look at the files, then say --yes",
        ));
    }
    print::result(b"have you looked at these files, and do you accept them? [y/N] ")?;
    let mut answer = String::new();
    let read = io::stdin().lock().take(ANSWER_MAX).read_line(&mut answer);
    read.map_err(|error| Failed::internal(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}
