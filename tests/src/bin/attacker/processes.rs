//! Attacks on other processes, and attempts to outlive the call.

use crate::outcome::{Outcome, denied, number};
use crate::sys;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a survivor lives if nobody kills it.
const LIFE: Duration = Duration::from_secs(60);

pub fn attack(words: &[&str]) -> Option<Outcome> {
    Some(match *words {
        ["signal", pid] => number(pid)
            .and_then(|pid| sys::signal(pid, libc::SIGUSR1))
            .map(|()| "sent".into()),
        ["signal-all"] => sys::signal(-1, libc::SIGUSR1).map(|()| "sent".into()),
        ["ptrace", pid] => number(pid).and_then(sys::trace).map(|()| "attached".into()),
        ["read-memory", pid, address] => read_memory(pid, address),
        ["steal-descriptor", pid, descriptor] => steal(pid, descriptor),
        ["take-own-descriptor"] => {
            sys::steal_descriptor(std::process::id().into(), 1).map(|_| "a descriptor".into())
        }
        ["nice", pid] => number(pid)
            .and_then(sys::make_nice)
            .map(|()| "changed".into()),
        ["set-limit", pid] => number(pid)
            .and_then(sys::limit_core)
            .map(|()| "changed".into()),
        ["set-affinity", pid] => number(pid)
            .and_then(sys::set_affinity)
            .map(|()| "changed".into()),
        ["search-processes", text] => search(text),
        ["environment", text] => environment(text),
        ["descriptors"] => descriptors(),
        ["capabilities"] => capabilities(),
        ["survive", "orphan", marker] => survive("daemon", marker, Stdio::null),
        ["survive", "session", marker] => survive("session", marker, Stdio::null),
        ["survive", "holding-output", marker] => survive("linger", marker, Stdio::inherit),
        ["survive", "many", marker] => many(marker),
        ["daemon", marker] => survive("linger", marker, Stdio::null),
        ["session", marker] => linger_in_session(marker),
        ["linger", _marker] => linger(),
        ["victim", secret] => victim(secret),
        _ => return None,
    })
}

fn read_memory(pid: &str, address: &str) -> Outcome {
    let bytes = sys::read_memory(number(pid)?, number(address)? as usize)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn steal(pid: &str, descriptor: &str) -> Outcome {
    use std::io::{Read, Seek};
    let mut file = sys::steal_descriptor(number(pid)?, number(descriptor)? as i32)?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Looks for a text in what every process was started with.
fn search(text: &str) -> Outcome {
    let own = std::process::id().to_string();
    let mut looked_at = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        if name
            .to_str()
            .is_none_or(|name| name.parse::<i32>().is_err() || name == own)
        {
            continue;
        }
        for file in ["environ", "cmdline"] {
            let Ok(bytes) = fs::read(entry.path().join(file)) else {
                continue;
            };
            looked_at += 1;
            // Its own parents carry the text as an argument of the attack; only an environment is a find.
            if file == "environ" && String::from_utf8_lossy(&bytes).contains(text) {
                return Ok(format!("in {}", entry.path().join(file).display()));
            }
        }
    }
    Err(denied(&format!("in none of {looked_at} files")))
}

fn environment(text: &str) -> Outcome {
    let found = std::env::vars_os().find(|(_, value)| value.to_string_lossy().contains(text));
    found
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .ok_or_else(|| denied("not in the environment"))
}

/// Descriptors beyond the standard three, without the one that this listing opens.
fn descriptors() -> Outcome {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let number: i32 = entry
            .file_name()
            .to_string_lossy()
            .parse()
            .map_err(std::io::Error::other)?;
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let is_this_listing = target.to_string_lossy().ends_with("/fd");
        if number > 2 && !is_this_listing {
            found.push(format!("{number} {}", target.display()));
        }
    }
    if found.is_empty() {
        Err(denied("only the standard three"))
    } else {
        Ok(found.join(", "))
    }
}

/// Any capability in any of the five sets, the bounding set included.
fn capabilities() -> Outcome {
    let status = fs::read_to_string("/proc/self/status")?;
    let sets = status.lines().filter(|line| line.starts_with("Cap"));
    let found: Vec<&str> = sets
        .filter(|line| line.split_whitespace().nth(1) != Some("0000000000000000"))
        .collect();
    if found.is_empty() {
        Err(denied("all sets are empty"))
    } else {
        Ok(found.join(", ").replace('\t', " "))
    }
}

/// Starts this program again in a role, and does not wait for it.
fn survive(role: &str, marker: &str, output: fn() -> Stdio) -> Outcome {
    let child = Command::new(std::env::current_exe()?)
        .args([role, marker])
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output())
        .spawn()?;
    Ok(format!("started {}", child.id()))
}

/// Two hundred processes at once: enough to be a nuisance, few enough for any machine.
fn many(marker: &str) -> Outcome {
    let mut started = 0;
    let outcome =
        (0..200).try_for_each(|_| survive("linger", marker, Stdio::null).map(|_| started += 1));
    if started == 0 {
        outcome?;
    }
    Ok(format!("started {started}"))
}

fn linger_in_session(marker: &str) -> Outcome {
    let _ = marker;
    nix::unistd::setsid()?;
    linger()
}

fn linger() -> Outcome {
    sys::ignore_hangup();
    std::thread::sleep(LIFE);
    Ok("lingered".into())
}

/// A bystander: says where its secret is, allows tracing, and waits to be harmed.
fn victim(secret: &str) -> Outcome {
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;
    sys::allow_tracing();
    let memory = format!("memory of {secret}")
        .into_bytes()
        .into_boxed_slice();
    let path = std::env::temp_dir().join(format!("victim-{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    write!(file, "file of {secret}")?;
    file.rewind()?;
    println!(
        "{} {} {}",
        std::process::id(),
        memory.as_ptr() as usize,
        file.as_raw_fd()
    );
    std::thread::sleep(LIFE);
    std::hint::black_box(&memory);
    Ok("unharmed".into())
}
