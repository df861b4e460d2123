//! Which tools exist and how much of their results is shown: the options of the commands that call tools.

use broker_protocol::{Failed, Open, Trust};
use clap::{Args, ValueEnum};
use orchestrator_engine::HookGuard;
use orchestrator_launch::SessionOpening;
use orchestrator_results::profile::{COMPACT, ModelProfile, STANDARD};
use orchestrator_results::violation;
use orchestrator_text::known::redactor;
use orchestrator_tools::registry::Registry;
use orchestrator_tools::{ToolConfig, Toolbox};
use orchestrator_web::{SearchEngines, WebClient};
use policies::{EffectivePolicy, PolicyError};

/// Options of the commands that call tools.
#[derive(Args, Clone)]
#[command(next_help_heading = "Tools")]
pub(crate) struct ToolOptions {
    /// How much of a result a model is shown [default: standard; in `chat` and `serve`, compact if the model has a small context]
    #[arg(long, value_name = "NAME", value_enum)]
    model_profile: Option<ProfileName>,
    /// Show text with everything in it: escape sequences, control and invisible characters
    #[arg(long)]
    raw_output: bool,
    /// Switch a tool off; may be given more than once
    #[arg(long, value_name = "TOOL")]
    disable: Vec<String>,
}

/// When a session ends that breaks its limits.
#[derive(Args, Clone, Copy)]
pub(crate) struct ViolationOptions {
    /// Number of violations that end the session or the run; 0 for no limit [default: 3, or 1 if the trust is autonomous; without
    /// --trust, `session` and `mcp` have no limit]
    #[arg(long, value_name = "N")]
    max_violations: Option<u32>,
}

impl ViolationOptions {
    /// The limit of a session with `trust`; `None` if there is none.
    pub(crate) fn max(self, trust: Option<Trust>) -> Option<u32> {
        let max = self
            .max_violations
            .unwrap_or(trust.map_or(0, violation::default_max));
        (max > 0).then_some(max)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileName {
    /// 1 MiB of a file, 100 KiB of output
    #[value(alias = "bmad")]
    Standard,
    /// 5 KiB of a text over 10 KiB, 500 names of over 1000, 50 matches of over 100
    Compact,
}

impl ToolOptions {
    /// The configuration of the session in `opening`: its tools, its access to the web, as much captured output as will be shown, and
    /// what guards its calls.
    pub(crate) fn config(
        &self,
        opening: SessionOpening,
        policy: Result<EffectivePolicy, PolicyError>,
        guard: impl FnOnce(&Open) -> HookGuard,
    ) -> Result<ToolConfig, Failed> {
        let profile: &ModelProfile = match self.model_profile {
            None | Some(ProfileName::Standard) => &STANDARD,
            Some(ProfileName::Compact) => &COMPACT,
        };
        let (hosts, policy) = match policy {
            Ok(policy) => (Ok(policy.web.clone()), Some(policy)),
            Err(error) => (Err(error), None),
        };
        let SessionOpening {
            open, directory, ..
        } = opening;
        let open = Open {
            capture: profile.capture(),
            ..open
        };
        let guard = guard(&open);
        Ok(ToolConfig {
            tools: Toolbox::new(
                registry(&self.disable, policy)?,
                Some(WebClient::new(hosts, SearchEngines::from_environment())),
            ),
            profile,
            directory,
            ..ToolConfig::new(open, redactor(), guard)
        })
    }

    /// Disables more tools.
    pub(crate) fn disable<'t>(&mut self, tools: impl Iterator<Item = &'t str>) {
        self.disable.extend(tools.map(str::to_owned));
    }

    /// The tools that are disabled.
    pub(crate) fn disabled(&self) -> &[String] {
        &self.disable
    }

    /// Whether the user has said how much is shown.
    pub(crate) fn says_profile(&self) -> bool {
        self.model_profile.is_some()
    }

    /// Whether to keep unsafe characters in results.
    pub(crate) fn is_raw(&self) -> bool {
        self.raw_output
    }
}

/// Every tool except those that are disabled and those that `policy` denies.
pub(crate) fn registry(
    disabled: &[String],
    policy: Option<EffectivePolicy>,
) -> Result<Registry, Failed> {
    let mut registry = Registry::under(policy);
    for tool in disabled {
        registry
            .enable(tool, false)
            .map_err(|error| Failed::invalid(format!("--disable: {error}")))?;
    }
    Ok(registry)
}
