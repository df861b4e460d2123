//! Whether a rule about commands is about a simple command: its program, and patterns of its arguments.
//!
//! An option changes what a program does in ways that no rule can list, so options between the arguments make a match wide:
//! enough to ask or deny, not to allow.

use crate::paths::GlobError;
use broker_protocol::Command;
use broker_protocol::approval::PROGRAMS;
use policies_guard::pattern::{Case, Pattern};
use policies_targets::shell::{SimpleCommand, Unit, base_name, units};
use serde::Serialize;
use std::collections::BTreeSet;

/// Builtins of the shell that only print, or change where it is.
const IDLE: [&str; 7] = [":", "cd", "echo", "exit", "false", "pwd", "true"];

/// The programs that a command names, as it spells them, without builtins that run nothing: what an approval for the session may
/// cover. `None` where that is not certain: a part is not parsed, a variable is set or a file written, or they are too many.
pub fn programs(command: &Command) -> Option<Vec<String>> {
    let mut programs = BTreeSet::new();
    for unit in units(command) {
        match unit {
            Unit::Simple(simple) if !simple.sets_or_writes => {
                programs.insert(simple.program()?.to_owned())
            }
            Unit::Simple(_) | Unit::Unparsed(_) => return None,
        };
    }
    programs.retain(|program| !IDLE.contains(&program.as_str()));
    (programs.len() <= PROGRAMS).then(|| programs.into_iter().collect())
}

/// Simple commands that a rule is about.
#[derive(Clone, Debug, Serialize)]
pub struct CommandRule {
    /// Pattern of the program. Without a `/` it matches the program in any directory, in a rule that asks or denies.
    pub program: String,
    /// Patterns of its first arguments.
    pub args: Vec<String>,
    #[serde(skip)]
    program_pattern: Pattern,
    #[serde(skip)]
    arg_patterns: Vec<Pattern>,
}

/// How surely a rule is about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    No,
    /// It cannot be known, for this reason.
    Maybe(&'static str),
    /// It is, but the command may do something else as well: it is another program of that name, sets a variable, has options
    /// between its arguments, or writes a file.
    Widely,
    Exactly,
}

const AMBIGUOUS: &str = "a word may be an option's value or an argument";

impl CommandRule {
    /// Compiles the patterns of a rule.
    ///
    /// # Errors
    /// `program` or one of `args` is no pattern.
    pub fn new(program: String, args: Vec<String>, case: Case) -> Result<Self, GlobError> {
        let arg_patterns = args
            .iter()
            .map(|arg| Pattern::parse(arg, case))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            program_pattern: Pattern::parse(&program, case)?,
            program,
            args,
            arg_patterns,
        })
    }

    pub(crate) fn fits(&self, command: &SimpleCommand) -> Fit {
        let Some(program) = command.program() else {
            return Fit::No;
        };
        let matches = |name: &str| self.program_pattern.matches(name.as_bytes());
        let exactly = matches(program);
        if !exactly && (self.program.contains('/') || !matches(base_name(program))) {
            return Fit::No;
        }
        match self.arguments(base_name(program), &command.words[1..]) {
            Fit::Exactly if !exactly || command.sets_or_writes => Fit::Widely,
            fit => fit,
        }
    }

    /// Whether `words` begin with the arguments. Other options may stand between them; an option that the rule names may
    /// stand anywhere before `--`.
    fn arguments(&self, program: &str, words: &[Option<String>]) -> Fit {
        let mut search = ArgumentSearch {
            program,
            words: words.iter(),
            value: OptionValue::No,
            ..ArgumentSearch::default()
        };
        for (at, (text, pattern)) in self.args.iter().zip(&self.arg_patterns).enumerate() {
            let argument = ArgumentPattern {
                pattern,
                is_option: text.trim_start_matches('{').starts_with('-'),
                is_first: at == 0,
            };
            if let Err(fit) = search.find(&argument) {
                return fit;
            }
        }
        match (search.ambiguous, search.skipped) {
            (true, true | false) => Fit::Maybe(AMBIGUOUS),
            (false, true) => Fit::Widely,
            (false, false) => Fit::Exactly,
        }
    }
}

/// A search for arguments among the words of a command, from left to right.
#[derive(Default)]
struct ArgumentSearch<'a> {
    program: &'a str,
    words: std::slice::Iter<'a, Option<String>>,
    /// Whether the next word is the value of the option before it.
    value: OptionValue,
    /// Whether a word was skipped.
    skipped: bool,
    /// Whether a skipped word may have been an argument and no option's value.
    unsure: bool,
    /// Whether a word that was found may be something else.
    ambiguous: bool,
}

/// An argument of a rule.
struct ArgumentPattern<'a> {
    pattern: &'a Pattern,
    is_option: bool,
    is_first: bool,
}

impl ArgumentSearch<'_> {
    /// Goes on to the next word that matches. The error is how the rule fits where there is none.
    fn find(&mut self, argument: &ArgumentPattern<'_>) -> Result<(), Fit> {
        let ArgumentPattern {
            pattern,
            is_option,
            is_first,
        } = *argument;
        let missing = |search: &Self| {
            if search.ambiguous {
                Fit::Maybe(AMBIGUOUS)
            } else {
                Fit::No
            }
        };
        loop {
            let word = match self.words.next() {
                Some(Some(word)) => word,
                // It may be this argument, or several words, or none.
                Some(None) => return Err(Fit::Maybe("only the shell knows its arguments")),
                None => return Err(missing(self)),
            };
            let before = std::mem::take(&mut self.value);
            if before != OptionValue::Yes && pattern.matches(word.as_bytes()) {
                self.ambiguous |= self.unsure || (before == OptionValue::Maybe && !is_option);
                return Ok(());
            }
            self.skipped = true;
            match (before, word.as_str()) {
                (OptionValue::Yes, _) => {}
                (_, "--") if is_option => return Err(missing(self)),
                (_, word) if is_option_of(self.program, word) => {
                    // Subcommands have options of their own.
                    self.value = match is_first {
                        true => OptionValue::of(self.program, word),
                        false => OptionValue::Maybe,
                    };
                }
                _ if is_option => {}
                (OptionValue::Maybe, _) => self.unsure = true,
                (OptionValue::No, _) => return Err(missing(self)),
            }
        }
    }
}

/// Whether the word behind an option is its value.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum OptionValue {
    #[default]
    No,
    Maybe,
    Yes,
}

/// All options with a value in a word of its own that stand before the subcommand, of programs where they are known. From
/// `git(1)`, `cargo --help` and `docker --help`.
#[rustfmt::skip]
const VALUED: [(&str, &[&str]); 3] = [
    ("git", &[
        "-C", "-c", "--attr-source", "--config-env", "--git-dir", "--namespace", "--super-prefix", "--work-tree",
    ]),
    ("cargo", &["-C", "-Z", "--color", "--config", "--explain"]),
    ("docker", &[
        "-H", "-c", "-l", "--config", "--context", "--host", "--log-level", "--tlscacert", "--tlscert", "--tlskey",
    ]),
];

impl OptionValue {
    fn of(program: &str, option: &str) -> Self {
        let known = VALUED
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(program));
        match known {
            _ if option.contains('=') || option.starts_with('+') || option == "--" => {
                OptionValue::No
            }
            None => OptionValue::Maybe,
            Some((_, valued)) if valued.contains(&option) => OptionValue::Yes,
            Some(_) => OptionValue::No,
        }
    }
}

/// Whether a word is an option of `program`: `cargo +nightly` has one without a `-`.
fn is_option_of(program: &str, word: &str) -> bool {
    word.starts_with('-') || (program == "cargo" && word.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_doubtful_program_makes_all_unknown() {
        let of = |text: &str| programs(&Command::Shell(text.into()));
        let named = |text: &str| of(text).map(|names| names.join(" "));
        assert_eq!(named("git status").as_deref(), Some("git"));
        assert_eq!(
            named("cd a && make -j2 | tail; git log || echo no").as_deref(),
            Some("git make tail")
        );
        assert_eq!(named("true; exit 5").as_deref(), Some(""));
        assert_eq!(named("git log $(ls x)").as_deref(), Some("git ls"));
        assert_eq!(named("/usr/bin/git push").as_deref(), Some("/usr/bin/git"));
        let doubtful = [
            "env git push",
            "bash -c 'git push'",
            "$x push",
            "PATH=. git push",
            "git log > .bashrc",
            "xargs git",
            "find . -exec git push \\;",
            "f() { rm x; }; f",
            "case a in a) rm x;; esac",
        ];
        for text in doubtful {
            assert_eq!(of(text), None, "{text}");
        }
        let many = |count: usize| {
            (0..count)
                .map(|n| format!("p{n}"))
                .collect::<Vec<_>>()
                .join(";")
        };
        assert_eq!(of(&many(PROGRAMS)).map(|names| names.len()), Some(PROGRAMS));
        assert_eq!(of(&many(PROGRAMS + 1)), None);
    }
}
