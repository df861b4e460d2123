#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod serve;
mod worker;
mod read;
mod write;
mod edit;
mod leased;
mod list;
mod glob;
mod grep;
mod undo;
mod state;
mod walk;
mod ignored;
mod deadline_matcher;
mod hunks;
mod temporary;
mod undo_store;
mod cached_trees;
mod change_record;
mod beneath;
mod tree;
mod zone_names;
mod seen;
mod root;
mod content;
mod bounds;
mod git_objects;
mod git_index;
mod hidden;
mod committed;
mod settings_reader;
mod error;

#[cfg(test)]
mod tests;

use broker_protocol::{Layer, frame};
use committed::Committed;
use executor_layers::ladder::confine_worker;
use executor_layers::{descriptors, namespaces};
use executor_spec::error::{At, SetupError, SetupPart};
use executor_spec::worker::{FileToolsSpec, STARTED, WorkerQuestion, WorkerSpec, WorkerTask};
use executor_sys::process::{self, Fork};
use executor_sys::{fd, message};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use policies_guard::Access;
use root::{OpenRoot, OpenRoots};
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use worker::Worker;
use zone_names::Names;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "--version")
    {
        let release = broker_protocol::release(option_env!("LAZARET_COMMIT"));
        let printed = writeln!(io::stdout(), "lazaret-worker {release}");
        return printed.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lazaret-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A worker that cannot be confined does not work: the broker sees its socket close.
fn run() -> io::Result<()> {
    let other = |error: SetupError| io::Error::other(error.to_string());
    let socket = fd::inherited(0)?;
    descriptors::null_stdio(1).map_err(other)?;
    prctl::set_name(c"lazaret-worker")?;
    let Some((spec, mut fds)) = serve::receive_message(&socket)? else {
        return Ok(());
    };
    let spec: WorkerSpec = frame::decode_whole(&spec).map_err(io::Error::other)?;
    let count = namespaces::count(spec.layers);
    if fds.len() < count {
        return Err(io::Error::other("a namespace of the session is missing"));
    }
    let mut more = fds.split_off(count);
    let made = records(&spec.task).then(|| more.pop()).flatten();
    let undo = more.pop();
    namespaces::enter(spec.layers, &fds).map_err(other)?;
    drop(fds);
    if !spec.layers.has(Layer::PidNamespace) {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
    } else if !is_member(&socket)? {
        return Ok(());
    }
    let kept = [
        Some(socket.as_fd()),
        undo.as_ref().map(AsFd::as_fd),
        made.as_ref().map(AsFd::as_fd),
    ];
    descriptors::keep_only(&kept.into_iter().flatten().collect::<Vec<_>>(), &[]).map_err(other)?;
    match &spec.task {
        WorkerTask::FileTools(tools) => {
            let worker = file_tools(&spec, tools, undo).map_err(other)?;
            serve::serve(&worker.recording(made.map(File::from)), &socket)
        }
        WorkerTask::Questions { .. } => {
            let (roots, names) = opened(&spec, WorkerSpec::matcher).map_err(other)?;
            confine_worker(&spec).map_err(other)?;
            let [project, common] = &roots;
            let committed = Committed {
                project: project.descriptor(),
                common: common.descriptor(),
                names: &names,
            };
            answer_questions(&committed, &socket)
        }
    }
}

/// Whether a worker with this task gets the memory in which it records directories that it makes.
fn records(task: &WorkerTask) -> bool {
    match task {
        WorkerTask::FileTools(tools) => tools.records,
        WorkerTask::Questions { .. } => false,
    }
}

fn answer_questions(committed: &Committed, socket: &OwnedFd) -> io::Result<()> {
    while let Some((question, _)) = serve::receive_message(socket)? {
        let answer = match frame::decode_whole(&question).map_err(io::Error::other)? {
            WorkerQuestion::Repository(query) => frame::encode_whole(&committed.answer(&query)),
            WorkerQuestion::Settings(texts) => {
                let settings: Vec<_> = texts
                    .iter()
                    .map(|text| settings_reader::settings(text))
                    .collect();
                frame::encode_whole(&settings)
            }
        };
        serve::send_whole(socket, &answer.map_err(io::Error::other)?)?;
    }
    Ok(())
}

/// Forks the one process of this program that is in the PID namespace and a child of that namespace's first
/// process, which reaps it whichever other process has died; true in it. The broker receives its pidfd.
fn is_member(socket: &OwnedFd) -> io::Result<bool> {
    if let Fork::Parent(child) = process::fork(0)? {
        waitpid(Pid::from_raw(child.pid), None)?;
        return Ok(false);
    }
    match process::fork(0)? {
        Fork::Child => Ok(true),
        // When this process exits, the other becomes an orphan in the namespace.
        Fork::Parent(child) => {
            message::send(socket.as_fd(), &[STARTED], &[child.pidfd.as_fd()])?;
            Ok(false)
        }
    }
}

/// Opens the roots and compiles the names.
fn opened<N, E: Error + Send + Sync + 'static>(
    spec: &WorkerSpec,
    names: impl FnOnce(&WorkerSpec) -> Result<N, E>,
) -> Result<([OpenRoot; 2], N), SetupError> {
    let [project, other] = spec.roots().map(|of| match of.writable {
        true => OpenRoot::open(&of.path, Access::Write),
        false => OpenRoot::open(&of.path, Access::Read),
    });
    let roots = project.and_then(|project| Ok([project, other?]));
    let roots = roots.at(SetupPart::Processes, || "open the roots".into())?;
    let names = names(spec).map_err(io::Error::other);
    let names = names.at(Layer::ProtectedNames, || "compile the names".into())?;
    Ok((roots, names))
}

/// Prepares the file tools, then confines this process.
fn file_tools(
    spec: &WorkerSpec,
    tools: &FileToolsSpec,
    undo: Option<OwnedFd>,
) -> Result<Worker, SetupError> {
    let ([project, central], names) = opened(spec, |spec| Names::new(spec, tools))?;
    let granted = OpenRoot::open("/", Access::Read).at(SetupPart::Processes, || "open /".into())?;
    let roots = OpenRoots {
        project,
        central,
        granted,
    };
    confine_worker(spec)?;
    Ok(Worker::new(roots, names, undo, tools.undo))
}
