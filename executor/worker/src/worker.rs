//! Carries out one request and returns one answer.

use crate::error::{OpenError, WorkError};
use crate::leased::LeasedFile;
use crate::root::{Location, OpenRoot, OpenRoots};
use crate::seen::SeenFiles;
use crate::undo_store::UndoStore;
use crate::zone_names::Names;
use broker_protocol::{Failed, FileAnswer, FileReply, Request, Zone, ZonePath};
use executor_spec::known_directories::identity;
use executor_spec::worker::WorkerContext;
use std::cell::{RefCell, RefMut};
use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::os::fd::OwnedFd;

/// The file tools on two roots. Only the roots' descriptors and what has been read are kept between calls.
pub(crate) struct Worker {
    roots: OpenRoots,
    names: Names,
    seen: RefCell<SeenFiles>,
    store: RefCell<UndoStore>,
    /// Where the directories are recorded that it makes: a repository may come about in them.
    made: Option<File>,
}

/// One request, and on whose behalf it is carried out. The tools are its methods.
pub(crate) struct FileCall<'w> {
    worker: &'w Worker,
    context: WorkerContext,
    tool: &'w str,
    leased: Option<LeasedFile>,
}

impl Deref for FileCall<'_> {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        self.worker
    }
}

impl Worker {
    /// A worker on `roots`, which are opened before the process is confined. It saves up to `budget` bytes of changes in `undo`.
    pub(crate) fn new(roots: OpenRoots, names: Names, undo: Option<OwnedFd>, budget: u64) -> Self {
        Self {
            roots,
            names,
            seen: RefCell::default(),
            store: RefCell::new(UndoStore::new(undo, budget)),
            made: None,
        }
    }

    /// The same worker, which records in `made` the directories that it makes.
    pub(crate) fn recording(self, made: Option<File>) -> Self {
        Self { made, ..self }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The files that this session has read. Borrowed for one step at a time.
    pub(crate) fn seen(&self) -> RefMut<'_, SeenFiles> {
        self.seen.borrow_mut()
    }

    /// The saved changes. Borrowed for one step at a time.
    pub(crate) fn store(&self) -> RefMut<'_, UndoStore> {
        self.store.borrow_mut()
    }

    /// Records a directory that a call has made. Where it is not recorded, no repository comes about in it.
    pub(crate) fn record_directory(&self, directory: &File) {
        if let Some(mut memory) = self.made.as_ref()
            && let Some(identity) = directory.metadata().ok().as_ref().and_then(identity)
        {
            let _ = memory.write_all(&identity);
        }
    }

    /// Carries out a request, with the descriptor of the file that a lease opens to it, if the context names one.
    ///
    /// # Errors
    /// The place where links on its path lead, if that is not permitted: nothing was done there.
    pub(crate) fn answer(
        &self,
        context: WorkerContext,
        request: &Request,
        leased: Option<OwnedFd>,
    ) -> Result<FileAnswer, ZonePath> {
        let named = context.leased.as_ref().zip(leased);
        let leased = named.map(|(path, file)| LeasedFile::new(path, file));
        let mut call = self.call(context, request.tool());
        call.leased = leased;
        match call.reply(request) {
            Err(WorkError::Open(OpenError::Elsewhere { real, .. })) => Err(real),
            replied => Ok(replied.map_err(Failed::from)),
        }
    }

    pub(crate) fn call<'w>(&'w self, context: WorkerContext, tool: &'w str) -> FileCall<'w> {
        FileCall {
            worker: self,
            context,
            tool,
            leased: None,
        }
    }

    pub(crate) fn root(&self, zone: Zone) -> &OpenRoot {
        match zone {
            Zone::Project => &self.roots.project,
            Zone::Central => &self.roots.central,
            Zone::Granted => &self.roots.granted,
        }
    }
}

impl FileCall<'_> {
    pub(crate) fn context(&self) -> &WorkerContext {
        &self.context
    }

    pub(crate) fn tool(&self) -> &str {
        self.tool
    }

    /// The file that a lease opens to this call, if `location` is its place.
    pub(crate) fn leased_at(&self, location: &Location) -> Option<&LeasedFile> {
        self.leased.as_ref().filter(|leased| leased.is_at(location))
    }

    fn reply(&self, request: &Request) -> Result<FileReply, WorkError> {
        request.check()?;
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
}
