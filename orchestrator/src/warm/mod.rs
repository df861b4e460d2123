//! `lazaret warm`: has sandboxes ready for the commands of `lazaret run` and `lazaret-bash` that come next.
//!
//! A process of the user's that matches clients with brokers and does nothing else: what a client says is compared with what was said
//! before, as octets, and its socket is passed on. Each broker serves one client and ends. Whether its sandbox is used it decides alone,
//! when the client's request has come.

mod standing;

use crate::socket_file;
use broker_protocol::{ErrorKind, Failed};
use clap::{Args, Subcommand};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Uid;
use orchestrator_confine::Files;
use orchestrator_launch::exit;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;
use orchestrator_launch::warm::{self, Knock, KnockFor, Proof};
use orchestrator_lines::errors;
use serde_json::Value;
use standing::ReadyBrokers;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lazaret warm &               in a login; `lazaret run` and `lazaret-bash` find it
  lazaret run -v -- true       the second one says whether it was warm
  lazaret warm status
  lazaret warm stop

Once a command has run in a project, the sandbox for the next one is built ahead. When that comes,
policy and project are looked at as ever; the sandbox is used only if it is what would be built now,
and by this command only. If anything differs, the command starts as without `lazaret warm`.";

/// Maximum bytes of the answer to `status`.
const STATUS_MAX: u64 = 256 << 10;

/// Keep sandboxes ready for the next commands of `lazaret run` and `lazaret-bash`
///
/// Of a project, profile and environment that a command was run with; at most eight. Runs until it is stopped.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Warm {
    #[command(subcommand)]
    action: Option<WarmAction>,
    /// End what nobody has asked for in so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1440))]
    idle: u32,
}

#[derive(Subcommand)]
enum WarmAction {
    /// Print what stands ready
    Status(WarmReport),
    /// End it; commands that run go on
    Stop(WarmReport),
}

#[derive(Args)]
struct WarmReport {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl FrontEnd for Warm {
    const ROW: CommandRow = CommandRow::of_files(
        "warm",
        "0 it was stopped; 1 none runs (`status`, `stop`); 2 wrong arguments; 125 lazaret failed, or one runs already",
    );

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        match self.action {
            Some(WarmAction::Status(WarmReport { json })) => {
                ask(KnockFor::Status, json, status_rows)
            }
            Some(WarmAction::Stop(WarmReport { json })) => {
                ask(KnockFor::Stop, json, |_| "stopped\n".to_owned())
            }
            None => {
                let idle = Duration::from_secs(60 * u64::from(self.idle));
                serve(launch.files(), idle)
                    .map(|()| exit::OK)
                    .map_err(|error| Failed::internal(format!("nothing can stand ready: {error}")))
            }
        }
    }
}

/// Asks the one that runs, and prints its answer: as JSON, or as `text` has it.
fn ask(asked: KnockFor, json: bool, text: fn(&Value) -> String) -> Result<u8, Failed> {
    let answer = || {
        let path = warm::socket_path().ok_or(io::ErrorKind::NotFound)?;
        let mut answer = Vec::new();
        warm::knock(&path, asked)?
            .take(STATUS_MAX)
            .read_to_end(&mut answer)?;
        Ok::<_, io::Error>(serde_json::from_slice::<Value>(&answer)?)
    };
    match answer() {
        Ok(answer) if json => print::json(&answer).map(|()| exit::OK),
        Ok(answer) => print::result(text(&answer).as_bytes()).map(|()| exit::OK),
        Err(error) => {
            let message = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    "no `lazaret warm` runs; `lazaret warm &` starts one".to_owned()
                }
                _ => format!("no `lazaret warm` answers: {error}"),
            };
            print::problem(&message);
            let failed = Failed {
                kind: ErrorKind::NotFound,
                message,
            };
            errors::print_failed(&ErrorForm::object(json), &failed);
            Ok(exit::FAILED)
        }
    }
}

/// A row for each session of a status.
fn status_rows(status: &Value) -> String {
    let sessions = status["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    if sessions.is_empty() {
        return "no command has run yet that another sandbox would be built for\n".to_owned();
    }
    let text = |value: &Value| print::row(value.as_str().unwrap_or_default());
    let rows = sessions.iter().map(|session| {
        let why = match &session["why"] {
            Value::String(why) => format!("; last cold start: {}", print::row(why)),
            _ => String::new(),
        };
        format!(
            "{:<5}  {}  profile {}, {} running, {} warm and {} cold starts{why}\n",
            text(&session["state"]),
            text(&session["project"]),
            text(&session["profile"]),
            session["running"],
            session["served"],
            session["cold"],
        )
    });
    rows.collect()
}

/// Serves clients until it is stopped.
fn serve(files: &Files, idle: Duration) -> io::Result<()> {
    let proof = Proof::make()?;
    let path = directory()?.join(warm::SOCKET);
    let listener = socket_file::bind(&path)?;
    listener.set_nonblocking(true)?;
    let stopped = stopping_signals()?;
    let mut standing = ReadyBrokers::new(idle);
    print::note(&format!("commands find it at {}", path.display()));
    let done = loop {
        let fds = [listener.as_fd(), stopped.as_fd()].into_iter();
        let mut fds: Vec<PollFd> = fds
            .chain(standing.lines())
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let patience = standing.patience() + Duration::from_millis(1);
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, patience) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => break Err(errno.into()),
        }
        let [comes, ends] = [0, 1].map(|at: usize| fds[at].any() == Some(true));
        if ends || comes && !accept(&listener, &proof, &mut standing) {
            break Ok(());
        }
        standing.turn(files);
    };
    #[expect(clippy::disallowed_methods, reason = "the socket is ours")]
    let _ = fs::remove_file(&path);
    done
}

/// The signals that end this process, as something to wait for. Programs that it starts have none of them blocked.
fn stopping_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .for_each(|signal| set.add(signal));
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Hears one client; false if it asked for the end.
fn accept(listener: &UnixListener, proof: &Proof, standing: &mut ReadyBrokers) -> bool {
    let Ok((mut client, _)) = listener.accept() else {
        return true;
    };
    let Some(knock) = admitted(&mut client, proof) else {
        return true;
    };
    match knock.asked {
        KnockFor::Session(wanted) => standing.take(*wanted, &client),
        KnockFor::Status => {
            // Who does not read it gets none.
            let _ = client.write_all(standing.json().to_string().as_bytes());
        }
        KnockFor::Stop => {
            let _ = client.write_all(b"{\"stopped\":true}");
            return false;
        }
    }
    true
}

/// A client's message, if the client is this user's, and in no sandbox that this process is not in.
fn admitted(client: &mut UnixStream, proof: &Proof) -> Option<Knock> {
    let peer = getsockopt(&client, sockopt::PeerCredentials).ok()?;
    if peer.uid() != Uid::effective().as_raw() {
        return None;
    }
    client.set_nonblocking(false).ok()?;
    let knock = warm::hear(client).ok()?;
    client
        .set_write_timeout(Some(Duration::from_millis(100)))
        .ok()?;
    proof.is_shown_by(&knock).then_some(knock)
}

/// The directory of the socket, made if it is missing.
fn directory() -> io::Result<PathBuf> {
    let is_own = |path: &Path, others: u32| {
        fs::symlink_metadata(path).is_ok_and(|it| {
            it.is_dir() && it.uid() == Uid::effective().as_raw() && it.mode() & others == 0
        })
    };
    let places = warm::directories_of_user();
    for (at, place) in places.iter().enumerate() {
        let parent = place.parent().unwrap_or(Path::new("/"));
        let is_last = at + 1 == places.len();
        if !is_last && !is_own(parent, 0o077) {
            continue;
        }
        let made = DirBuilder::new()
            .mode(0o700)
            .recursive(is_last)
            .create(place);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) if is_own(place, 0o077) => return Ok(place.clone()),
            Ok(()) | Err(_) => {}
        }
    }
    let why = "no directory for the socket is this user's alone";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
