//! Files of the project for clients: by the engine's file tools, which see bytes, are confined to the project and can be undone; and
//! what these cannot do (a removal, permission bits), by a command in a cell.

use crate::body::{Incomplete, Produced, ReplyBody, collect};
use crate::calls::SandboxCalls;
use crate::commands::{CommandOrder, HowEnded, run};
use crate::fault::{FaultKind, SandboxFault};
use crate::tools::{EntryKind, FileInput, FileTool, SandboxEntry};
use broker_protocol::{Command, ErrorKind, FileRead, FileWrite, Request, ZonePath, limit};
use hyper::body::{Bytes, Frame, Incoming};
use orchestrator_engine::{CallResult, Invocation};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, mpsc};

/// Bytes of a file that a client may write: those of a `file_write`.
pub(crate) const UPLOAD_MAX: usize = limit::WRITE;
/// Uploads whose bytes are in memory at once; further ones wait.
const UPLOADS_MAX: usize = 8;
/// Bytes of a file that are read at once: what waits of each answer.
pub(crate) const PIECE: u32 = 256 << 10;
/// Links of one directory that are followed for a list; it leaves out further ones.
const LINKS_MAX: usize = 64;

/// Removes `$1`, a path below the working directory; with `$2`, all that is in it. Its exit codes are below. It goes to the
/// directory first, so that no link that appears meanwhile leads the removal elsewhere, and no name is ever printed and read again.
const REMOVE: &str = r#"
cd -P . || exit 41
root=$PWD
if [ -z "$1" ]; then
    [ -n "$2" ] || exit 46
    for entry in ./* ./.[!.]* ./..?*; do
        if [ -e "$entry" ] || [ -L "$entry" ]; then rm -rf -- "$entry" || exit 43; fi
    done
    exit 0
fi
case $1 in */*) cd -P -- "./${1%/*}" 2>/dev/null || exit 44 ;; esac
case $PWD/ in "$root"/*) ;; *) exit 45 ;; esac
name=./${1##*/}
[ -e "$name" ] || [ -L "$name" ] || exit 44
if [ -n "$2" ]; then rm -rf -- "$name" || exit 43; exit 0; fi
if [ ! -d "$name" ] || [ -L "$name" ]; then rm -f -- "$name" || exit 43; exit 0; fi
for entry in "$name"/* "$name"/.[!.]* "$name"/..?*; do
    if [ -e "$entry" ] || [ -L "$entry" ]; then exit 46; fi
done
rmdir -- "$name" || exit 43
"#;

/// Codes of [`REMOVE`].
const REFUSED: i32 = 43;
const NOT_THERE: i32 = 44;
const OUTSIDE: i32 = 45;
const NOT_EMPTY: i32 = 46;

/// Reads the body of an upload, in which `other` bytes may be of a form and not of its file.
///
/// # Errors
/// It is larger, breaks off, or takes too long.
pub(crate) async fn uploaded(body: Incoming, other: usize) -> Result<Vec<u8>, SandboxFault> {
    let read = collect(body, UPLOAD_MAX + other).await;
    read.map_err(|fault| {
        if fault.kind != FaultKind::TooLarge {
            return fault;
        }
        let message = format!(
            "a file that is written has at most {UPLOAD_MAX} bytes, because a write is one change that the executor holds in \
             memory; write a larger one in parts, and join them by a command"
        );
        SandboxFault::new(FaultKind::TooLarge, message)
    })
}

/// The files of the project.
pub(crate) struct ProjectFiles {
    calls: Rc<SandboxCalls>,
    uploads: Semaphore,
    /// Held while a file is read and written: a write replaces only what the session has seen.
    writing: Mutex<()>,
}

pub(crate) enum Looked {
    File(FilePiece),
    Directory(Vec<SandboxEntry>),
}

/// The beginning of a file, or more.
pub(crate) struct FilePiece {
    pub bytes: Vec<u8>,
    /// Bytes of the whole file.
    pub size: u64,
}

impl ProjectFiles {
    pub(crate) fn new(calls: Rc<SandboxCalls>) -> Rc<Self> {
        Rc::new(Self {
            calls,
            uploads: Semaphore::new(UPLOADS_MAX),
            writing: Mutex::new(()),
        })
    }

    /// Calls one of our tools.
    async fn tool(
        &self,
        tool: FileTool,
        path: &ZonePath,
        offset: u64,
        limit: u32,
    ) -> Result<Arc<CallResult>, SandboxFault> {
        let path = path.relative().to_owned();
        let input = FileInput {
            path,
            offset,
            limit,
        };
        let name = tool.name().to_owned();
        let input = json!(input);
        self.calls.result(Invocation::Tool { name, input }).await
    }

    /// At most `limit` bytes of a file from `offset` on; the inner error is that of the file, by its kind.
    async fn piece(
        &self,
        path: &ZonePath,
        offset: u64,
        limit: u32,
    ) -> Result<Result<FilePiece, (ErrorKind, SandboxFault)>, SandboxFault> {
        let result = self.tool(FileTool::Piece, path, offset, limit).await?;
        if let Some(failed) = &result.error {
            return Ok(Err((failed.kind, SandboxFault::from(failed))));
        }
        let metadata = json!(result.metadata());
        if metadata["redacted"] == true {
            let message = "the file has a secret of this sandbox in it, which no client gets";
            return Err(SandboxFault::new(FaultKind::PermissionDenied, message));
        }
        let size = metadata["structured"]["size"].as_u64();
        let size =
            size.ok_or_else(|| SandboxFault::new(FaultKind::Internal, "the file has no size"))?;
        let bytes = result.text.clone();
        Ok(Ok(FilePiece { bytes, size }))
    }

    async fn entries(&self, path: &ZonePath) -> Result<Vec<SandboxEntry>, SandboxFault> {
        let most = limit::ENTRIES;
        let listed = self.tool(FileTool::Entries, path, 0, most).await?;
        if let Some(failed) = &listed.error {
            return Err(SandboxFault::from(failed));
        }
        serde_json::from_slice(&listed.text)
            .map_err(|error| SandboxFault::new(FaultKind::Internal, error.to_string()))
    }

    /// What `path` names, with the first `limit` bytes of a file.
    ///
    /// # Errors
    /// There is nothing, or it may not be read.
    pub(crate) async fn inspect(
        &self,
        path: &ZonePath,
        limit: u32,
    ) -> Result<Looked, SandboxFault> {
        match self.piece(path, 0, limit).await? {
            Ok(piece) => Ok(Looked::File(piece)),
            // It is there, and no regular file.
            Err((ErrorKind::InvalidInput, fault)) => match self.entries(path).await {
                Ok(entries) => Ok(Looked::Directory(entries)),
                Err(other) if other.kind == FaultKind::InvalidArgument => Err(fault),
                Err(other) => Err(other),
            },
            Err((_, fault)) => Err(fault),
        }
    }

    /// The entries of a directory that a client sees: files and directories, and links that lead to one, as what they lead to.
    /// Links that lead nowhere or out of what may be read are left out.
    pub(crate) async fn listed(
        &self,
        directory: &ZonePath,
        entries: Vec<SandboxEntry>,
    ) -> Result<Vec<SandboxEntry>, SandboxFault> {
        let (mut seen, mut links) = (Vec::with_capacity(entries.len()), 0);
        for mut entry in entries {
            match entry.kind {
                EntryKind::File | EntryKind::Directory => seen.push(entry),
                EntryKind::Link if links < LINKS_MAX => {
                    links += 1;
                    let path = format!("{}/{}", directory.relative(), entry.name);
                    let path = path.trim_start_matches('/');
                    let Ok(path) = ZonePath::new(directory.zone(), path) else {
                        continue;
                    };
                    match self.inspect(&path, 1).await {
                        Ok(Looked::File(piece)) => {
                            (entry.kind, entry.size) = (EntryKind::File, piece.size);
                        }
                        Ok(Looked::Directory(_)) => entry.kind = EntryKind::Directory,
                        Err(fault) if fault.kind == FaultKind::Unavailable => return Err(fault),
                        Err(_) => continue,
                    }
                    seen.push(entry);
                }
                EntryKind::Link | EntryKind::Other => {}
            }
        }
        Ok(seen)
    }

    /// Whether there is something at `path`.
    ///
    /// # Errors
    /// It may not be known.
    pub(crate) async fn exists(&self, path: &ZonePath) -> Result<bool, SandboxFault> {
        match self.inspect(path, 1).await {
            Ok(Looked::File(_) | Looked::Directory(_)) => Ok(true),
            Err(fault) if fault.kind == FaultKind::NotFound => Ok(false),
            // There is a FIFO, or something else that is neither.
            Err(fault) if fault.kind == FaultKind::InvalidArgument => Ok(true),
            Err(fault) => Err(fault),
        }
    }

    /// The content of a file that begins with `first`: read piece by piece, as its client takes it.
    pub(crate) fn content(self: &Rc<Self>, path: ZonePath, first: FilePiece) -> ReplyBody {
        let size = first.size;
        let (send, body) = Produced::channel(Some(size));
        let files = self.clone();
        tokio::task::spawn_local(async move {
            if files.produce(path, first, &send).await.is_err() {
                // The length is missing something: the client sees that.
                let _ = send.send(Err(Incomplete)).await;
            }
        });
        body
    }

    async fn produce(
        &self,
        path: ZonePath,
        first: FilePiece,
        send: &mpsc::Sender<Result<Frame<Bytes>, Incomplete>>,
    ) -> Result<(), Incomplete> {
        let size = first.size;
        let (mut offset, mut piece) = (0, first);
        loop {
            // It is another file by now, or was changed.
            if piece.size != size || (piece.bytes.is_empty() && offset < size) {
                return Err(Incomplete);
            }
            offset += piece.bytes.len() as u64;
            let frame = Frame::data(Bytes::from(piece.bytes));
            send.send(Ok(frame)).await.map_err(|_| Incomplete)?;
            if offset >= size {
                return Ok(());
            }
            let next = self.piece(&path, offset, PIECE).await;
            let next = next.map_err(|_| Incomplete)?;
            piece = next.map_err(|_| Incomplete)?;
        }
    }

    /// The right to have the bytes of an upload in memory.
    pub(crate) async fn upload(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, so this succeeds in the end.
        self.uploads.acquire().await.ok()
    }

    /// Writes a file as a whole, with its parents, and then gives it these permission bits, if any are given.
    ///
    /// # Errors
    /// It is not written, or has not got its permission bits, which is said.
    pub(crate) async fn write(
        &self,
        path: &ZonePath,
        content: Vec<u8>,
        mode: Option<u16>,
    ) -> Result<(), SandboxFault> {
        let writing = self.writing.lock().await;
        // What it replaces counts as seen: its client knows what it does.
        let seen = Request::FileRead(FileRead {
            path: path.clone(),
            offset: None,
            limit: Some(1),
        });
        self.calls.result(Invocation::Request(seen)).await?;
        let write = Request::FileWrite(FileWrite {
            path: path.clone(),
            content,
            overwrite: true,
            expected_sha256: None,
        });
        write
            .check()
            .map_err(|error| SandboxFault::new(FaultKind::TooLarge, error.to_string()))?;
        let written = self.calls.result(Invocation::Request(write)).await?;
        drop(writing);
        if let Some(failed) = &written.error {
            return Err(SandboxFault::from(failed));
        }
        match mode {
            None => Ok(()),
            Some(mode) => self.change_mode(path, mode).await,
        }
    }

    async fn change_mode(&self, path: &ZonePath, mode: u16) -> Result<(), SandboxFault> {
        let (mode, path) = (format!("{mode:04o}"), format!("./{}", path.relative()));
        let ended = self.program(&["chmod", "--", &mode, &path]).await?;
        match ended {
            HowEnded::Exited(0) => Ok(()),
            HowEnded::Exited(_)
            | HowEnded::Signalled(_)
            | HowEnded::TimedOut
            | HowEnded::Limited => Err(SandboxFault::new(
                FaultKind::Internal,
                format!("the file is written, and could not get the mode {mode}"),
            )),
        }
    }

    /// Removes what `path` names, with all that is in it if `recursive`. Of the project root only what is in it.
    ///
    /// # Errors
    /// There is nothing, it is a directory that is not empty, or it may not be removed.
    pub(crate) async fn remove(
        &self,
        path: &ZonePath,
        recursive: bool,
    ) -> Result<(), SandboxFault> {
        let all = if recursive { "all" } else { "" };
        let line = ["sh", "-c", REMOVE, "sh", path.relative(), all];
        let denied = |message: &str| Err(SandboxFault::new(FaultKind::PermissionDenied, message));
        match self.program(&line).await? {
            HowEnded::Exited(0) => Ok(()),
            HowEnded::Exited(NOT_THERE) => Err(SandboxFault::new(
                FaultKind::NotFound,
                "there is nothing with this name in the project",
            )),
            HowEnded::Exited(NOT_EMPTY) => Err(SandboxFault::new(
                FaultKind::Conflict,
                "the directory is not empty; `recursive=true` removes what is in it",
            )),
            HowEnded::Exited(OUTSIDE) => denied("the path leads out of the project by a link"),
            HowEnded::Exited(REFUSED) => denied("it may not be removed, or not all of it"),
            HowEnded::Exited(_)
            | HowEnded::Signalled(_)
            | HowEnded::TimedOut
            | HowEnded::Limited => Err(SandboxFault::new(
                FaultKind::Internal,
                "the removal was not carried out, or not to its end",
            )),
        }
    }

    /// Runs a program of ours in a cell, at the project root.
    async fn program(&self, line: &[&str]) -> Result<HowEnded, SandboxFault> {
        let words = line.iter().map(|word| ByteBuf::from(word.as_bytes()));
        let order = CommandOrder {
            command: Command::Arguments(words.collect()),
            directory: None,
            time: None,
        };
        run(&self.calls, order).await.map(|ended| ended.how)
    }
}
