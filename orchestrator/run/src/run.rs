//! `lazaret run`: runs one command in a cell as if it ran here.

use crate::more_hosts::MoreHosts;
use crate::out::{Out, OutputLost};
use crate::refused_connections::RefusedConnections;
use crate::shell_directory::WorkingDirectory;
use broker_protocol::{
    Barrier, Bash, Channel, Command, Denial, Ended, ErrorKind, Extent, Failed, Open, Opened,
    Request, Signal, StdStream, Stdin, Terminal, ZonePath, limit,
};
use clap::Args;
use nix::libc::{
    ENOENT, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH,
};
use orchestrator_confine::{Files, Needs};
use orchestrator_engine::executor::Dialed;
use orchestrator_engine::hooks::{HookOutcome, HookRan, quoted};
use orchestrator_engine::{
    Body, Call, CallContext, CallHandle, CallResult, Config, FoundIn, HookGuard, Invocation,
    LiveOutput, Session,
};
use orchestrator_launch::endpoint::Endpoint;
use orchestrator_launch::exit;
use orchestrator_launch::groups::{Options, WorkOptions};
use orchestrator_launch::hooks::UserHooks;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch, Prepared};
use orchestrator_launch::row::{CommandAccess, CommandRow, NetworkUse, SessionCount, Writes};
use orchestrator_launch::session_options::SessionOptions;
use orchestrator_launch::start::start_policy_writer;
use orchestrator_launch::stdio::feed::feed;
use orchestrator_launch::stdio::job::Job;
use orchestrator_launch::stdio::signals::Signals;
use orchestrator_launch::stdio::streams::InputStream;
use orchestrator_launch::stdio::terminal::{self, Raw};
use orchestrator_launch::stdio::{print, typed};
use orchestrator_launch::warm;
use orchestrator_text::known::redactor;
use orchestrator_wire::json::ResultLine;
use policies::network::Leasing;
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Signals that end the command, resize its terminal, or stop and resume it.
const SIGNALS: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT, SIGTSTP];

const EXAMPLES: &str = "\
Examples:
  lazaret run -- cargo test
  lazaret run --timeout 10 -- sh -c 'yes | head -c 1000'
  tar c src | lazaret run -- tar t
  while read f; do lazaret run -n -- wc \"$f\"; done < list
                                      without -n, the first wc would get the list
  lazaret run -- bash                 on a terminal: a shell with job control

On a terminal each Ctrl-C goes to the command, as outside: a shell, a REPL or an agent
decides what it does. SIGTERM to this program, and SIGHUP when the terminal is closed,
go to the command as well; SIGKILL to this program ends whatever ignores them.

With --no-tty or -n, or where this is no terminal, the first Ctrl-C goes to the command,
the second one ends it: SIGTERM, and two seconds later, or with the third, SIGKILL.

On a terminal, a command that fails after it was refused a host of the internet is
followed by a question: allow it once, for this session or always (in your policy
file, see `lazaret policy allow`), and run it again?";

/// What gives a command more time.
const TIME_IS_OVER: &str = "for more time: a larger --timeout or none, or a larger `attended_timeout_s` in `limits` of the profile";

/// Why the run log ends.
const ENDED: &str = "the command has ended";

/// What runs a command line.
const NEEDS_A_SHELL: &str = "a command line with blanks, pipes or variables needs a shell: lazaret run -- bash -c 'COMMAND LINE'";

/// Run a command in a cell
///
/// Standard input, output and error are those of the command. On a terminal it gets a terminal of its own.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Time limit in seconds [default: the profile's `attended_timeout_s`, none as shipped; on a terminal, none]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::TIMEOUT_S)))]
    timeout: Option<u32>,
    /// End the command after this many seconds without output
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=i64::from(limit::TIMEOUT_S)))]
    idle_timeout: Option<u32>,
    /// A variable for the command, besides those of the profile; part of the command, so run log and questions show it; may be given
    /// more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<String>,
    /// Print one JSON object with the result at the end, without control and invisible characters, and nothing before
    #[arg(long, conflicts_with = "tty")]
    json: bool,
    /// Give the command a terminal even if this is none
    #[arg(long)]
    tty: bool,
    /// Give the command no terminal
    #[arg(long, conflicts_with = "tty")]
    no_tty: bool,
    /// Give the command an empty input and no terminal. Without it, a command in a `while read` loop gets the loop's input
    #[arg(short = 'n', long, conflicts_with = "tty")]
    no_stdin: bool,
    /// The program, found by the cell's PATH, and its arguments; no shell is between
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[arg(skip)]
    caller: RunBy,
    /// Whether the command is a single word that looks like a line for a shell.
    #[arg(skip)]
    is_line: bool,
    /// Whether to report denials to somebody who has already seen the command's output.
    #[arg(skip)]
    tells_denials: bool,
    #[arg(skip)]
    is_verbose: bool,
    /// Whether the reason why the command does not run was already printed.
    #[arg(skip)]
    is_explained: Cell<bool>,
    /// Whether an approver was asked and no output has come since: there may be no command yet to pass a signal to.
    #[arg(skip)]
    is_waiting: Cell<bool>,
    #[arg(skip)]
    job: Job,
    #[command(flatten)]
    work: WorkOptions,
}

/// A variable as `env` takes it.
fn variable(text: &str) -> Result<String, String> {
    let name = text.split_once('=').map_or("", |(name, _)| name);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = !name.is_empty()
        && name.chars().all(is_plain)
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if fits {
        Ok(text.to_owned())
    } else {
        Err("write NAME=VALUE; a name is letters, digits and `_`".to_owned())
    }
}

#[derive(Clone, Default)]
enum RunBy {
    /// A person: gets what the command cannot report itself, and by typing the command has already approved it.
    #[default]
    Person,
    /// A program that uses us as its shell: it reads exit codes and the command's output, and has typed nothing. `script` is the
    /// index of the command string among the words.
    Program { script: Option<usize> },
}

impl RunBy {
    fn is_person(&self) -> bool {
        matches!(self, RunBy::Person)
    }
}

impl Run {
    /// A shell for a program; `script` is the index of the command string in `words`.
    pub(crate) fn of_shell(words: Vec<OsString>, script: Option<usize>) -> Self {
        let caller = RunBy::Program { script };
        let mut run = Self {
            timeout: None,
            idle_timeout: None,
            env: Vec::new(),
            json: false,
            tty: false,
            no_tty: false,
            no_stdin: false,
            command: words,
            caller,
            is_line: false,
            // A model reads what its shell prints, and gets no other message from us.
            tells_denials: true,
            is_verbose: false,
            is_explained: Cell::default(),
            is_waiting: Cell::default(),
            job: Job::default(),
            work: WorkOptions::default(),
        };
        if !run.is_interactive() {
            // Whoever calls a shell has its own time limit, so only the policy's maximum applies.
            run.timeout = Some(limit::TIMEOUT_S);
        }
        run
    }

    /// Runs the command, and ends this process with its exit code. Returns only if it is not run.
    ///
    /// # Errors
    /// Why it is not run.
    pub fn begin(mut self, prepared: Prepared) -> Result<Infallible, Failed> {
        let (options, files) = (prepared.options(), prepared.files());
        let hooks = self.hooks(&prepared)?;
        let endpoint = endpoint_for(hooks.as_ref(), &prepared)?;
        self.job = Job::of_this_process();
        self.is_verbose = options.is_verbose();
        self.tells_denials |= self.is_verbose || io::stderr().is_terminal();
        // Where one may stand ready, none is started before that is known; else it starts while the session is chosen.
        let warm = warm::socket_for(options);
        let started = match warm {
            Some(_) => None,
            None => Some(Dialed::dial(&endpoint)?),
        };
        let opening = options.open()?;
        let (open, directory) = (opening.open, opening.directory);
        let reporter = self.reporter(Path::new(&open.project));
        let request = self.request(directory);
        request
            .check()
            .map_err(|error| Failed::invalid(error.to_string()))?;
        let policy = options.files().changed(&open.profile);
        let network = options.network_with(policy.as_ref(), Leasing::offered_if(self.asks()));
        self.say_what_differs(&prepared, &open);
        let open = Open { network, ..open };
        let stands = warm.and_then(|socket| warm::take(files, &socket, options, &open));
        let executor = match (started, stands) {
            (Some(started), _) => started,
            (None, Some(ready)) => Dialed::greet(ready)?,
            (None, None) => Dialed::dial(&endpoint)?,
        };
        let greeting = executor.open(open.clone())?;
        let writer = self.policy_writer(files, options, &open.profile);
        let guard = hooks.map(|hooks| hooks.guard(&open, Rc::new(endpoint.clone())));
        let confined = prepared.confine(Needs {
            socket: endpoint.socket().map(Path::to_owned),
            ..Needs::default()
        });
        let (log, proof) = (confined.log(), confined.proof());
        let refused = Rc::new(RefusedConnections::default());
        let root = PathBuf::from(&open.project);
        let more = MoreHosts::new(self.asks().then(|| refused.clone()), writer, root);
        let config: Config = Config {
            greeting: Some(greeting),
            subscribers: vec![log.clone(), refused.clone()],
            ..Config::new(open, redactor(), guard.unwrap_or(HookGuard::ByPerson))
        };
        confined.run(|_| "the command was not run", async {
            tokio::task::spawn_local(log.clone().write_later(Duration::ZERO));
            let signals = Signals::listen(&SIGNALS, proof)?;
            let session = Session::start(config, proof);
            let code = self
                .perform(&session, request, reporter, more, signals)
                .await;
            refused.report();
            let code = code?;
            log.end(ENDED);
            // To drop the session would wake the executor, which would take the processor from us to end it: our caller waits.
            std::process::exit(code.into())
        })
    }

    /// Says before the command what it has otherwise than its user may expect.
    fn say_what_differs(&self, prepared: &Prepared, open: &Open) {
        self.say_shorter_limit(prepared.options(), &open.profile);
        self.say_left_out(prepared.options(), &open.profile);
        self.say_agent_settings(prepared, open);
    }

    /// The hooks that judge the command: none if a person has typed it.
    fn hooks(&self, prepared: &Prepared) -> Result<Option<UserHooks>, Failed> {
        match self.caller {
            RunBy::Person => Ok(None),
            RunBy::Program { .. } => prepared.hooks().map(Some),
        }
    }

    /// Names, with `--verbose`, the variables of this environment that the command does not get.
    fn say_left_out(&self, options: &SessionOptions, profile: &str) {
        let left = if self.is_verbose {
            options.left_out(profile)
        } else {
            Vec::new()
        };
        if !left.is_empty() {
            let names = left.join(", ");
            print::note(&format!(
                "variables that the command does not get: {names}; --env NAME=VALUE gives it one"
            ));
        }
    }

    /// Tells a person that the policy allows less time than was asked for. Before the command, because its end may come hours later
    /// and be too early; a program reads `timeout` in the result.
    fn say_shorter_limit(&self, options: &SessionOptions, profile: &str) {
        let Some(asked) = self
            .timeout
            .filter(|_| self.caller.is_person() && !self.json)
        else {
            return;
        };
        // The executor reports a wrong policy.
        let policy = options.files().resolve(profile).ok();
        if let Some(max) = policy
            .filter(|policy| policy.limits.attended_timeout_s.is_some())
            .and_then(|policy| policy.limits.timeout_max_s)
            .filter(|max| *max < asked)
        {
            print::note(&format!(
                "--timeout {asked}: the profile {profile} allows at most {max} s (`timeout_max_s` in its `limits`), which it gets"
            ));
        }
    }

    /// Tells the user of an agent as a whole what the project sets for agents: it holds for the agent, in the cell.
    fn say_agent_settings(&self, prepared: &Prepared, open: &Open) {
        let policy = prepared
            .options()
            .files()
            .changed(&open.profile)
            .map(|policy| policy.environment);
        let is_agents =
            policy.is_some_and(|rules| !rules.credentials.is_empty() || !rules.state.is_empty());
        if !self.caller.is_person() || self.json || !is_agents {
            return;
        }
        for finding in prepared.agent_settings(Path::new(&open.project)) {
            print::note(&format!(
                "{finding}: the agent may follow it, within its cell"
            ));
        }
    }

    /// The command string of a shell that gets only `-c` and that string; the policy reads the commands in it.
    fn command_line<'w>(&self, words: &'w [OsString]) -> Option<&'w str> {
        let RunBy::Program { script: Some(at) } = self.caller else {
            return None;
        };
        match words {
            [_, option, script] if at == 2 && option == "-c" => script.to_str(),
            _ => None,
        }
    }

    /// Reports the final working directory to a caller whose command string asks for it.
    fn reporter(&mut self, project: &Path) -> Option<WorkingDirectory> {
        let RunBy::Program { script: Some(at) } = self.caller else {
            return None;
        };
        let word = self.command.get_mut(at)?;
        let (script, reporter) = WorkingDirectory::of(word.to_str()?, project)?;
        *word = script.into();
        Some(reporter)
    }

    async fn perform(
        &self,
        session: &Session,
        request: Request,
        reporter: Option<WorkingDirectory>,
        mut more: MoreHosts,
        mut signals: Signals,
    ) -> Result<u8, Failed> {
        let mut out = self
            .out(reporter)
            .map_err(|error| Failed::internal(format!("cannot use the output: {error}")))?;
        tokio::select! {
            opened = session.open() => {
                let opened = opened?;
                if self.caller.is_person() {
                    self.report_closed(&opened);
                    opened.notices.iter().filter(|_| self.is_verbose).for_each(|notice| print::note(notice));
                }
            }
            number = end_signal(&mut signals, self.job) => return Ok(exit::SIGNAL + number as u8),
        }
        let result = loop {
            let result = self
                .once(session, request.clone(), &more, &mut out, &mut signals)
                .await?;
            let again = tokio::select! {
                again = more.ask(&result) => again,
                _ = end_signal(&mut signals, self.job) => false,
            };
            if !again {
                break result;
            }
        };
        out.finish().await;
        self.report(&result, out.lost())
    }

    /// Runs the command until it ends.
    async fn once(
        &self,
        session: &Session,
        mut request: Request,
        more: &MoreHosts,
        out: &mut Out,
        signals: &mut Signals,
    ) -> Result<Arc<CallResult>, Failed> {
        let (input, raw) = own_input(&request)
            .map_err(|error| Failed::internal(format!("cannot use the input: {error}")))?;
        // The window may have changed while the session opened, when its signals were passed to nobody.
        if let (
            Some(_),
            Request::Bash(Bash {
                stdin: Stdin::Terminal(window),
                ..
            }),
        ) = (&raw, &mut request)
        {
            (window.rows, window.columns) = terminal::size();
        }
        let live = if self.json {
            LiveOutput::Off
        } else {
            LiveOutput::Bytes
        };
        let (wants, found) = (more.wants(), FoundIn::Metadata);
        let context = CallContext {
            live,
            // A reader of JSON prints texts where they take effect, as one of a session's lines does.
            raw: !self.json,
            wants,
            found,
            ..CallContext::new("run".into())
        };
        let mut call = session.call(context, Invocation::Request(request));
        let handle = call.handle.clone();
        tokio::select! {
            result = self.follow(&mut call, more.extent(), out, raw.as_ref()) => result,
            never = feed(&handle, input) => match never {},
            never = self.pass_signals(signals, &handle, raw.as_ref()) => match never {},
        }
    }

    /// Forwards signals meant for the command. Never returns: the end of the call ends it.
    async fn pass_signals(
        &self,
        signals: &mut Signals,
        call: &CallHandle,
        raw: Option<&Raw>,
    ) -> Infallible {
        let mut interrupted = false;
        loop {
            match signals.next().await {
                // Without a command to pass it to, the signal ends the wait; an approved one that is silent is ended by it all the same.
                SIGINT | SIGTERM | SIGHUP | SIGQUIT if self.is_waiting.get() => call.cancel(),
                SIGINT if interrupted => call.cancel(),
                SIGINT => {
                    interrupted = true;
                    call.signal(Signal::Interrupt);
                }
                SIGTERM => call.signal(Signal::Terminate),
                SIGHUP => call.signal(Signal::Hangup),
                SIGQUIT => call.signal(Signal::Quit),
                SIGTSTP => call.signal(Signal::Suspend),
                SIGWINCH => resize(call, raw),
                _ => {
                    // Continues after a stop. If the terminal cannot be set again it is gone, and that arrives as the end of the input.
                    let _ = raw.map(Raw::reenter);
                    resize(call, raw);
                }
            }
        }
    }

    /// Starts the process that writes the policy file when a host is allowed permanently. Only a user who answers approvals here
    /// may do that; with the separate channel, this process can open nothing even if it is compromised.
    fn policy_writer(
        &self,
        files: &Files,
        options: &SessionOptions,
        profile: &str,
    ) -> Option<UnixStream> {
        if !self.asks() {
            return None;
        }
        let policy = options.files().resolve(profile).ok()?;
        match policy.approval.channel {
            Channel::Relay => start_policy_writer(files, &policy.profile).ok(),
            Channel::Separate => None,
        }
    }

    /// Whether the person who runs the command can be asked to open hosts.
    fn asks(&self) -> bool {
        self.caller.is_person() && !self.json && MoreHosts::can_ask()
    }

    /// The command gets a terminal only if a person sits at both ends.
    pub fn is_interactive(&self) -> bool {
        let here = || io::stdin().is_terminal() && io::stdout().is_terminal();
        self.tty || (!self.json && !self.no_tty && !self.no_stdin && here())
    }

    fn request(&mut self, directory: Option<ZonePath>) -> Request {
        let interactive = self.is_interactive();
        let mut words = std::mem::take(&mut self.command);
        let is_of_shell = |byte: &u8| byte.is_ascii_whitespace() || b"|&;<>$`*?(){}".contains(byte);
        self.is_line = matches!(&words[..], [word] if word.as_bytes().iter().any(is_of_shell));
        if !self.env.is_empty() {
            // The command could set these itself, so they give it nothing, whatever their names are.
            let variables = std::mem::take(&mut self.env)
                .into_iter()
                .map(OsString::from);
            words.splice(0..0, std::iter::once("env".into()).chain(variables));
        }
        let command = match self.command_line(&words) {
            Some(line) => Command::Shell(line.to_owned()),
            None => Command::Arguments(
                words
                    .into_iter()
                    .map(|word| word.into_vec().into())
                    .collect(),
            ),
        };
        let stdin = match interactive {
            true => {
                let (rows, columns) = terminal::size();
                Stdin::Terminal(Terminal {
                    rows,
                    columns,
                    term: terminal::term(),
                })
            }
            false if self.no_stdin || InputStream::is_null() => Stdin::Null,
            false => Stdin::Stream,
        };
        Request::Bash(Bash {
            command,
            directory,
            timeout_s: self.timeout,
            idle_timeout_s: self.idle_timeout,
            stdin,
            live: !self.json,
            background: false,
            split: false,
            attended: self.caller.is_person(),
        })
    }

    fn out(&self, reporter: Option<WorkingDirectory>) -> io::Result<Out> {
        match self.json {
            true => Ok(Out::Nowhere),
            false => Out::here(reporter),
        }
    }

    /// Shows the output of a call until its result, which it returns.
    async fn follow(
        &self,
        call: &mut Call,
        extent: Extent,
        out: &mut Out,
        raw: Option<&Raw>,
    ) -> Result<Arc<CallResult>, Failed> {
        let mut is_lost = false;
        while let Some(event) = call.next().await {
            match &*event.body {
                Body::Output { stderr, bytes } => {
                    self.is_waiting.set(false);
                    let is_written = out.write(StdStream::stderr_if(*stderr), bytes).await;
                    if !is_written && !std::mem::replace(&mut is_lost, true) {
                        call.handle.cancel();
                    }
                }
                Body::Suspended => {
                    // If the terminal cannot be reset it is gone, and that arrives as the end of the input.
                    let _ = self.job.suspend(raw);
                    call.handle.signal(Signal::Continue);
                }
                Body::ApprovalWanted(question) => {
                    self.is_waiting
                        .set(question.challenge.channel == Channel::Separate);
                    match self.caller {
                        RunBy::Person => {
                            typed::answer(&call.handle, event.part, question, extent).await
                        }
                        RunBy::Program { .. } => {
                            self.is_explained
                                .set(typed::refuse(&call.handle, event.part, question).await);
                        }
                    }
                }
                Body::Hook(ran) => say_hook(ran),
                Body::Result(result) => return Ok(result.clone()),
                _ => {}
            }
        }
        Err(Failed::internal("the call ended without a result"))
    }

    fn report(&self, result: &CallResult, lost: Option<&OutputLost>) -> Result<u8, Failed> {
        if self.json {
            print::json(&ResultLine::plain(result))?;
        } else {
            print::findings(result.findings());
            self.report_end(result);
        }
        if let Some(OutputLost::Failed { stream, error }) = lost {
            print::problem(&format!("cannot write the {stream}: {error}"));
        }
        Ok(code(
            result.ended,
            result.error.as_ref().map(|error| error.kind),
            lost,
        ))
    }

    fn report_end(&self, result: &CallResult) {
        if let Some(left) = result.left_running().filter(|_| self.caller.is_person()) {
            print::note(&left.to_string());
        }
        if let Some(problem) = self.problem(result) {
            print::problem(problem);
            self.remedy(result.ended).into_iter().for_each(print::note);
        } else {
            self.report_denials(result);
        }
    }

    /// What a person can do about an end that the command's own output does not explain.
    fn remedy(&self, ended: Option<Ended>) -> Option<&'static str> {
        let is_missing = ended == Some(Ended::NotStarted(ENOENT));
        let remedy = match ended == Some(Ended::TimedOut) {
            true => Some(TIME_IS_OVER),
            false => (is_missing && self.is_line).then_some(NEEDS_A_SHELL),
        };
        remedy.filter(|_| self.caller.is_person())
    }

    /// What a command is denied for a closed name says so; the others are nobody's matter, except what was done at a bound.
    fn report_closed(&self, opened: &Opened) {
        let all = &opened.also_closed;
        let shown = if self.is_verbose {
            all.len()
        } else {
            opened.over_bounds as usize
        };
        for closed in all.iter().take(shown) {
            print::problem(&format!("also protected: {closed}"));
        }
    }

    fn report_denials(&self, result: &CallResult) {
        // Denied hosts are printed separately, once, for every caller; so is a registry that the profile keeps programs from.
        let all = result.all_denials().list();
        let is_kept = |denial: &&Denial| matches!(denial.by, Barrier::Hosts(Some(_)));
        for denial in all.iter().filter(is_kept) {
            print::problem(&format!("offline: {} [{}]", denial.why, denial.remedy));
        }
        let mut denials = all
            .iter()
            .filter(|denial| !matches!(denial.by, Barrier::Hosts(_) | Barrier::Gateway));
        if self.is_verbose || self.tells_denials && result.error.is_some() {
            denials.for_each(|denial| print::problem(&format!("denied: {denial}")));
        } else if self.caller.is_person() && result.error.is_some() && denials.next().is_some() {
            // In a script's log the list would bury the command's own errors, but without a word the cause would be missing.
            print::note("something was denied; `lazaret run -v` or `lazaret why` prints what");
        }
    }

    /// What to print about an end that the command's own output does not explain, including what it was denied.
    fn problem<'r>(&self, result: &'r CallResult) -> Option<&'r str> {
        let message = &result.error.as_ref()?.message;
        match result.ended {
            Some(Ended::Exited(_))
                if self.caller.is_person() && result.missing_profile().is_some() =>
            {
                Some(message)
            }
            Some(Ended::Exited(_) | Ended::Signalled(_) | Ended::Cancelled) => None,
            None if self.is_explained.get() => None,
            Some(
                Ended::TimedOut
                | Ended::Idle
                | Ended::Limited(_)
                | Ended::NotStarted(_)
                | Ended::NoDirectory(_),
            )
            | None => Some(message),
        }
    }
}

impl FrontEnd for Run {
    const ROW: CommandRow = CommandRow {
        name: "run",
        sessions: SessionCount::One,
        access: CommandAccess::Confined {
            network: NetworkUse::None,
            writes: Writes::Nothing,
        },
        log: true,
        // 2 could be the exit code of the command itself.
        usage: exit::LAZARET,
        exit: "the command's own; 128+N if signal N ended it (130 cancelled, 137 a resource limit, 141 nobody reads its output); \
               124 time limit; 125 lazaret failed, wrong arguments, or no session opens (a policy that is wrong, a path that cannot \
               be granted); 126 refused by policy, or not executable; 127 program not found",
    };

    fn wrong_arguments() -> ErrorForm {
        ErrorForm::result(true, "bash")
    }

    fn errors(&self) -> ErrorForm {
        ErrorForm::result(self.json, "bash")
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::of(&self.work))?;
        self.begin(prepared).map(|never| match never {})
    }
}

/// What a hook has done to the command of a program, which reads only what its shell prints.
fn say_hook(ran: &HookRan) {
    if ran.outcome == HookOutcome::Rewrote {
        print::problem(&format!("the hook `{}` has changed the command", ran.hook));
    }
    if let Some(text) = ran
        .ask_agent
        .as_ref()
        .filter(|_| ran.outcome != HookOutcome::Blocked)
    {
        print::problem(&quoted(&ran.hook, text));
    }
    print::unheard_hook(ran);
}

/// Waits for a signal that ends the call before it has begun.
async fn end_signal(signals: &mut Signals, job: Job) -> i32 {
    loop {
        let number = signals.next().await;
        if number == SIGTSTP {
            // Where stopping is impossible, the process just goes on.
            let _ = job.suspend(None);
        }
        if [SIGINT, SIGTERM, SIGHUP, SIGQUIT].contains(&number) {
            return number;
        }
    }
}

/// Our standard input, if the command has one, with the terminal in the mode that the command needs.
fn own_input(request: &Request) -> io::Result<(Option<InputStream>, Option<Raw>)> {
    let Request::Bash(Bash { stdin, .. }) = request else {
        return Ok((None, None));
    };
    match stdin {
        Stdin::Null => Ok((None, None)),
        Stdin::Stream => Ok((Some(InputStream::stdin()?), None)),
        Stdin::Terminal(_) if io::stdin().is_terminal() => {
            Ok((Some(InputStream::stdin()?), Some(Raw::enter()?)))
        }
        Stdin::Terminal(_) => Ok((Some(InputStream::stdin()?), None)),
    }
}

fn resize(call: &CallHandle, raw: Option<&Raw>) {
    if raw.is_some() {
        let (rows, columns) = terminal::size();
        call.resize(rows, columns);
    }
}

fn code(ended: Option<Ended>, error: Option<ErrorKind>, lost: Option<&OutputLost>) -> u8 {
    let signalled = |number: i32| exit::SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0));
    // Whether the command ends by itself before it is cancelled is a race, and its output is incomplete either way: no code of its own
    // may say that all went well.
    if let Some(OutputLost::Failed { .. }) = lost {
        return exit::LAZARET;
    }
    match ended {
        // The kernel keeps only the low eight bits of an exit code.
        Some(Ended::Exited(code)) => (code & 0xff) as u8,
        Some(Ended::Signalled(number)) => signalled(number),
        Some(Ended::TimedOut | Ended::Idle) => exit::TIMEOUT,
        Some(Ended::Cancelled) if lost.is_some() => signalled(SIGPIPE),
        Some(Ended::Cancelled) => signalled(SIGINT),
        Some(Ended::Limited(_)) => signalled(SIGKILL),
        Some(Ended::NotStarted(ENOENT)) => exit::NOT_FOUND,
        Some(Ended::NotStarted(_)) => exit::REFUSED,
        // The same exit code as of `env --chdir`.
        Some(Ended::NoDirectory(_)) => exit::LAZARET,
        None => match error {
            Some(
                ErrorKind::DeniedPolicy
                | ErrorKind::DeniedUser
                | ErrorKind::ApprovalTimeout
                | ErrorKind::Violation,
            ) => exit::REFUSED,
            Some(ErrorKind::Cancelled) => signalled(SIGINT),
            _ => exit::LAZARET,
        },
    }
}

/// The executor of a run that these hooks judge: each of them runs in a session of its own.
fn endpoint_for(hooks: Option<&UserHooks>, prepared: &Prepared) -> Result<Endpoint, Failed> {
    match hooks {
        Some(hooks) if !hooks.are_none() => Ok(prepared.lasting_endpoint()?),
        Some(_) | None => Ok(prepared.endpoint()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_exit_code() {
        let cases = [
            (Ended::Exited(0), 0),
            (Ended::Exited(42), 42),
            (Ended::Signalled(9), 137),
            (Ended::TimedOut, 124),
            (Ended::Idle, 124),
            (Ended::Cancelled, 130),
            (Ended::NotStarted(ENOENT), 127),
            (Ended::NotStarted(nix::libc::EACCES), 126),
            (Ended::NoDirectory(ENOENT), 125),
        ];
        for (end, want) in cases {
            assert_eq!(code(Some(end), None, None), want, "{end:?}");
        }
        assert_eq!(
            code(Some(Ended::Cancelled), None, Some(&OutputLost::Closed)),
            141
        );
        let failed = OutputLost::Failed {
            stream: "standard output",
            error: io::ErrorKind::StorageFull.into(),
        };
        for end in [Ended::Exited(0), Ended::Exited(3), Ended::Cancelled] {
            assert_eq!(code(Some(end), None, Some(&failed)), 125, "{end:?}");
        }
        for (kind, want) in [
            (ErrorKind::DeniedPolicy, 126),
            (ErrorKind::Violation, 126),
            (ErrorKind::Cancelled, 130),
            (ErrorKind::ExecutorLost, 125),
            (ErrorKind::Internal, 125),
        ] {
            assert_eq!(code(None, Some(kind), None), want, "{kind:?}");
        }
    }
}
