//! Decides on an agent's command by the policy that a session would use, and builds the command line that runs it in a cell.

use broker_protocol::{Bash, Channel, Command, Failed, Request, Stdin, Trust, ZonePath};
use orchestrator_config_edit::agent_hook::call::{HookDecision, ShellCall};
use orchestrator_config_edit::agent_settings;
use orchestrator_launch::SessionOptions;
use orchestrator_launch::caller::CallerDirectory;
use orchestrator_launch::launch::Prepared;
use orchestrator_launch::project::Project;
use orchestrator_text::shell_words::quote;
use policies::resolve::DEFAULT;
use policies::shell::{self, Unit, base_name};
use policies::{Choice, EffectivePolicy, Facts, Verdict, judge};
use std::path::{Path, PathBuf};

/// Variables in which agents name their project's path. It is believed only if the agent's own working directory tells nothing.
const PROJECT: [&str; 3] = [
    "CLAUDE_PROJECT_DIR",
    "GEMINI_PROJECT_DIR",
    "QWEN_PROJECT_DIR",
];

pub(super) struct HookJudge {
    options: SessionOptions,
    /// The directory that the agent works in, and the project that it claims.
    agent: CallerDirectory,
    said: Option<PathBuf>,
    shell: PathBuf,
    /// Whether the project's own settings for the agent undo Lazaret.
    settings: Result<(), Failed>,
}

/// The policy of a session, with two levels of trust.
struct SessionPolicies {
    /// With the requested trust.
    policy: EffectivePolicy,
    /// With the highest trust that the policy allows: what needs approval here needs it in the cell too.
    floor: EffectivePolicy,
}

impl HookJudge {
    /// Reads the policy and inspects the agent.
    ///
    /// # Errors
    /// There is no policy, or no `lazaret-bash` beside us.
    pub(super) fn new(prepared: &Prepared, client: &str) -> Result<Self, Failed> {
        let options = prepared.options().clone();
        options.policy().map_err(Failed::from)?;
        let own = std::env::current_exe().map_err(|error| {
            Failed::internal(format!(
                "cannot determine the path of the lazaret program: {error}"
            ))
        })?;
        let shell = own.with_file_name("lazaret-bash");
        if !shell.is_file() {
            return Err(Failed::invalid(format!(
                "there is no {}: install it beside lazaret",
                shell.display()
            )));
        }
        let given = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let said: Option<PathBuf> = PROJECT.into_iter().find_map(given);
        let places = [options.named_project(), said.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        let settings = agent_settings::check(prepared.files(), &places, Some(client));
        Ok(Self {
            options,
            agent: CallerDirectory::find(),
            said,
            shell,
            settings,
        })
    }

    pub(super) fn decide(&self, call: &ShellCall) -> HookDecision {
        let deny = |failed: Failed| HookDecision::Deny {
            why: failed.message,
        };
        self.decide_in_project(call).unwrap_or_else(deny)
    }

    /// The decision of the policy of the call's project.
    ///
    /// # Errors
    /// Why nothing can decide the call.
    fn decide_in_project(&self, call: &ShellCall) -> Result<HookDecision, Failed> {
        self.settings.clone()?;
        let project = self.project(call.directory.as_deref())?;
        let request = request(&call.command, project.directory.clone());
        if let Err(error) = request.check() {
            return Ok(HookDecision::Deny {
                why: error.to_string(),
            });
        }
        if starts_lazaret(&request) {
            let why = "A command does not start lazaret: each one runs in a cell already, with the policy of the user.";
            return Ok(HookDecision::Deny {
                why: why.to_owned(),
            });
        }
        let choice = self.options.choose(Some(&project.root));
        let SessionPolicies { policy, floor } = self.policies(&choice)?;
        let command = self.in_cell(&project.root, &choice, &call.command);
        let facts = Facts::of(&request);
        Ok(
            match (
                judge(&policy, &facts).verdict,
                judge(&floor, &facts).verdict,
            ) {
                (Verdict::Deny(refused), _) | (_, Verdict::Deny(refused)) => HookDecision::Deny {
                    why: format!("{} (rule `{}`)", refused.why, refused.rule),
                },
                // With a separate channel the executor asks the user itself. With any other, the agent cannot answer for the cell.
                (_, Verdict::Ask(question)) if floor.approval.channel == Channel::Relay => {
                    HookDecision::Deny {
                        why: format!(
                            "{} (rule `{}`) Nobody can answer that here.",
                            question.why, question.rule
                        ),
                    }
                }
                (_, Verdict::Ask(_)) => HookDecision::Allow { command },
                (Verdict::Ask(question), Verdict::Allow) => HookDecision::Ask {
                    command,
                    why: format!("{} (rule `{}`)", question.why, question.rule),
                },
                (Verdict::Allow, Verdict::Allow) if call.plans_only => HookDecision::Ask {
                    command,
                    why: "The agent is planning, so its user decides.".to_owned(),
                },
                (Verdict::Allow, Verdict::Allow) => HookDecision::Allow { command },
            },
        )
    }

    fn project(&self, directory: Option<&Path>) -> Result<Project, Failed> {
        if let Some(named) = self.options.named_project() {
            return Project::choose(Some(named), directory);
        }
        let theirs = Project::of_agent(
            &self.agent,
            self.said.as_deref(),
            directory.unwrap_or(Path::new(".")),
        )?;
        let project = self.options.narrowed(theirs, directory)?;
        self.options.check_profile(Some(&project.root))?;
        Ok(project)
    }

    /// The policies that decide in a project with this profile.
    fn policies(&self, choice: &Choice) -> Result<SessionPolicies, Failed> {
        let policy = self
            .options
            .files()
            .resolve(&choice.profile)
            .map_err(Failed::from)?;
        let scope = self.options.scope()?;
        let narrowed = |trust| {
            policy
                .clone()
                .narrow(scope.as_ref(), trust)
                .map_err(Failed::from)
        };
        let trust = self.options.trust().unwrap_or(Trust::Autonomous);
        Ok(SessionPolicies {
            policy: narrowed(trust)?,
            floor: narrowed(Trust::Autonomous)?,
        })
    }

    /// A command line for any shell that runs `command` in a cell. It names the project, since the agent's directory may change
    /// before it runs, and any profile but the default, since the project's files that select a profile may change too. It names
    /// them in words, since variables are believed only where they narrow.
    fn in_cell(&self, project: &Path, choice: &Choice, command: &str) -> String {
        let shell = quote(&self.shell.to_string_lossy());
        let mut line = format!(
            "{shell} --lazaret-project={}",
            quote(&project.to_string_lossy())
        );
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let is_default = choice.profile == DEFAULT
            && choice.found.is_none()
            && self.options.profile_name().is_none();
        if !is_default || is_set("LAZARET_PROFILE") {
            line.push_str(&format!(" --lazaret-profile={}", quote(&choice.profile)));
        }
        // What the agent's user was asked here is not asked again.
        if self.options.trust().is_some() || is_set("LAZARET_TRUST") {
            line.push_str(" --lazaret-trust=autonomous");
        }
        format!("{line} -c {}", quote(command))
    }
}

fn request(command: &str, directory: Option<ZonePath>) -> Request {
    Request::Bash(Bash {
        command: Command::Shell(command.to_owned()),
        directory,
        timeout_s: None,
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    })
}

/// Whether the command starts a program of ours by name. If started in another way, it runs in a cell and can start nothing there.
fn starts_lazaret(request: &Request) -> bool {
    let Request::Bash(bash) = request else {
        return false;
    };
    shell::units(&bash.command).iter().any(|unit| match unit {
        Unit::Simple(simple) => simple
            .program()
            .is_some_and(|program| base_name(program).starts_with("lazaret")),
        Unit::Unparsed(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell is asked what the word is"
    )]
    fn a_quoted_command_is_one_word_to_a_shell() {
        for text in [
            "ls; touch x #",
            "$(id)`id`",
            "it's",
            "back\\slash\\'",
            "a\nb\t*",
            "",
            "-n",
            "~/x",
        ] {
            let line = format!("printf %s {}", quote(text));
            let run = std::process::Command::new("bash")
                .args(["-c", &line])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&run.stdout), text, "{line}");
        }
    }
}
