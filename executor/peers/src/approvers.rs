//! The second socket of a session whose policy has `approval.channel = "separate"`: approvers connect to it,
//! see the waiting calls and answer them. The client's connection then carries no answers.
//!
//! The socket lies in a directory that only its user can enter and no cell sees. Each peer is checked ([`ClientProcess::admit`]).
//! Nothing here blocks: an approver that does not read is disconnected, and at most [`APPROVERS`] are connected at once.

use crate::Connection;
use crate::approver_peer::ClientProcess;
use broker_protocol::approval::{APPROVER_FRAME, APPROVERS};
use broker_protocol::{CallId, ErrorKind, Failed, FromApprover, Hello, Opened, ToApprover, limit};
use executor_spec::private_directory;
use executor_spec::sandbox::SandboxSpec;
use executor_sys::random;
use nix::poll::PollFlags;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum number of other sessions' sockets checked, when a session opens, for a broker that has died.
const SWEPT: usize = 256;
/// Bytes queued for an approver at which it is disconnected: a request and a file of the largest size, and some more.
const QUEUE: usize = limit::REQUEST + limit::ANSWER;

/// Why there is no second socket, and so no session.
#[derive(Debug, Error)]
pub enum ApproversError {
    /// The client cannot be distinguished from an approver.
    #[error("the client's process cannot be read: {0}")]
    Client(io::Error),
    /// Programs in a cell could reach the socket.
    #[error("the socket for approvals would lie in {}, which the session's cells can see", .0.display())]
    Visible(PathBuf),
    /// The socket cannot be made.
    #[error("the socket for approvals in {} cannot be made: {source}", .directory.display())]
    Socket {
        directory: PathBuf,
        source: io::Error,
    },
}

/// The second socket and the connected approvers.
#[derive(Debug)]
pub struct Approvers {
    listener: UnixListener,
    path: PathBuf,
    client: ClientProcess,
    opened: Opened,
    connected: BTreeMap<u64, Approver>,
    last: u64,
}

#[derive(Debug)]
struct Approver {
    connection: Connection,
    greeted: bool,
    /// The call whose preview it receives.
    preview: Option<CallId>,
}

impl Approvers {
    /// Listens for the approvers of a session whose client is at the other end of `client`, in one of these `directories`.
    ///
    /// # Errors
    /// [`ApproversError`].
    pub fn listen(
        spec: &SandboxSpec,
        opened: Opened,
        client: BorrowedFd,
        directories: Vec<PathBuf>,
    ) -> Result<Self, ApproversError> {
        let client = ClientProcess::of(client, spec.policy.approval.terminal)
            .map_err(ApproversError::Client)?;
        let directory = private_of(directories);
        let overlaps = |path: &PathBuf| directory.starts_with(path) || path.starts_with(&directory);
        let mut visible = [&spec.project, &spec.central]
            .into_iter()
            .chain(spec.views.iter().map(|view| &view.path));
        if visible.any(overlaps) {
            return Err(ApproversError::Visible(directory));
        }
        let made = make(&directory);
        let (listener, path) =
            made.map_err(|source| ApproversError::Socket { directory, source })?;
        Ok(Self {
            listener,
            path,
            client,
            opened,
            connected: BTreeMap::new(),
            last: 0,
        })
    }

    /// The socket that becomes readable for new approvers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Each approver's socket, and the events to wait for.
    pub fn fds(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>, PollFlags)> {
        self.connected.iter().map(|(number, approver)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, !approver.connection.is_full());
            flags.set(PollFlags::POLLOUT, approver.connection.has_output());
            (*number, approver.connection.fd(), flags)
        })
    }

    /// Accepts new connections. A peer that may not answer is sent the reason and disconnected.
    pub fn admit(&mut self) {
        for _ in 0..APPROVERS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            let admitted = self.client.admit(stream.as_fd());
            let Ok(mut connection) = Connection::new(OwnedFd::from(stream)) else {
                continue;
            };
            let refused = match admitted {
                Ok(()) if self.connected.len() < APPROVERS => None,
                Ok(()) => Some(format!(
                    "{APPROVERS} approvers are connected, which is the maximum"
                )),
                Err(not) => Some(not.to_string()),
            };
            match refused {
                None => {
                    self.last += 1;
                    self.connected.insert(
                        self.last,
                        Approver {
                            connection,
                            greeted: false,
                            preview: None,
                        },
                    );
                }
                Some(message) => end(&mut connection, ErrorKind::DeniedPolicy, message),
            }
        }
    }

    /// Reads the frames of an approver; its hello is answered here. One that has left or broken the protocol is removed.
    pub fn receive(&mut self, number: u64) -> Vec<FromApprover> {
        let Some(approver) = self.connected.get_mut(&number) else {
            return Vec::new();
        };
        let received = approver.receive(&self.opened, self.client.pid);
        received.unwrap_or_else(|broken| {
            if let (Some(mut approver), Some(message)) = (self.connected.remove(&number), broken) {
                end(&mut approver.connection, ErrorKind::Protocol, message);
            }
            Vec::new()
        })
    }

    pub fn send(&mut self, number: u64, message: &ToApprover) {
        let full = self
            .connected
            .get_mut(&number)
            .is_some_and(|approver| !approver.send(message));
        if full {
            self.connected.remove(&number);
        }
    }

    /// Sends to every approver whose hello was received.
    pub fn send_all(&mut self, message: &ToApprover) {
        self.connected
            .retain(|_, approver| !approver.greeted || approver.send(message));
    }

    /// Begins a preview for an approver; false, and the approver is disconnected, if it already receives one.
    pub fn begin_preview(&mut self, number: u64, call: CallId) -> bool {
        let Some(approver) = self.connected.get_mut(&number) else {
            return false;
        };
        if approver.preview.is_some() {
            end(
                &mut approver.connection,
                ErrorKind::Protocol,
                "one call at a time is shown".into(),
            );
            self.connected.remove(&number);
            return false;
        }
        approver.preview = Some(call);
        true
    }

    /// Ends the preview of a call for an approver.
    pub fn end_preview(&mut self, number: u64, call: CallId) {
        if let Some(approver) = self.connected.get_mut(&number) {
            approver.preview = None;
        }
        self.send(number, &ToApprover::Seen { call });
    }

    /// Writes as much as the sockets accept now.
    pub fn flush(&mut self) {
        self.connected
            .retain(|_, approver| approver.connection.flush().is_ok());
    }
}

impl Drop for Approvers {
    fn drop(&mut self) {
        // If removing the name fails, the socket is closed all the same.
        let _ = fs::remove_file(&self.path);
    }
}

impl Approver {
    /// Reads its frames; an error, with the reason if there is one, when its connection is over.
    fn receive(
        &mut self,
        opened: &Opened,
        client: i32,
    ) -> Result<Vec<FromApprover>, Option<String>> {
        if !matches!(self.connection.read(), Ok(true)) {
            return Err(None);
        }
        let mut frames = Vec::new();
        while let Some(frame) = self
            .connection
            .next_frame()
            .map_err(|error| Some(error.to_string()))?
        {
            match (self.greeted, frame) {
                (false, FromApprover::Hello(hello)) => {
                    hello.check().map_err(|error| Some(error.to_string()))?;
                    self.greeted = true;
                    self.send(&ToApprover::Hello(Hello::ours(hello.policy)));
                    self.send(&ToApprover::Session {
                        opened: opened.clone(),
                        client,
                    });
                    frames.push(FromApprover::Hello(hello));
                }
                (false, _) => return Err(Some("the first frame is a Hello".into())),
                (true, FromApprover::Hello(_)) => return Err(Some("a second Hello".into())),
                (true, frame) => frames.push(frame),
            }
        }
        if self.connection.pending() > APPROVER_FRAME {
            return Err(Some(format!(
                "a frame of an approver has at most {APPROVER_FRAME} bytes"
            )));
        }
        Ok(frames)
    }

    /// Queues a frame; false when too much is already queued.
    fn send(&mut self, message: &ToApprover) -> bool {
        self.connection.send(message).is_ok() && self.connection.waiting() <= QUEUE
    }
}

/// Ends a connection with its reason. What its socket does not accept now is lost.
fn end(connection: &mut Connection, kind: ErrorKind, message: String) {
    let _ = connection.send(&ToApprover::Fault(Failed { kind, message }));
    let _ = connection.flush();
}

/// The directory for sockets of a user's sessions: in the first parent that is the user's alone, else in the last.
fn private_of(mut directories: Vec<PathBuf>) -> PathBuf {
    let is_private = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|metadata| private_directory::is_private(&metadata))
    };
    let is_in_private = |path: &PathBuf| path.parent().is_some_and(is_private);
    let found = directories.iter().position(is_in_private);
    directories.swap_remove(found.unwrap_or(directories.len() - 1))
}

/// Creates a socket in `directory`; its name contains the process's number.
fn make(directory: &Path) -> io::Result<(UnixListener, PathBuf)> {
    if let Some(parent) = directory.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    let number = u32::from_le_bytes(random::bytes()?);
    let path = directory.join(format!("{}-{number:08x}", std::process::id()));
    private_directory::make(&path)?;
    sweep(directory);
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok((listener, path))
}

/// Removes the sockets of brokers that have died.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten().take(SWEPT) {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
