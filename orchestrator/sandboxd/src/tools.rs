//! The two tools of this front end that have answers for programs: a piece of a file, the entries of a directory. They make the same
//! requests as `view_image` and `file_list`, whose policy is theirs.

use broker_protocol::{
    ErrorKind, Failed, FileBytes, FileList, FileReply, Listed, ListedKind, Request, Scope, Zone,
    ZonePath, limit,
};
use orchestrator_engine::tools::{Calling, ToolLookup};
use orchestrator_engine::{CallWork, MemberCall, NewTool, Registered, Tool, Tools, UnknownTool};
use orchestrator_results::metadata::{Details, Metadata};
use orchestrator_results::result::ToolResult;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::rc::Rc;

/// The tools, none of which a client calls by name.
#[derive(Default)]
pub(crate) struct FileTools;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileTool {
    /// A piece of a file; the metadata has the size of the whole.
    Piece,
    /// The entries of a directory, as JSON.
    Entries,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct FileInput {
    pub path: String,
    /// First byte of the piece.
    pub offset: u64,
    pub limit: u32,
}

/// An entry of a directory.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SandboxEntry {
    pub name: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u16,
    pub modified_ms: i64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Link,
    Other,
}

impl FileTool {
    const ALL: [FileTool; 2] = [FileTool::Piece, FileTool::Entries];

    pub(crate) fn name(self) -> &'static str {
        match self {
            FileTool::Piece => "file_bytes",
            FileTool::Entries => "file_list",
        }
    }

    fn request(self, input: &FileInput) -> Result<Request, Failed> {
        let path = ZonePath::new(Zone::Project, &input.path)
            .map_err(|error| Failed::invalid(error.to_string()))?;
        Ok(match self {
            FileTool::Piece => Request::FileBytes(FileBytes {
                path,
                offset: input.offset,
                limit: input.limit,
            }),
            FileTool::Entries => Request::FileList(FileList {
                path,
                depth: 1,
                hidden: true,
                limit: input.limit,
            }),
        })
    }

    async fn perform(self, work: CallWork<'_>, input: Value) -> ToolResult {
        let failed = |error| ToolResult::failed(self.name(), error);
        let input = serde_json::from_value::<FileInput>(input)
            .map_err(|error| Failed::invalid(error.to_string()));
        let request = match input.and_then(|input| self.request(&input)) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        let (reply, metadata) = match work.exchange(request).await {
            Ok(replied) => replied,
            Err(result) => return *result,
        };
        let (text, structured) = match reply {
            FileReply::Bytes(piece) => (piece.content, json!({ "size": piece.size })),
            FileReply::Listed(listed) => match entries(listed) {
                Ok(text) => (text, Value::Null),
                Err(error) => return failed(error),
            },
            FileReply::Read(_)
            | FileReply::Written(_)
            | FileReply::Edited(_)
            | FileReply::Walked(_)
            | FileReply::Grepped(_)
            | FileReply::Started(_)
            | FileReply::Background(_)
            | FileReply::Logged(_)
            | FileReply::Killed(_)
            | FileReply::History(_)
            | FileReply::Undone(_) => {
                let message = "the executor answered something else".into();
                let kind = ErrorKind::Protocol;
                return failed(Failed { kind, message });
            }
        };
        answer(self, text, structured, &metadata)
    }
}

fn answer(tool: FileTool, text: Vec<u8>, structured: Value, request: &Metadata) -> ToolResult {
    let mut result = ToolResult::success(tool.name(), text, Details::Other { structured });
    result.metadata = result.metadata.with_request(request);
    result
}

fn entries(listed: Listed) -> Result<Vec<u8>, Failed> {
    if listed.truncated.is_some() {
        let message = format!(
            "the directory has more than {} entries, or more names than an answer holds",
            limit::ENTRIES
        );
        let kind = ErrorKind::ResourceLimit;
        return Err(Failed { kind, message });
    }
    let entries: Vec<_> = listed
        .entries
        .into_iter()
        .map(|entry| SandboxEntry {
            name: entry.path,
            kind: match entry.kind {
                ListedKind::File => EntryKind::File,
                ListedKind::Directory => EntryKind::Directory,
                ListedKind::Link => EntryKind::Link,
                ListedKind::Other => EntryKind::Other,
            },
            size: entry.size,
            mode: entry.mode,
            modified_ms: entry.modified_ms,
        })
        .collect();
    serde_json::to_vec(&entries).map_err(|error| Failed::internal(error.to_string()))
}

impl Tool for FileTool {
    fn name(&self) -> &str {
        FileTool::name(*self)
    }

    fn runs_outside(&self) -> bool {
        false
    }

    fn own_names(&self, _: &str, input: &Value) -> Result<Value, Failed> {
        Ok(input.clone())
    }

    fn members(&self, _: &mut Value) -> Result<Option<Vec<MemberCall>>, Failed> {
        Ok(None)
    }

    fn call<'c>(&'c self, work: CallWork<'c>, input: Value) -> Calling<'c> {
        Box::pin(self.perform(work, input))
    }
}

impl Tools for FileTools {
    fn find(self: Rc<Self>, name: &str) -> ToolLookup {
        let found = FileTool::ALL.into_iter().find(|tool| tool.name() == name);
        found
            .map(|tool| Rc::new(tool) as Rc<dyn Tool>)
            .ok_or_else(|| UnknownTool {
                tool: String::new(),
                why: none(),
            })
    }

    fn register(&self, _: NewTool) -> Result<Registered, Failed> {
        Err(none())
    }

    fn unregister(&self, _: &str) -> Result<(), Failed> {
        Err(none())
    }

    fn list(&self, _: Option<&Scope>) -> Vec<Value> {
        Vec::new()
    }
}

fn none() -> Failed {
    Failed {
        kind: ErrorKind::UnknownTool,
        message: "this session has no such tool".into(),
    }
}
