//! The built-in tools as the model sees them: data. Policies, results and the audit know a tool by its one canonical
//! name, so aliases end here.
//!
//! To add a tool: a row here or in [`small`], and what it becomes: a [`Request`] with its
//! builder in [`request`], or another [`Plan`].

use super::field::{Field, Input, Kind, object_schema};
use super::request::{self, InputError, Plan, Rewrite, Work};
use super::small;
use super::web;
use broker_protocol::{Request, Risk, Roots, limit};
use serde_json::{Value, json};

/// What a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Files of the two zones.
    File,
    /// Programs.
    Exec,
    /// Names and contents of many files.
    Search,
    /// Pages of the internet.
    Web,
    /// The agent's own notes, and several calls in one.
    Agent,
    /// Somebody else's tool.
    Remote,
}

impl Category {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Category::File => "file",
            Category::Exec => "exec",
            Category::Search => "search",
            Category::Web => "web",
            Category::Agent => "agent",
            Category::Remote => "remote",
        }
    }
}

/// One tool. `B` makes what is asked of it: of the executor, or of the web.
pub struct Tool<B = Work> {
    /// The canonical name.
    pub name: &'static str,
    /// Names of other systems for the same thing.
    pub aliases: &'static [&'static str],
    /// For the model: what it does, and when to take it.
    pub description: &'static str,
    /// What it works on.
    pub category: Category,
    /// How much harm it can do.
    pub risk: Risk,
    /// Its input.
    pub fields: &'static [Field],
    /// Turns forms of other systems that are more than another name into ours.
    pub rewrite: Rewrite,
    /// What checked input becomes.
    pub build: B,
}

impl Tool {
    /// The executor's tool called `name`, or one of its aliases.
    pub fn find(name: &str) -> Option<&'static Tool> {
        TOOLS.iter().find(|tool| tool.answers_to(name))
    }

    /// What a call of it asks for: foreign forms first, then the check, then the plan. Nothing that fails here reaches
    /// the executor.
    pub fn plan(&self, mut input: Value, roots: &Roots) -> Result<Plan, InputError> {
        if let Value::Object(values) = &mut input {
            (self.rewrite)(values)?;
        }
        let input = Input::check(self.fields, input)?;
        let plan = match self.build {
            Work::Request(build) => Plan::Request(build(input, roots)?),
            Work::Other(build) => build(input, roots)?,
        };
        match &plan {
            Plan::Request(request) => request.check()?,
            Plan::Numbered(read) => Request::FileRead(read.clone()).check()?,
            _ => {}
        }
        Ok(plan)
    }
}

/// The web tool called `name`, or one of its aliases.
pub fn web_tool(name: &str) -> Option<&'static Tool<web::Build>> {
    WEB_TOOLS.iter().find(|tool| tool.answers_to(name))
}

/// The canonical name of any tool; empty if there is none of this name.
pub fn canonical(name: &str) -> &'static str {
    Tool::find(name)
        .map(|tool| tool.name)
        .or_else(|| web_tool(name).map(|tool| tool.name))
        .unwrap_or_default()
}

/// The name by which the executor, and so a rule, knows a tool.
pub fn known_as(tool: &str) -> &str {
    if tool == small::RUN_TESTS.name { "bash" } else { tool }
}

impl<B> Tool<B> {
    fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Its input as JSON Schema 2020-12.
    pub fn schema(&self) -> Value {
        let mut schema = object_schema(self.fields);
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema
    }

    /// The tool as it stands in a list of tools.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema(),
            "category": self.category.name(),
            "risk": self.risk.name(),
            "aliases": self.aliases,
        })
    }
}

/// A time limit: what is above a maximum means that maximum, as other systems count milliseconds.
pub(super) const SECONDS: Kind = Kind::Whole { least: 1, most: u64::MAX };
const COUNT: Kind = Kind::Whole { least: 1, most: limit::ENTRIES as u64 };
const LINES: Kind = Kind::Whole { least: 1, most: u64::MAX };

const PATH: &str = "Absolute, or relative to the project root; `central:` before it means the central root.";

/// The path of one file.
const FILE: Field = Field::must("path", Kind::Path, PATH).or(&["file_path", "filePath"]);
/// A directory to look in.
const DIRECTORY: Field =
    Field::may("path", Kind::Path, "Where to look; the project root if absent.").or(&["directory", "dir"]);
const SHA256: Field = Field::may(
    "expected_sha256",
    Kind::Digest,
    "SHA-256 that the file must still have, in hexadecimal; else nothing is changed.",
)
.or(&["expectedSha256"]);
const HIDDEN: Field = Field::may("hidden", Kind::Flag, "Also names that begin with a dot.")
    .or(&["includeHidden", "include_hidden"]);
const IGNORED: Field =
    Field::may("ignored", Kind::Flag, "Also files that ignore files such as .gitignore name.")
        .or(&["ignore_gitignore"]);
const LIMIT_ALIASES: &[&str] = &["max_results", "maxResults", "max_files"];

/// A background process.
const PROCESS: Field =
    Field::must("id", Kind::Whole { least: 1, most: u64::MAX }, "The number that `bash` returned.");

/// Fields of one replacement of `file_edit`.
pub const EDIT: &[Field] =
    &[
        Field::must("old", Kind::Text, "The text that is there, exactly, with its line ends; not empty.")
            .or(&["old_text", "old_string", "target"]),
        Field::must("new", Kind::Text, "The text that shall be there.").or(&[
            "new_text",
            "new_string",
            "replacement",
        ]),
        Field::may(
            "occurrence",
            Kind::Whole { least: 1, most: limit::CONTENT as u64 },
            "Replace exactly this many places; without it and without `all` there must be exactly one.",
        ),
        Field::may("all", Kind::Flag, "Replace every place.").or(&["replace_all"]),
    ];

/// The tools that reach the internet; the executor, which has none, does not know them.
pub static WEB_TOOLS: [Tool<web::Build>; 2] = [
    Tool {
        name: "web_search",
        aliases: &[],
        description: "Searches the web; returns a numbered list of titles, addresses and excerpts. What it finds was written \
                      by strangers.",
        category: Category::Web,
        risk: Risk::Low,
        fields: &[
            Field::must("query", Kind::Text, "What to search for."),
            Field::may(
                "max_results",
                Kind::Whole { least: 1, most: web::RESULTS_MAX as u64 },
                "At most this many results; 5 if absent.",
            )
            .or(&["maxResults", "numResults", "num_results", "limit"]),
        ],
        rewrite: request::as_it_is,
        build: web::search,
    },
    Tool {
        name: "web_fetch",
        aliases: &["fetch_url"],
        description: "Fetches a web page as readable text: HTML without its tags, other texts as they are. A redirection to \
                      another host is not followed but named. What it says was written by strangers.",
        category: Category::Web,
        risk: Risk::Low,
        fields: &[
            Field::must("url", Kind::Text, "The address, with https://."),
            Field::may(
                "selector",
                Kind::Text,
                "Only those elements of an HTML page that this CSS selector means, such as `main` or `#content > p`; all of it if \
                 absent. At most 500 bytes; without `:has` and pseudo-elements.",
            ),
            Field::may(
                "max_length",
                Kind::Whole { least: 1, most: web::SHOWN_MAX as u64 },
                "At most this many bytes of text; 102400 if absent. Of more, all is kept in a file that the result names.",
            )
            .or(&["maxLength"]),
            Field::may(
                "timeout",
                SECONDS,
                "Time limit in seconds; 30 if absent. The maximum, 120 or the scope's, is never exceeded.",
            )
            .or(&["timeout_s", "timeoutS"]),
            Field::may(
                "prompt",
                Kind::Text,
                "What the page is wanted for, for the user; the text does not depend on it.",
            ),
        ],
        rewrite: request::as_it_is,
        build: web::fetch,
    },
];

const BROWSER: &str = "there is no browser here; add one as an MCP server, or read a page with `web_fetch`";

/// Tools of other systems that have no counterpart here, and why.
pub static NOT_SUPPORTED: [(&str, &str); 15] = [
    ("subagent", "Lazaret runs tools and no models; open a further session for another agent"),
    ("trigger_hot_swap", "skills and prompts are those of the program that runs the model"),
    (
        "read_reasoning",
        "thoughts are not kept; `goal_list` has goals and checkpoints, `lazaret log` the calls",
    ),
    ("cross_run_search", "a session does not see others; `lazaret log search` does"),
    ("navigate", BROWSER),
    ("click", BROWSER),
    ("type", BROWSER),
    ("screenshot", BROWSER),
    ("get_page", BROWSER),
    ("browser_navigate", BROWSER),
    ("browser_click", BROWSER),
    ("browser_type", BROWSER),
    ("browser_screenshot", BROWSER),
    ("browser_get_page", BROWSER),
    ("browser_wait_for", BROWSER),
];

/// All other tools that are built in, in the order in which they are shown.
pub static TOOLS: [Tool; 23] = [
    Tool {
        name: "bash",
        aliases: &["shell"],
        description: "Runs a command in a sandboxed cell and returns its output and exit code. A string runs with \
                      `bash -c`; a list of strings runs as a program with its arguments, without a shell. The project \
                      is writable, system files can only be read, and there is no network. Processes left behind are \
                      killed when the command ends. With `background` the call returns at once with a number, and \
                      the command runs on until it ends or is killed, or the session ends.",
        category: Category::Exec,
        risk: Risk::High,
        fields: &[
            Field::must("command", Kind::Command, "A shell command, or a program and its arguments.")
                .or(&["cmd"]),
            Field::may("timeout", SECONDS, "Time limit in seconds; the policy's maximum is never exceeded.")
                .or(&["timeout_s", "timeoutS"]),
            Field::may("idle_timeout", SECONDS, "Ends the command after this many seconds without output.")
                .or(&["idleTimeout", "idle_timeout_s"]),
            Field::may("cwd", Kind::Path, "Working directory; the project root if absent.")
                .or(&["directory", "workdir"]),
            Field::may("description", Kind::Text, "What the command is for, in a few words, for the user."),
            Field::may("stdin", Kind::Flag, "Give the command a standard input that the caller feeds."),
            Field::may(
                "background",
                Kind::Flag,
                "Return at once and let the command run on, as for a server.",
            ),
        ],
        rewrite: request::no_time_limit,
        build: Work::Request(request::bash),
    },
    Tool {
        name: "file_read",
        aliases: &["read_file", "read"],
        description: "Reads a file, or some lines of it. At most 1 MiB is returned, with a note where it was cut.",
        category: Category::File,
        risk: Risk::Low,
        fields: &[
            FILE,
            Field::may("offset", LINES, "First line to read, counted from 1."),
            Field::may("limit", LINES, "How many lines to read.").or(&["line_limit", "lineLimit"]),
            Field::may(
                "numbered",
                Kind::Flag,
                "Put before each line its number in the file and a tab, cut lines after 2000 characters, and say at the end how many \
                 lines remain; the text as it is if absent.",
            ),
        ],
        rewrite: request::lines_from_to,
        build: Work::Other(request::file_read),
    },
    Tool {
        name: "file_write",
        aliases: &["write_file", "write", "write_memory_dump"],
        description: "Writes a whole file. One that exists must have been read before. Missing directories are made, an existing file keeps its mode, and the change \
                      happens at once or not at all.",
        category: Category::File,
        risk: Risk::Medium,
        fields: &[
            FILE,
            Field::must("content", Kind::Text, "The whole new content; may be empty.").or(&["text"]),
            Field::may("overwrite", Kind::Flag, "Whether an existing file may be replaced; true if absent."),
            SHA256,
        ],
        rewrite: request::memory_dump,
        build: Work::Request(request::file_write),
    },
    Tool {
        name: "file_edit",
        aliases: &["edit_file", "edit", "file_multi_edit"],
        description: "Replaces exact texts in a file that has been read before, all of them or none. A text that is absent, or ambiguous, is an error \
                      that says how often it is there.",
        category: Category::File,
        risk: Risk::Medium,
        fields: &[
            FILE,
            Field::must(
                "edits",
                Kind::List { fields: EDIT, least: 1, most: limit::EDITS },
                "The replacements, each made in the result of the one before.",
            ),
            SHA256,
        ],
        rewrite: request::flat_edit,
        build: Work::Request(request::file_edit),
    },
    Tool {
        name: "file_list",
        aliases: &["list_files", "ls", "list"],
        description: "Lists a directory, sorted. Directories end with `/`, symbolic links with `@`, other things that are not \
                      files with `|`.",
        category: Category::File,
        risk: Risk::Low,
        fields: &[
            DIRECTORY,
            Field::may("depth", Kind::Whole { least: 1, most: 64 }, "How many levels down; 1 if absent.")
                .or(&["maxDepth", "max_depth"]),
            HIDDEN,
            Field::may("limit", COUNT, "At most this many entries; 1000 if absent.").or(LIMIT_ALIASES),
        ],
        rewrite: request::recursive,
        build: Work::Request(request::file_list),
    },
    Tool {
        name: "glob",
        aliases: &["glob_tool"],
        description: "Finds files by a pattern of their path, newest first. `*` stays within a name, `**` crosses \
                      directories, `{a,b}` and `[a-z]` choose.",
        category: Category::Search,
        risk: Risk::Low,
        fields: &[
            Field::must("pattern", Kind::Text, "Such as `src/**/*.rs`."),
            DIRECTORY,
            HIDDEN,
            IGNORED,
            Field::may("limit", COUNT, "At most this many files; 100 if absent.").or(LIMIT_ALIASES),
        ],
        rewrite: request::as_it_is,
        build: Work::Request(request::glob),
    },
    Tool {
        name: "grep",
        aliases: &["grep_tool"],
        description: "Finds lines by a regular expression, as `path:line:text`, of which the text is cut after 300 characters. Files that ignore files name, and binary files, \
                      are passed over.",
        category: Category::Search,
        risk: Risk::Low,
        fields: &[
            Field::must("pattern", Kind::Text, "A regular expression, in the syntax of Rust's regex crate."),
            Field::may("path", Kind::Path, "A directory, or one file; the project root if absent.").or(&[
                "directory",
                "dir",
                "file_path",
            ]),
            Field::may(
                "include",
                Kind::Text,
                "Only files whose name or path matches this glob, such as `*.rs`.",
            )
            .or(&["filePattern", "file_pattern"]),
            Field::may("literal", Kind::Flag, "The pattern is plain text.").or(&["fixed_strings"]),
            Field::may("ignore_case", Kind::Flag, "The case of letters does not matter.").or(&["ignoreCase"]),
            IGNORED,
            Field::may(
                "context",
                Kind::Whole { least: 0, most: 20 },
                "Lines to show before and after each match.",
            )
            .or(&["surround_lines"]),
            Field::may("limit", COUNT, "At most this many matching lines; 100 if absent.").or(LIMIT_ALIASES),
        ],
        rewrite: request::case_sensitive,
        build: Work::Request(request::grep),
    },
    Tool {
        name: "background_list",
        aliases: &["view_background_processes"],
        description: "Lists the session's background processes, those that have ended too.",
        category: Category::Exec,
        risk: Risk::Low,
        fields: &[],
        rewrite: request::as_it_is,
        build: Work::Request(request::background_list),
    },
    Tool {
        name: "background_log",
        aliases: &[],
        description: "Reads what a background process has printed: the last of it, or from an offset on.",
        category: Category::Exec,
        risk: Risk::Low,
        fields: &[
            PROCESS,
            Field::may("offset", Kind::Whole { least: 0, most: u64::MAX }, "First byte, counted from 0."),
            Field::may(
                "bytes",
                Kind::Whole { least: 1, most: limit::LOG as u64 },
                "At most this many bytes; 8192 if absent.",
            )
            .or(&["tail"]),
        ],
        rewrite: request::as_it_is,
        build: Work::Request(request::background_log),
    },
    Tool {
        name: "background_kill",
        aliases: &[],
        description: "Ends a background process and everything it has started.",
        category: Category::Exec,
        risk: Risk::Low,
        fields: &[PROCESS],
        rewrite: request::as_it_is,
        build: Work::Request(request::background_kill),
    },
    small::BATCH,
    small::TODO_READ,
    small::TODO_WRITE,
    small::MEMORY,
    small::GOAL_CREATE,
    small::GOAL_SWITCH,
    small::GOAL_COMPLETE,
    small::GOAL_LIST,
    small::CHECKPOINT,
    small::THINKING,
    small::FINISH_TASK,
    small::VIEW_IMAGE,
    small::RUN_TESTS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schema::Schema;
    use std::collections::HashSet;

    #[test]
    fn no_name_means_two_tools_and_no_field_name_two_fields() {
        let mut names = HashSet::new();
        let executor = TOOLS.iter().map(|tool| (tool.name, tool.aliases, tool.fields));
        for (tool, aliases, fields) in
            executor.chain(WEB_TOOLS.iter().map(|tool| (tool.name, tool.aliases, tool.fields)))
        {
            assert!(names.insert(tool), "{tool}");
            assert!(aliases.iter().all(|alias| names.insert(alias)), "{tool}");
            for fields in [fields, EDIT] {
                let mut names = HashSet::new();
                for field in fields {
                    assert!(names.insert(field.name), "{tool}.{}", field.name);
                    assert!(field.aliases.iter().all(|alias| names.insert(alias)), "{tool}.{}", field.name);
                }
            }
        }
    }

    /// Sections A to E of the requirements: a tool of another system is one of ours, or not supported for a reason.
    #[test]
    fn every_tool_of_the_other_systems_has_its_answer() {
        for name in [
            "file_read",
            "file_write",
            "bash",
            "web_search",
            "file_edit",
            "file_multi_edit",
            "grep_tool",
            "glob_tool",
            "batch",
            "view_background_processes",
            "thinking",
            "image_recognition",
            "view_image",
            "web_fetch",
            "todo_read",
            "todo_write",
            "glob",
            "ls",
            "grep",
            "read_file",
            "read_many_files",
            "edit_file",
            "write_file",
            "shell",
            "memory",
            "remember",
            "write_memory_dump",
            "create_goal",
            "switch_goal",
            "complete_goal",
            "create_checkpoint",
            "record_decision",
            "write_todos",
            "list_files",
            "run_tests",
            "fetch_url",
            "finish_task",
        ] {
            assert!(!canonical(name).is_empty(), "{name}");
        }
        for (name, why) in NOT_SUPPORTED {
            assert!(canonical(name).is_empty() && !why.is_empty(), "{name}");
        }
    }

    /// The catalogue says a tool's risk to a model, the request decides by it: they are one.
    #[test]
    fn a_tool_has_the_risk_of_what_it_asks_for() {
        let roots = Roots { project: "/p".into(), central: "/c".into() };
        let mut compared = 0;
        for tool in &TOOLS {
            let request = tool.plan(example(tool.name), &roots).unwrap().request();
            if let Some(request) = request {
                assert_eq!(request.risk(), tool.risk, "{}", tool.name);
                compared += 1;
            } else {
                assert_eq!(tool.risk, Risk::Low, "{}", tool.name);
            }
        }
        for tool in &WEB_TOOLS {
            let input = json!({"query": "x", "url": "https://example.org/"});
            let own = input[tool.fields[0].name].clone();
            let ask = web::parse(tool, json!({ tool.fields[0].name: own })).unwrap();
            assert_eq!((ask.effect().risk(), ask.effect().tool()), (tool.risk, tool.name));
        }
        assert_eq!(compared, TOOLS.len() - 3);
    }

    /// What a model is told and what is asked of it are one: a whole validator takes what our own check takes.
    #[test]
    fn a_schema_is_one_and_takes_what_the_tool_takes() {
        let own = TOOLS.iter().map(|tool| (tool.name, tool.schema(), tool.fields));
        for (name, schema, fields) in
            own.chain(WEB_TOOLS.iter().map(|tool| (tool.name, tool.schema(), tool.fields)))
        {
            let schema = Schema::new(schema).unwrap();
            let mut input = match name {
                "web_search" => json!({"query": "x"}),
                "web_fetch" => json!({"url": "https://example.org/"}),
                "file_edit" => json!({"path": "a", "edits": [{"old": "x", "new": "y"}]}),
                "batch" => json!({"invocations": [{"tool_name": "ls"}]}),
                _ => example(name),
            };
            assert!(Input::check(fields, input.clone()).is_ok() && schema.check(&input).is_ok(), "{name}");
            input["no_such_field"] = json!(1);
            assert!(Input::check(fields, input.clone()).is_err() && schema.check(&input).is_err(), "{name}");
            if fields.iter().any(|field| field.required) {
                assert!(
                    Input::check(fields, json!({})).is_err() && schema.check(&json!({})).is_err(),
                    "{name}"
                );
            }
        }
    }

    fn example(tool: &str) -> Value {
        match tool {
            "bash" => json!({"command": "x"}),
            "file_read" | "view_image" => json!({"path": "a"}),
            "file_write" => json!({"path": "a", "content": "x"}),
            "file_edit" => json!({"path": "a", "old": "x", "new": "y"}),
            "glob" | "grep" => json!({"pattern": "x"}),
            "background_log" | "background_kill" => json!({"id": 1}),
            "batch" => json!({"invocations": [{"tool": "ls"}]}),
            "todo_write" => json!({"todos": []}),
            "memory" => json!({"action": "list"}),
            "goal_create" | "checkpoint" => json!({"description": "x"}),
            "goal_switch" => json!({"action": "pause"}),
            "goal_complete" | "finish_task" => json!({"summary": "x"}),
            "thinking" => json!({"thought": "x"}),
            _ => json!({}),
        }
    }

    #[test]
    fn aliases_lead_to_the_canonical_tool() {
        for (alias, name) in
            [("read_file", "file_read"), ("ls", "file_list"), ("shell", "bash"), ("grep", "grep")]
        {
            assert_eq!(Tool::find(alias).unwrap().name, name);
        }
        assert!(Tool::find("Bash").is_none());
    }

    #[test]
    fn a_schema_says_what_is_required_and_refuses_the_rest() {
        let json = Tool::find("file_edit").unwrap().to_json();
        let schema = &json["inputSchema"];
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["required"], json!(["path", "edits"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["edits"]["items"]["required"], json!(["old", "new"]));
        assert_eq!(schema["properties"]["edits"]["items"]["additionalProperties"], false);
        assert_eq!(json["risk"], "medium");
    }
}
