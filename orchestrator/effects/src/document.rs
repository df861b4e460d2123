//! A document of GraphQL, as far as it must be read to know whether it changes something ("GraphQL", sections 2.1 and 2.3).

#[derive(Debug)]
pub(super) struct GraphQlDocument {
    /// Whether it has an operation that is no query.
    pub(crate) is_mutation: bool,
    /// The names at the first level of its operations and fragments.
    pub fields: Vec<String>,
    /// The whole, without comments, and with one space for white space outside of strings.
    pub text: String,
}

/// Most names that are shown: more of them are no ordinary program's.
const FIELDS_MAX: usize = 16;

impl GraphQlDocument {
    /// Reads one; `None` if it is none.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut document = Self {
            is_mutation: false,
            fields: Vec::new(),
            text: String::new(),
        };
        let (mut rest, mut depth, mut is_empty) = (text, Depth::default(), true);
        while let Some(first) = rest.chars().next() {
            let after = match first {
                '#' => comment(rest),
                '"' => string(rest)?,
                '_' | 'a'..='z' | 'A'..='Z' => {
                    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
                    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                    document.name(&rest[..end], &depth)?;
                    &rest[end..]
                }
                _ => {
                    depth.take(first)?;
                    &rest[first.len_utf8()..]
                }
            };
            is_empty &= first == '#' || first.is_whitespace();
            match first {
                '#' | ' ' | '\t' | '\n' | '\r' => document.space(),
                _ => document.text.push_str(&rest[..rest.len() - after.len()]),
            }
            rest = after;
        }
        (depth.open.is_empty() && !is_empty).then_some(document)
    }

    fn space(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    fn name(&mut self, name: &str, depth: &Depth) -> Option<()> {
        match &depth.open[..] {
            // A query that has such a name is taken for one.
            [] => self.is_mutation |= matches!(name, "mutation" | "subscription"),
            ['{'] if !self.fields.iter().any(|field| field == name) => {
                if self.fields.len() == FIELDS_MAX && self.is_mutation {
                    return None;
                }
                if self.fields.len() < FIELDS_MAX {
                    self.fields.push(name.to_owned());
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// The brackets that are open.
#[derive(Default)]
struct Depth {
    open: Vec<char>,
}

impl Depth {
    fn take(&mut self, one: char) -> Option<()> {
        let pair = match one {
            '{' | '(' | '[' => {
                self.open.push(one);
                return Some(());
            }
            '}' => '{',
            ')' => '(',
            ']' => '[',
            _ => return Some(()),
        };
        (self.open.pop() == Some(pair)).then_some(())
    }
}

/// The text behind a comment.
fn comment(rest: &str) -> &str {
    let end = rest.find(['\n', '\r']).unwrap_or(rest.len());
    &rest[end..]
}

/// The text behind a string.
fn string(rest: &str) -> Option<&str> {
    if let Some(mut block) = rest.strip_prefix("\"\"\"") {
        loop {
            let end = block.find("\"\"\"")?;
            let is_escaped = block[..end].ends_with('\\');
            block = &block[end + 3..];
            if !is_escaped {
                return Some(block);
            }
        }
    }
    let mut characters = rest.char_indices().skip(1);
    loop {
        match characters.next()? {
            (_, '\\') => drop(characters.next()?),
            (at, '"') => return Some(&rest[at + 1..]),
            (_, '\n' | '\r') => return None,
            _ => {}
        }
    }
}
