//! `lazaret models`: lists the models of a provider.

use crate::chat::choice::ModelOptions;
use crate::chat::config::AgentConfig;
use crate::chat::ended::provider_failed;
use broker_protocol::Failed;
use clap::Args;
use orchestrator_agent::provider::Model;
use orchestrator_confine::Needs;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::print;

/// List the models of a provider
#[derive(Args)]
#[command(after_help = "Examples:
  lazaret models --provider ollama
  lazaret models --provider openai --json | jq '.[].id'

`?` means unknown.")]
pub(crate) struct Models {
    #[command(flatten)]
    model: ModelOptions,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl FrontEnd for Models {
    const ROW: CommandRow = CommandRow {
        name: "models",
        sessions: SessionCount::None,
        access: CommandAccess::Confined {
            network: NetworkUse::Always,
            writes: Writes::Nothing,
        },
        log: false,
        usage: exit::USAGE,
        exit: "0; 1 the provider failed; 2 wrong arguments or no key; 125 lazaret failed",
    };

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let files = launch.files();
        let chosen = self.model.choose(files, &AgentConfig::read(files)?)?;
        let confined = launch.confine::<Self>(Needs {
            web: true,
            ..Needs::default()
        });
        let listed = async { Ok(chosen.provider.models().await) };
        let mut models = match confined.run(|_| "the models are listed", listed)? {
            Ok(models) => models,
            Err(error) => return Ok(provider_failed(&error, &self.errors())),
        };
        models.sort_by(|one, other| one.id.cmp(&other.id));
        if self.json {
            print::json(&models)?;
        } else {
            print::result(table(&models).as_bytes())?;
        }
        Ok(exit::OK)
    }
}

fn table(models: &[Model]) -> String {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let mut table = format!(
        "{:<44}{:<7}{:<6}{:>9}  {}\n",
        "MODEL", "TOOLS", "CHAT", "CONTEXT", "PRICE"
    );
    for model in models {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let (tools, chat) = (or_unknown(model.supports_tools.map(yes)), yes(model.chat));
        let context = or_unknown(model.context_window.map(|tokens| tokens.to_string()));
        let price = or_unknown(model.price_class.map(str::to_owned));
        table.push_str(&format!(
            "{:<44}{tools:<7}{chat:<6}{context:>9}  {price}\n",
            print::row(&model.id)
        ));
    }
    table
}
