//! `lazaret why`: its command line, and the traced run.

use crate::findings::{ExplainedDenials, HostRemedy, LoggedRefusal};
use crate::last::{self, LastCommand};
use crate::page::{self, Rerun};
use crate::trace::{ReceivedReport, Trace};
use broker_protocol::{
    Bash, Command, Denial, Ended, ErrorKind, Extent, Failed, NetworkRequest, Open, Remedy, Request,
    Stdin, ZonePath, limit,
};
use clap::Args;
use orchestrator_confine::{ConfinementProof, Needs};
use orchestrator_engine::executor::Greeting;
use orchestrator_engine::{
    Body, CallContext, CallResult, Config, FoundIn, HookGuard, Invocation, LiveOutput, Session,
    StdinChunk,
};
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, WorkOptions};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::session_options::SessionOpening;
use orchestrator_launch::state_directory::home;
use orchestrator_launch::stdio::{print, typed};
use orchestrator_results::error_body::ErrorBody;
use orchestrator_text::known::redactor;
use orchestrator_text::random;
use policies::{EffectivePolicy, network};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// Exit code: it is unknown whether something was denied.
const UNKNOWN: u8 = 3;
/// Exit code: this machine has no overlay for the user, or no tracer.
const UNAVAILABLE: u8 = 4;

const EXAMPLES: &str = "\
The command runs again with the layers of any other, below a tracer, over a copy of both roots that is thrown away. It
reaches no host, so that it changes nothing elsewhere a second time: what it wants to reach is printed. Its output is
dropped; -v prints it. Programs look for much that they can do without: what is printed was closed, and need not be
why a command failed.

Examples:
  lazaret why
  lazaret why -- cat ~/data/table.csv
  lazaret why --json --profile node -- npm test";

/// Explain what a command was denied: run it again, traced and thrown away
///
/// Without CMD, the last command of this project in the run log, with its profile and directory.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Why {
    /// Time limit in seconds [default: the profile's `timeout_s`]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::TIMEOUT_S)))]
    timeout: Option<u32>,
    /// Print one JSON object in place of the page
    #[arg(long)]
    json: bool,
    /// The program and its arguments [default: the last command of this project]
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    work: WorkOptions,
}

/// The command to run, and where.
struct CommandToExplain {
    command: Command,
    directory: Option<ZonePath>,
    /// What the gateway refused to it before.
    refused: Vec<LoggedRefusal>,
}

impl FrontEnd for Why {
    const ROW: CommandRow = CommandRow {
        name: "why",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: true,
        usage: exit::USAGE,
        exit: "0 something was denied, and is explained; 1 nothing was; 2 wrong arguments, or there is no command to run; 3 \
               incomplete; 4 unsupported here: no overlay, as in the flat tier, or no `lazaret-trace`; 125 lazaret failed",
    };

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(mut self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.work))?;
        let words = std::mem::take(&mut self.command);
        let (chosen, prepared) = if words.is_empty() {
            let last = last::find(&prepared.options().project()?.root)?;
            let LastCommand {
                command,
                profile,
                directory,
                run,
                had_input,
                refused,
            } = last;
            if prepared.options().is_verbose() {
                print::problem(&format!("the command is the last one of the run {run}"));
            }
            if had_input {
                print::note("it has no input now: what it was given then is not kept");
            }
            (
                Some(CommandToExplain {
                    command,
                    directory,
                    refused,
                }),
                prepared.with(|options| options.or_profile(&profile)),
            )
        } else {
            (None, prepared)
        };
        let SessionOpening {
            open, directory, ..
        } = prepared.options().open()?;
        let chosen = chosen.unwrap_or_else(|| {
            let words = words
                .into_iter()
                .map(|word| word.into_vec().into())
                .collect();
            CommandToExplain {
                command: Command::Arguments(words),
                directory,
                refused: Vec::new(),
            }
        });
        self.rerun(prepared, open, chosen)
    }
}

impl Why {
    fn rerun(
        &self,
        prepared: Prepared,
        open: Open,
        mut chosen: CommandToExplain,
    ) -> Result<u8, Failed> {
        let options = prepared.options();
        let command = chosen.command.clone();
        let logged = std::mem::take(&mut chosen.refused);
        let request = self.request(chosen);
        request
            .check()
            .map_err(|error| Failed::invalid(error.to_string()))?;
        // What an ordinary run with these options would reach.
        let policy = options.files().resolve(&open.profile).ok();
        let network = options.network(policy.as_ref());
        let reached = policy.and_then(|policy| policy.with_network(network.as_ref()).ok());
        let open = thrown_away(open);
        let greeting = Greeting::open(&options.endpoint(), open.clone())?;
        let is_verbose = options.is_verbose();
        let confined = prepared.confine(Needs::default());
        let config = Config {
            greeting: Some(greeting),
            subscribers: vec![confined.log()],
            ..Config::new(open, redactor(), HookGuard::ByPerson)
        };
        let reason = |found: &Result<_, Failed>| match found {
            Ok(_) => "the command has ended",
            Err(_) => "the command was not run",
        };
        let work = find(
            (config, confined.proof()),
            request,
            is_verbose,
            reached.as_ref(),
        );
        let found = confined.run(reason, work);
        match found {
            Ok((result, profile, findings)) => {
                let ended = result.ended;
                let rerun = Rerun {
                    command,
                    profile,
                    ended,
                };
                let findings = fitting(&rerun, ExplainedDenials { logged, ..findings });
                self.print(&rerun, &findings)
            }
            // When opening a session, only this can be missing entirely.
            Err(failed) if failed.kind == ErrorKind::NotFound => {
                logged
                    .iter()
                    .for_each(|refusal| print::problem(&page::logged(refusal)));
                self.print_unavailable(&failed)
            }
            Err(failed) => Err(failed),
        }
    }

    fn print_unavailable(&self, failed: &Failed) -> Result<u8, Failed> {
        print::problem(&unavailable(failed));
        if self.json {
            print::json(&json!({ "error": ErrorBody::from(failed) }))?;
        }
        Ok(UNAVAILABLE)
    }

    fn request(&self, chosen: CommandToExplain) -> Request {
        let CommandToExplain {
            command, directory, ..
        } = chosen;
        Request::Bash(Bash {
            command,
            directory,
            timeout_s: self.timeout,
            idle_timeout_s: None,
            // For the tracer; the command has no input.
            stdin: Stdin::Stream,
            live: true,
            background: false,
            split: false,
            attended: false,
        })
    }

    fn print(&self, rerun: &Rerun, findings: &ExplainedDenials) -> Result<u8, Failed> {
        if self.json {
            print::json(&page::json(rerun, findings))?;
        } else {
            print::result(page::text(rerun, findings).as_bytes())?;
        }
        let is_explained =
            !findings.list.is_empty() || findings.profile.is_some() || !findings.logged.is_empty();
        let is_whole = findings.gaps.is_empty() && findings.more == 0;
        Ok(match (is_explained, is_whole) {
            (true, _) => exit::OK,
            (false, true) => exit::FAILED,
            (false, false) => UNKNOWN,
        })
    }
}

/// The session whose changes nobody keeps. Its relay refuses every host, to learn which ones the command wants.
fn thrown_away(open: Open) -> Open {
    Open {
        network: Some(NetworkRequest {
            leases: true,
            ..NetworkRequest::default()
        }),
        throw_away: true,
        capture: Some(0),
        ..open
    }
}

/// Without what is no matter: what the command gets otherwise, and advice to one that succeeded.
fn fitting(rerun: &Rerun, mut findings: ExplainedDenials) -> ExplainedDenials {
    findings.drop_given(&home(), &rerun.words());
    if rerun.ended == Some(Ended::Exited(0)) {
        findings.advise_nothing();
    }
    findings
}

fn unavailable(failed: &Failed) -> String {
    format!(
        "{}; run the command by `lazaret run -v`, which prints what the executor itself has refused, or see `lazaret doctor` for what \
         keeps user namespaces from you",
        failed.message
    )
}

/// What would open a host; `None` if a run under `policy` reaches it.
fn remedy_of(host: &str, policy: Option<&EffectivePolicy>) -> HostRemedy {
    let parts = host
        .rsplit_once(':')
        .and_then(|(name, port)| Some((name, port.parse().ok()?)));
    match (parts, policy) {
        (Some((name, port)), Some(policy)) if policy.network.allows(name, port) => None,
        (Some((name, port)), Some(policy)) => Some(network::remedy(
            &policy.network,
            network::Leasing::NotOffered,
            name,
            port,
        )),
        (None, _) | (_, None) => Some(Remedy::Nothing),
    }
}

/// Runs the command in its session, and lets the executor explain its failed calls. An ordinary run would have the policy `reached`.
async fn find(
    (config, proof): (Config, ConfinementProof),
    request: Request,
    verbose: bool,
    reached: Option<&EffectivePolicy>,
) -> Result<(Arc<CallResult>, String, ExplainedDenials), Failed> {
    let session = Session::start(config, proof);
    let opened = session.open().await?;
    let (result, trace) = run(&session, request, verbose).await?;
    let trace = match result.ended {
        Some(Ended::Exited(_)) => trace,
        // The tracer exits by itself however the command ends: this one was killed, whatever its report contains.
        Some(_) => trace.cut(),
        // A refused command was not traced.
        None => Trace::default(),
    };
    let mut findings = ExplainedDenials {
        connect: reached.map_or_else(Vec::new, |policy| policy.ports.connect.clone()),
        ..ExplainedDenials::default()
    };
    let hosts = |host: &str| remedy_of(host, reached);
    findings.add_own(result.all_denials(), trace.extent(), &hosts);
    for piece in trace.pieces() {
        let traced = piece.iter().map(|(traced, _)| traced.clone()).collect();
        let explained = session.explain(traced).await?;
        for (denial, (_, count)) in explained.into_iter().zip(piece) {
            denial.into_iter().for_each(|denial| {
                findings.add(Denial {
                    count: *count,
                    ..denial
                })
            });
        }
    }
    findings.gaps.extend(trace.gaps);
    findings.profile = result.missing_profile().map(str::to_owned);
    if result.ended.is_none() && findings.list.is_empty() {
        let error = result.error.clone();
        return Err(error.unwrap_or_else(|| Failed::internal("the call ended without a reason")));
    }
    Ok((result, opened.profile, findings))
}

/// Runs the command to its end; its standard output is the tracer's report.
async fn run(
    session: &Session,
    request: Request,
    verbose: bool,
) -> Result<(Arc<CallResult>, Trace), Failed> {
    let context = CallContext {
        live: LiveOutput::Bytes,
        raw: true,
        // Nothing of a throw-away session reaches the project.
        found: FoundIn::Metadata,
        ..CallContext::new("why".into())
    };
    // Only the tracer and this process know it.
    let key = random::hex::<16>();
    let key = key.map_err(|error| Failed::internal(format!("no random bytes: {error}")))?;
    let mut call = session.call(context, Invocation::Request(request));
    call.handle.input(StdinChunk {
        bytes: key.clone().into_bytes(),
        permit: None,
    });
    call.handle.end_input();
    let mut report = ReceivedReport::default();
    while let Some(event) = call.next().await {
        match &*event.body {
            Body::Output {
                stderr: false,
                bytes,
            } => report.push(bytes),
            Body::Output {
                stderr: true,
                bytes,
            } if verbose => {
                // A closed standard error needs no output.
                let _ = io::stderr().write_all(bytes);
            }
            Body::ApprovalWanted(question) => {
                typed::answer(&call.handle, event.part, question, Extent::Once).await;
            }
            Body::Result(result) => return Ok((result.clone(), report.read(&key))),
            _ => {}
        }
    }
    Err(Failed::internal("the call ended without a result"))
}
