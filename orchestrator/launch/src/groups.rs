//! The options that several commands share, in groups that a command flattens into its own.

use broker_protocol::{PublishedPort, Trust};
use clap::{Args, ValueEnum};
use policies::ports::{NoPublish, Publish};
use policies::value::{TrustName, ValueError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The shared options as they were given: those of groups that a command lacks are absent.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) project: Option<PathBuf>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) central: Option<PathBuf>,
    pub(crate) profile: Option<String>,
    pub(crate) image: Option<PathBuf>,
    pub(crate) executor: Option<PathBuf>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) scope: Option<PathBuf>,
    pub(crate) trust: Option<Trust>,
    pub(crate) allow_host: Vec<String>,
    pub(crate) allow_net: Vec<String>,
    pub(crate) connect: Vec<u16>,
    pub(crate) publish: Vec<PublishedPort>,
    pub(crate) gateway: Option<GatewaySide>,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    pub(crate) reveal: Vec<PathBuf>,
    pub(crate) no_log: bool,
    pub(crate) verbose: bool,
}

impl Options {
    /// The options of `group`.
    pub fn of(group: &impl OptionGroup) -> Self {
        Self::default().and(group)
    }

    /// These, and the options of another group.
    pub fn and(mut self, group: &impl OptionGroup) -> Self {
        group.put(&mut self);
        self
    }

    /// These, with the project root `project`.
    pub fn in_project(self, project: Option<PathBuf>) -> Self {
        Self { project, ..self }
    }
}

/// Options that commands flatten in.
pub trait OptionGroup {
    /// Puts their values into `options`.
    fn put(&self, options: &mut Options);
}

/// A group of these options, and of these further groups.
macro_rules! group {
    ($name:ident: $($option:ident)* $(; $($group:ident)+)?) => {
        impl OptionGroup for $name {
            fn put(&self, options: &mut Options) {
                $(options.$option = self.$option.clone();)*
                $($(self.$group.put(options);)+)?
            }
        }
    };
}

/// The project.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct ProjectOption {
    /// The project root: what commands and tools may work on [default: the repository of yours around the working directory;
    /// in none, that directory]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}
group!(ProjectOption: project);

/// The project, and where in it commands start.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct DirectoryOptions {
    #[command(flatten)]
    root: ProjectOption,
    /// The working directory: where commands start that name none [default: the current directory where it is in the
    /// project, else the project root]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}
group!(DirectoryOptions: cwd; root);

/// The central root.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct CentralOption {
    /// The central root, for spilled output and notes
    /// [default: lazaret/projects/NAME-HASH below $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR")]
    central: Option<PathBuf>,
}
group!(CentralOption: central);

/// The policy profile.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct ProfileOption {
    /// The policy profile; `auto` chooses it by project files such as Cargo.toml [default: what your policy says, else `default`]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}
group!(ProfileOption: profile);

/// Another root for commands.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub(crate) struct ImageOption {
    /// An unpacked image that replaces this machine's root for commands, read-only [default: the profile's, if it has one]
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
}
group!(ImageOption: image);

/// The executor to start.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct ExecutorOption {
    /// The executor to start [default: the one installed with lazaret] [env: LAZARET_EXECUTOR]
    #[arg(long, value_name = "PATH")]
    executor: Option<PathBuf>,
}
group!(ExecutorOption: executor);

/// How the executor is reached.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct EndpointOptions {
    #[command(flatten)]
    program: ExecutorOption,
    /// The socket of an executor that listens already
    #[arg(long, value_name = "PATH", conflicts_with = "executor")]
    socket: Option<PathBuf>,
}
group!(EndpointOptions: socket; program);

/// A scope.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Narrowing")]
pub struct ScopeOption {
    /// A file of tool permissions (YAML or TOML) that narrows the session; `none` for no scope
    #[arg(long, value_name = "FILE")]
    scope: Option<PathBuf>,
}
group!(ScopeOption: scope);

/// Which calls need approval.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Narrowing")]
pub struct TrustOption {
    /// Which calls need approval: supervised (or ask): all; guided (or auto): those that change files or run programs;
    /// autonomous (or yolo): none [default: autonomous; guided for `chat`, `serve` and `policy`]
    #[arg(long, value_name = "LEVEL", value_parser = trust)]
    trust: Option<Trust>,
}
group!(TrustOption: trust);

pub(crate) fn trust(text: &str) -> Result<Trust, ValueError> {
    TrustName::try_from(text.to_owned()).map(|trust| trust.0)
}

/// The hosts of commands.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Network")]
pub struct NetworkOptions {
    /// A host that commands may reach besides those of the profile: NAME, *.NAME or ADDRESS, with or without :PORT; may be
    /// given more than once
    #[arg(long, value_name = "HOST[:PORT]")]
    allow_host: Vec<String>,
    /// The hosts of a package registry: crates, debian, github, go, npm or pypi; may be given more than once
    #[arg(long, value_name = "PRESET")]
    allow_net: Vec<String>,
    /// A port of this machine's loopback that commands reach as 127.0.0.1:PORT, such as a database's; may be given more than
    /// once
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    connect: Vec<u16>,
    /// A port of this machine's loopback that leads to the same port, or to CELL, of commands, while this session lasts: a dev
    /// server that a browser of yours reaches; may be given more than once
    #[arg(long, value_name = "[MACHINE:]CELL", value_parser = published)]
    publish: Vec<PublishedPort>,
    /// Who starts the gateway through which commands connect: `client`, this program, where the executor of --socket has no
    /// network and its policy permits that [default: executor]
    #[arg(
        long,
        value_name = "WHO",
        value_enum,
        hide_possible_values = true,
        requires = "socket"
    )]
    gateway: Option<GatewaySide>,
}
group!(NetworkOptions: allow_host allow_net connect publish gateway);

/// The side of the socket on which gateways of cells are started.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GatewaySide {
    Executor,
    Client,
}

fn published(text: &str) -> Result<PublishedPort, NoPublish> {
    Publish::try_from(text).map(|port| port.0)
}

/// The paths beside the project that commands see.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Files")]
pub struct PathOptions {
    /// A file or directory of this machine that commands may also read, while this session lasts; give the real path, not a
    /// link; may be given more than once
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// A directory of this machine that commands may also write to, while this session lasts; may be given more than once
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
}
group!(PathOptions: read write);

/// The files of secrets that commands see as they are.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Files")]
pub struct RevealOption {
    /// A file of secrets of the project, such as `.env`, that commands may read as it is while this session lasts; of others they see
    /// placeholders for the values; may be given more than once
    #[arg(long, value_name = "PATH")]
    reveal: Vec<PathBuf>,
}
group!(RevealOption: reveal);

/// Whether there is a run log.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct LogOption {
    /// Write no log of this run; the executor writes its audit all the same
    #[arg(long)]
    no_log: bool,
}
group!(LogOption: no_log);

/// How much is printed.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct VerboseOption {
    /// Print the chosen project and working directory, and denials, to standard error
    #[arg(short, long)]
    verbose: bool,
}
group!(VerboseOption: verbose);

/// Options that select and narrow a session, wherever its project is.
#[derive(Args, Clone, Default)]
pub struct ChoiceOptions {
    #[command(flatten)]
    central: CentralOption,
    #[command(flatten)]
    profile: ProfileOption,
    #[command(flatten)]
    image: ImageOption,
    #[command(flatten)]
    endpoint: EndpointOptions,
    #[command(flatten)]
    scope: ScopeOption,
    #[command(flatten)]
    trust: TrustOption,
}
group!(ChoiceOptions: ; central profile image endpoint scope trust);

/// Options that select a session, its project included, and narrow it.
#[derive(Args, Clone, Default)]
pub struct PlaceOptions {
    #[command(flatten)]
    directory: DirectoryOptions,
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    verbose: VerboseOption,
}
group!(PlaceOptions: ; directory choice verbose);

/// What selects a session in which commands run, narrows it and grants it more. A command that has no other group has every option.
#[derive(Args, Clone, Default)]
pub struct WorkOptions {
    #[command(flatten)]
    place: PlaceOptions,
    #[command(flatten)]
    network: NetworkOptions,
    #[command(flatten)]
    paths: PathOptions,
    #[command(flatten)]
    reveal: RevealOption,
    #[command(flatten)]
    log: LogOption,
}
group!(WorkOptions: ; place network paths reveal log);
