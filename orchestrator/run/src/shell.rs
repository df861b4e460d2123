//! `lazaret-bash`: the program for callers that want the path of a shell. Its commands run in a cell.
//!
//! The caller reads exit codes and output and knows nothing of Lazaret. So we print only what prevents or ends a command, answer no
//! approval in a person's name, and use the policy's longest time limit, since the caller has its own. The project is that of the
//! agent's working directory; `LAZARET_PROJECT` may name a part of it.

use crate::run::Run;
use crate::shell_arguments::{Arguments, is_script};
use broker_protocol::{Failed, Scope};
use orchestrator_launch::groups::Options;
use orchestrator_launch::hooks::{self, UserHooks};
use orchestrator_launch::launch::{FrontEnd, Launch, Linked};
use orchestrator_launch::row::{CommandRow, SessionCount};
use orchestrator_launch::session_options::environment::ShellWords;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{examiner, exit, start};
use orchestrator_text::known;
use std::convert::Infallible;
use std::process::ExitCode;

/// A hook of the user's runs in a session of its own, after the shell has confined itself.
const GUARDED: CommandRow = CommandRow {
    sessions: SessionCount::Lasting { spare: 0 },
    ..Run::ROW
};

/// Runs the shell.
pub fn main() -> ExitCode {
    begin(own)
}

/// The same in the program that has all commands, for a user with hooks.
pub fn guarded(linked: Linked) -> ExitCode {
    begin(|| run(Launch::of_process(linked), &GUARDED))
}

fn begin(run: impl FnOnce() -> Result<Infallible, Failed>) -> ExitCode {
    let environment: Vec<_> = std::env::vars_os().collect();
    if let Err(error) = known::learn(&environment) {
        // The message contains no value from outside, and at this point nothing exists that could redact one.
        eprintln!("lazaret-bash: {error}");
        return ExitCode::from(exit::LAZARET);
    }
    match run() {
        Ok(never) => match never {},
        Err(failed) => {
            print::problem(&failed.message);
            ExitCode::from(exit::LAZARET)
        }
    }
}

/// Runs the shell without hooks, of which there are none, or else becomes what has all that they need.
fn own() -> Result<Infallible, Failed> {
    let launch = Launch::of_process(Linked {
        parse_scope: no_scope_file,
        describe: clap::Command::default,
        // For a person; a program's call is checked below.
        agent_settings: |_, _| Vec::new(),
        hooks: |_| Ok(UserHooks::none()),
        begin_network: None,
        key_finder: None,
    });
    if hooks::may_exist(launch.files(), &hooks::agent_settings()) {
        let error = start::become_main_program(launch.files());
        return Err(Failed::internal(format!(
            "cannot start `lazaret` beside this program, which asks your hooks about each command: {error}"
        )));
    }
    run(launch, &Run::ROW)
}

fn run(launch: Launch, row: &'static CommandRow) -> Result<Infallible, Failed> {
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    let own = ShellWords::take(&mut words)?;
    let arguments = Arguments::parse(words, is_script);
    let run = Run::of_shell(arguments.words(), arguments.script());
    // A command written for one directory must not run in another. An interactive shell has a prompt that shows its directory.
    let here = std::env::current_dir()
        .map_err(|error| Failed::invalid(format!("the working directory cannot be used: {error}")));
    let here = if run.is_interactive() {
        None
    } else {
        Some(here?)
    };
    let (options, environment) = Options::of_shell(own, here)?;
    let prepared = launch.prepare_row(row, options, environment);
    let options = prepared.options();
    let project = options.project()?;
    options.check_profile(Some(&project.root))?;
    examiner::check(prepared.files(), &project.root)?;
    run.begin(prepared)
}

/// A shell has no option for a scope: the environment may have the scope itself.
fn no_scope_file(name: &str, _: &str) -> Result<Scope, Failed> {
    Err(Failed::invalid(format!("{name}: a shell reads no scope")))
}
