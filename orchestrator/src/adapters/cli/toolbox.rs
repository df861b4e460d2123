//! Which tools there are and how much of their results is shown: the options of the commands that make calls.

use super::say::invalid;
use crate::adapters::secrets::known;
use crate::adapters::web::{self, WebClient};
use crate::application::call::{Settings, Tools};
use crate::application::registry::Registry;
use crate::domain::profile::{COMPACT, Profile, STANDARD};
use crate::ports::Observer;
use broker_protocol::{Failed, Open};
use clap::{Args, ValueEnum};
use policies::{EffectivePolicy, PolicyError};
use std::rc::Rc;

/// Options of the commands that make calls.
#[derive(Args, Clone)]
#[command(next_help_heading = "Tools")]
pub struct Toolbox {
    /// How much of a result a model is shown
    #[arg(long, value_name = "NAME", value_enum, default_value = "standard")]
    model_profile: ProfileName,
    /// Show text with everything in it: escape sequences, control characters, what is not seen
    #[arg(long)]
    raw_output: bool,
    /// Switch a tool off; may be given more than once
    #[arg(long, value_name = "TOOL")]
    disable: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileName {
    /// 1 MiB of a file, 100 KiB of output
    Standard,
    /// 5 of more than 10 KiB, 500 of more than 1000 names, 50 of more than 100 matches
    Compact,
}

impl Toolbox {
    /// Asks for a session in which as much is captured as will be shown.
    pub fn open(&self, open: Open) -> Open {
        Open { capture: self.profile().capture(), ..open }
    }

    /// The tools of a session that `open` asks for.
    pub fn tools(
        &self,
        open: &Open,
        policy: Result<EffectivePolicy, PolicyError>,
        max_violations: Option<u32>,
        observer: Rc<dyn Observer>,
    ) -> Result<Tools<WebClient>, Failed> {
        let settings = Settings {
            profile: self.profile(),
            raw: self.raw_output,
            redactor: known(),
            max_violations,
            scope: open.scope.clone(),
        };
        let (hosts, policy) = match policy {
            Ok(policy) => (Ok(policy.web.clone()), Some(policy)),
            Err(error) => (Err(error), None),
        };
        let registry = registry(&self.disable, policy)?;
        let web = WebClient::new(hosts, web::Settings::from_environment());
        Ok(Tools::new(registry, web, settings, observer))
    }

    /// The same with everything in its text.
    pub fn raw(self) -> Self {
        Self { raw_output: true, ..self }
    }

    fn profile(&self) -> &'static Profile {
        match self.model_profile {
            ProfileName::Standard => &STANDARD,
            ProfileName::Compact => &COMPACT,
        }
    }
}

/// Every tool but those that are switched off, and those that `policy` denies.
pub fn registry(disabled: &[String], policy: Option<EffectivePolicy>) -> Result<Registry, Failed> {
    let mut registry = Registry::under(policy);
    for tool in disabled {
        registry.enable(tool, false).map_err(|error| invalid(format!("--disable: {error}")))?;
    }
    Ok(registry)
}
