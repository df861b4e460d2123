//! `HEAD` of a repository, and the references that it leads to: read in one way by everybody who follows them.
//!
//! Stricter than git, which accepts blanks at the end and reads no further than `refs/`: what is refused here leads nowhere, and a
//! repository with such a `HEAD` counts as none.

/// Maximum bytes of a `HEAD`: a path of Linux (`PATH_MAX`), with `ref: ` before it and a line end after it.
pub const GIT_HEAD_MAX: usize = 4096 + 6;

/// Characters that a shell treats as more than text, among those that git allows in the name of a branch, and the backslash.
pub const SHELL_CHARACTERS: &str = "$`;|&<>()'\"\\";

/// The content of a `HEAD`, or of another reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitHead<'c> {
    /// The name of another reference, below `refs/` and without `..`.
    Branch(&'c [u8]),
    /// An object's name, of 40 or 64 hexadecimal digits.
    Object(&'c [u8]),
}

impl<'c> GitHead<'c> {
    /// Parses `ref: refs/…` or an object's name, with a line end or none, of at most [`GIT_HEAD_MAX`] bytes. `None` if `content` is
    /// something else.
    pub fn parse(content: &'c [u8]) -> Option<Self> {
        if content.len() > GIT_HEAD_MAX {
            return None;
        }
        let line = content.strip_suffix(b"\n").unwrap_or(content);
        let Some(name) = line.strip_prefix(REF) else {
            // SHA-1 and SHA-256.
            let is_object = matches!(line.len(), 40 | 64) && line.iter().all(u8::is_ascii_hexdigit);
            return is_object.then_some(Self::Object(line));
        };
        let name = name.trim_ascii_start();
        let plain = |byte: &u8| *byte > b' ' && *byte != 0x7f && !b"~^:?*[\\".contains(byte);
        let below = name.strip_prefix(b"refs/")?;
        let is_name = !below.is_empty()
            && below.iter().all(plain)
            && !below.windows(2).any(|pair| pair == b"..");
        is_name.then_some(Self::Branch(name))
    }

    /// The reference to which it leads.
    pub fn branch(self) -> Option<&'c [u8]> {
        match self {
            Self::Branch(name) => Some(name),
            Self::Object(_) => None,
        }
    }

    /// Whether commands may write it: the name of its branch is only text to a shell.
    pub(crate) fn is_plain(self) -> bool {
        self.branch().is_none_or(is_plain_branch)
    }
}

const REF: &[u8] = b"ref:";

/// References that are followed from `HEAD` (`SYMREF_MAXDEPTH` of git's `refs.h`).
pub(crate) const REFERENCES_MAX: usize = 5;

/// The end of the references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadEnd {
    /// An object's name, as it is written there.
    Object(Vec<u8>),
    /// The last reference does not exist by itself: it may be packed, or there is no commit yet.
    Absent,
    /// There is no `HEAD`, something else in its place or that of a reference, or more references than git follows.
    Invalid,
}

/// The references to which `HEAD` leads, one after the other, and their end. `read` returns the content of a reference by its name, and
/// without a name that of `HEAD`.
///
/// # Errors
/// The first of `read`, which is asked no more then.
pub fn follow_head<E>(
    read: impl Fn(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
) -> Result<(Vec<Vec<u8>>, HeadEnd), E> {
    let mut references = Vec::new();
    let Some(mut content) = read(None)? else {
        return Ok((references, HeadEnd::Invalid));
    };
    while references.len() < REFERENCES_MAX {
        let name = match GitHead::parse(&content) {
            Some(GitHead::Branch(name)) => name.to_vec(),
            Some(GitHead::Object(name)) => {
                let end = HeadEnd::Object(name.to_vec());
                return Ok((references, end));
            }
            None => return Ok((references, HeadEnd::Invalid)),
        };
        let next = read(Some(&name))?;
        references.push(name);
        match next {
            Some(next) => content = next,
            None => return Ok((references, HeadEnd::Absent)),
        }
    }
    Ok((references, HeadEnd::Invalid))
}

/// Whether commands may write a `HEAD` with this content.
pub fn may_be_written_to_head(content: &[u8]) -> bool {
    GitHead::parse(content).is_some_and(GitHead::is_plain)
}

/// Whether a prompt that prints the branch in this reference could show more than a name: it is one that commands may not write, or
/// none at all.
pub fn names_no_plain_branch(content: &[u8]) -> bool {
    content.starts_with(REF) && !may_be_written_to_head(content)
}

/// Whether the name of a branch is only text to a shell and a terminal. A prompt that puts it into `PS1` has the shell expand it, and
/// `$( … )` in it would run. What a terminal acts on, and what turns the direction of text, is refused too: controls, also those of
/// Unicode, and bytes that are no UTF-8.
pub(crate) fn is_plain_branch(name: &[u8]) -> bool {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_plain = |c: char| !SHELL_CHARACTERS.contains(c) && !c.is_control() && !turns(c);
    str::from_utf8(name).is_ok_and(|name| name.chars().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_head_is_a_branch_or_an_object() {
        let object = "0123456789abcdef0123456789ABCDEF01234567";
        for text in [
            "ref: refs/heads/main\n".to_owned(),
            "ref:refs/heads/a-b/c".to_owned(),
            "ref: refs/heads/.invalid\n".to_owned(),
            "ref: refs/heads/\u{e9}t\u{e9}".to_owned(),
            format!("{object}\n"),
            object.to_owned() + &object[..24],
            "ref: refs/heads/feat/\u{44f}-\u{1f600}\u{fe0f}_1.2+3#4@5=6,7%8!9{10}\n".to_owned(),
            format!("ref: refs/{}", "x".repeat(GIT_HEAD_MAX - 10)),
        ] {
            assert!(
                GitHead::parse(text.as_bytes()).is_some()
                    && may_be_written_to_head(text.as_bytes()),
                "{text}"
            );
        }
        // Git takes these, and a prompt that has the shell expand them would run what they say, or show another name.
        for name in SHELL_CHARACTERS
            .chars()
            .filter(|c| *c != '\\')
            .chain(['\u{85}', '\u{202e}', '\u{2066}'])
        {
            let text = format!("ref: refs/heads/x{name}y\n");
            assert!(
                GitHead::parse(text.as_bytes()).is_some()
                    && !may_be_written_to_head(text.as_bytes()),
                "{text:?}"
            );
        }
        assert!(!may_be_written_to_head(b"ref: refs/heads/\x9b1m"));
        for text in [
            String::new(),
            "\n".to_owned(),
            "garbage\n".to_owned(),
            "ref: refs/".to_owned(),
            "ref: ".to_owned(),
            "ref: ../x".to_owned(),
            "ref: refs/heads/a:b\n".to_owned(),
            "ref: heads/main\n".to_owned(),
            "ref: refs/../../x\n".to_owned(),
            "ref: refs/heads/a b\n".to_owned(),
            "ref: refs/heads/a\n\n".to_owned(),
            "ref: refs/heads/a\0\n".to_owned(),
            object[1..].to_owned(),
            format!("{object}0"),
            format!("{object} x"),
            format!("g{}", &object[1..]),
            format!("ref: refs/{}", "x".repeat(GIT_HEAD_MAX - 9)),
        ] {
            assert!(
                GitHead::parse(text.as_bytes()).is_none()
                    && !may_be_written_to_head(text.as_bytes()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_head_is_parsed_once() {
        let object = b"0123456789abcdef0123456789abcdef01234567\n";
        assert_eq!(GitHead::parse(object), Some(GitHead::Object(&object[..40])));
        let branch = GitHead::parse(b"ref:  refs/heads/a\n").unwrap();
        assert_eq!(branch.branch(), Some(b"refs/heads/a".as_slice()));
        for blanks in [
            "ref: refs/heads/a \n",
            "ref: refs/heads/a\r\n",
            " ref: refs/heads/a\n",
        ] {
            assert_eq!(GitHead::parse(blanks.as_bytes()), None, "{blanks:?}");
        }
        for shown in ["ref: refs/heads/$(x)\n", "ref: $(x)\n", "ref:"] {
            assert!(names_no_plain_branch(shown.as_bytes()), "{shown}");
        }
        for other in ["ref: refs/heads/a\n", "$(x)\n", ""] {
            assert!(!names_no_plain_branch(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn references_are_followed_as_far_as_git_follows_them() {
        let object = "0123456789abcdef0123456789abcdef01234567";
        let (a, b) = ("ref: refs/heads/a", "ref: refs/heads/b");
        let many = [0, 1, 2, 3, 4, 5].map(|number| format!("ref: refs/{number}"));
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (contents, count, end) in [
            (vec![object], 0, HeadEnd::Object(object.into())),
            (vec![a, object], 1, HeadEnd::Object(object.into())),
            (vec![a, b], 2, HeadEnd::Absent),
            (vec![], 0, HeadEnd::Invalid),
            (vec!["x"], 0, HeadEnd::Invalid),
            (vec![a, "x"], 1, HeadEnd::Invalid),
            (
                many[..REFERENCES_MAX].to_vec(),
                REFERENCES_MAX,
                HeadEnd::Absent,
            ),
            (many.clone(), REFERENCES_MAX, HeadEnd::Invalid),
        ] {
            let left = contents.iter().map(|content| content.as_bytes().to_vec());
            let left = RefCell::new(left);
            let read = |_: Option<&[u8]>| Ok::<_, ()>(left.borrow_mut().next());
            let (references, found) = follow_head(read).unwrap();
            assert_eq!((references.len(), found), (count, end), "{contents:?}");
        }
        assert_eq!(follow_head(|_| Err("disk")), Err("disk"));
    }
}
