//! `lazaret accept`: the user has looked at what a project sets for agents, and accepts it as it is now.

use broker_protocol::Failed;
use clap::Args;
use orchestrator_config_edit::agent_settings;
use orchestrator_config_edit::project::AcceptedFiles;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{DirectoryOptions, Options};
use orchestrator_launch::launch::{FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::pages;
use orchestrator_launch::stdio::print;
use std::io;

const EXAMPLES: &str = "\
A repository can bring settings for agents that undo Lazaret: `opencode.json`,
`.mcp.json`, `.claude/settings.json`, `.codex/config.toml` and others. Until you
accept them, `lazaret mcp`, `lazaret-bash`, `lazaret hook` and `lazaret acp`
refuse to work in it. Look at each file first: what it allows or starts runs
outside cells. A file that changes has to be accepted again.";

/// Accept what a project sets for agents, as it is now
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Accept {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Only report whether there is something that nobody has accepted
    #[arg(long, conflicts_with = "yes")]
    check: bool,
    /// With --check: what this client reads
    #[arg(long, value_name = "CLIENT", requires = "check")]
    client: Option<String>,
    #[command(flatten)]
    directory: DirectoryOptions,
}

impl FrontEnd for Accept {
    const ROW: CommandRow = CommandRow::of_files(
        "accept",
        "0 accepted, or nothing to accept; 1 not accepted; 2 something that cannot be accepted; 125 lazaret failed",
    );

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.directory))?;
        let (files, root) = (prepared.files(), &prepared.options().project()?.root);
        if self.check {
            return agent_settings::check(files, &[root], self.client.as_deref())
                .map(|()| exit::OK);
        }
        let found = agent_settings::findings(files, &[root], None)?;
        if found.is_empty() {
            print::result(
                b"nothing to accept: the project sets nothing for agents that may undo Lazaret\n",
            )?;
            return Ok(exit::OK);
        }
        let lines: String = found
            .iter()
            .map(|finding| format!("{}\n", print::row(&finding.to_string())))
            .collect();
        let is_shown = pages::show(&lines)?;
        let known = found
            .iter()
            .map(|finding| Some((finding.path.as_path(), finding.digest?)));
        let Some(known) = known.collect::<Option<Vec<_>>>() else {
            return Err(Failed::invalid(
                "what cannot be examined cannot be accepted; remove it",
            ));
        };
        let ask = || pages::confirm("have you looked at these files, and do you accept them?");
        let is_accepted = self.yes || (is_shown && ask()?);
        if !is_accepted {
            return Ok(exit::FAILED);
        }
        let failed = |error: io::Error| Failed::internal(format!("cannot record it: {error}"));
        let mut accepted = AcceptedFiles::read().map_err(failed)?;
        known
            .into_iter()
            .for_each(|(path, digest)| accepted.add(path, digest));
        accepted.write().map_err(failed)?;
        print::result(b"accepted, as long as these files stay as they are\n")?;
        Ok(exit::OK)
    }
}
