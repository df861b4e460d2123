//! A start in its one order, held by types: [`Launch`] → [`Prepared`] → [`Confined`].
//!
//! What reads files or starts programs needs the [`Files`] that only [`Prepared`] lends. Confinement consumes it. Only [`Confined`]
//! has a runtime, and so the network; and only it has the run log, and lends the proof that sessions and signals require.
//!
//! ```
//! use broker_protocol::Failed;
//! use orchestrator_confine::Needs;
//! use orchestrator_launch::launch::Prepared;
//! use orchestrator_launch::session_options::read_text;
//! fn start(prepared: Prepared) -> Result<(), Failed> {
//!     let text = read_text(prepared.files(), "prompt".as_ref())?;
//!     let confined = prepared.confine(Needs::default());
//!     confined.run(|_| "it has ended", async { Ok(drop(text)) })
//! }
//! ```
//!
//! Without a confinement there is no runtime:
//!
//! ```compile_fail,E0599
//! # use broker_protocol::Failed;
//! # use orchestrator_launch::launch::Prepared;
//! # use orchestrator_launch::session_options::read_text;
//! fn start(prepared: Prepared) -> Result<(), Failed> {
//!     let text = read_text(prepared.files(), "prompt".as_ref())?;
//!     prepared.run(|_| "it has ended", async { Ok(drop(text)) })
//! }
//! ```
//!
//! Only what is confined has the proof that a session and signals require:
//!
//! ```
//! # use broker_protocol::Failed;
//! # use orchestrator_engine::{Config, Session, Tools};
//! # use orchestrator_launch::launch::Confined;
//! # use orchestrator_launch::stdio::signals::Signals;
//! fn start<T: Tools + 'static>(confined: &Confined, config: Config<T>) -> Result<Session, Failed> {
//!     let _signals = Signals::listen(&[15], confined.proof())?;
//!     Ok(Session::start(config, confined.proof()))
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use broker_protocol::Failed;
//! # use orchestrator_engine::{Config, Session, Tools};
//! # use orchestrator_launch::launch::Prepared;
//! # use orchestrator_launch::stdio::signals::Signals;
//! fn start<T: Tools + 'static>(confined: &Prepared, config: Config<T>) -> Result<Session, Failed> {
//!     let _signals = Signals::listen(&[15], confined.proof())?;
//!     Ok(Session::start(config, confined.proof()))
//! }
//! ```
//!
//! Neither does without it:
//!
//! ```compile_fail,E0061
//! # use broker_protocol::Failed;
//! # use orchestrator_engine::{Config, Session, Tools};
//! # use orchestrator_launch::launch::Confined;
//! # use orchestrator_launch::stdio::signals::Signals;
//! fn start<T: Tools + 'static>(confined: &Confined, config: Config<T>) -> Result<Session, Failed> {
//!     let _signals = Signals::listen(&[15], confined.proof())?;
//!     Ok(Session::start(config))
//! }
//! ```
//!
//! ```compile_fail,E0061
//! # use broker_protocol::Failed;
//! # use orchestrator_engine::{Config, Session, Tools};
//! # use orchestrator_launch::launch::Confined;
//! # use orchestrator_launch::stdio::signals::Signals;
//! fn start<T: Tools + 'static>(confined: &Confined, config: Config<T>) -> Result<Session, Failed> {
//!     let _signals = Signals::listen(&[15])?;
//!     Ok(Session::start(config, confined.proof()))
//! }
//! ```
//!
//! Nobody else can make one:
//!
//! ```compile_fail,E0423
//! # use orchestrator_confine::ConfinementProof;
//! let proof = ConfinementProof(());
//! ```
//!
//! After it there are no files:
//!
//! ```compile_fail,E0382
//! # use broker_protocol::Failed;
//! # use orchestrator_confine::Needs;
//! # use orchestrator_launch::launch::Prepared;
//! # use orchestrator_launch::session_options::read_text;
//! fn start(prepared: Prepared) -> Result<(), Failed> {
//!     let confined = prepared.confine(Needs::default());
//!     let text = read_text(prepared.files(), "prompt".as_ref())?;
//!     confined.run(|_| "it has ended", async { Ok(drop(text)) })
//! }
//! ```

use crate::endpoint::Endpoint;
use crate::gateway_starter;
use crate::groups::Options;
use crate::hooks::UserHooks;
use crate::network::{self, BeginNetwork, NetworkPolicy, OwnNetworkError};
use crate::origin::executor;
use crate::policy_files::PolicyFiles;
use crate::project::Project;
use crate::row::CommandRow;
use crate::runlog::RunLog;
use crate::runtime::runtime;
use crate::secrets::{self, KeySearch, WithoutSecretsError};
use crate::session_options::{EnvironmentOptions, ScopeParser, SessionOptions};
use crate::start::{self, HelperProcess};
use crate::stdio::print;
use broker_protocol::Failed;
use clap::Args;
use orchestrator_confine::{ConfinementProof, Files, Needs, Unconfined};
use orchestrator_engine::executor::ExecutorError;
use orchestrator_text::known;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A command of the program.
pub trait FrontEnd: Args + 'static {
    const ROW: CommandRow;
    /// Its subcommands, if they have options of their own in place of its options.
    const NESTED: &'static [CommandRow] = &[];

    /// The arguments of its command line.
    fn augment(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }

    /// How an error is printed in place of the JSON that was asked for, besides its text on standard error.
    fn errors(&self) -> ErrorForm {
        ErrorForm::Text
    }

    /// Its form where the arguments are wrong and `--json` is among them: which command of it was meant is not known then.
    fn wrong_arguments() -> ErrorForm {
        ErrorForm::Object
    }

    /// Carries it out; returns the exit code.
    ///
    /// # Errors
    /// Why it could not be begun, or not be ended.
    fn main(self, launch: Launch) -> Result<u8, Failed>;
}

/// How a command prints an error that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// As a text on standard error only.
    Text,
    /// As the result of a call of this tool.
    Result(String),
    /// As an object with `error`.
    Object,
    /// As the last line: `fault`, like in a session.
    Fault,
    /// As an event of a chat.
    Chat,
}

impl ErrorForm {
    /// As an event, where a chat prints `json`.
    pub fn chat(json: bool) -> Self {
        Self::Chat.if_json(json)
    }

    /// The result of a call of `tool`, where a command prints `json`.
    pub fn result(json: bool, tool: &str) -> Self {
        Self::Result(tool.to_owned()).if_json(json)
    }

    /// An object, where a command prints `json`.
    pub fn object(json: bool) -> Self {
        Self::Object.if_json(json)
    }

    /// The last line, where a command prints lines of `json`.
    pub fn fault(json: bool) -> Self {
        Self::Fault.if_json(json)
    }

    fn if_json(self, json: bool) -> Self {
        if json { self } else { Self::Text }
    }
}

/// A start of which only the command line is known.
#[derive(Debug)]
pub struct Launch {
    unconfined: Unconfined,
    linked: Linked,
}

#[derive(Clone, Copy, Debug)]
pub struct Linked {
    /// Reads the text of a scope file.
    pub parse_scope: ScopeParser,
    /// The command line, with the help of all commands.
    pub describe: fn() -> clap::Command,
    /// Effects of the settings for agents in the project at a path, each in a sentence.
    pub agent_settings: fn(&Files, &Path) -> Vec<String>,
    pub hooks: fn(&Files) -> Result<UserHooks, Failed>,
    /// Tells a gateway what it serves, besides what settings have named: policies with these tables. A program without commands that
    /// have a network has none.
    pub begin_network: Option<BeginNetwork>,
    /// Finds keys of providers for a command that is not to have them.
    pub key_finder: Option<fn() -> KeySearch>,
}

impl Launch {
    /// The start of this process, a program that has `linked`.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place: everybody else is lent files"
    )]
    pub fn of_process(linked: Linked) -> Self {
        Self {
            unconfined: Unconfined::of_process(),
            linked,
        }
    }

    /// Has the secrets of the environment removed from all texts from now on. For a command that hears others by its `row`, becomes this
    /// program again without them, if there are any.
    ///
    /// # Errors
    /// If they cannot be searched for, or one would stay here.
    pub fn know_secrets(&self, row: Option<&CommandRow>) -> Result<(), WithoutSecretsError> {
        if row.is_some_and(CommandRow::hears_others) && !start::is_for_another() {
            return secrets::begin(&self.unconfined);
        }
        let environment: Vec<_> = std::env::vars_os().collect();
        Ok(known::learn(&environment)?)
    }

    /// Does the work of a process that is no command of a user.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn help(self, process: HelperProcess) -> Result<(), WithoutSecretsError> {
        match process {
            HelperProcess::WithSecrets => {
                let error = start::become_with_secrets(self.files());
                Err(WithoutSecretsError::Become(error))
            }
            HelperProcess::Redactor => {
                secrets::serve_redactor(self.unconfined, self.linked.key_finder)
            }
            HelperProcess::GatewayStarter => {
                gateway_starter::serve(self.files()).map_err(WithoutSecretsError::Gateways)
            }
        }
    }

    /// The command line of the program, with the help of all commands.
    pub fn command_line(&self) -> clap::Command {
        (self.linked.describe)()
    }

    /// Reads what selects a session of the command `C`: policy files and scope. The project is chosen at its first use, once.
    ///
    /// # Errors
    /// A variable of the environment names a program or a directory of ours that a project could have put there.
    pub fn prepare<C: FrontEnd>(self, options: Options) -> Result<Prepared, Failed> {
        let prepared = self.prepare_with::<C>(options, EnvironmentOptions::default());
        prepared.options.check_environment()?;
        Ok(prepared)
    }

    /// Prepares with what the environment says, for a caller that has checked it.
    pub fn prepare_with<C: FrontEnd>(
        self,
        options: Options,
        environment: EnvironmentOptions,
    ) -> Prepared {
        self.prepare_row(const { &C::ROW }, options, environment)
    }

    /// Prepares a command without a command line of ours.
    pub fn prepare_row(
        self,
        row: &'static CommandRow,
        options: Options,
        environment: EnvironmentOptions,
    ) -> Prepared {
        let files = self.unconfined.files();
        Prepared {
            row,
            agent_settings: self.linked.agent_settings,
            hooks: self.linked.hooks,
            begin_network: self.linked.begin_network,
            options: SessionOptions::read(
                files,
                row,
                options,
                environment,
                self.linked.parse_scope,
            ),
            unconfined: self.unconfined,
        }
    }

    /// The right to read files, for a command that no session option concerns.
    pub fn files(&self) -> &Files {
        self.unconfined.files()
    }

    /// Confines a command that no session option concerns, and that has no run log.
    pub fn confine<C: FrontEnd>(self, needs: Needs) -> Confined {
        let needs = C::ROW.bound(needs);
        if needs.web {
            let project = Project::choose(None, None).ok();
            let way = NetworkPolicy {
                policy: &PolicyFiles::read(self.files()),
                executor: executor(),
                project: project.as_ref().map(|project| &*project.root),
            };
            network::begin(
                self.files(),
                self.linked.begin_network,
                way,
                Vec::new,
                Ok(None),
            );
        }
        secrets::give_up();
        Confined::without_log(C::ROW.name, self.unconfined.confine(&needs))
    }

    /// Confines an approver to its terminal and to the sockets below the parents of `directories`.
    pub fn confine_approver<C: FrontEnd>(self, directories: &[PathBuf]) -> Confined {
        let (proof, in_force) = self.unconfined.confine_approver(directories);
        if let Err(why) = in_force {
            print::problem(&format!("this program could not confine itself: {why}"));
        }
        Confined::without_log(C::ROW.name, proof)
    }
}

/// A start that has chosen its session, and may still read files and start programs.
#[derive(Debug)]
pub struct Prepared {
    row: &'static CommandRow,
    options: SessionOptions,
    agent_settings: fn(&Files, &Path) -> Vec<String>,
    hooks: fn(&Files) -> Result<UserHooks, Failed>,
    begin_network: Option<BeginNetwork>,
    unconfined: Unconfined,
}

impl Prepared {
    /// Effects of the settings for agents in the project at `root`.
    pub fn agent_settings(&self, root: &Path) -> Vec<String> {
        (self.agent_settings)(self.files(), root)
    }

    /// The user's hooks, for calls that somebody else makes. A front end whose every call a person has typed does without.
    ///
    /// # Errors
    /// If their settings cannot be read or are wrong: then nobody knows what the user does not want.
    pub fn hooks(&self) -> Result<UserHooks, Failed> {
        (self.hooks)(self.files())
    }

    /// The right to read files and start programs.
    pub fn files(&self) -> &Files {
        self.unconfined.files()
    }

    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// This start with other options.
    pub fn with(self, change: impl FnOnce(SessionOptions) -> SessionOptions) -> Self {
        Self {
            options: change(self.options),
            ..self
        }
    }

    /// How to reach the executor, for a session whose commands may have a network.
    ///
    /// # Errors
    /// What this program starts for that cannot be started.
    pub fn endpoint(&self) -> Result<Endpoint, ExecutorError> {
        self.options.start_gateways(self.files())?;
        Ok(self.options.endpoint())
    }

    /// How to reach the executor for more than one session: one that has to be started is started now.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn lasting_endpoint(&self) -> Result<Endpoint, ExecutorError> {
        self.endpoint()?.for_many_sessions(self.files())
    }

    fn network(&self) -> NetworkPolicy<'_> {
        let project = self.options.project().ok();
        NetworkPolicy {
            policy: self.options.files(),
            executor: self.options.executor(),
            project: project.map(|project| &*project.root),
        }
    }

    /// Tries whether what `[gateway]` of the policy names can be used for requests of this program's own.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn try_company(&self) -> Result<(), OwnNetworkError> {
        self.network().company(self.files()).map(drop)
    }

    /// Begins the run log, starts the gateway of a command with a network, and confines this process to what its command's row allows
    /// of `needs`, permanently.
    pub fn confine(self, needs: Needs) -> Confined {
        let log = Rc::new(self.options.log(self.row));
        let needs = self.row.bound(needs);
        let tickets = self.options.tickets().give_away();
        if needs.web {
            let webs = || self.options.files().webs();
            let way = self.network();
            network::begin(self.files(), self.begin_network, way, webs, tickets);
        }
        secrets::give_up();
        let proof = self.unconfined.confine(&needs);
        Confined { log, proof }
    }
}

/// A process that has confined itself, and may begin to work.
pub struct Confined {
    log: Rc<RunLog>,
    proof: ConfinementProof,
}

impl Confined {
    fn without_log(command: &'static str, proof: ConfinementProof) -> Self {
        Self {
            proof,
            log: Rc::new(RunLog::off(command, print::problem)),
        }
    }

    /// The log of this run.
    pub fn log(&self) -> Rc<RunLog> {
        self.log.clone()
    }

    /// Required by sessions and by what listens to signals.
    pub fn proof(&self) -> ConfinementProof {
        self.proof
    }

    /// Does `work`, then ends the log with the reason of its result.
    ///
    /// # Errors
    /// Those of `work`, or no events can be waited for.
    pub fn run<T>(
        self,
        reason: impl FnOnce(&Result<T, Failed>) -> &'static str,
        work: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let done = runtime(self.proof)?.block_on(work);
        self.log.end(reason(&done));
        done
    }
}
