//! What the broker and the file worker agree on: one [`WorkerSpec`], then requests and answers, all cut into messages of at most
//! [`CHUNK`] bytes behind a tag.
//!
//! The first message of the spec carries the session's descriptors: one of each namespace in the order of
//! [`namespaces::FLAGS`](crate::namespaces::FLAGS), and last, if there is one, that of the undo directory.

use crate::protected_objects::{Alias, ProtectedObjects};
use broker_protocol::{CallId, LayerSet, Scope, Tier, limit};
use policies::{
    EffectivePolicy, Matcher, Origin, PolicyError, ProtectedName, Protection, ScopePaths, WhenNew,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a spec, a request or an answer in one message.
pub const CHUNK: usize = limit::CHUNK;
/// Tag of a message that others follow.
pub const MORE: u8 = 0;
/// Tag of the last message.
pub const LAST: u8 = 1;
/// Tag of an answer in one message: the encoded `ZonePath` to which links on the request's path lead. Nothing was done there. The
/// broker sends the request again with that place among those it may lead to, once it has decided on it.
pub const ELSEWHERE: u8 = 3;
/// Tag of a message without content, with the pidfd of the process that will answer.
pub const STARTED: u8 = 2;
/// What stands behind the tag of an answer's last message: user and system microseconds and peak KiB, `u64` each.
pub const USAGE_LEN: usize = 24;
/// In the place of a call's number: a read that shows an approver what a call would change. The session has not read the file by it.
pub const PREVIEW_CALL: CallId = CallId::MAX;
/// Digits of a session's id.
pub const SESSION_LEN: usize = 32;
/// What stands before a request and the places that its links may lead to: the call's number, and the session's id.
pub const HEADER_LEN: usize = 8 + SESSION_LEN;
/// Most files of a [`RepositoryQuery`].
pub const FILES_MAX: usize = 1024;
/// Most names of an index that are answered.
pub const INDEXED_MAX: usize = 4096;
/// Most settings of one file.
pub const SETTINGS_MAX: usize = 4096;
/// Bytes of a setting's key.
pub const KEY_MAX: usize = 200;
/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = 1 + USAGE_LEN + CHUNK;

/// What a file worker must know. It is believed: it comes from the broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Of the session.
    pub tier: Tier,
    /// Those to put up.
    pub layers: LayerSet,
    /// The ABI to use.
    pub landlock_abi: u32,
    /// The project root.
    pub project: RootSpec,
    /// The central root.
    pub central: RootSpec,
    /// Paths beside both that file tools read.
    pub granted: Vec<PathBuf>,
    /// The policy's protected names; none where that layer is left out.
    pub names: Vec<NameSpec>,
    /// What is protected although no name says so.
    pub objects: ObjectSpec,
    /// The session's scope.
    pub scope: Option<Scope>,
    /// Bytes of changes that are kept for undo.
    pub undo: u64,
    /// It is asked [`Question`]s and does no calls.
    pub answers: bool,
}

/// What a worker is asked when a session opens, and when calls have changed what git tracks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// What `HEAD` and the index have: answered by a [`RepositoryAnswer`]. The worker's central root is the repository's common
    /// directory.
    Repository(RepositoryQuery),
    /// What git's settings in each of these texts name: answered by a `Vec<Vec<Setting>>`, of each at most [`SETTINGS_MAX`].
    Settings(Vec<Vec<u8>>),
}

/// A setting of git's that may name a program or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// `core.hookspath`, in lower case but for a name in the middle, cut to [`KEY_MAX`] bytes. For people.
    pub key: String,
    /// How it names them.
    pub kind: SettingKind,
    /// As git reads it.
    pub value: Vec<u8>,
}

/// How a setting names what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SettingKind {
    /// More settings.
    Include,
    /// A file or a directory.
    Path,
    /// A command line: words of it may be files.
    Command,
    /// Whatever it is, files may be among its words.
    Other,
}

/// What has `HEAD` under the paths of these files of the project, and which protected names has the index?
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RepositoryQuery {
    /// The directory with the project's `HEAD`, below the common one; empty for that itself.
    pub own: String,
    /// Paths below the project root, at most [`FILES_MAX`].
    pub files: Vec<Vec<u8>>,
}

/// What git has of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryAnswer {
    /// For each file of the query.
    pub files: Vec<InHead>,
    /// The protected names in the index, at most [`INDEXED_MAX`]; `None` where they are more, or it cannot be read as a whole.
    pub index: Option<Vec<IndexedName>>,
    /// What no git puts into an index.
    pub fault: Option<IndexFault>,
    /// Whether one object stands for another (`git replace`), as far as anybody can say.
    pub replaces: bool,
}

/// Why the user's git must not use an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexFault {
    /// It is none, or git may read it otherwise than we do.
    Unreadable,
    /// It has a name that is not below the work tree, or leads into a repository's own directory: git checks names when it takes
    /// them in, and not when it writes the files.
    Outside(Vec<u8>),
}

/// What `HEAD` has under a file's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InHead {
    /// Nothing that could be found.
    Nothing,
    /// Something else than the file holds.
    Other,
    /// What the file holds.
    Same,
}

/// A protected name that git's index has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedName {
    /// Below the project root.
    pub path: Vec<u8>,
    /// Whether `git status` does not look at it (`skip-worktree`, `assume-unchanged`).
    pub hidden: bool,
}

/// A root of the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RootSpec {
    /// Absolute and without links.
    pub path: String,
    /// Whether the policy lets it be written.
    pub writable: bool,
}

/// A protected name: what [`ProtectedName`] says of it to file tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NameSpec {
    pattern: String,
    except: Vec<String>,
    readable: bool,
    why: String,
}

impl NameSpec {
    /// All of a policy's.
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
            protection: if self.readable { Protection::Write } else { Protection::All },
            new: WhenNew::Closed,
            why: self.why.clone(),
            origin: Origin::default(),
        }
    }
}

/// What [`ProtectedObjects`] says to file tools, which know files by their paths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// Each with whether it may be read.
    places: Vec<(Vec<u8>, bool)>,
    /// Directories, each with the path as which it counts.
    aliases: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ObjectSpec {
    /// That part of what was found.
    pub fn of(objects: &ProtectedObjects) -> Self {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let places = objects.places.iter();
        let places = places.map(|(path, protection)| (bytes(path), *protection == Protection::Write));
        let aliases = objects.aliases.iter();
        let aliases = aliases.map(|alias| (bytes(&alias.directory), bytes(&alias.counts_as)));
        Self { places: places.collect(), aliases: aliases.collect() }
    }

    /// The same as it was found.
    pub fn restore(&self) -> ProtectedObjects {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let protection = |readable| if readable { Protection::Write } else { Protection::All };
        let places = self.places.iter().map(|(place, readable)| (path(place), protection(*readable)));
        let aliases = self.aliases.iter();
        let aliases = aliases
            .map(|(directory, counts_as)| Alias { directory: path(directory), counts_as: path(counts_as) });
        ProtectedObjects { places: places.collect(), aliases: aliases.collect(), ..Default::default() }
    }
}

impl WorkerSpec {
    /// The protected names, compiled.
    ///
    /// # Errors
    /// A pattern that the broker could compile cannot be compiled here.
    pub fn matcher(&self) -> Result<Matcher, PolicyError> {
        Matcher::new(&self.names.iter().map(NameSpec::restore).collect::<Vec<_>>())
    }

    /// The scope's paths, compiled.
    ///
    /// # Errors
    /// A glob that the broker could compile cannot be compiled here.
    pub fn scope_paths(&self) -> Result<ScopePaths, PolicyError> {
        self.scope.as_ref().map_or_else(|| Ok(ScopePaths::default()), ScopePaths::new)
    }
}
