//! `lazaret-bash`: what a program is given that wants the path of a shell. Its commands run in a cell.
//!
//! What calls it reads exit codes and output, and knows nothing of us. So nothing is printed but what keeps a command from being
//! run or ends it, no question is answered in the name of a person, and the time limit is the longest that the policy has: the
//! caller has its own. The project is `LAZARET_PROJECT`, or the repository around the working directory.

use crate::run::Run;
use broker_protocol::Failed;
use orchestrator_install::shell_arguments::Arguments;
use orchestrator_options::exit;
use orchestrator_options::session_options::SessionOptions;
use orchestrator_terminal::print;
use std::path::Path;

/// The name under which this program is a shell.
const NAME: &str = "lazaret-bash";

/// Whether we were started by that name; a login shell's begins with a dash.
pub fn is_meant() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix('-').unwrap_or(name) == NAME
}

/// Runs the shell; the exit code.
pub fn main() -> u8 {
    run().unwrap_or_else(|failed| {
        print::problem(&failed.message);
        exit::LAZARET
    })
}

fn run() -> Result<u8, Failed> {
    let arguments = Arguments::parse(std::env::args_os().skip(1).collect());
    let run = Run::of_shell(arguments.words(), arguments.script());
    // What was written for one directory is not run in another. A shell at a terminal has a prompt that says where it is.
    let here = std::env::current_dir()
        .map_err(|error| Failed::invalid(format!("the working directory cannot be used: {error}")));
    let options = SessionOptions::of_environment(if run.is_interactive() { None } else { Some(here?) })?;
    run.main(&options)
}
