//! `lazaret-bash`: executes the `lazaret` beside it, which acts as a shell when started under this name. So there is only one
//! program, and still a path with `bash` in it for agents that accept a shell only by such a path.
#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Exit code of a shell that cannot run a program.
const NOT_RUN: u8 = 126;

#[expect(
    clippy::disallowed_methods,
    reason = "it starts nothing: it becomes the program that it is a name of"
)]
fn main() -> ExitCode {
    let lazaret = std::env::current_exe().map(|own| own.with_file_name("lazaret"));
    let error = match &lazaret {
        Ok(lazaret) => Command::new(lazaret).arg0("lazaret-bash").args(std::env::args_os().skip(1)).exec(),
        Err(error) => std::io::Error::new(error.kind(), error.to_string()),
    };
    let lazaret = lazaret.unwrap_or_else(|_| "lazaret".into());
    eprintln!("lazaret-bash: cannot start {}: {error}", lazaret.display());
    ExitCode::from(NOT_RUN)
}
