//! The file tools on real directories: two roots, a place outside, and whatever a hostile cell could leave in them.

#![allow(clippy::unwrap_used)]

mod granted;
mod links;
mod reading;
mod knowing;
mod undoing;
mod writing;
mod editing;
mod searching;
mod grepping;
mod small;
mod leased;

use crate::root::{OpenRoot, OpenRoots};
use crate::worker::{FileCall, Worker};
use crate::zone_names::Names;
use broker_protocol::{
    ErrorKind, Failed, FileRead, FileReply, FileWrite, Read, Request, Written, Zone, ZonePath,
    frame, limit,
};
use executor_spec::undo_directory;
use executor_spec::worker::{SESSION_LEN, WorkerContext, WorkerPurpose};
use policies::Access;
use policies::ScopePaths;
use policies_guard::{Matcher, Origin, ProtectedName, Protection, WhenNew};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Names as a policy could close them: `.env*` altogether, `locked` and `.git/hooks` for writing. Of what is beside the roots of
/// `home`, its `tools` are granted.
fn names(home: &Path) -> Names {
    let name = |(pattern, protection, why): (&str, Protection, &str)| ProtectedName {
        pattern: pattern.into(),
        except: Vec::new(),
        protection,
        new: WhenNew::Closed,
        opens: false,
        why: why.into(),
        origin: Origin::default(),
    };
    let names = [
        (".env*", Protection::All, "it holds secrets"),
        ("locked", Protection::Write, "it is run by others"),
        (".git/hooks", Protection::Write, "it is run by others"),
    ];
    let protected = Matcher::new(&names.map(name)).unwrap();
    let (project, central, granted) = (
        home.join("project"),
        home.join("central"),
        vec![home.join("tools")],
    );
    Names {
        protected,
        objects: Default::default(),
        project,
        central,
        granted,
        scope: ScopePaths::default(),
    }
}

fn roots(home: &Path, project_access: Access, central_access: Access) -> OpenRoots {
    let open = |path: &Path, access| OpenRoot::open(path.to_str().unwrap(), access).unwrap();
    let project = open(&home.join("project"), project_access);
    let central = open(&home.join("central"), central_access);
    OpenRoots {
        project,
        central,
        granted: open(Path::new("/"), Access::Read),
    }
}

/// The context of a call whose links may lead to these places.
fn context(permitted: Vec<ZonePath>) -> WorkerContext {
    WorkerContext {
        session: "0".repeat(SESSION_LEN),
        purpose: WorkerPurpose::Call(7),
        permitted,
        leased: None,
    }
}

/// Bytes that a worker keeps of changes.
const UNDO: u64 = 100 << 20;

/// The undo directory of a ground, made as the broker makes it.
fn undo_directory(home: &Path) -> Option<std::os::fd::OwnedFd> {
    undo_directory::make(&home.join("central"));
    undo_directory::open(&home.join("central"))
}

/// Two roots beside a directory that is in neither, and a worker on them.
struct Ground {
    home: PathBuf,
    worker: Worker,
    _keep: TempDir,
}

impl Ground {
    fn new() -> Self {
        Self::with(Access::Write)
    }

    fn with(project_access: Access) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let home = keep.path().canonicalize().unwrap();
        for name in ["project", "central", "outside", "project-private"] {
            fs::create_dir(home.join(name)).unwrap();
        }
        fs::write(home.join("outside/canary"), "OUTSIDE\n").unwrap();
        let roots = roots(&home, project_access, Access::Write);
        let worker = Worker::new(roots, names(&home), undo_directory(&home), UNDO);
        Self {
            worker,
            home,
            _keep: keep,
        }
    }

    fn call(&self) -> FileCall<'_> {
        self.worker.call(context(Vec::new()), "file_write")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A file of the project that the session has read.
    fn put_known(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.put(&format!("project/{name}"), content);
        self.read(name).unwrap();
        path
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn content(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Does it, within the time and the size that every answer has.
    fn answer(&self, request: Request) -> Result<FileReply, Failed> {
        let start = Instant::now();
        let mut permitted = Vec::new();
        // As a broker whose policy has no rules.
        let answer = loop {
            match self
                .worker
                .answer(context(permitted.clone()), &request, None)
            {
                Ok(answer) => break answer,
                Err(real) if permitted.contains(&real) => panic!("{real} was permitted"),
                Err(real) => permitted.push(real),
            }
        };
        assert!(start.elapsed() < Duration::from_secs(30), "{request:?}");
        assert!(frame::encode_whole(&answer).unwrap().len() <= limit::ANSWER);
        answer
    }

    fn read(&self, path: &str) -> Result<Read, Failed> {
        self.read_lines(path, None, None)
    }

    fn read_lines(
        &self,
        path: &str,
        offset: Option<u64>,
        limit: Option<u64>,
    ) -> Result<Read, Failed> {
        match self.answer(Request::FileRead(FileRead {
            path: zoned(path),
            offset,
            limit,
        }))? {
            FileReply::Read(read) => Ok(read),
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, path: &str, content: &str) -> Result<Written, Failed> {
        self.write_with(FileWrite {
            path: zoned(path),
            content: content.into(),
            overwrite: true,
            expected_sha256: None,
        })
    }

    fn write_with(&self, write: FileWrite) -> Result<Written, Failed> {
        match self.answer(Request::FileWrite(write))? {
            FileReply::Written(written) => Ok(written),
            other => panic!("{other:?}"),
        }
    }

    /// Names in a directory, in order.
    fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// `central:x` or, in the project, `x`.
fn zoned(path: &str) -> ZonePath {
    match path.strip_prefix("central:") {
        Some(path) => ZonePath::new(Zone::Central, path).unwrap(),
        None => ZonePath::new(Zone::Project, path).unwrap(),
    }
}

/// Ends what runs beside a test, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn kind<T: std::fmt::Debug>(answer: Result<T, Failed>) -> ErrorKind {
    answer.unwrap_err().kind
}

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
}

#[test]
fn a_command_is_not_for_the_file_worker() {
    use broker_protocol::{Bash, Command, Stdin};
    let bash = Bash {
        command: Command::Shell("true".into()),
        directory: None,
        timeout_s: None,
        idle_timeout_s: None,
        stdin: Stdin::Null,
        live: false,
        background: false,
        split: false,
        attended: false,
    };
    assert_eq!(
        kind(Ground::new().answer(Request::Bash(bash))),
        ErrorKind::Internal
    );
}

#[test]
fn a_request_over_a_limit_is_refused_here_too() {
    let ground = Ground::new();
    ground.put("project/a", "x\n");
    assert_eq!(
        kind(ground.read_lines("a", Some(0), None)),
        ErrorKind::InvalidInput
    );
}

#[test]
fn budgets_of_a_call_run_out() {
    use crate::bounds::{AnswerRoom, ENTRIES, NAMES, WalkBudget};
    let mut room = AnswerRoom::new();
    assert!(!room.take(limit::ANSWER));
    assert!(room.take(limit::ANSWER - 4096));
    assert!(!room.take(4096));
    let mut budget = WalkBudget::new();
    assert!((0..ENTRIES).all(|_| budget.take(1)) && !budget.take(1));
    let mut budget = WalkBudget::new();
    assert!(budget.take(NAMES) && !budget.take(1) && !budget.is_late());
}
