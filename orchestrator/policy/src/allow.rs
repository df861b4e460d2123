//! `lazaret policy allow`: permanently opens one host, one port, one path, or one name of a project's files to a profile, by editing only the user's
//! own policy file.

use broker_protocol::{Failed, Leased};
use orchestrator_config_edit::allow::{AllowError, allow};
use orchestrator_confine::Files;
use orchestrator_launch::exit;
use orchestrator_launch::launch::Prepared;
use orchestrator_launch::stdio::print;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

/// Maximum length in bytes of a line with a host, a port or a path.
const LINE_MAX: u64 = 8192;

/// Opens `named`, or each line of standard input, to the profile that a session here would have; returns the exit code.
pub(super) fn main(prepared: &Prepared, named: Option<&str>) -> Result<u8, Failed> {
    let files = prepared.files();
    let profile = prepared
        .options()
        .policy()
        .map_err(AllowError::from)?
        .profile;
    let root = prepared.options().project().ok();
    let root = root.map(|project| project.root.as_path());
    let Some(named) = named else {
        return Ok(listen(files, (&profile, root)));
    };
    let opens = opens(named)?;
    let told = match allow(files, (&profile, root), &opens, "`lazaret policy allow`") {
        Ok(allowed) => allowed.describe(),
        // No error: a script that sets a machine up may run again.
        Err(already @ AllowError::Already { .. }) => already.to_string(),
        Err(error) => return Err(error.into()),
    };
    print::result(format!("{}\n", print::shown(&told)).as_bytes())?;
    Ok(exit::OK)
}

/// A number is a port of this machine. A host begins with no dot and has no slash; anything else is a path.
fn opens(named: &str) -> Result<Leased, Failed> {
    if let Some(port) = port(named) {
        return Ok(Leased::Port(port));
    }
    if !named.starts_with('.') && !named.contains('/') {
        return Ok(Leased::Host(named.to_owned()));
    }
    let path = std::path::absolute(named);
    let path = path.map_err(|error| Failed::invalid(format!("{named}: {error}")))?;
    let path = path.to_str().map(str::to_owned);
    let path = path.ok_or_else(|| Failed::invalid(format!("{named}: not UTF-8")))?;
    Ok(Leased::Read(path))
}

fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

/// A line of [`listen`], as a lease is displayed.
fn leased(line: &str) -> Leased {
    if let Some(port) = line.strip_prefix("connect ").and_then(port) {
        return Leased::Port(port);
    }
    match (line.strip_prefix("read "), line.strip_prefix("write ")) {
        (Some(path), _) => Leased::Read(path.to_owned()),
        (None, Some(path)) => Leased::Write(path.to_owned()),
        (None, None) => Leased::Host(line.to_owned()),
    }
}

/// Answers each line until the input ends: `+` and what was written, or `-` and why nothing was.
fn listen(files: &Files, (profile, root): (&str, Option<&Path>)) -> u8 {
    let mut line = String::new();
    let mut input = io::stdin().lock().take(u64::MAX);
    loop {
        line.clear();
        input.set_limit(LINE_MAX);
        if !matches!(input.read_line(&mut line), Ok(1..)) {
            return exit::OK;
        }
        let opens = leased(line.trim_end_matches('\n'));
        let answer = match allow(files, (profile, root), &opens, "`lazaret run`") {
            Ok(allowed) => format!("+{}", allowed.describe()),
            Err(error) => format!("-{error}"),
        };
        let written = io::stdout().write_all(format!("{}\n", answer.replace('\n', " ")).as_bytes());
        if written.and_then(|()| io::stdout().flush()).is_err() {
            return exit::OK;
        }
    }
}
