//! The file tools, as they run inside the long-lived, confined file worker: one request in, one answer out.
//!
//! The message loop hands over a [`Request`] that the broker has allowed, and sends back what [`Worker::answer`]
//! returns. Nothing of that request is believed here: its limits are checked again, and no path in it is trusted to
//! stay where its text says. The walls are outside (mounts, Landlock, the syscall filter); what this module adds is
//! that a file tool does what it says and no more, on a disk full of links, FIFOs and files that never end.
//!
//! - **Nothing is checked and then opened.** `beneath` opens by `openat2` below a root's descriptor, and what was
//!   opened is looked at. A link is followed only where each step of it lies in one of the two zones, and then the
//!   name it leads to is asked about like the name that was given.
//! - **Only regular files are read**, and nothing is opened in a way that waits.
//! - **Nothing is changed unseen**: an existing file is edited or replaced only if this session has read it, or wrote it
//!   (`seen`).
//! - **What is changed is kept** first, so that it can be undone (`undo`).
//! - **A write is whole or not there**: a temporary file beside the target, `fsync`, then one `link` or `rename`.
//! - **Everything is bounded**: bytes read, entries walked, patterns compiled, seconds spent, bytes answered
//!   (`bounds`). What is cut says so.
//!
//! It does not see hard links: a protected file that already has a second name can be reached by that name, here as
//! with `cat`. That a cell makes such a name is kept off by the mounts that pin protected names: no link crosses one.
//!
//! No thread, no `unsafe`, nothing kept between calls but the two descriptors and what has been read.

pub mod beneath;
mod seen;
mod read;
mod state;
mod write;
mod temporary;
pub mod undo;
pub mod litter;
mod edit;
mod hunks;
mod list;
mod glob;
mod grep;
mod patient;
mod walk;
mod ignored;
mod bounds;
mod failure;

#[cfg(test)]
mod tests;

use broker_protocol::{CallId, FileAnswer, FileReply, Request, Zone};
use seen::Seen;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::path::Path;
use undo::store::Store;

pub use beneath::{Root, Roots};
pub use failure::WorkError;

/// What a file tool wants with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To know its content.
    Read,
    /// To make, change or replace it.
    Write,
}

/// Which names inside the zones are closed, as the policy says.
pub trait Protected {
    /// Why `path`, below the root of `zone`, is closed for `intent`; `None` where it is open. What is closed for
    /// reading is closed for writing too, and what lies below a closed name is closed with it.
    fn closed(&self, zone: Zone, path: &Path, intent: Intent) -> Option<&str>;

    /// Why `tool` may not touch `path` in this session, whatever it wants there; `None` where it may.
    fn out_of_scope(&self, _tool: &str, _zone: Zone, _path: &Path) -> Option<String> {
        None
    }
}

/// In the place of a call's number: a read for who is asked about a change. The session has not seen the file by it.
pub const LOOK: CallId = CallId::MAX;

/// The file tools over two roots.
pub struct Worker {
    roots: Roots,
    protected: Box<dyn Protected>,
    seen: RefCell<Seen>,
    store: RefCell<Store>,
    /// The session, as the audit names it.
    session: RefCell<String>,
    /// The call under way.
    call: Cell<CallId>,
    /// The tool at work.
    tool: RefCell<String>,
}

impl Worker {
    /// A worker on `roots`, which are opened before the process is confined. It keeps `undo` bytes of changes in `own`.
    pub fn new(roots: Roots, protected: Box<dyn Protected>, own: Option<OwnedFd>, undo: u64) -> Self {
        let (seen, store, call) = (RefCell::default(), RefCell::new(Store::new(own, undo)), Cell::new(0));
        let session = RefCell::new("0".repeat(undo::line::SESSION));
        Self { roots, protected, seen, store, session, call, tool: RefCell::default() }
    }

    /// Says in which session it works.
    pub fn name_session(&self, id: &str) {
        if *self.session.borrow() != id {
            self.session.replace(id.to_owned());
        }
    }

    /// Does what `request` asks. It always comes back, within the times and sizes of `bounds`.
    pub fn answer(&self, call: CallId, request: &Request) -> FileAnswer {
        self.call.set(call);
        Ok(self.reply(request)?)
    }

    fn reply(&self, request: &Request) -> Result<FileReply, WorkError> {
        request.check()?;
        self.tool.replace(request.tool().to_owned());
        match request {
            Request::Bash(_)
            | Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::Effect(_) => Err(WorkError::Misdirected),
            Request::FileRead(read) => self.read(read).map(FileReply::Read),
            Request::FileWrite(write) => self.write(write).map(FileReply::Written),
            Request::FileEdit(edit) => self.edit(edit).map(FileReply::Edited),
            Request::FileList(list) => self.list(list).map(FileReply::Listed),
            Request::Glob(glob) => self.glob(glob).map(FileReply::Walked),
            Request::Grep(grep) => self.grep(grep).map(FileReply::Grepped),
            Request::History(history) => self.history(history).map(FileReply::History),
            Request::Undo(undo) => self.undo(undo).map(FileReply::Undone),
            Request::FileBytes(bytes) => self.bytes(bytes).map(FileReply::Bytes),
            Request::State(state) => self.state(state),
        }
    }
}
