//! `read-path LAZARET PROJECT CENTRAL PATH [PREFIX…]` reads a file with Lazaret's own reader: `lazaret call file_read`.
//!
//! The corpus names a reader by a command line with the path as one word; the tool takes JSON. This writes the JSON.
//! Words after the path are put before the command, such as a path of `without-namespaces`.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [lazaret, project, central, path, prefix @ ..] = words.as_slice() else {
        eprintln!("usage: read-path LAZARET PROJECT CENTRAL PATH [PREFIX…]");
        return ExitCode::from(2);
    };
    // A path that is not UTF-8 cannot be named in JSON; its replacement names no file, which is an answer too.
    let path = String::from_utf8_lossy(path.as_bytes());
    let input = serde_json::json!({ "path": path }).to_string();
    let mut line = prefix.to_vec();
    line.push(lazaret.clone());
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).arg("call").arg("--project").arg(project).arg("--central").arg(central);
    let error = command.arg("file_read").arg(input).exec();
    eprintln!("read-path: cannot start {}: {error}", lazaret.display());
    ExitCode::from(127)
}
