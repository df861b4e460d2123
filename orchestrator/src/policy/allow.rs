//! `lazaret policy allow`: permanently opens one host, or one path for reading, to a profile, by editing only the user's own policy file.

use broker_protocol::{Failed, Leased};
use orchestrator_confine::Files;
use orchestrator_launch::allow::{AllowError, allow};
use orchestrator_launch::exit;
use orchestrator_launch::launch::Prepared;
use orchestrator_terminal::print;
use std::io::{self, BufRead, Read, Write};

/// Maximum length in bytes of a line with a host or a path.
const LINE_MAX: u64 = 8192;

/// Opens `named`, or each line of standard input, to the profile that a session here would have; returns the exit code.
pub fn main(prepared: &Prepared, named: Option<&str>) -> Result<u8, Failed> {
    let files = prepared.files();
    let profile = prepared
        .options()
        .policy()
        .map_err(AllowError::from)?
        .profile;
    let Some(named) = named else {
        return Ok(listen(files, &profile));
    };
    let opens = opens(named);
    let told = match allow(files, &profile, &opens, "`lazaret policy allow`") {
        Ok(allowed) => allowed.describe(&opens),
        // What is to be so is so: a script that sets a machine up may run again.
        Err(already @ AllowError::Already { .. }) => already.to_string(),
        Err(error) => return Err(error.into()),
    };
    print::result(format!("{}\n", print::shown(&told)).as_bytes())?;
    Ok(exit::OK)
}

/// An absolute path is a path; anything else is a host.
fn opens(named: &str) -> Leased {
    if named.starts_with('/') {
        Leased::Read(named.to_owned())
    } else {
        Leased::Host(named.to_owned())
    }
}

/// Answers each line until the input ends: `+` and what was written, or `-` and why nothing was.
fn listen(files: &Files, profile: &str) -> u8 {
    let mut line = String::new();
    let mut input = io::stdin().lock().take(u64::MAX);
    loop {
        line.clear();
        input.set_limit(LINE_MAX);
        if !matches!(input.read_line(&mut line), Ok(1..)) {
            return exit::OK;
        }
        let opens = opens(line.trim_end_matches('\n').trim_start_matches("read "));
        let answer = match allow(files, profile, &opens, "`lazaret run`") {
            Ok(allowed) => format!("+{}", allowed.describe(&opens)),
            Err(error) => format!("-{error}"),
        };
        let written = io::stdout().write_all(format!("{}\n", answer.replace('\n', " ")).as_bytes());
        if written.and_then(|()| io::stdout().flush()).is_err() {
            return exit::OK;
        }
    }
}
