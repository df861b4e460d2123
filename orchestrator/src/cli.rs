//! The command line.

use crate::{
    accept, approve, audit, call, chat, chat_hooks, completions, gc, history, hook, install, log,
    mcp, policy, serve, session, tools, undo,
};
use broker_protocol::{ErrorKind, Failed};
use clap::error::ErrorKind::{
    ArgumentConflict, DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use orchestrator_acp::Acp;
use orchestrator_doctor::Doctor;
use orchestrator_lines::json::failed_result;
use orchestrator_options::exit;
use orchestrator_options::session_options::{SessionOptions, USED_BY, is_used};
use orchestrator_run::Run;
use orchestrator_terminal::print;
use orchestrator_text::known;
use orchestrator_why::Why;
use std::io;
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
  run      the command's own; 128+N if signal N ended it (130 cancelled, 137 a
           resource limit, 141 nobody reads its output); 124 time limit;
           125 lazaret failed, or wrong arguments; 126 refused by policy, or
           not executable; 127 program not found
  why      0 something was denied, and is explained; 1 nothing was; 2 wrong
           arguments, or no command to run; 3 not known; 4 not to be had here;
           125 lazaret failed
  call     0 done; 1 the tool failed; 2 wrong input, or no such tool;
           3 violation; 124 time limit; 125 lazaret failed; 126 refused
  history, undo  as call
  session  0 at the end of its input; 2 wrong arguments; 3 after too many
           violations; 125 no session, or it cannot write; 128+N if signal
           N ended it (129 also: its parent has ended; 141 nobody reads)
  mcp      0 at the end of its input; 125 lazaret failed; 128+N signal N
  acp      as mcp; 1 the agent has ended
  chat     0 done; 1 the model failed; 2 wrong arguments; 3 violations;
           4 the model cannot call tools; 5 out of turns or of context;
           124 time limit; 125 lazaret failed; 128+N if signal N ended it
           (130 cancelled)
  chat-hooks  0; 1 not accepted; 2 wrong settings
  serve    0 at the end of its input; 2 wrong arguments; 125 it cannot serve,
           as where the address is taken; 128+N if signal N ended it (129
           also: its parent has ended)
  models   0; 1 the provider failed; 2 wrong arguments or no key
  doctor   0 if a session can open here (with --attack: and its cell holds),
           else 1
  policy   0; 1 a file is wrong; 2 wrong input; 125 no policy
  hook     0 answered; 2 not run: the call is not understood, no policy
  install, uninstall, accept  0; 1 not here, or not wanted; 2 cannot be
           changed or accepted
  approve  0 at the end of its input; 1 with --list: a session takes no
           answers of this process; 125 lazaret failed
  gc       0; 1 something stays that should not; 125 lazaret failed
  audit    verify: 0 if the audit is whole, else 1
  log      0; 1 if there is no such run, or nothing was found
  others   0, or 2 for wrong arguments
  A wrong option, file or root is 2 everywhere but in run and doctor.

Examples:
  lazaret run -- make test     a command of this project, in a cell
  lazaret run -- bash          a shell in a cell
  lazaret call file_read '{\"path\":\"src/main.rs\"}'
  lazaret chat --provider mock \"Show me around\"
                               a model, played by a script, uses tools
  lazaret doctor               what this machine can keep closed
  lazaret doctor --attack      the same, proved by attacks
  lazaret approve              answer for the calls that wait";

/// Runs the tool calls of AI agents in cells that the kernel keeps closed.
#[derive(Parser)]
#[command(name = "lazaret", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    options: SessionOptions,
    #[command(subcommand)]
    command: Command,
}

/// Parser for `lazaret run` alone. A caller waits at each start of `run`, and describing all other commands and their options takes
/// longer than parsing this command line.
#[derive(Parser)]
#[command(name = "lazaret", version)]
struct RunAlone {
    #[command(flatten)]
    options: SessionOptions,
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Subcommand)]
enum RunCommand {
    Run(Run),
}

#[derive(Subcommand)]
enum Command {
    Run(Run),
    Why(Why),
    Call(call::Call),
    History(history::History),
    Gc(gc::Gc),
    Undo(undo::Undo),
    Tools(tools::Tools),
    Session(session::Session),
    Mcp(mcp::Mcp),
    Acp(Acp),
    Chat(chat::Chat),
    ChatHooks(chat_hooks::ChatHooks),
    Models(chat::models::Models),
    Serve(serve::Serve),
    Doctor(Doctor),
    Policy(policy::Policy),
    Hook(hook::Hook),
    Install(install::Install),
    Uninstall(install::Uninstall),
    Status(install::Status),
    Accept(accept::Accept),
    Approve(approve::Approve),
    Audit(audit::Audit),
    Log(log::Log),
    Completions(completions::Completions),
}

pub fn main() -> ExitCode {
    let environment: Vec<_> = std::env::vars_os().collect();
    if let Err(error) = known::learn(&environment) {
        // The message contains no value from outside, and at this point nothing exists that could redact one.
        eprintln!("lazaret: {error}");
        return ExitCode::from(if is_command("hook") {
            hook::REFUSED
        } else {
            exit::LAZARET
        });
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let is_run = matches!(cli.command, Command::Run(_));
    let code = cli.execute().unwrap_or_else(|failed| {
        print::problem(&failed.message);
        // For `run`, 2 could be the exit code of the command itself.
        if failed.kind == ErrorKind::InvalidInput && !is_run {
            exit::USAGE
        } else {
            exit::LAZARET
        }
    });
    ExitCode::from(code)
}

impl Cli {
    fn execute(self) -> Result<u8, Failed> {
        let options = &self.options;
        // A hook has its own way to refuse.
        if !matches!(self.command, Command::Hook(_)) {
            options.check_environment()?;
        }
        match self.command {
            Command::Run(run) => {
                in_json(run.json, "bash", run.main(options)).map(|never| match never {})
            }
            Command::Why(why) => why.main(options.clone()),
            Command::Call(call) => in_json(call.json, &call.tool.clone(), call.main(options)),
            Command::History(history) => in_json(history.json, "history", history.main(options)),
            Command::Gc(gc) => gc.main(options),
            Command::Undo(undo) => in_json(undo.json, "undo", undo.main(options)),
            Command::Tools(tools) => tools.main(options),
            Command::Session(session) => session.main(options),
            Command::Mcp(mcp) => mcp.main(options),
            Command::Acp(acp) => acp.main(options),
            Command::Chat(chat) => chat.main(options),
            Command::ChatHooks(hooks) => hooks.main(),
            Command::Models(models) => models.main(),
            Command::Serve(serve) => serve.main(options),
            Command::Doctor(doctor) => doctor.main(options),
            Command::Policy(policy) => policy.main(options),
            Command::Hook(hook) => Ok(hook.main(options)),
            Command::Install(install) => install.main(),
            Command::Uninstall(uninstall) => uninstall.main(),
            Command::Status(status) => status.main(options),
            Command::Accept(accept) => accept.main(options),
            Command::Approve(approve) => approve.main(),
            Command::Audit(audit) => audit.main(),
            Command::Log(log) => log.main(),
            Command::Completions(completions) => completions.main(command()),
        }
    }
}

/// A program that expects the result as JSON gets the error that prevented it as JSON too, in the same place.
fn in_json<T>(json: bool, tool: &str, result: Result<T, Failed>) -> Result<T, Failed> {
    if let (true, Err(failed)) = (json, &result) {
        // If this write fails, the error is still on standard error.
        let _ = print::json(&failed_result(None, tool, failed));
    }
    result
}

/// The command line; the help of each command lists only options that it uses.
fn command() -> clap::Command {
    let mut command = Cli::command();
    // Copies the global options of sessions to every subcommand.
    command.build();
    command
        .mut_subcommands(|command| hide_unused(command, &[]))
        .mut_subcommand("serve", |serve| {
            serve.mut_args(|arg| {
                if arg.get_id() == "project" {
                    arg.help(serve::PROJECT_HELP)
                } else {
                    arg
                }
            })
        })
}

/// Of a command below those of these words.
fn hide_unused(command: clap::Command, above: &[&str]) -> clap::Command {
    let name = command.get_name().to_owned();
    let words = [above, &[name.as_str()]].concat();
    let is_hidden = |id: &str| is_option(id) && !is_used(id, &words);
    command
        .mut_args(|arg| {
            if is_hidden(arg.get_id().as_str()) {
                arg.hide(true)
            } else {
                arg
            }
        })
        .mut_subcommands(|command| hide_unused(command, &words))
}

fn is_option(id: &str) -> bool {
    USED_BY.iter().any(|(option, _)| *option == id)
}

/// What was given on the command line and means nothing to the command that was given, with that command's words.
fn unused(matches: &ArgMatches) -> Option<(String, String)> {
    let (mut words, mut given) = (Vec::new(), matches);
    // What `mcp` itself is told is for serving a client.
    let mut of_mcp = None;
    while let Some((name, inner)) = given.subcommand() {
        of_mcp = of_mcp.or((words == ["mcp"]).then_some(given));
        words.push(name);
        given = inner;
    }
    let is_given =
        |matches: &ArgMatches, id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let options = USED_BY.iter().map(|(id, _)| *id);
    let unused = options
        .filter(|id| is_given(given, id))
        .find(|id| !is_used(id, &words));
    let of_mcp = || {
        mcp::OWN_OPTIONS
            .into_iter()
            .find(|id| of_mcp.is_some_and(|of_mcp| is_given(of_mcp, id)))
    };
    unused
        .or_else(of_mcp)
        .map(|id| (id.replace('_', "-"), words.join(" ")))
}

fn parse() -> Result<Cli, clap::Error> {
    // Errors and help of `run` come from the full parser, as for all commands.
    if std::env::args_os().nth(1).is_some_and(|name| name == "run")
        && let Ok(RunAlone {
            options,
            command: RunCommand::Run(run),
        }) = RunAlone::try_parse()
    {
        return Ok(Cli {
            options,
            command: Command::Run(run),
        });
    }
    let mut command = Cli::command();
    let mut matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Err(error)
            if matches!(
                error.kind(),
                DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand
            ) =>
        {
            self::command().try_get_matches_from(std::env::args_os())?
        }
        matches => matches?,
    };
    if let Some((option, name)) = unused(&matches) {
        let message = format!("`--{option}` has no meaning for `{name}`");
        return Err(command.error(ArgumentConflict, message));
    }
    Cli::from_arg_matches_mut(&mut matches)
}

/// Prints help or a usage error. For `run`, exit code 2 could be the command's own.
fn usage(error: &clap::Error) -> ExitCode {
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
    ExitCode::from(if is_command("run") {
        exit::LAZARET
    } else {
        exit::USAGE
    })
}

/// Whether `name` is the subcommand of a command line that may itself be invalid.
fn is_command(name: &str) -> bool {
    let commands: Vec<_> = Cli::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let mut words = std::env::args_os()
        .skip(1)
        .filter_map(|word| word.into_string().ok());
    words
        .find(|word| commands.contains(word))
        .is_some_and(|first| first == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each command that the tour names can be typed as it stands there.
    #[test]
    fn the_commands_of_the_tour_are_commands() {
        let tour = include_str!("../agent/scripts/tour.json");
        let quoted = tour.split('`').skip(1).step_by(2);
        let commands: Vec<_> = quoted.filter(|text| text.starts_with("lazaret ")).collect();
        assert!(commands.len() >= 3, "{commands:?}");
        for command in commands {
            if let Err(error) = Cli::try_parse_from(command.split(' ')) {
                panic!("`{command}`: {error}");
            }
        }
    }

    /// Parsed alone, `run` accepts no option that the full parser refuses.
    #[test]
    fn run_uses_every_option_of_a_session() {
        assert!(USED_BY.iter().all(|(_, users)| users.contains(&"run")));
    }
}
