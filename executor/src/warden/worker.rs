//! The file worker's process: confined like a cell, without the right to run anything, for as long as the session.
//!
//! Requests come down its socket, each after the bytes that name its session and its call, and answers go up; both are cut into
//! messages of at most [`CHUNK`] bytes.

use crate::cell::plan::Walls;
use crate::cell::{At, LayerError, NoNewPrivileges, bite, capabilities, descriptors, landlock, seccomp};
use crate::rest::Rest;
use crate::sys;
use crate::work::undo::line::SESSION;
use crate::work::{Intent, Protected, Root, Roots, Worker};
use broker_protocol::{CallId, ErrorKind, Failed, FileAnswer, Layer, Request, Zone, frame, limit};
use nix::sys::prctl;
use nix::sys::resource::{Usage as Rusage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use policies::{Access, Matcher, Protection, Reach, ScopePaths};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::exit;

/// Bytes of a request or an answer in one message, without the header.
pub const CHUNK: usize = limit::CHUNK;
/// First byte of a message that others follow.
pub const MORE: u8 = 0;
/// First byte of the last message.
pub const LAST: u8 = 1;
/// What the last message of an answer says after its first byte: user and system microseconds and peak KiB, `u64` each.
pub const USAGE: usize = 24;
/// Bytes of what stands before a request: the call's number, and the id of the session as text.
pub const NAME: usize = 8 + SESSION;
/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = 1 + USAGE + CHUNK;

/// The worker's life.
pub fn run(walls: &Walls, socket: OwnedFd, own: Option<&OwnedFd>, nnp: NoNewPrivileges) -> ! {
    let done = prepare(walls, &socket, own, nnp).map_err(|error| io::Error::other(error.to_string()));
    // A worker that cannot be closed must not work: the broker sees the end of its socket.
    let done = done.and_then(|worker| serve(&worker, &socket));
    exit(i32::from(done.is_err()))
}

fn prepare(
    walls: &Walls,
    socket: &OwnedFd,
    own: Option<&OwnedFd>,
    nnp: NoNewPrivileges,
) -> Result<Worker, LayerError> {
    let step = || "prepare the file worker".to_owned();
    prctl::set_name(c"lazaret-worker").at(Layer::PidNamespace, step)?;
    let own = own.map(OwnedFd::try_clone).transpose().at(Layer::Descriptors, step)?;
    let kept = [Some(socket.as_fd()), own.as_ref().map(AsFd::as_fd)];
    descriptors::keep_only(&kept.into_iter().flatten().collect::<Vec<_>>(), walls.ablation.descriptors())?;
    let worker = open(walls, own).at(Layer::LandlockFiles, step)?;
    if walls.has(Layer::Capabilities) {
        capabilities::drop_all()?;
    }
    landlock::restrict(&landlock::worker_ruleset(walls)?, nnp)?;
    if walls.has(Layer::Seccomp) {
        seccomp::confine_worker(nnp)?;
    }
    bite::worker(walls)?;
    Ok(worker)
}

fn open(walls: &Walls, own: Option<OwnedFd>) -> io::Result<Worker> {
    let root = |path: &Path, access| Root::open(&path.to_string_lossy(), access == Access::Write);
    let roots = Roots {
        project: root(&walls.project, walls.policy.project)?,
        central: root(&walls.central, walls.policy.central)?,
    };
    let matcher = walls.has(Layer::ProtectedNames).then(|| walls.policy.matcher.clone());
    let names = Names { matcher, paths: walls.policy.paths.clone() };
    Ok(Worker::new(roots, Box::new(names), own, walls.policy.limits.undo))
}

/// The policy's protected names and the session's scope, as the file tools ask for them. The broker has asked about the
/// name in the request; this is for those that links lead to.
struct Names {
    matcher: Option<Matcher>,
    paths: ScopePaths,
}

impl Protected for Names {
    fn closed(&self, _: Zone, path: &Path, intent: Intent) -> Option<&str> {
        let name = self.matcher.as_ref()?.protection(path.as_os_str().as_bytes())?;
        let closed = intent == Intent::Write || name.protection == Protection::All;
        closed.then_some(name.why.as_str())
    }

    fn out_of_scope(&self, tool: &str, zone: Zone, path: &Path) -> Option<String> {
        let reach = Reach::of(tool);
        let permitted = self.paths.permits(tool, zone, path.as_os_str().as_bytes(), reach);
        (!permitted).then(|| format!("the session's scope permits {tool} for {} only", self.paths.text(tool)))
    }
}

fn serve(worker: &Worker, socket: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut request = Vec::new();
    let mut rest = Rest::default();
    loop {
        rest.before_reading(socket);
        let (length, _) = sys::receive(socket.as_fd(), &mut buffer, 0)?;
        let Some((tag, bytes)) = buffer[..length].split_first() else { return Ok(()) };
        request.extend_from_slice(bytes);
        if *tag == MORE {
            continue;
        }
        answer(worker, &request, socket)?;
        request = Vec::new();
    }
}

fn answer(worker: &Worker, request: &[u8], socket: &OwnedFd) -> io::Result<()> {
    let before = getrusage(UsageWho::RUSAGE_SELF)?;
    let (name, request) = request.split_first_chunk::<NAME>().unwrap_or((&[b'0'; NAME], request));
    let (call, session) = name.split_first_chunk().unwrap_or((&[0; 8], &[]));
    worker.name_session(&String::from_utf8_lossy(session));
    let request = frame::decode::<Request>(request);
    let answer: FileAnswer = match &request {
        Ok(request) => worker.answer(CallId::from_le_bytes(*call), request),
        Err(error) => Err(Failed { kind: ErrorKind::Internal, message: error.to_string() }),
    };
    let bytes = frame::encode_whole(&answer).map_err(io::Error::other)?;
    drop(answer);
    let large = bytes.len() > CHUNK;
    send(socket, &bytes, &usage(&before, &getrusage(UsageWho::RUSAGE_SELF)?))?;
    // A search takes memory that an idle worker should not keep.
    if large
        || matches!(
            request,
            Ok(Request::FileList(_) | Request::Glob(_) | Request::Grep(_) | Request::History(_))
        )
    {
        drop(bytes);
        sys::trim_memory();
    }
    Ok(())
}

fn usage(before: &Rusage, after: &Rusage) -> [u8; USAGE] {
    let user = (after.user_time() - before.user_time()).num_microseconds();
    let system = (after.system_time() - before.system_time()).num_microseconds();
    let mut bytes = [0; USAGE];
    for (place, number) in bytes.chunks_mut(8).zip([user, system, after.max_rss()]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn send(socket: &OwnedFd, bytes: &[u8], usage: &[u8; USAGE]) -> io::Result<()> {
    let last = bytes.len().saturating_sub(1) / CHUNK * CHUNK;
    let mut message = Vec::with_capacity(MESSAGE_MAX.min(bytes.len() + 1 + USAGE));
    for chunk in bytes[..last].chunks(CHUNK) {
        message.clear();
        message.push(MORE);
        message.extend_from_slice(chunk);
        sys::send(socket.as_fd(), &message, &[])?;
    }
    message.clear();
    message.push(LAST);
    message.extend_from_slice(usage);
    message.extend_from_slice(&bytes[last..]);
    sys::send(socket.as_fd(), &message, &[])
}
