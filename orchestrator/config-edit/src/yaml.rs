//! YAML in block style: mappings with one key a line, as programs write their settings. Lines are added, replaced and removed. A
//! parser reads the result again; a result that differs from the intended one is an error.

use crate::document::{Document, DocumentError, Frame, shape};
use serde_json::Value;

pub(crate) struct Yaml {
    lines: Vec<String>,
    /// Whether the last line ends with a line break.
    ended: bool,
    frame: Frame,
}

/// The line of a key with the lines that belong to it.
struct Block {
    line: usize,
    /// The line after the last one that belongs to it.
    end: usize,
    indent: usize,
}

impl Yaml {
    pub(crate) fn read(text: &str) -> Result<Self, DocumentError> {
        let (frame, text) = Frame::take(text)?;
        let read = Self {
            frame,
            lines: text.lines().map(str::to_owned).collect(),
            ended: text.ends_with('\n') || text.is_empty(),
        };
        match read.parse()? {
            Value::Object(_) | Value::Null => Ok(read),
            _ => Err(DocumentError::Syntax("it is not a mapping".into())),
        }
    }

    fn parse(&self) -> Result<Value, DocumentError> {
        let text = self.plain();
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_saphyr::from_str(&text).map_err(|error| DocumentError::Syntax(error.to_string()))
    }

    fn plain(&self) -> String {
        let mut text = self.lines.join("\n");
        if self.ended && !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The block of a key among the lines from `begin` to `end` with the least indent.
    fn find(&self, begin: usize, end: usize, name: &str) -> Option<Block> {
        let indent = self.indent_between(begin, end)?;
        let is_key = |line: &String| {
            let rest = line.get(indent..).unwrap_or_default();
            let key = rest
                .split(':')
                .next()
                .unwrap_or_default()
                .trim_matches(['"', '\'']);
            indent_of(line) == Some(indent) && key == name && rest.contains(':')
        };
        let line = (begin..end).find(|at| is_key(&self.lines[*at]))?;
        let next = (line + 1..end)
            .find(|at| indent_of(&self.lines[*at]).is_some_and(|other| other <= indent));
        Some(Block {
            line,
            end: self.trimmed(line, next.unwrap_or(end)),
            indent,
        })
    }

    /// The end of a block without the blank lines and comments that precede the next one.
    fn trimmed(&self, line: usize, end: usize) -> usize {
        (line + 1..end)
            .rev()
            .find(|at| indent_of(&self.lines[*at]).is_some())
            .map_or(line + 1, |last| last + 1)
    }

    fn indent_between(&self, begin: usize, end: usize) -> Option<usize> {
        self.lines[begin..end]
            .iter()
            .filter_map(|line| indent_of(line))
            .min()
    }

    fn block(&self, path: &[&str]) -> Option<Block> {
        let mut found = Block {
            line: 0,
            end: self.lines.len(),
            indent: 0,
        };
        let mut begin = 0;
        for name in path {
            found = self.find(begin, found.end, name)?;
            begin = found.line + 1;
        }
        Some(found)
    }

    /// Whether the value of a block is in the lines below its key.
    fn opens(&self, block: &Block) -> bool {
        let line = self.lines[block.line]
            .split(" #")
            .next()
            .unwrap_or_default()
            .trim_end();
        line.ends_with(':')
    }
}

/// The indent of a line; `None` for blank lines and comments.
fn indent_of(line: &str) -> Option<usize> {
    let text = line.trim_start_matches(' ');
    (!text.trim().is_empty() && !text.starts_with('#') && text != "---")
        .then(|| line.len() - text.len())
}

/// The lines of a key and its value.
fn lines_of(name: &str, value: &Value, indent: usize) -> Vec<String> {
    let blanks = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let inner = fields
                .iter()
                .flat_map(|(name, value)| lines_of(name, value, indent + 2));
            std::iter::once(format!("{blanks}{name}:"))
                .chain(inner)
                .collect()
        }
        Value::Array(items) if !items.is_empty() => {
            let items = items.iter().map(|item| format!("{blanks}- {item}"));
            std::iter::once(format!("{blanks}{name}:"))
                .chain(items)
                .collect()
        }
        // JSON is a subset of YAML.
        plain => vec![format!("{blanks}{name}: {plain}")],
    }
}

impl Document for Yaml {
    fn whole(&self) -> Option<Value> {
        self.parse().ok().filter(|value| !value.is_null())
    }

    fn get(&self, path: &[&str]) -> Option<Value> {
        path.iter()
            .try_fold(self.parse().ok()?, |value, name| value.get(*name).cloned())
    }

    fn set(&mut self, path: &[&str], value: &Value) -> Result<(), DocumentError> {
        let Some((name, parents)) = path.split_last() else {
            return Ok(());
        };
        let mut made = value.clone();
        let mut depth = parents.len();
        let mut name = (*name).to_owned();
        // The innermost existing object; what is missing below it is created with the value.
        while depth > 0 && self.block(&parents[..depth]).is_none() {
            depth -= 1;
            made = Value::Object([(name, made)].into_iter().collect());
            name = parents[depth].to_owned();
        }
        let (at, indent) = match self.block(&parents[..depth]) {
            _ if depth == 0 => (self.trimmed(0, self.lines.len()).min(self.lines.len()), 0),
            Some(block) if self.opens(&block) => {
                let inner = self.indent_between(block.line + 1, block.end);
                (
                    block.end,
                    inner
                        .filter(|inner| *inner > block.indent)
                        .unwrap_or(block.indent + 2),
                )
            }
            _ => return Err(DocumentError::Unsupported(parents[..depth].join("."))),
        };
        let there: Vec<&str> = parents[..depth]
            .iter()
            .copied()
            .chain([name.as_str()])
            .collect();
        let (at, until) = match self.block(&there) {
            Some(block) => (block.line, block.end),
            None => (at, at),
        };
        self.lines.splice(at..until, lines_of(&name, &made, indent));
        self.ended = true;
        if self.get(path).as_ref() == Some(value) {
            Ok(())
        } else {
            Err(DocumentError::Unsupported(path.join(".")))
        }
    }

    fn remove(&mut self, path: &[&str]) -> Result<(), DocumentError> {
        if let Some(block) = self.block(path) {
            self.lines.drain(block.line..block.end);
        }
        if self.get(path).is_none() {
            Ok(())
        } else {
            Err(DocumentError::Unsupported(path.join(".")))
        }
    }

    fn append(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError> {
        let mut items = match self.get(path) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(shape(path, "a list")),
        };
        items.push(item.into());
        self.set(path, &Value::Array(items))
    }

    fn remove_item(&mut self, path: &[&str], item: &str) -> Result<(), DocumentError> {
        let Some(Value::Array(items)) = self.get(path) else {
            return Ok(());
        };
        self.set(path, &items.into_iter().filter(|one| one != item).collect())
    }

    fn behind(&self, _: &[&str]) -> Vec<String> {
        Vec::new()
    }

    fn text(&self) -> String {
        self.frame.put(&self.plain())
    }
}
