//! The parts of a request that rendering its result needs.

use broker_protocol::{Command, Request, ZonePath};
use orchestrator_text::numbered::LineForm;
use std::borrow::Cow;

/// The subject of a result.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The tool's canonical name.
    pub tool: Cow<'static, str>,
    /// The file or directory of the request, or a command's working directory.
    pub path: Option<ZonePath>,
    /// The program of a command without a shell.
    pub program: Option<String>,
    /// The idle limit of a command, in seconds.
    pub idle_s: Option<u32>,
    /// How to show the lines of a file.
    pub form: LineForm,
}

impl Subject {
    /// That of `request`.
    pub fn of(request: &Request) -> Self {
        let (path, program, idle_s) = match request {
            Request::Bash(bash) => (
                bash.directory.as_ref(),
                program(&bash.command),
                bash.idle_timeout_s,
            ),
            Request::Service(service) => {
                (service.directory.as_ref(), program(&service.command), None)
            }
            Request::FileRead(read) => (Some(&read.path), None, None),
            Request::FileWrite(write) => (Some(&write.path), None, None),
            Request::FileEdit(edit) => (Some(&edit.path), None, None),
            Request::FileList(list) => (Some(&list.path), None, None),
            Request::Glob(glob) => (Some(&glob.path), None, None),
            Request::Grep(grep) => (Some(&grep.path), None, None),
            Request::Undo(undo) => (Some(&undo.path), None, None),
            Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_) => (None, None, None),
            Request::FileBytes(bytes) => (Some(&bytes.path), None, None),
            Request::State(_) | Request::Effect(_) => (None, None, None),
        };
        let tool = request.tool().to_owned().into();
        Self {
            tool,
            path: path.cloned(),
            program,
            idle_s,
            form: LineForm::Plain,
        }
    }

    pub fn tool(tool: impl Into<Cow<'static, str>>) -> Self {
        Self {
            tool: tool.into(),
            path: None,
            program: None,
            idle_s: None,
            form: LineForm::Plain,
        }
    }
}

fn program(command: &Command) -> Option<String> {
    match command {
        Command::Shell(_) => None,
        Command::Arguments(arguments) => arguments
            .first()
            .map(|program| String::from_utf8_lossy(program).into_owned()),
    }
}
