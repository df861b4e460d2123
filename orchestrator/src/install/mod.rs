//! `lazaret install`, `uninstall` and `status`: change the settings of agents and editors after confirmation, and revert them.

mod plan;

use broker_protocol::Failed;
use clap::Args;
use clap::builder::PossibleValuesParser;
use orchestrator_config_edit::agent_settings;
use orchestrator_config_edit::project::ProjectFinding;
use orchestrator_config_edit::record::{ChangedFile, InstallRecord};
use orchestrator_config_edit::{CLIENTS, InstallWay, Programs, Recipe, RecipeClient};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, ProjectOption};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::pages;
use orchestrator_launch::stdio::print;
use plan::PlannedChange;
use serde_json::{Value, json};
use std::{fmt, io};

const EXAMPLES: &str = "\
Examples:
  lazaret install claude-code --dry-run   what would be changed, as a diff
  lazaret install claude-code             the same, and a question before
  lazaret install opencode --by shell     its shell only; its file tools stay
  lazaret status
  lazaret uninstall claude-code

A client is given our tools, and its own are switched off as far as its
settings can do that; what stays open is printed. `--by server` gives it a
server (MCP), `--by shell` the path of lazaret-bash. Comments and order of the
settings stay. The text before is kept in $XDG_STATE_HOME/lazaret/install, and
`uninstall` puts it back, to the byte where nothing else was changed since.";

/// The exit codes of `install` and `uninstall`.
const CODES: &str = "0 done, or nothing to do; 1 no such client here, or not wanted; 2 wrong arguments, or settings that cannot be \
                     changed; 125 lazaret failed";

/// What follows from settings with which a client calls our tools unasked.
const UNASKED: &str = "  no longer asks: it calls the tools of Lazaret without asking you; to have Lazaret ask, add `--trust guided` behind `mcp` in these settings\n";

/// Change the settings of an agent or editor so that its tools run in cells
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Install {
    /// The client
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(CLIENTS.iter().map(|client| client.name)))]
    client: String,
    /// How it gets our tools: server or shell, where the client has both [default: server]
    #[arg(long, value_name = "WAY")]
    by: Option<String>,
    #[command(flatten)]
    consent: Consent,
    /// Make the settings of a client that was not found
    #[arg(long)]
    create: bool,
}

/// Take back what `install` has changed
#[derive(Args)]
pub(crate) struct Uninstall {
    /// The client
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(CLIENTS.iter().map(|client| client.name)))]
    client: String,
    #[command(flatten)]
    consent: Consent,
}

/// Show what is installed where, and what each client still does by itself
#[derive(Args)]
pub(crate) struct Status {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    project: ProjectOption,
}

#[derive(Args)]
struct Consent {
    /// Print what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

impl Consent {
    /// Shows the changes and asks for confirmation, unless an option already gave it.
    fn is_given(&self, changes: &[PlannedChange]) -> Result<bool, Failed> {
        let diffs: String = changes.iter().map(PlannedChange::diff).collect();
        let is_shown = pages::show(&for_terminal(&diffs))?;
        if self.dry_run || self.yes {
            return Ok(self.yes);
        }
        Ok(is_shown && pages::confirm("write this?")?)
    }
}

impl FrontEnd for Install {
    const ROW: CommandRow = CommandRow::of_files("install", CODES);

    fn main(self, _: Launch) -> Result<u8, Failed> {
        let client = find(&self.client)?;
        let way = plan::way(client, self.by.as_deref())?;
        let record = read_record(client)?;
        // The name of an installation stays.
        let programs = match &record {
            Some(record) => Programs {
                server: record.programs().server,
                ..plan::programs()?
            },
            None => plan::new_programs()?,
        };
        let recipe = client.recipe(&programs, way);
        if !self.create && !self.consent.dry_run && !plan::is_here(client) {
            print::problem(&format!(
                "{} is not here: there is no {}; --create makes its settings",
                client.title,
                plan::signs(client)
            ));
            return Ok(exit::FAILED);
        }
        let changes = plan::to_install(&recipe)?;
        if changes.iter().all(PlannedChange::is_none) {
            let done = if recipe.files.is_empty() {
                "no file of its settings is known"
            } else {
                "installed already"
            };
            print::result(format!("{}: {done}\n{}", client.title, remarks(&recipe)).as_bytes())?;
            return Ok(exit::OK);
        }
        if !self.consent.dry_run && record.is_some() {
            let again = format!(
                "{}: installed before, and changed since: `lazaret uninstall {name}` first",
                client.title,
                name = client.name
            );
            return Err(Failed::invalid(again));
        }
        let is_wanted = self.consent.is_given(&changes)?;
        print::result(remarks(&recipe).as_bytes())?;
        if !is_wanted {
            return Ok(if self.consent.dry_run {
                exit::OK
            } else {
                exit::FAILED
            });
        }
        write_with_record(client, way, &programs, &changes)?;
        print::result(
            format!(
                "{}: installed; the settings before are in {}\n",
                client.title,
                InstallRecord::path(client.name).display()
            )
            .as_bytes(),
        )?;
        Ok(exit::OK)
    }
}

/// Makes the changes, and before them the record by which `uninstall` takes them back.
fn write_with_record(
    client: &RecipeClient,
    way: InstallWay,
    programs: &Programs,
    changes: &[PlannedChange],
) -> Result<(), Failed> {
    let files = changes.iter().map(|change| ChangedFile {
        path: change.path.clone(),
        before: change.before.clone(),
        after: change.after.clone().unwrap_or_default(),
    });
    let record = InstallRecord::new(way.name(), programs, files.collect());
    record
        .write(client.name)
        .map_err(|error| record_failed(client, "written", &error))?;
    write(changes).inspect_err(|_| {
        // Nothing of the installation is left in the settings.
        let _ = InstallRecord::remove(client.name);
    })
}

impl FrontEnd for Uninstall {
    const ROW: CommandRow = CommandRow::of_files("uninstall", CODES);

    fn main(self, _: Launch) -> Result<u8, Failed> {
        let client = find(&self.client)?;
        let Some(record) = read_record(client)? else {
            print::problem(&format!(
                "{}: nothing was installed by `lazaret install`",
                client.title
            ));
            return Ok(exit::FAILED);
        };
        let recipe = client.recipe(&record.programs(), plan::way(client, Some(&record.way))?);
        let changes = plan::to_uninstall(&recipe, &record)?;
        if !self.consent.is_given(&changes)? {
            return Ok(if self.consent.dry_run {
                exit::OK
            } else {
                exit::FAILED
            });
        }
        write(&changes)?;
        InstallRecord::remove(client.name)
            .map_err(|error| record_failed(client, "removed", &error))?;
        print::result(format!("{}: uninstalled\n", client.title).as_bytes())?;
        Ok(exit::OK)
    }
}

/// How far Lazaret is installed in a client.
enum InstallState {
    /// No file of the client's settings is known.
    Unknown,
    Absent,
    /// Installed, at least in part, but the project here has settings for the client.
    Overridden,
    Complete(InstallWay),
    Partial {
        present: usize,
        all: usize,
        way: InstallWay,
    },
    /// The settings cannot be read, for this reason.
    Unreadable(String),
}

impl InstallState {
    /// If this is so, the list says what the client still does by itself.
    fn is_in_use(&self) -> bool {
        match self {
            Self::Complete(_) | Self::Overridden => true,
            Self::Unknown | Self::Absent | Self::Partial { .. } | Self::Unreadable(_) => false,
        }
    }
}

impl fmt::Display for InstallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown: no file of its settings is known"),
            Self::Absent => f.write_str("not installed"),
            Self::Overridden => f.write_str(
                "overridden: the project here has settings for it that may undo Lazaret",
            ),
            Self::Complete(way) => write!(f, "installed by {}", way.name()),
            Self::Partial { present, all, way } => {
                write!(f, "in part: {present} of {all} settings by {}", way.name())
            }
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// A client in the list.
struct ClientLine {
    client: &'static RecipeClient,
    state: InstallState,
    recipe: Recipe,
    /// What the project here sets for it.
    findings: Vec<ProjectFinding>,
}

impl ClientLine {
    fn of(client: &'static RecipeClient, prepared: &Prepared) -> Result<Option<Self>, Failed> {
        let record = read_record(client)?;
        if record.is_none() && !plan::is_here(client) {
            return Ok(None);
        }
        let way = record
            .as_ref()
            .and_then(|record| plan::way(client, Some(&record.way)).ok());
        let programs = record
            .as_ref()
            .map_or_else(plan::programs, |record| Ok(record.programs()))?;
        let way = way.unwrap_or_else(|| by_hand(client, &programs));
        let recipe = client.recipe(&programs, way);
        let places: Vec<_> = prepared.options().named_project().into_iter().collect();
        let findings = agent_settings::findings(prepared.files(), &places, Some(client.name))?;
        let state = match plan::present(&recipe, record.as_ref()) {
            Ok((_, 0)) => InstallState::Unknown,
            Ok((0, _)) => InstallState::Absent,
            Ok(_) if !findings.is_empty() => InstallState::Overridden,
            Ok((present, all)) if present == all => InstallState::Complete(way),
            Ok((present, all)) => InstallState::Partial { present, all, way },
            Err(failed) => InstallState::Unreadable(failed.message),
        };
        Ok(Some(Self {
            client,
            state,
            recipe,
            findings,
        }))
    }

    fn json(&self) -> Value {
        let project: Vec<_> = self
            .findings
            .iter()
            .map(ProjectFinding::to_string)
            .collect();
        json!({ "client": self.client.name, "state": self.state.to_string(), "open": self.recipe.open, "project": project })
    }

    fn text(&self) -> String {
        let open = if self.state.is_in_use() {
            open(&self.recipe)
        } else {
            String::new()
        };
        let project: String = self
            .findings
            .iter()
            .map(|finding| format!("  project: {}\n", print::row(&finding.to_string())))
            .collect();
        let help = match self.findings.is_empty() {
            true => String::new(),
            false => {
                format!(
                    "  look at it, then remove it or run `lazaret accept`; {}\n",
                    agent_settings::whole(&self.findings)
                )
            }
        };
        format!(
            "{:<16}{}\n{project}{help}{open}",
            self.client.name,
            print::row(&self.state.to_string())
        )
    }
}

impl FrontEnd for Status {
    const ROW: CommandRow =
        CommandRow::of_files("status", "0; 2 wrong arguments; 125 lazaret failed");

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.project))?;
        let lines = CLIENTS
            .iter()
            .map(|client| ClientLine::of(client, &prepared));
        let lines: Vec<ClientLine> = lines
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        if self.json {
            print::json(&lines.iter().map(ClientLine::json).collect::<Vec<Value>>())?;
        } else if lines.is_empty() {
            print::result(b"no client that is known was found\n")?;
        } else {
            print::result(
                for_terminal(&lines.iter().map(ClientLine::text).collect::<String>()).as_bytes(),
            )?;
        }
        Ok(exit::OK)
    }
}

/// The way in which a person has installed it by hand, as far as the settings show.
fn by_hand(client: &RecipeClient, programs: &Programs) -> InstallWay {
    let count = |way: &InstallWay| {
        plan::present(&client.recipe(programs, *way), None).map_or(0, |(present, _)| present)
    };
    let best = client.ways.iter().rev().max_by_key(|way| count(way));
    best.copied().unwrap_or(InstallWay::Server)
}

fn find(name: &str) -> Result<&'static RecipeClient, Failed> {
    RecipeClient::find(name)
        .ok_or_else(|| Failed::invalid(format!("there is no recipe for {name}")))
}

fn read_record(client: &RecipeClient) -> Result<Option<InstallRecord>, Failed> {
    InstallRecord::read(client.name).map_err(|error| record_failed(client, "read", &error))
}

fn record_failed(client: &RecipeClient, what: &str, error: &io::Error) -> Failed {
    Failed::internal(format!(
        "{} cannot be {what}: {error}",
        InstallRecord::path(client.name).display()
    ))
}

/// Writes all files or none.
fn write(changes: &[PlannedChange]) -> Result<(), Failed> {
    for (at, change) in changes
        .iter()
        .enumerate()
        .filter(|(_, change)| !change.is_none())
    {
        if let Err(failed) = change.write() {
            let undone = changes[..at]
                .iter()
                .filter(|change| !change.is_none())
                .try_for_each(PlannedChange::undo);
            return Err(undone.err().unwrap_or(failed));
        }
    }
    Ok(())
}

/// What the user has to know besides the changes.
fn remarks(recipe: &Recipe) -> String {
    let by_hand = recipe
        .by_hand
        .as_ref()
        .map_or(String::new(), |text| format!("{text}\n"));
    let unasked = if recipe.is_unasked { UNASKED } else { "" };
    format!("{by_hand}{}{unasked}", open(recipe))
}

fn open(recipe: &Recipe) -> String {
    recipe
        .open
        .iter()
        .map(|what| format!("  stays open: {what}\n"))
        .collect()
}

/// Escapes invisible characters for a terminal; line breaks stay.
fn for_terminal(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => format!("{}\n", print::shown(line)),
            None => print::shown(line).to_string(),
        })
        .collect()
}
