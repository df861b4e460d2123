//! Inputs of a decision: the parts of a call that a policy can be about.
//!
//! Comes from a request of the wire, or from a call that the orchestrator foresees; goes to [`rules`](crate::rules) and
//! [`decide`](mod@crate::decide).

use broker_protocol::{Command, Effect, Request, Risk, ZonePath};
use std::borrow::Cow;

/// The parts of a call that a policy can be about.
pub struct Facts<'a> {
    /// Canonical name of the tool.
    pub tool: &'a str,
    /// How much harm the call can do.
    pub risk: Risk,
    /// The path it touches, where it touches one.
    pub(crate) touch: Option<Touch<'a>>,
    /// The command it runs, where it runs one.
    pub command: Option<&'a Command>,
    /// Its parameters by canonical name, as far as rules may name them.
    pub params: Vec<(&'a str, Param<'a>)>,
}

/// The name of a request in scopes and rules. Who closes commands, or programs, means those that live long too.
fn policy_name(request: &Request) -> &str {
    match request {
        Request::Service(_) => "bash",
        request => request.tool(),
    }
}

/// The effect of a call on a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Touch<'a> {
    /// Runs a command in this directory.
    Enter(&'a ZonePath),
    /// Reads this file or directory.
    Read(&'a ZonePath),
    /// May return anything below this directory.
    Search(&'a ZonePath),
    /// Writes or removes this file.
    Write(&'a ZonePath),
}

/// The value of a parameter.
#[derive(Clone, Debug)]
pub enum Param<'a> {
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    Path(&'a ZonePath),
}

impl Param<'_> {
    /// The value as a rule compares it; a path with its zone, if that is not the project.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Param::Text(text) => Cow::Borrowed(text),
            Param::Bytes(bytes) => String::from_utf8_lossy(bytes),
            Param::Path(path) => Cow::Owned(path.to_string()),
        }
    }
}

/// Parameters that rules may name, for each tool that the broker knows.
pub(crate) const PARAMS: [(&str, &[&str]); 9] = [
    ("bash", &["command", "cwd"]),
    ("file_read", &["path"]),
    ("file_write", &["path", "content"]),
    ("file_edit", &["path", "old", "new"]),
    ("file_list", &["path"]),
    ("glob", &["path", "pattern"]),
    ("grep", &["path", "pattern", "include"]),
    ("web_search", &["query"]),
    ("web_fetch", &["url"]),
];

impl<'a> Facts<'a> {
    /// The facts of a tool of which nothing else is known.
    pub fn bare(tool: &'a str, risk: Risk) -> Self {
        Self {
            tool,
            risk,
            touch: None,
            command: None,
            params: Vec::new(),
        }
    }

    /// The facts of a request.
    pub fn of(request: &'a Request) -> Self {
        let mut facts = Self::bare(policy_name(request), request.risk());
        match request {
            Request::Bash(bash) => facts.add_command(&bash.command, bash.directory.as_ref()),
            Request::Service(service) => {
                facts.add_command(&service.command, service.directory.as_ref());
            }
            Request::FileRead(read) => facts.touch(Touch::Read(&read.path)),
            Request::FileBytes(bytes) => facts.touch(Touch::Read(&bytes.path)),
            // Its file is not the client's to choose: nothing of it is a path that a scope or a rule could name.
            Request::State(_) => {}
            Request::FileList(list) => facts.touch(Touch::Search(&list.path)),
            Request::Glob(glob) => {
                facts.touch(Touch::Search(&glob.path));
                facts.add_text("pattern", &glob.pattern);
            }
            Request::Grep(grep) => {
                facts.touch(Touch::Search(&grep.path));
                facts.add_text("pattern", &grep.pattern);
                grep.include
                    .iter()
                    .for_each(|include| facts.add_text("include", include));
            }
            Request::FileWrite(write) => {
                facts.touch(Touch::Write(&write.path));
                facts.params.push(("content", Param::Bytes(&write.content)));
            }
            Request::FileEdit(edit) => {
                facts.touch(Touch::Write(&edit.path));
                for edit in &edit.edits {
                    facts.add_text("old", &edit.old);
                    facts.add_text("new", &edit.new);
                }
            }
            Request::Undo(undo) => facts.touch(Touch::Write(&undo.path)),
            Request::Effect(Effect::WebSearch { query }) => facts.add_text("query", query),
            Request::Effect(Effect::WebFetch { url }) => facts.add_text("url", url),
            Request::Effect(Effect::Added { input, .. }) => facts.add_text("input", input),
            // They name no path, and show what the session's own calls did.
            Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_) => {}
        }
        facts
    }

    fn add_command(&mut self, command: &'a Command, directory: Option<&'a ZonePath>) {
        self.command = Some(command);
        let text = match command {
            Command::Shell(text) => Cow::Borrowed(text.as_str()),
            Command::Arguments(arguments) => {
                let texts: Vec<_> = arguments
                    .iter()
                    .map(|argument| String::from_utf8_lossy(argument))
                    .collect();
                Cow::Owned(texts.join(" "))
            }
        };
        self.params.push(("command", Param::Text(text)));
        if let Some(directory) = directory {
            self.touch = Some(Touch::Enter(directory));
            self.params.push(("cwd", Param::Path(directory)));
        }
    }

    fn touch(&mut self, touch: Touch<'a>) {
        let (Touch::Enter(path) | Touch::Read(path) | Touch::Search(path) | Touch::Write(path)) =
            touch;
        self.touch = Some(touch);
        self.params.push(("path", Param::Path(path)));
    }

    fn add_text(&mut self, name: &'a str, text: &'a str) {
        self.params.push((name, Param::Text(Cow::Borrowed(text))));
    }

    /// This call with its path replaced by `real`: see [`decide_real`](crate::decide_real).
    pub(crate) fn at(mut self, real: &'a ZonePath) -> Self {
        self.touch = self.touch.map(|touch| match touch {
            Touch::Enter(_) => Touch::Enter(real),
            Touch::Read(_) => Touch::Read(real),
            Touch::Search(_) => Touch::Search(real),
            Touch::Write(_) => Touch::Write(real),
        });
        for (_, value) in &mut self.params {
            match value {
                Param::Path(path) => *path = real,
                Param::Text(_) | Param::Bytes(_) => {}
            }
        }
        self
    }

    /// The values of a parameter: several where a call has several.
    pub fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Param<'a>> {
        self.params
            .iter()
            .filter(move |(own, _)| *own == name)
            .map(|(_, value)| value)
    }
}
