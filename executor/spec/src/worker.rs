//! The protocol between broker and file worker: one [`WorkerSpec`], then requests, each with a [`WorkerContext`], and answers, all
//! split into messages of at most [`CHUNK`] bytes after a tag.
//!
//! The first message of the spec carries the session's descriptors: one for each namespace in the order of
//! `namespaces::FLAGS` of `executor-layers`; then, if there are such, that of the undo directory, and that of the memory of
//! directories that calls have made.

use crate::protected_objects::{Alias, ProtectedObjects};
use broker_protocol::{CallId, Digest, LayerSet, Scope, Tier, ZonePath, limit};
use policies::{EffectivePolicy, PolicyError, ScopePaths};
use policies_guard::{Matcher, NameError, Origin, ProtectedName, Protection, TransitForm, WhenNew};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of a spec, a request or an answer in one message.
pub const CHUNK: usize = limit::CHUNK;
/// Tag of a message with more to follow.
pub const MORE: u8 = 0;
/// Tag of the last message.
pub const LAST: u8 = 1;
/// Tag of an answer in one message: the encoded `ZonePath` to which links on the request's path lead. The worker did
/// nothing. The broker decides on that place, and then sends the request again with it among the permitted ones.
pub const ELSEWHERE: u8 = 3;
/// Tag of a message without content, with the pidfd of the process that will answer.
pub const STARTED: u8 = 2;
/// Bytes after the tag of an answer's last message: user and system microseconds and peak KiB, `u64` each.
pub const USAGE_LEN: usize = 24;
/// Number of digits of a session's ID.
pub const SESSION_LEN: usize = 32;
/// Maximum number of files in a [`RepositoryQuery`].
pub const FILES_MAX: usize = 1024;
/// Maximum number of index names in an answer.
pub const INDEXED_MAX: usize = 4096;
/// Maximum number of names in a [`HiddenNames`].
pub const HIDDEN_MAX: usize = 1024;
/// Maximum number of submodules in a [`RepositoryAnswer`].
pub const SUBMODULES_MAX: usize = 64;
/// Maximum number of settings of one file.
pub const SETTINGS_MAX: usize = 4096;
/// Maximum bytes of a setting's key.
pub const KEY_MAX: usize = 200;
/// Maximum bytes of a message.
pub const MESSAGE_MAX: usize = 1 + USAGE_LEN + CHUNK;

/// Settings of a file worker. They are trusted, because they come from the broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    pub tier: Tier,
    /// Those to put up.
    pub layers: LayerSet,
    /// The ABI to use.
    pub landlock_abi: u32,
    pub project: RootSpec,
    /// The policy's protected names; empty if that layer is left out.
    pub names: Vec<NameSpec>,
    pub task: WorkerTask,
}

/// The work of a worker, until its socket closes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerTask {
    /// It carries out calls of file tools.
    FileTools(Box<FileToolsSpec>),
    /// It answers [`WorkerQuestion`]s about a repository.
    Questions {
        /// The repository's common directory; the project if it has none.
        repository: RootSpec,
    },
}

/// The part of a spec for file tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileToolsSpec {
    pub central: RootSpec,
    /// Paths besides both roots that file tools may read.
    pub granted: Vec<PathBuf>,
    /// The forms of names in transit for a protected one.
    pub transit: Vec<TransitForm>,
    /// Objects that are protected although their names are not.
    pub objects: ObjectSpec,
    pub scope: Option<Scope>,
    /// Maximum bytes of changes saved for undo.
    pub undo: u64,
    /// Whether it gets the memory in which it records directories that it makes.
    pub records: bool,
}

/// On whose behalf the worker carries out a request, and where its links may lead. Sent with each request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerContext {
    /// The session's ID in the audit: [`SESSION_LEN`] hexadecimal digits.
    pub session: String,
    /// The call, or the preview, that the request belongs to.
    pub purpose: WorkerPurpose,
    /// The places to which links on the request's path may lead. The broker has decided on each.
    pub permitted: Vec<ZonePath>,
    /// The file that a lease opens to the call, although its name stays closed. The first message of the request has its descriptor.
    pub leased: Option<ZonePath>,
}

/// The reason for a request to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerPurpose {
    /// A tool call of the client's.
    Call(CallId),
    /// Shows an approver what a call would change. It does not count as read by the session.
    Preview,
}

/// A question to a worker when a session opens, or when calls have changed what git tracks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerQuestion {
    /// What `HEAD` and the index have: answered by a [`RepositoryAnswer`].
    Repository(RepositoryQuery),
    /// Paths in git's settings in each of these texts: answered by a `Vec<Vec<Setting>>`, at most [`SETTINGS_MAX`] for each text.
    Settings(Vec<Vec<u8>>),
}

/// A git setting that may name a program or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// `core.hookspath`, in lower case except for a name in the middle, cut to [`KEY_MAX`] bytes. For display.
    pub key: String,
    /// The way in which its value names files.
    pub kind: SettingKind,
    /// The value as git parses it.
    pub value: Vec<u8>,
}

/// How a setting's value names files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingKind {
    /// It names another file of settings.
    Include,
    /// A file or a directory.
    Path,
    /// A command line: some words may be files.
    Command,
    /// Of unknown kind: files may be among its words.
    Other,
}

/// Asks what `HEAD` has under the paths of these files of the project, and which protected names the index has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RepositoryQuery {
    /// The directory with the project's `HEAD`, relative to the common one; empty for that itself.
    pub own: String,
    /// Paths relative to the project root, at most [`FILES_MAX`].
    pub files: Vec<Vec<u8>>,
}

/// The state of a project in git.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryAnswer {
    /// For each file of the query.
    pub files: Vec<InHead>,
    /// The protected names in the index, at most [`INDEXED_MAX`]; `None` if there are more, or it cannot be read completely.
    pub index: Option<Vec<IndexedName>>,
    /// Names in the index whose changes git does not show, and that have a file, or are taken for unchanged.
    pub hidden: HiddenNames,
    /// Those that have none: a sparse checkout leaves them out.
    pub left_out: HiddenNames,
    /// The places of submodules in the index, the first [`SUBMODULES_MAX`].
    pub submodules: Vec<Vec<u8>>,
    /// Something that git itself never puts into an index.
    pub fault: Option<IndexFault>,
    /// The files beside the index on which it is based (`--split-index`).
    pub shared: Vec<String>,
}

/// Names in an index whose changes git does not show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenNames {
    /// The first [`HIDDEN_MAX`] of them, sorted.
    pub first: Vec<Vec<u8>>,
    pub count: u64,
    pub digest: Digest,
}

impl Default for HiddenNames {
    fn default() -> Self {
        Self {
            first: Vec::new(),
            count: 0,
            digest: Digest::of(&[]),
        }
    }
}

/// Why the user's git must not use an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexFault {
    /// It is invalid, or git may parse it differently from us.
    Unreadable,
    /// It has a name that is not below the work tree, or leads into a repository's own directory:
    /// git checks names when it adds them, and not when it writes the files.
    Outside(Vec<u8>),
    /// It caches a tree for this directory (empty for the root) that is not the one of its entries: the next commit would have that.
    OtherTree(Vec<u8>),
}

/// The content of `HEAD` under a file's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InHead {
    Nothing,
    /// It cannot be determined: something on the way cannot be read, which git may read.
    Unknown,
    /// Other content than the file's.
    Other,
    /// Content equal to that of the file.
    Same,
}

/// A protected name in git's index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedName {
    /// Below the project root.
    pub path: Vec<u8>,
    /// Whether `git status` ignores it (`skip-worktree`, `assume-unchanged`).
    pub hidden: bool,
}

/// A root of the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RootSpec {
    /// Absolute and without links.
    pub path: String,
    /// Whether the policy allows writing to it.
    pub writable: bool,
}

/// A protected name: the part of [`ProtectedName`] that file tools need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NameSpec {
    pattern: String,
    except: Vec<String>,
    readable: bool,
    why: String,
}

impl NameSpec {
    /// All protected names of a policy.
    pub fn of(policy: &EffectivePolicy) -> Vec<Self> {
        let of = |name: &ProtectedName| Self {
            pattern: name.pattern.clone(),
            except: name.except.clone(),
            readable: name.protection == Protection::Write,
            why: name.why.clone(),
        };
        policy.protected.iter().map(of).collect()
    }

    fn restore(&self) -> ProtectedName {
        ProtectedName {
            pattern: self.pattern.clone(),
            except: self.except.clone(),
            protection: if self.readable {
                Protection::Write
            } else {
                Protection::All
            },
            new: WhenNew::Closed,
            opens: false,
            why: self.why.clone(),
            origin: Origin::default(),
        }
    }
}

/// The part of [`ProtectedObjects`] for file tools, which identify files by their paths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// Each place with whether it may be read.
    places: Vec<(Vec<u8>, bool)>,
    /// Directories, each with its equivalent path.
    aliases: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ObjectSpec {
    /// The part of what was found that file tools need.
    pub fn of(objects: &ProtectedObjects) -> Self {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let places = objects.places.iter();
        let places =
            places.map(|(path, protection)| (bytes(path), *protection == Protection::Write));
        let aliases = objects.aliases.iter();
        let aliases = aliases.map(|alias| (bytes(&alias.directory), bytes(&alias.counts_as)));
        Self {
            places: places.collect(),
            aliases: aliases.collect(),
        }
    }

    /// Converts it back, with the same places and aliases.
    pub fn restore(&self) -> ProtectedObjects {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let protection = |readable| {
            if readable {
                Protection::Write
            } else {
                Protection::All
            }
        };
        let places = self
            .places
            .iter()
            .map(|(place, readable)| (path(place), protection(*readable)));
        let aliases = self.aliases.iter();
        let aliases = aliases.map(|(directory, counts_as)| Alias {
            directory: path(directory),
            counts_as: path(counts_as),
        });
        ProtectedObjects {
            places: places.collect(),
            aliases: aliases.collect(),
            ..Default::default()
        }
    }
}

impl WorkerSpec {
    /// The protected names, compiled.
    ///
    /// # Errors
    /// A pattern that the broker could compile cannot be compiled here.
    pub fn matcher(&self) -> Result<Matcher, NameError> {
        let names = self.names.iter().map(NameSpec::restore).collect();
        let transit = match &self.task {
            WorkerTask::FileTools(tools) => tools.transit.as_slice(),
            WorkerTask::Questions { .. } => &[],
        };
        Matcher::shared(Arc::new(names), transit)
    }

    /// The directories that it may open, and all below them.
    pub fn roots(&self) -> [&RootSpec; 2] {
        let other = match &self.task {
            WorkerTask::FileTools(tools) => &tools.central,
            WorkerTask::Questions { repository } => repository,
        };
        [&self.project, other]
    }

    /// Paths besides these that it may read.
    pub fn granted(&self) -> &[PathBuf] {
        match &self.task {
            WorkerTask::FileTools(tools) => &tools.granted,
            WorkerTask::Questions { .. } => &[],
        }
    }
}

impl FileToolsSpec {
    /// The scope's paths, compiled.
    ///
    /// # Errors
    /// A glob that the broker could compile cannot be compiled here.
    pub fn scope_paths(&self) -> Result<ScopePaths, PolicyError> {
        self.scope
            .as_ref()
            .map_or_else(|| Ok(ScopePaths::default()), ScopePaths::new)
    }
}
