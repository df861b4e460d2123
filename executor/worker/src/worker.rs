//! Carries out one request and returns one answer.

use crate::committed::Committed;
use crate::error::{OpenError, WorkError};
use crate::names::Names;
use crate::root::{Root, Roots};
use crate::seen::Seen;
use crate::undo_store::UndoStore;
use broker_protocol::{CallId, Failed, FileAnswer, FileReply, Request, Zone, ZonePath};
use executor_spec::worker::SESSION_LEN;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::OwnedFd;

/// The file tools on two roots. Only the roots' descriptors and what has been read are kept between calls.
pub struct Worker {
    pub roots: Roots,
    pub names: Names,
    pub seen: RefCell<Seen>,
    pub store: RefCell<UndoStore>,
    /// Where the directories are recorded that it makes: a repository may come about in them.
    pub made: Option<File>,
    /// The session's ID in the audit.
    pub session: RefCell<String>,
    /// Number of the current call.
    pub call: Cell<CallId>,
    /// Its tool.
    pub tool: RefCell<String>,
    /// The places to which links on its path may lead.
    pub permitted: RefCell<Vec<ZonePath>>,
}

impl Worker {
    /// A worker on `roots`, which are opened before the process is confined. It saves up to `budget` bytes of changes in `undo`.
    pub fn new(roots: Roots, names: Names, undo: Option<OwnedFd>, budget: u64) -> Self {
        let (seen, store, call) = (
            RefCell::default(),
            RefCell::new(UndoStore::new(undo, budget)),
            Cell::new(0),
        );
        let session = RefCell::new("0".repeat(SESSION_LEN));
        let (tool, permitted) = (RefCell::default(), RefCell::default());
        Self {
            roots,
            names,
            seen,
            store,
            made: None,
            session,
            call,
            tool,
            permitted,
        }
    }

    /// The project and, in the place of the central root, its repository.
    pub fn committed(&self) -> Committed<'_> {
        let (project, common) = (
            self.roots.project.descriptor(),
            self.roots.central.descriptor(),
        );
        Committed {
            project,
            common,
            names: &self.names.protected,
        }
    }

    pub fn name_session(&self, id: &str) {
        if *self.session.borrow() != id {
            self.session.replace(id.to_owned());
        }
    }

    /// Carries out a request whose links may lead to the places in `permitted`, within the limits in `bounds`.
    ///
    /// # Errors
    /// The place where they lead instead: nothing was done there.
    pub fn answer(
        &self,
        call: CallId,
        permitted: Vec<ZonePath>,
        request: &Request,
    ) -> Result<FileAnswer, ZonePath> {
        self.call.set(call);
        self.permitted.replace(permitted);
        match self.reply(request) {
            Err(WorkError::Open(OpenError::Elsewhere { real, .. })) => Err(real),
            replied => Ok(replied.map_err(Failed::from)),
        }
    }

    fn reply(&self, request: &Request) -> Result<FileReply, WorkError> {
        request.check()?;
        self.tool.replace(request.tool().to_owned());
        match request {
            Request::Bash(_)
            | Request::Service(_)
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

    pub fn root(&self, zone: Zone) -> &Root {
        match zone {
            Zone::Project => &self.roots.project,
            Zone::Central => &self.roots.central,
            Zone::Granted => &self.roots.granted,
        }
    }
}
