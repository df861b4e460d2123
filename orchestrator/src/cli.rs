//! The command line: the table of commands, and what chooses among them.

use crate::accept::Accept;
use crate::agent_hook::Hook;
use crate::approve::Approve;
use crate::audit::Audit;
use crate::call::Call;
use crate::chat::Chat;
use crate::chat::config::AgentConfig;
use crate::chat::models::Models;
use crate::chat_hooks::ChatHooks;
use crate::completions::Completions;
use crate::credential::Credential;
use crate::gc::Gc;
use crate::history::History;
use crate::install::{Install, Status, Uninstall};
use crate::log::Log;
use crate::man::Man;
use crate::mcp::Mcp;
use crate::schema::WireSchema;
use crate::serve::Serve;
use crate::session::Session;
use crate::tools::Tools;
use crate::undo::Undo;
use crate::warm::Warm;
use broker_protocol::{ErrorKind, Failed, Scope};
use clap::error::ContextKind::InvalidArg;
use clap::error::ContextValue;
use clap::error::ErrorKind::{
    ArgumentConflict, DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    MissingSubcommand, UnknownArgument,
};
use clap::{ArgMatches, Args as _};
use orchestrator_acp::Acp;
use orchestrator_config_edit::agent_settings;
use orchestrator_confine::Files;
use orchestrator_doctor::Doctor;
use orchestrator_keys::held::KeyFinder;
use orchestrator_launch::groups::WorkOptions;
use orchestrator_launch::hooks::UserHooks;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Linked};
use orchestrator_launch::row::{CommandRow, wrapped};
use orchestrator_launch::secrets::KeySearch;
use orchestrator_launch::start::HelperProcess;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, start};
use orchestrator_lines::errors;
use orchestrator_policy::Policy;
use orchestrator_run::Run;
use orchestrator_sandboxd::Sandboxd;
use orchestrator_tools::scope_file;
use orchestrator_web::SearchEngines;
use orchestrator_why::Why;
use policies::web::WebTable;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;

const EXAMPLES: &str = "\
Examples:
  lazaret run -- make test     a command of this project, in a cell
  lazaret run -- bash          a shell in a cell
  lazaret call file_read '{\"path\":\"src/main.rs\"}'
  lazaret chat --provider mock \"Show me around\"
                               a model, played by a script, uses tools
  lazaret doctor               what this machine can keep closed
  lazaret doctor --attack      the same, proved by attacks
  lazaret approve              answer for the calls that wait

Exit codes:
";

/// Release, commit and protocol. The commit is known to builds of packages, which set the variable.
static VERSION: LazyLock<String> =
    LazyLock::new(|| broker_protocol::release(option_env!("LAZARET_COMMIT")));

/// A command of the program.
struct CommandEntry {
    row: CommandRow,
    /// Its subcommands that have options of their own.
    nested: &'static [CommandRow],
    augment: fn(clap::Command) -> clap::Command,
    /// How wrong arguments are reported as JSON.
    wrong_arguments: fn() -> ErrorForm,
    main: fn(&mut ArgMatches, Launch) -> Result<u8, Failed>,
}

impl CommandEntry {
    /// The row of the subcommand that `words` select, or its own.
    fn row_of(&self, words: &[OsString]) -> &CommandRow {
        let is_named = |row: &&CommandRow| words.get(2).is_some_and(|word| word == last_word(row));
        self.nested.iter().find(is_named).unwrap_or(&self.row)
    }
}

const fn entry<C: FrontEnd>() -> CommandEntry {
    CommandEntry {
        row: C::ROW,
        nested: C::NESTED,
        augment: C::augment,
        wrong_arguments: C::wrong_arguments,
        main: carry_out::<C>,
    }
}

/// All commands, as help lists them.
const COMMANDS: [CommandEntry; 30] = [
    entry::<Run>(),
    entry::<Why>(),
    entry::<Call>(),
    entry::<History>(),
    entry::<Gc>(),
    entry::<Undo>(),
    entry::<Tools>(),
    entry::<Session>(),
    entry::<Mcp>(),
    entry::<Acp>(),
    entry::<Chat>(),
    entry::<ChatHooks>(),
    entry::<Models>(),
    entry::<Serve>(),
    entry::<Sandboxd>(),
    entry::<Doctor>(),
    entry::<Policy>(),
    entry::<Credential>(),
    entry::<Hook>(),
    entry::<Install>(),
    entry::<Uninstall>(),
    entry::<Status>(),
    entry::<Accept>(),
    entry::<Approve>(),
    entry::<Audit>(),
    entry::<Log>(),
    entry::<Warm>(),
    entry::<WireSchema>(),
    entry::<Completions>(),
    entry::<Man>(),
];

pub(crate) fn main() -> ExitCode {
    if start::is_shell() {
        return orchestrator_run::guarded_shell(LINKED);
    }
    if let Some(process) = start::helper_process() {
        return helped(process);
    }
    let words = options_last(std::env::args_os().collect());
    let chosen = words.get(1).and_then(|word| named(word));
    let launch = Launch::of_process(LINKED);
    if let Err(error) = launch.know_secrets(chosen.map(|entry| entry.row_of(&words))) {
        // The message contains no value from outside, and at this point nothing exists that could redact one.
        eprintln!("lazaret: {error}");
        let is_hook = chosen.is_some_and(|entry| entry.row.name == Hook::ROW.name);
        return ExitCode::from(if is_hook {
            Hook::ROW.usage
        } else {
            exit::LAZARET
        });
    }
    let parsed = parser().try_get_matches_from(&words);
    let (entry, parsed) = match (chosen, parsed) {
        (Some(entry), Ok(parsed)) => (entry, parsed),
        (_, Err(error)) => return usage(&words, chosen, error),
        (None, Ok(_)) => return usage(&words, None, parser().error(MissingSubcommand, "")),
    };
    let code = match { parsed }.remove_subcommand() {
        Some((_, mut matches)) => (entry.main)(&mut matches, launch),
        None => Ok(exit::USAGE),
    };
    ExitCode::from(code.unwrap_or_else(|failed| {
        print::problem(&failed.message);
        match failed.kind {
            ErrorKind::InvalidInput => entry.row.usage,
            _ => exit::LAZARET,
        }
    }))
}

/// Does the work of a process that is no command of a user.
fn helped(process: HelperProcess) -> ExitCode {
    match Launch::of_process(LINKED).help(process) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazaret: {error}");
            ExitCode::from(exit::LAZARET)
        }
    }
}

/// Parses a command and carries it out. A program that expects the result as JSON gets the error that prevented it as JSON too, in
/// the same place.
fn carry_out<C: FrontEnd>(matches: &mut ArgMatches, launch: Launch) -> Result<u8, Failed> {
    let command =
        C::from_arg_matches_mut(matches).map_err(|error| Failed::invalid(error.to_string()))?;
    let form = command.errors();
    let done = command.main(launch);
    if let Err(failed) = &done {
        errors::print_failed(&form, failed);
    }
    done
}

const LINKED: Linked = Linked {
    parse_scope,
    describe: command,
    agent_settings,
    hooks,
    begin_network: Some(begin_network),
    key_finder: Some(key_finder),
};

fn key_finder() -> KeySearch {
    let mut finder = KeyFinder::new(orchestrator_mcp_client::held_settings::without_secrets);
    Box::new(move |files, query, line| finder.find(files, query, line))
}

/// Names the search engines of the environment too, and begins the network.
fn begin_network(
    control: UnixStream,
    webs: Vec<WebTable>,
    company: bool,
    tickets: Option<OwnedFd>,
    keys: Option<OwnedFd>,
) -> io::Result<()> {
    SearchEngines::from_environment().name_hosts();
    orchestrator_http::begin(control, webs, company, tickets, keys)
}

fn hooks(files: &Files) -> Result<UserHooks, Failed> {
    AgentConfig::read(files)?.hooks(files)
}

fn agent_settings(files: &Files, root: &Path) -> Vec<String> {
    let found = agent_settings::findings(files, &[root], None).unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

fn parse_scope(name: &str, text: &str) -> Result<Scope, Failed> {
    scope_file::parse(name, text).map_err(|error| Failed::invalid(error.to_string()))
}

fn named(word: &OsString) -> Option<&'static CommandEntry> {
    COMMANDS.iter().find(|entry| word == entry.row.name)
}

/// Options may stand before the word of their command, as in `lazaret --profile rust run`: the word is moved before them.
fn options_last(mut words: Vec<OsString>) -> Vec<OsString> {
    let first = |words: &[OsString], from: usize, is_command: &dyn Fn(&OsString) -> bool| {
        let given = words.iter().skip(from).take_while(|word| *word != "--");
        given
            .enumerate()
            .find(|(_, word)| is_command(word))
            .map(|(at, _)| from + at)
    };
    let is_command = |word: &OsString| word == "help" || named(word).is_some();
    if let Some(at) = first(&words, 1, &is_command) {
        words[1..=at].rotate_right(1);
    }
    let nested = words
        .get(1)
        .and_then(|word| named(word))
        .map_or(&[][..], |entry| entry.nested);
    let is_nested = |word: &OsString| nested.iter().any(|row| word == last_word(row));
    if let Some(at) = first(&words, 2, &is_nested) {
        words[2..=at].rotate_right(1);
    }
    words
}

fn last_word(row: &CommandRow) -> &'static str {
    row.name.rsplit(' ').next().unwrap_or(row.name)
}

/// What parses a command line. A caller waits at each start, so only the command that is chosen describes its options.
fn parser() -> clap::Command {
    root().subcommands(
        COMMANDS
            .iter()
            .map(|entry| clap::Command::new(entry.row.name).defer(entry.augment)),
    )
}

fn root() -> clap::Command {
    clap::Command::new("lazaret")
        .version(VERSION.as_str())
        .about("Runs the tool calls of AI agents in cells that the kernel keeps closed")
        .subcommand_required(true)
        .arg_required_else_help(true)
}

/// The command line with the help of all commands.
fn command() -> clap::Command {
    let rows = COMMANDS
        .iter()
        .map(|entry| format!("  {:<12}{}\n", entry.row.name, wrapped(entry.row.exit, 14)));
    root()
        .after_help(format!("{EXAMPLES}{}", rows.collect::<String>()))
        .subcommands(COMMANDS.iter().map(|entry| {
            let command = (entry.augment)(clap::Command::new(entry.row.name));
            let command = with_codes(command, &entry.row);
            command.mut_subcommands(|nested| {
                let row = entry
                    .nested
                    .iter()
                    .find(|row| last_word(row) == nested.get_name());
                match row {
                    Some(row) => with_codes(nested, row),
                    None => nested,
                }
            })
        }))
}

fn with_codes(command: clap::Command, row: &CommandRow) -> clap::Command {
    let codes = row.exit_codes();
    let help = match command.get_after_help() {
        Some(examples) => format!("{examples}\n\n{codes}"),
        None => codes,
    };
    command.after_help(help)
}

/// Prints help or a usage error; returns the exit code.
fn usage(words: &[OsString], chosen: Option<&CommandEntry>, error: clap::Error) -> ExitCode {
    let error = match error.kind() {
        DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand => {
            command().try_get_matches_from(words).err().unwrap_or(error)
        }
        UnknownArgument => chosen
            .and_then(|entry| meaningless(words, entry, &error))
            .map_or(error, |message| parser().error(ArgumentConflict, message)),
        _ => error,
    };
    let shown = error.print();
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        return match shown {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                print::problem(&format!("cannot write the output: {error}"));
                ExitCode::from(exit::LAZARET)
            }
            // A reader that closes the pipe has read enough; that is no error.
            _ => ExitCode::SUCCESS,
        };
    }
    if let Some(entry) = chosen.filter(|_| asks_for_json(words)) {
        let text = error.to_string();
        let text = text.trim_start_matches("error: ");
        let message = text.split("\n\n").next().unwrap_or(text).to_owned();
        errors::print_failed(&(entry.wrong_arguments)(), &Failed::invalid(message));
    }
    ExitCode::from(chosen.map_or(exit::USAGE, |entry| entry.row.usage))
}

/// Whether the options of a command that cannot be read have `--json` among them.
fn asks_for_json(words: &[OsString]) -> bool {
    let mut options = words.iter().skip(2).take_while(|word| *word != "--");
    options.any(|word| word == "--json")
}

/// What to say of an option that other commands have.
fn meaningless(words: &[OsString], entry: &CommandEntry, error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(InvalidArg) else {
        return None;
    };
    let command = (entry.augment)(clap::Command::new(entry.row.name));
    let shared = WorkOptions::augment_args(clap::Command::new("shared"));
    let is_given = |arg: &&clap::Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        [long, short].iter().flatten().any(|name| name == given)
    };
    let option = shared
        .get_arguments()
        .chain(command.get_arguments())
        .find(is_given)?;
    let nested = words
        .iter()
        .skip(2)
        .find_map(|word| command.find_subcommand(word));
    let nested = nested.map_or(String::new(), |nested| format!(" {}", nested.get_name()));
    let (long, name) = (option.get_long()?, entry.row.name);
    Some(format!("`{name}{nested}` does not accept `--{long}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// Each command that the tour names can be typed as it stands there.
    #[test]
    fn the_commands_of_the_tour_are_commands() {
        let tour = include_str!("../agent/scripts/tour.json");
        let quoted = tour.split('`').skip(1).step_by(2);
        let commands: Vec<_> = quoted.filter(|text| text.starts_with("lazaret ")).collect();
        assert!(commands.len() >= 3, "{commands:?}");
        for command in commands {
            if let Err(error) = parser().try_get_matches_from(command.split(' ')) {
                panic!("`{command}`: {error}");
            }
        }
    }

    #[test]
    fn all_descriptions_of_commands_are_consistent() {
        command().debug_assert();
        for entry in &COMMANDS {
            let command = (entry.augment)(clap::Command::new(entry.row.name));
            for row in entry.nested {
                assert!(
                    command.find_subcommand(last_word(row)).is_some(),
                    "{}",
                    row.name
                );
            }
            let described = command.get_subcommands().count();
            assert!(
                entry.nested.is_empty() || entry.nested.len() == described,
                "{}",
                entry.row.name
            );
        }
    }

    #[test]
    fn options_may_stand_before_their_command() {
        for (line, sorted) in [
            ("lazaret run -- call", "lazaret run -- call"),
            (
                "lazaret --profile rust run -- true",
                "lazaret run --profile rust -- true",
            ),
            (
                "lazaret -v mcp --project /p add x -- list",
                "lazaret mcp add -v --project /p x -- list",
            ),
            ("lazaret help run", "lazaret help run"),
            ("lazaret -- run", "lazaret -- run"),
        ] {
            assert_eq!(options_last(words(line)), words(sorted), "{line}");
        }
    }

    /// SECURITY.md has the same list.
    #[test]
    fn commands_that_hear_others_start_without_secrets() {
        let rows = COMMANDS
            .iter()
            .flat_map(|entry| std::iter::once(&entry.row).chain(entry.nested));
        let hearing = rows.filter(|row| row.hears_others()).map(|row| row.name);
        let names = [
            "call",
            "tools",
            "session",
            "mcp",
            "mcp add",
            "mcp status",
            "mcp accept",
            "mcp login",
            "acp",
            "chat",
            "models",
            "serve",
            "sandboxd",
            "audit export",
        ];
        assert_eq!(hearing.collect::<Vec<_>>(), names);
        let row = |line: &str| named(&"mcp".into()).unwrap().row_of(&words(line)).name;
        assert_eq!(row("lazaret mcp list"), "mcp list");
        assert_eq!(row("lazaret mcp --trust guided"), "mcp");
        assert_eq!(row("lazaret mcp"), "mcp");
    }

    /// The README's table of commands is that of the program.
    #[test]
    fn the_readme_has_the_row_of_each_command() {
        let rows = COMMANDS
            .iter()
            .flat_map(|entry| std::iter::once(&entry.row).chain(entry.nested));
        let table: String = rows.map(CommandRow::markdown).collect();
        assert!(include_str!("../README.md").contains(&table), "{table}");
    }
}
