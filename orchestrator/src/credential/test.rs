//! `lazaret credential test`: opens a session that has the credential, and has one harmless request made to each of its hosts.
//!
//! The request is made in a cell, by curl and with the placeholder, as any command would make it. What the cell prints is believed as
//! far as it is printed.

use super::{list, source};
use broker_protocol::gateway::{Attach, CredentialUse};
use broker_protocol::paste::shell_word;
use broker_protocol::{Bash, Command, ConnectionVerdict, Failed, Open, Request, Stdin};
use clap::Args;
use orchestrator_confine::Needs;
use orchestrator_engine::executor::Greeting;
use orchestrator_engine::{
    Body, CallContext, CallResult, Config, Event, HookGuard, Invocation, Session, Subscriber,
    explain,
};
use orchestrator_launch::groups::{CentralOption, DirectoryOptions, Options, ProfileOption};
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::stdio::{print, typed};
use orchestrator_launch::{exit, policy_files, state_directory};
use orchestrator_text::known::redactor;
use policies::{Credential, Policies};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use thiserror::Error;

/// Seconds that a request may take, with the start of a source's program.
const REQUEST_S: u32 = 30;
/// Characters of an answer that are looked at.
const ANSWER_MAX: usize = 600;
/// How an answer of the gateway begins.
const OURS: &str = "lazaret: ";

/// Try one: a harmless request to each of its hosts, and what these answer
///
/// The request is a GET of the first plain path that its `uses` name for a host, made by `curl` in a cell. A status in the answer shows
/// that the value was sent; whether the host looks at it for this path is the host's matter.
#[derive(Args)]
pub(super) struct TestCredential {
    /// The credential's name in the policy files
    name: String,
    /// Print a JSON array in place of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    directory: DirectoryOptions,
    #[command(flatten)]
    central: CentralOption,
    #[command(flatten)]
    profile: ProfileOption,
}

/// Why there is nothing to try.
#[derive(Debug, Error)]
enum NoTest {
    #[error("there is no credential `{0}`; `lazaret credential list` lists them")]
    Absent(String),
    #[error(
        "no profile has the credential `{0}`; `credentials = [\"{0}\"]` in a profile of your policy gives it to its commands"
    )]
    Unnamed(String),
    #[error("the profile {profile} does not have the credential `{name}`; these do: {others}")]
    Profile {
        profile: String,
        name: String,
        others: String,
    },
}

impl From<NoTest> for Failed {
    fn from(error: NoTest) -> Self {
        Failed::invalid(error.to_string())
    }
}

/// What a request to one host showed.
#[derive(Debug, PartialEq, Eq)]
enum HostOutcome {
    Answered(u16),
    Untried,
    NoLogin,
    Failed(FailedStep),
}

/// The step at which a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum FailedStep {
    #[error("source: {0}")]
    Source(String),
    #[error("connection: {0}")]
    Connection(String),
    #[error("request: the gateway refused it: {0}")]
    Gateway(String),
    #[error("host: it answered {0}, so it does not accept the value for this request")]
    Host(u16),
    #[error("answer: the host answered{}, and its answer was cut: {why}", .status.map_or(String::new(), |status| format!(" {status}")))]
    Answer { status: Option<u16>, why: String },
    #[error("client: {0}")]
    Client(String),
}

impl FailedStep {
    fn name(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Connection(_) => "connection",
            Self::Gateway(_) => "request",
            Self::Host(_) => "host",
            Self::Answer { .. } => "answer",
            Self::Client(_) => "client",
        }
    }

    /// The status of the host's answer.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Host(status) => Some(*status),
            Self::Answer { status, .. } => *status,
            Self::Source(_) | Self::Connection(_) | Self::Gateway(_) | Self::Client(_) => None,
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Source(_) => {
                "make `from` of the credential name a file or a program that gives the value now"
            }
            Self::Connection(_) => {
                "see whether the host is reachable from here, and `[gateway]` of the policy behind a company's proxy; `lazaret doctor` names it"
            }
            Self::Gateway(_) => "what it says names the line of the policy",
            Self::Host(_) => {
                "make a new token at the service, with the rights that your commands need"
            }
            Self::Answer { .. } => {
                "the value was sent; where an answer has it in it, commands do not get that answer, and another path of `uses` may do"
            }
            Self::Client(_) => {
                "the request needs bash and curl in the cell: another profile may show them"
            }
        }
    }
}

impl FrontEnd for TestCredential {
    const ROW: CommandRow = CommandRow {
        name: "credential test",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: false,
        usage: exit::USAGE,
        exit: "0 each host that was tried has answered; 1 a step failed, and is named; 2 wrong arguments, no such credential, or no profile \
               with it; 125 lazaret failed",
    };

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let options = Options::of(&self.directory)
            .and(&self.central)
            .and(&self.profile);
        let prepared = launch.prepare::<Self>(options)?;
        let (credential, profile) = self.choose(&prepared)?;
        let outcomes = match source::check(&credential.from, &state_directory::variable) {
            Ok(()) => {
                let prepared = prepared.with(|options| options.or_profile(&profile));
                try_each(prepared, credential.clone())?
            }
            Err(why) => {
                let failed = || HostOutcome::Failed(FailedStep::Source(why.to_string()));
                credential.hosts.iter().map(|_| failed()).collect()
            }
        };
        let tried = credential.hosts.iter().zip(&outcomes);
        if self.json {
            let all: Vec<Value> = tried.map(|(host, outcome)| outcome.json(host)).collect();
            print::json(&all)?;
        } else {
            let head = format!(
                "{}, from {}, in the profile {profile}\n",
                credential.name,
                list::describe(&credential.from)
            );
            let lines = tried.map(|(host, outcome)| format!("{host}: {}\n", outcome.text()));
            let text: String = std::iter::once(head).chain(lines).collect();
            print::result(print::shown(&text).as_bytes())?;
        }
        let is_failed = |outcome: &HostOutcome| matches!(outcome, HostOutcome::Failed(_));
        match outcomes.iter().any(is_failed) {
            true => Ok(exit::FAILED),
            false => Ok(exit::OK),
        }
    }
}

impl TestCredential {
    /// The credential, and the profile to try it with: the one that a session here has, or else the first one with it.
    fn choose(&self, prepared: &Prepared) -> Result<(Credential, String), Failed> {
        let machine = policy_files::host();
        let files = policy_files::sources(prepared.files(), &machine);
        let policies = files.and_then(Policies::load)?;
        let name = || self.name.clone();
        let all = policies.defined_credentials(&machine)?;
        let found = all.into_iter().find(|one| one.name == self.name);
        let found = found.ok_or_else(|| NoTest::Absent(name()))?;
        let with = policies.profiles_with(&self.name, &machine);
        let here = prepared.options().policy()?.profile;
        if with.contains(&here) {
            return Ok((found, here));
        }
        if let Some(profile) = prepared.options().profile_name() {
            let (profile, others) = (profile.to_owned(), with.join(", "));
            return Err(NoTest::Profile {
                profile,
                name: name(),
                others,
            }
            .into());
        }
        let first = with.into_iter().next();
        Ok((found, first.ok_or_else(|| NoTest::Unnamed(name()))?))
    }
}

/// The last refusal of the gateway, with its reason.
#[derive(Default)]
struct LastRefusal(RefCell<Option<ReportedRefusal>>);

type ReportedRefusal = (ConnectionVerdict, String);

impl Subscriber for LastRefusal {
    fn hear(&self, event: &Event) {
        if let Body::Connection(report) = &*event.body
            && report.verdict != ConnectionVerdict::Allowed
        {
            *self.0.borrow_mut() = explain(report).map(|why| (report.verdict, why));
        }
    }
}

/// Makes the requests, one after the other, in one session.
fn try_each(prepared: Prepared, credential: Credential) -> Result<Vec<HostOutcome>, Failed> {
    let options = prepared.options();
    let policy = options.policy()?;
    let open = Open {
        network: options.network(Some(&policy)),
        ..options.open()?.open
    };
    let greeting = Greeting::open(&options.endpoint(), open.clone())?;
    let confined = prepared.confine(Needs::default());
    let proof = confined.proof();
    let refused = Rc::new(LastRefusal::default());
    let config = Config {
        greeting: Some(greeting),
        subscribers: vec![refused.clone()],
        ..Config::<()>::new(open, redactor(), HookGuard::ByPerson)
    };
    let work = async {
        let session = Session::start(config, proof);
        session.open().await?;
        let mut outcomes = Vec::new();
        for host in &credential.hosts {
            let outcome = match script(&credential, host) {
                None if is_login(&credential) => HostOutcome::NoLogin,
                None => HostOutcome::Untried,
                Some(script) => {
                    refused.0.take();
                    let result = call(&session, script).await?;
                    outcome(&result, refused.0.take())
                }
            };
            outcomes.push(outcome);
        }
        Ok(outcomes)
    };
    confined.run(|_| "the requests have ended", work)
}

async fn call(session: &Session, script: String) -> Result<Arc<CallResult>, Failed> {
    let request = Request::Bash(Bash {
        command: Command::Shell(script),
        directory: None,
        timeout_s: Some(REQUEST_S * 2),
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    });
    let context = CallContext::new("credential".into());
    let mut call = session.call(context, Invocation::Request(request));
    typed::follow(&mut call).await
}

/// The path of a harmless request to `host`: of a read that a use names without a pattern, those that name their method first.
fn probe<'c>(credential: &'c Credential, host: &str) -> Option<&'c str> {
    let is_read = |one: &&CredentialUse| {
        let is_here = one.host.as_ref().is_none_or(|own| own == host);
        let is_get = one.methods.is_empty() || one.methods.iter().any(|method| method == "GET");
        is_here && is_get && !one.refused && !one.path.trim_end_matches("/**").contains('*')
    };
    let mut reads: Vec<_> = credential.uses.iter().filter(is_read).collect();
    reads.sort_by_key(|one| (one.methods.is_empty(), one.path.ends_with("/**")));
    let path = &reads.first()?.path;
    Some(path.strip_suffix("**").unwrap_or(path))
}

/// Whether a program has to log in first, so that there is nothing to send.
fn is_login(credential: &Credential) -> bool {
    matches!(credential.attach, Attach::Login(_))
}

/// The command of a request; `None` if there is no harmless one.
fn script(credential: &Credential, host: &str) -> Option<String> {
    let path = probe(credential, host)?;
    // Which service and which region a signature is for, nothing says.
    if credential.attach == Attach::Aws || is_login(credential) {
        return None;
    }
    let placeholder = credential.variables.first();
    let authorization = placeholder.map_or(String::new(), |name| match &credential.attach {
        Attach::Bearer => format!("-H \"Authorization: Bearer ${name}\""),
        Attach::Basic { user } | Attach::Any { user } => {
            format!("-u {}:\"${name}\"", shell_word(user))
        }
        Attach::Header { name: header } => {
            format!("-H {}\"${name}\"", shell_word(&format!("{header}: ")))
        }
        Attach::Aws | Attach::Login(_) => String::new(),
    });
    let url = format!("https://{host}{path}");
    let set = placeholder.map_or(String::new(), |name| {
        format!("test -n \"${name}\" || {{ echo absent; exit; }}\n")
    });
    Some(format!(
        "{set}type curl > /dev/null 2>&1 || {{ echo no curl; exit; }}\n\
         told=$(curl -sS -m {REQUEST_S} --noproxy '' -o \"$TMPDIR/answer\" -w '%{{http_code}}' {authorization} {} 2> \"$TMPDIR/why\")\n\
         code=$?; echo \"$code $told\"\n\
         test $code = 0 && head -c {ANSWER_MAX} \"$TMPDIR/answer\" 2> /dev/null || cat \"$TMPDIR/why\"",
        shell_word(&url)
    ))
}

/// What a request's command printed, in the light of what the gateway reported.
fn outcome(result: &CallResult, refused: Option<ReportedRefusal>) -> HostOutcome {
    if let Some(error) = result.error.as_ref().filter(|_| result.ended.is_none()) {
        return HostOutcome::Failed(FailedStep::Client(error.message.clone()));
    }
    let text = String::from_utf8_lossy(&result.text);
    read(&text, refused)
}

fn read(text: &str, refused: Option<ReportedRefusal>) -> HostOutcome {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let rest: String = rest.trim().chars().take(ANSWER_MAX).collect();
    let numbers = first.split_once(' ');
    let numbers = numbers
        .and_then(|(code, status)| Some((code.parse::<u8>().ok()?, status.parse::<u16>().ok()?)));
    let step = match (first, numbers) {
        ("absent", _) => FailedStep::Source(
            "the session has no placeholder; `lazaret run -v` prints why".to_owned(),
        ),
        ("no curl", _) => FailedStep::Client("there is no curl in the cell".to_owned()),
        (_, None) => FailedStep::Client(format!("it printed nothing that can be read: {first}")),
        (_, Some((0, status))) if rest.starts_with(OURS) => {
            let why = rest[OURS.len()..].to_owned();
            let verdict = refused.map(|(verdict, _)| verdict);
            match (status, verdict) {
                (502, Some(ConnectionVerdict::NoValue)) => FailedStep::Source(why),
                (502, Some(ConnectionVerdict::RequestRefused)) => {
                    FailedStep::Answer { status: None, why }
                }
                // The gateway has no answer of the host's.
                (502, _) => FailedStep::Connection(why),
                (_, _) => FailedStep::Gateway(why),
            }
        }
        (_, Some((0, status @ (401 | 403 | 407)))) => FailedStep::Host(status),
        (_, Some((0, status))) => return HostOutcome::Answered(status),
        (_, Some((_, status))) => {
            let status = (status > 0).then_some(status);
            // To a request that it refuses the gateway answers: there is no answer if it refuses the host's.
            let is_cut = matches!(refused, Some((ConnectionVerdict::RequestRefused, _)));
            let why = refused.map_or(rest, |(_, why)| why);
            match is_cut || status.is_some() {
                true => FailedStep::Answer { status, why },
                false => FailedStep::Connection(why),
            }
        }
    };
    HostOutcome::Failed(step)
}

impl HostOutcome {
    fn text(&self) -> String {
        match self {
            Self::Answered(status) => format!("answered {status}"),
            Self::Untried => {
                "not tried: its uses there name no plain path that can be read".to_owned()
            }
            Self::NoLogin => {
                "not tried: its programs log in, and each has then a token of its own".to_owned()
            }
            Self::Failed(step) => format!("{step}; {}", step.advice()),
        }
    }

    fn json(&self, host: &str) -> Value {
        let (status, step) = match self {
            Self::Answered(status) => (Some(*status), None),
            Self::Untried | Self::NoLogin => (None, None),
            Self::Failed(step) => (step.status(), Some(step.clone())),
        };
        json!({
            "host": host,
            "tried": !matches!(self, Self::Untried | Self::NoLogin),
            "ok": step.is_none(),
            "status": status,
            "step": step.as_ref().map(FailedStep::name),
            "why": step.as_ref().map(ToString::to_string),
            "advice": step.as_ref().map(FailedStep::advice),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_that_fails_is_told_from_an_answer() {
        let by = |verdict| Some((verdict, "the proxy answered 403".to_owned()));
        let refused = || by(ConnectionVerdict::ProxyRefused);
        let failed = |text: &str| match read(text, refused()) {
            HostOutcome::Failed(step) => step.name(),
            HostOutcome::Answered(_) | HostOutcome::Untried | HostOutcome::NoLogin => "none",
        };
        assert_eq!(read("0 200\n{}", None), HostOutcome::Answered(200));
        assert_eq!(read("0 404\n", refused()), HostOutcome::Answered(404));
        for (text, step) in [
            ("absent\n", "source"),
            ("no curl\n", "client"),
            ("", "client"),
            ("0 200 1\n", "client"),
            ("300 200\n", "client"),
            ("0 502\nlazaret: no TLS connection to x", "connection"),
            ("0 403\nlazaret: POST /x makes", "request"),
            ("0 401\nBad credentials", "host"),
            ("0 403\n", "host"),
            ("56 000\ncurl: (56) CONNECT tunnel failed", "connection"),
            ("18 200\ncurl: (18) transfer closed", "answer"),
        ] {
            assert_eq!(failed(text), step, "{text:?}");
        }
        let ours = |verdict| match read("0 502\nlazaret: why", verdict) {
            HostOutcome::Failed(step) => step.name(),
            HostOutcome::Answered(_) | HostOutcome::Untried | HostOutcome::NoLogin => "none",
        };
        assert_eq!(ours(by(ConnectionVerdict::NoValue)), "source");
        assert_eq!(ours(by(ConnectionVerdict::RequestRefused)), "answer");
        assert_eq!(ours(by(ConnectionVerdict::TlsRefused)), "connection");
        assert_eq!(ours(None), "connection");
        let cut = read("56 000\n", by(ConnectionVerdict::RequestRefused));
        assert!(matches!(
            cut,
            HostOutcome::Failed(FailedStep::Answer { status: None, .. })
        ));
        let HostOutcome::Failed(step) = read("56 000\ncurl: (56)", refused()) else {
            panic!("it failed");
        };
        assert_eq!(step.to_string(), "connection: the proxy answered 403");
    }
}
