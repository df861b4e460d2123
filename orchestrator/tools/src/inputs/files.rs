//! Tools for files in the two zones.

use crate::accept::DIGEST;
use crate::input::{ToolInput, path_or_project};
use crate::input_error::{FieldError, InputError};
use crate::plan::{Plan, PlanContext};
use broker_protocol::{Digest, Edit, GrepSort, Occurrence, Request, limit};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Reads a file, or some lines of it. At most 1 MiB is returned, with a note where it was cut.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRead {
    /// Absolute, or relative to the project root; `central:` before it means the central root.
    path: String,
    /// First line to read, counted from 1.
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// How many lines to read.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// Put before each line its number in the file and a tab, cut lines after 2000 characters, and say at the end how many
    /// lines remain; the text as it is if absent.
    #[serde(default)]
    numbered: bool,
}

impl ToolInput for FileRead {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        let path = context.path(&self.path)?;
        let read = broker_protocol::FileRead {
            path,
            offset: self.offset,
            limit: self.limit,
        };
        Ok(if self.numbered {
            Plan::NumberedRead(read)
        } else {
            Plan::Request(Request::FileRead(read))
        })
    }
}

/// Writes a whole file. One that exists must have been read before. Missing directories are made, an existing file keeps its
/// mode, and the change happens at once or not at all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWrite {
    /// Absolute, or relative to the project root; `central:` before it means the central root.
    path: String,
    /// The whole new content; may be empty.
    content: String,
    /// Whether an existing file may be replaced; true if absent.
    overwrite: Option<bool>,
    /// SHA-256 that the file must still have, in hexadecimal; else nothing is changed.
    #[schemars(regex(pattern = DIGEST))]
    expected_sha256: Option<String>,
}

impl ToolInput for FileWrite {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Request(Request::FileWrite(
            broker_protocol::FileWrite {
                path: context.path(&self.path)?,
                content: self.content.into_bytes(),
                overwrite: self.overwrite.unwrap_or(true),
                expected_sha256: digest(self.expected_sha256)?,
            },
        )))
    }
}

/// Replaces exact texts in a file that has been read before, all of them or none. A text that is absent, or ambiguous, is an
/// error that says how often it is there.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileEdit {
    /// Absolute, or relative to the project root; `central:` before it means the central root.
    path: String,
    /// The replacements, each made in the result of the one before.
    #[schemars(length(min = 1, max = limit::EDITS))]
    edits: Vec<Replacement>,
    /// SHA-256 that the file must still have, in hexadecimal; else nothing is changed.
    #[schemars(regex(pattern = DIGEST))]
    expected_sha256: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replacement {
    /// The text that is there, exactly, with its line ends; not empty.
    old: String,
    /// The text that shall be there.
    new: String,
    /// Replace exactly this many places; without it and without `all` there must be exactly one.
    #[schemars(range(min = 1, max = limit::CONTENT))]
    occurrence: Option<u32>,
    /// Replace every place.
    #[serde(default)]
    all: bool,
    /// Where there are several places, replace the one closest to this line of the file.
    #[schemars(range(min = 1))]
    line: Option<u64>,
}

impl ToolInput for FileEdit {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        let edits = self
            .edits
            .into_iter()
            .enumerate()
            .map(|(at, edit)| edit.build(at));
        Ok(Plan::Request(Request::FileEdit(
            broker_protocol::FileEdit {
                path: context.path(&self.path)?,
                edits: edits.collect::<Result<_, _>>()?,
                expected_sha256: digest(self.expected_sha256)?,
            },
        )))
    }
}

impl Replacement {
    fn build(self, at: usize) -> Result<Edit, FieldError> {
        let occurrence = match (self.occurrence, self.all) {
            (None, false) => self.line.map_or(Occurrence::Only, Occurrence::Near),
            // Then several places are meant, and a line tells nothing.
            (None, true) => Occurrence::All,
            (Some(count), false) => Occurrence::Exactly(count),
            (Some(count), true) => {
                let expected = "either `occurrence` or `all`, not both";
                return Err(FieldError::expected(
                    &format!("edits[{at}].occurrence"),
                    expected,
                    &json!(count),
                ));
            }
        };
        Ok(Edit {
            old: self.old,
            new: self.new,
            occurrence,
        })
    }
}

/// Lists a directory, sorted. Directories end with `/`, symbolic links with `@`, other things that are not files with `|`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileList {
    /// Where to look; the project root if absent.
    path: Option<String>,
    /// How many levels down; 1 if absent.
    #[schemars(range(min = 1, max = 64))]
    depth: Option<u16>,
    /// Also names that begin with a dot.
    #[serde(default)]
    hidden: bool,
    /// At most this many entries; 1000 if absent.
    #[schemars(range(min = 1, max = limit::ENTRIES))]
    limit: Option<u32>,
}

impl ToolInput for FileList {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Request(Request::FileList(
            broker_protocol::FileList {
                path: path_or_project(self.path.as_deref(), context)?,
                depth: self.depth.unwrap_or(1),
                hidden: self.hidden,
                limit: self.limit.unwrap_or(1000),
            },
        )))
    }
}

/// Finds files by a pattern of their path, newest first. `*` stays within a name, `**` crosses directories, `{a,b}` and `[a-z]`
/// choose.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Glob {
    /// Such as `src/**/*.rs`.
    pattern: String,
    /// Where to look; the project root if absent.
    path: Option<String>,
    /// Also names that begin with a dot.
    #[serde(default)]
    hidden: bool,
    /// Also files that ignore files such as .gitignore name.
    #[serde(default)]
    ignored: bool,
    /// At most this many files; 100 if absent.
    #[schemars(range(min = 1, max = limit::ENTRIES))]
    limit: Option<u32>,
}

impl ToolInput for Glob {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Request(Request::Glob(broker_protocol::Glob {
            pattern: self.pattern,
            path: path_or_project(self.path.as_deref(), context)?,
            hidden: self.hidden,
            ignored: self.ignored,
            limit: self.limit.unwrap_or(100),
        })))
    }
}

/// Finds lines by a regular expression, as `path:line:text`, of which the text is cut after 300 characters. Files that ignore
/// files name, and binary files, are passed over.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grep {
    /// A regular expression, in the syntax of Rust's regex crate.
    pattern: String,
    /// A directory, or one file; the project root if absent.
    path: Option<String>,
    /// Only files whose name or path matches this glob, such as `*.rs`.
    include: Option<String>,
    /// The pattern is plain text.
    #[serde(default)]
    literal: bool,
    /// The case of letters does not matter.
    #[serde(default)]
    ignore_case: bool,
    /// Also files that ignore files such as .gitignore name.
    #[serde(default)]
    ignored: bool,
    /// Lines to show before and after each match.
    #[schemars(range(min = 0, max = 20))]
    context: Option<u16>,
    /// At most this many matching lines; 100 if absent.
    #[schemars(range(min = 1, max = limit::ENTRIES))]
    limit: Option<u32>,
    /// The order of the files: by path if absent, or the one changed last first.
    #[serde(default)]
    sort: Sort,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Path,
    Modified,
}

impl From<Sort> for GrepSort {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Path => GrepSort::Path,
            Sort::Modified => GrepSort::Modified,
        }
    }
}

impl ToolInput for Grep {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Request(Request::Grep(broker_protocol::Grep {
            pattern: self.pattern,
            literal: self.literal,
            ignore_case: self.ignore_case,
            path: path_or_project(self.path.as_deref(), context)?,
            include: self.include,
            ignored: self.ignored,
            context: self.context.unwrap_or(0),
            limit: self.limit.unwrap_or(100),
            sort: self.sort.into(),
        })))
    }
}

/// Parses a digest whose format the schema has already checked.
fn digest(text: Option<String>) -> Result<Option<Digest>, FieldError> {
    let parse = |text: String| {
        let refused = |_| FieldError::expected("expected_sha256", "a SHA-256 digest", &json!(text));
        text.parse().map_err(refused)
    };
    text.map(parse).transpose()
}
