//! A shell's command line as the simple commands in it, as far as that can be known without running it.
//!
//! A courtesy to the user, never a border: the cell enforces what a command can touch. So this reads little and doubts much.
//! Certain text comes out as words; a word that the shell would still change (a variable, a pattern, a substitution) is
//! unknown; what cannot be followed at all is [`Unit::Unparsed`], with the reason. Steps are at most a few for each byte.
//!
//! Bash's grammar is in its manual, section 3; the cases here are those that people and models write.

pub use crate::runners::{base_name, is_runner};

use crate::runners::{VARIABLE, runs_others, sets_variables, variable_runs};
use broker_protocol::Command;
use policies_guard::steps;

/// Maximum number of simple commands in a line; the rest is not parsed.
pub(crate) const UNITS_MAX: usize = 256;
/// Maximum depth of nested `$( … )` and `( … )`.
pub const DEPTH_MAX: usize = 16;

/// Maximum bytes that are parsed again because `eval` or `builtin` runs them; a longer text counts as a program that runs others.
const EVALUATED_MAX: usize = 64 * 1024;

/// A part of a command line that runs by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A program and its arguments.
    Simple(SimpleCommand),
    /// Something else may run here.
    Unparsed(&'static str),
}

impl Unit {
    /// Bytes of its words, with a blank behind each.
    fn length(&self) -> usize {
        match self {
            Unit::Simple(simple) => simple
                .words
                .iter()
                .flatten()
                .map(|word| word.len() + 1)
                .sum(),
            Unit::Unparsed(_) => 0,
        }
    }
}

/// A program with its arguments, as `bash(1)` says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    /// The program and its arguments, quotes taken off; `None` where only the shell knows, which may be several words or
    /// none.
    pub words: Vec<Option<String>>,
    /// Whether a variable is set in front of it or by it, or an output goes to a file.
    pub sets_or_writes: bool,
}

/// Words after which a command begins.
const OPENING: [&str; 9] = [
    "!", "{", "if", "then", "else", "elif", "while", "until", "do",
];
/// Words that end a block, where a command could begin.
const CLOSING: [&str; 3] = ["fi", "done", "}"];
/// Words with a grammar of their own, which is not read.
const SPECIAL: [&str; 5] = ["case", "select", "function", "coproc", "time"];
const GRAMMAR: &str = "a word with a grammar of its own, such as `case`";

/// The simple commands of `command`, in the order in which they stand there.
pub fn units(command: &Command) -> Vec<Unit> {
    let mut units = match command {
        Command::Shell(text) => parse(text),
        Command::Arguments(arguments) => {
            let words = arguments
                .iter()
                .map(|bytes| String::from_utf8(bytes.to_vec()).ok());
            vec![Unit::Simple(SimpleCommand {
                words: words.collect(),
                sets_or_writes: false,
            })]
        }
    };
    evaluate(&mut units);
    let mut reason = None;
    for unit in &mut units {
        if let Unit::Simple(SimpleCommand {
            words,
            sets_or_writes,
        }) = unit
        {
            *sets_or_writes |= sets_variables(words);
            reason = reason.or(runs_others(words));
        }
    }
    units.extend(reason.map(Unit::Unparsed));
    units
}

/// Puts what `eval` runs in its place, where all of it is known, and a command in the place of `builtin`. Up to a number of times: what
/// is left is a program that runs others.
fn evaluate(units: &mut Vec<Unit>) {
    let (mut at, mut times, mut bytes) = (0, DEPTH_MAX, EVALUATED_MAX);
    while let Some(unit) = units.get(at).filter(|_| times > 0) {
        let length = unit.length();
        // Looked at first: a line of nothing but `eval` would be read once more for each.
        match (length <= bytes).then(|| evaluated(unit)).flatten() {
            Some(inner) => {
                (times, bytes) = (times - 1, bytes - length);
                units.splice(at..=at, inner);
            }
            None => at += 1,
        }
    }
}

fn evaluated(unit: &Unit) -> Option<Vec<Unit>> {
    let Unit::Simple(SimpleCommand {
        words,
        sets_or_writes,
    }) = unit
    else {
        return None;
    };
    // An option of either is no command.
    if words
        .get(1)?
        .as_ref()
        .is_none_or(|word| word.starts_with('-'))
    {
        return None;
    }
    match words.split_first()? {
        (Some(program), rest) if program == "eval" && !sets_or_writes => {
            let text: Option<Vec<&str>> = rest.iter().map(Option::as_deref).collect();
            Some(parse(&text?.join(" ")))
        }
        (Some(program), rest) if program == "builtin" => {
            let simple = SimpleCommand {
                words: rest.to_vec(),
                sets_or_writes: *sets_or_writes,
            };
            Some(vec![Unit::Simple(simple)])
        }
        _ => None,
    }
}

impl SimpleCommand {
    /// The program, where it is known.
    pub fn program(&self) -> Option<&str> {
        self.words.first()?.as_deref()
    }
}

fn parse(text: &str) -> Vec<Unit> {
    let mut parser = Parser {
        rest: text,
        units: Vec::new(),
        depth: 0,
        sets_what_runs: false,
    };
    let done = parser.list(None);
    let mut units = parser.units;
    if parser.sets_what_runs {
        units.push(Unit::Unparsed(VARIABLE));
    }
    if let Err(reason) = done {
        units.push(Unit::Unparsed(reason));
    }
    units
}

/// Why the rest of a line is not parsed.
type Parsed<T> = Result<T, &'static str>;

struct Parser<'a> {
    rest: &'a str,
    units: Vec<Unit>,
    depth: usize,
    /// Whether a variable is set whose value is run.
    sets_what_runs: bool,
}

/// A word that is being read.
#[derive(Default)]
struct PartialWord {
    text: String,
    /// Whether there is a word at all: `''` is one.
    begun: bool,
    /// Bytes before its first quote and its first unknown part: only there are keywords and assignments looked for.
    plain: Option<usize>,
    /// Whether the shell would still change it.
    unknown: bool,
}

impl PartialWord {
    fn quote(&mut self) {
        self.plain.get_or_insert(self.text.len());
    }

    fn doubt(&mut self) {
        self.quote();
        self.unknown = true;
    }

    /// The text, where all of it stands as it is.
    fn bare(&self) -> Option<&str> {
        self.plain.is_none().then_some(&self.text)
    }

    /// `name=` and `name+=` at the beginning.
    fn is_assignment(&self) -> bool {
        let plain = &self.text[..self.plain.unwrap_or(self.text.len())];
        let Some((name, _)) = plain.split_once('=') else {
            return false;
        };
        let name = name.strip_suffix('+').unwrap_or(name);
        let first = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        first
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    /// The text before the first `=`.
    fn name(&self) -> &str {
        self.text.split('=').next().unwrap_or_default()
    }

    fn is_number(&self) -> bool {
        self.bare()
            .is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.advance(&self.rest[c.len_utf8()..]);
        Some(c)
    }

    fn skip(&mut self, text: &str) -> bool {
        steps::count(1);
        let rest = self.rest.strip_prefix(text);
        self.advance(rest.unwrap_or(self.rest));
        rest.is_some()
    }

    fn advance(&mut self, rest: &'a str) {
        steps::count(self.rest.len() - rest.len());
        self.rest = rest;
    }

    /// Commands up to `end`, or to the end of the text.
    fn list(&mut self, end: Option<char>) -> Parsed<()> {
        loop {
            self.simple()?;
            match self.next_char() {
                None if end.is_none() => return Ok(()),
                None => return Err("a bracket is not closed"),
                Some(c) if Some(c) == end => return Ok(()),
                Some(';' | '&' | '|' | '\n') => {}
                Some('(') => self.nested(')')?,
                Some(_) => return Err("an unexpected bracket"),
            }
        }
    }

    /// The content of brackets, the first of which is taken.
    fn nested(&mut self, end: char) -> Parsed<()> {
        if self.depth == DEPTH_MAX {
            return Err("brackets are nested too deeply");
        }
        self.depth += 1;
        self.list(Some(end))?;
        self.depth -= 1;
        Ok(())
    }

    /// One simple command, up to what ends it, which is left.
    fn simple(&mut self) -> Parsed<()> {
        let mut simple = SimpleCommand::default();
        // Whether a keyword can stand here: not after an assignment or a redirection.
        let mut keyword_allowed = true;
        loop {
            self.blanks();
            match self.peek() {
                None | Some(';' | '|' | '\n' | ')') => break,
                Some('&') if !self.rest.starts_with("&>") => break,
                Some('(') if simple.words.is_empty() && !simple.sets_or_writes => {
                    if self.rest.starts_with("((") {
                        return Err("arithmetic");
                    }
                    break;
                }
                Some('(') => return Err("a function, or a list of values"),
                Some('#') => {
                    self.advance(self.rest.find('\n').map_or("", |end| &self.rest[end..]));
                    continue;
                }
                _ => {}
            }
            if self.redirection(&mut simple)? {
                keyword_allowed = false;
                continue;
            }
            let word = self.word()?;
            // A number right in front of a redirection is its descriptor, and `{name}` the variable that gets it.
            if matches!(self.peek(), Some('<' | '>')) {
                if word.text.starts_with('{') && word.text.ends_with('}') {
                    return Err("a redirection with a variable for its descriptor");
                }
                if word.is_number() {
                    continue;
                }
            }
            keyword_allowed = self.add_word(word, &mut simple, keyword_allowed)?;
        }
        self.add_command(simple)
    }

    /// Adds a word to a command, where it is not the shell's own. Says whether a keyword can follow.
    fn add_word(
        &mut self,
        word: PartialWord,
        simple: &mut SimpleCommand,
        keyword_allowed: bool,
    ) -> Parsed<bool> {
        if simple.words.is_empty() {
            if let Some(text) = word.bare().filter(|_| keyword_allowed) {
                if OPENING.contains(&text) || CLOSING.contains(&text) {
                    return Ok(true);
                }
                if SPECIAL.contains(&text) {
                    return Err(GRAMMAR);
                }
                if text == "for" {
                    return self.loop_words().map(|()| true);
                }
            }
            if word.text.starts_with("[[") {
                return Err(GRAMMAR);
            }
            if word.is_assignment() {
                // A substitution that quotes have kept from the shell may be evaluated where the variable is.
                let kept = word.text.contains("$(") || word.text.contains('`');
                let runs = if word.unknown {
                    variable_runs(word.name())
                } else {
                    variable_runs(&word.text)
                };
                self.sets_what_runs |= kept || runs;
                simple.sets_or_writes = true;
                return Ok(false);
            }
        }
        simple.words.push((!word.unknown).then_some(word.text));
        Ok(false)
    }

    /// The part between `for` and `do`: words, and commands that produce them. The first is a variable: one with another name than
    /// scripts have for their own may be read by a program, as `PATH` and `http_proxy` are.
    fn loop_words(&mut self) -> Parsed<()> {
        self.blanks();
        let variable = self.word()?;
        let own = variable.bare().is_some_and(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
        self.sets_what_runs |= variable_runs(&variable.text);
        if !own {
            self.add_command(SimpleCommand {
                words: Vec::new(),
                sets_or_writes: true,
            })?;
        }
        loop {
            self.blanks();
            match self.peek() {
                Some(';' | '\n') | None => return Ok(()),
                Some('(' | ')' | '&' | '|' | '<' | '>') => {
                    return Err("a `for` that is not of the form `for NAME in WORDS`");
                }
                _ => drop(self.word()?),
            }
        }
    }

    fn add_command(&mut self, simple: SimpleCommand) -> Parsed<()> {
        if simple == SimpleCommand::default() {
            return Ok(());
        }
        if self.units.len() == UNITS_MAX {
            return Err("too many commands");
        }
        let known = simple.words.first().is_none_or(Option::is_some);
        self.units.push(if known {
            Unit::Simple(simple)
        } else {
            Unit::Unparsed("a program whose name only the shell knows")
        });
        Ok(())
    }

    fn blanks(&mut self) {
        while self.skip(" ") || self.skip("\t") || self.skip("\\\n") {}
    }

    /// Takes a redirection with its target, if one is next.
    fn redirection(&mut self, simple: &mut SimpleCommand) -> Parsed<bool> {
        if self.rest.starts_with("<(") || self.rest.starts_with(">(") {
            return Ok(false);
        }
        if self.rest.starts_with("<<") && !self.rest.starts_with("<<<") {
            return Err("a here-document (`<<`)");
        }
        let reads =
            self.skip("<<<") || self.skip("<&") || (!self.rest.starts_with("<>") && self.skip("<"));
        let writes = !reads
            && [">>", ">&", ">|", "&>>", "&>", "<>", ">"]
                .into_iter()
                .any(|sign| self.skip(sign));
        if !reads && !writes {
            return Ok(false);
        }
        self.blanks();
        let target = self.word()?;
        if !target.begun {
            return Err("a redirection without a target");
        }
        let text = target.text.as_str();
        let harmless = text == "/dev/null"
            || (!text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'-'));
        simple.sets_or_writes |= writes && (target.unknown || !harmless);
        Ok(true)
    }

    /// One word, quotes taken off. What runs inside it is added to the units.
    fn word(&mut self) -> Parsed<PartialWord> {
        let mut word = PartialWord::default();
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' | '|' | '&' | ')' => break,
                '(' => break,
                '<' | '>' => {
                    if !self.process(&mut word)? {
                        break;
                    }
                }
                '\'' => self.single(&mut word)?,
                '"' => self.double(&mut word)?,
                '\\' => self.escaped(&mut word),
                '$' => self.dollar(&mut word)?,
                '`' => return Err("a command in backquotes"),
                _ => {
                    self.next_char();
                    if self.may_expand(c, &word) {
                        word.doubt();
                    }
                    word.text.push(c);
                }
            }
            word.begun = true;
        }
        Ok(word)
    }

    /// Whether `c`, which was just taken, may make other words of this one.
    fn may_expand(&self, c: char, word: &PartialWord) -> bool {
        match c {
            '*' | '?' => true,
            '~' => !word.begun,
            '{' | '[' => word.begun || self.peek().is_some_and(|next| !next.is_whitespace()),
            _ => false,
        }
    }

    /// `<( … )` and `>( … )`.
    fn process(&mut self, word: &mut PartialWord) -> Parsed<bool> {
        if !self.skip("<(") && !self.skip(">(") {
            return Ok(false);
        }
        word.doubt();
        self.nested(')')?;
        Ok(true)
    }

    fn single(&mut self, word: &mut PartialWord) -> Parsed<()> {
        self.next_char();
        let (inner, rest) = self.rest.split_once('\'').ok_or("a quote is not closed")?;
        word.quote();
        word.text.push_str(inner);
        self.advance(rest);
        Ok(())
    }

    fn double(&mut self, word: &mut PartialWord) -> Parsed<()> {
        self.next_char();
        word.quote();
        loop {
            match self.peek().ok_or("a quote is not closed")? {
                '"' => {
                    self.next_char();
                    return Ok(());
                }
                '$' => self.dollar(word)?,
                '`' => return Err("a command in backquotes"),
                '\\' => {
                    self.next_char();
                    match self.next_char() {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.text.push(c),
                        Some(c) => word.text.extend(['\\', c]),
                        None => return Err("a quote is not closed"),
                    }
                }
                c => {
                    self.next_char();
                    word.text.push(c);
                }
            }
        }
    }

    fn escaped(&mut self, word: &mut PartialWord) {
        self.next_char();
        match self.next_char() {
            Some('\n') => {}
            Some(c) => {
                word.quote();
                word.text.push(c);
            }
            None => word.text.push('\\'),
        }
    }

    /// `$` and what belongs to it.
    fn dollar(&mut self, word: &mut PartialWord) -> Parsed<()> {
        self.next_char();
        if self.rest.starts_with("((") {
            return Err("arithmetic");
        }
        if self.skip("(") {
            word.doubt();
            return self.nested(')');
        }
        match self.peek() {
            // With operators of its own, and commands in them.
            Some('{') => self.variable(word),
            Some('\'' | '"' | '[') => Err("a quote or bracket after `$`"),
            Some(c) if c.is_ascii_alphanumeric() || "_@*#?-$!".contains(c) => {
                word.doubt();
                self.next_char();
                let end = self
                    .rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                self.advance(end.map_or("", |end| &self.rest[end..]));
                Ok(())
            }
            _ => {
                word.text.push('$');
                Ok(())
            }
        }
    }

    /// `${name}`, and nothing that is more than that.
    fn variable(&mut self, word: &mut PartialWord) -> Parsed<()> {
        let (name, rest) = self.rest[1..]
            .split_once('}')
            .ok_or("a bracket is not closed")?;
        if !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err("a variable with an operator");
        }
        word.doubt();
        self.advance(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a b|c` for two commands, `?` for an unknown word, `!` before a marked command, `…` for what is not parsed.
    fn render(text: &str) -> String {
        let word = |word: &Option<String>| word.clone().unwrap_or("?".into());
        let unit = |unit: &Unit| match unit {
            Unit::Simple(simple) => {
                let words = simple.words.iter().map(word).collect::<Vec<_>>().join(" ");
                format!("{}{words}", if simple.sets_or_writes { "!" } else { "" })
            }
            Unit::Unparsed(_) => "…".into(),
        };
        units(&Command::Shell(text.into()))
            .iter()
            .map(unit)
            .collect::<Vec<_>>()
            .join("|")
    }

    #[test]
    fn command_of_eval_is_read_if_it_is_fully_known() {
        let words = |words: &[&str]| {
            let words = words.iter().map(|word| Some((*word).to_owned())).collect();
            Unit::Simple(SimpleCommand {
                words,
                sets_or_writes: false,
            })
        };
        let units = |text: &str| super::units(&Command::Shell(text.to_owned()));
        let line = "\\builtin shopt -u extglob 2>/dev/null || true && eval 'git push; ls' < /dev/null && pwd -P";
        let read = [
            &["shopt", "-u", "extglob"][..],
            &["true"],
            &["git", "push"],
            &["ls"],
            &["pwd", "-P"],
        ]
        .map(words);
        assert_eq!(units(line), read);
        assert_eq!(units("eval git 'pu\"sh\"'"), [words(&["git", "push"])]);
        assert_eq!(units("builtin eval \"eval 'eval ls'\""), [words(&["ls"])]);
        for doubted in [
            "eval \"$x\"",
            "eval $x ls",
            "eval -- ls",
            "x=1 eval ls",
            "eval ls > f",
            "builtin source f",
            "builtin -p ls",
            "eval",
            "eval 'sudo ls'",
            "builtin \"$x\"",
            &"eval ".repeat(DEPTH_MAX + 2),
        ] {
            let is_doubted = |unit: &Unit| matches!(unit, Unit::Unparsed(_));
            assert!(
                units(doubted).iter().any(is_doubted),
                "{doubted}: {:?}",
                units(doubted)
            );
        }
    }

    #[test]
    fn simple_commands_are_separated() {
        for (text, want) in [
            ("", ""),
            ("  # nothing", ""),
            ("git status", "git status"),
            ("a&&b||c;d|e&f\ng", "a|b|c|d|e|f|g"),
            ("a |& b", "a|b"),
            ("(a; b) && c", "a|b|c"),
            ("{ a; b; }", "a|b"),
            ("! a", "a"),
            ("a\\\n  b", "a b"),
            ("a # b; c\nd", "a|d"),
            ("a#b", "a#b"),
            ("if a; then b; elif c; then d; else e; fi; f", "a|b|c|d|e|f"),
            ("while a; do b; done", "a|b"),
            ("for x in 1 $(a) *; do b; done", "a|b"),
            ("for x\ndo b\ndone", "b"),
            ("for PATH in x; do b; done", "!|b"),
            ("for http_proxy in x; do b; done", "!|b"),
            ("a {b} }", "a ? }"),
            ("done_it; iffy", "done_it|iffy"),
        ] {
            assert_eq!(render(text), want, "{text}");
        }
    }

    #[test]
    fn quotes_are_removed_as_in_bash() {
        for (text, want) in [
            ("g'i't \"st\"atus", "git status"),
            ("\\g\\it 'a b' \"a;b\" a\\ b", "git a b a;b a b"),
            (
                "echo '$x `a` \\' \"\\$x \\a \\\"\"",
                "echo $x `a` \\ $x \\a \"",
            ),
            ("'git push'", "git push"),
            ("echo '' \"\"", "echo  "),
            ("'if' a", "if a"),
            ("\\if a", "if a"),
            ("\"a=b\" c", "a=b c"),
            ("echo a\"b\nc\"d", "echo ab\ncd"),
            ("echo $", "echo $"),
            ("echo é\u{202e}", "echo é\u{202e}"),
        ] {
            assert_eq!(render(text), want, "{text}");
        }
    }

    #[test]
    fn expansions_are_unknown_and_substitutions_are_read() {
        for (text, want) in [
            ("rm -rf $x \"$y\" a$z", "rm -rf ? ? ?"),
            ("rm -rf * ~ a? [ab] {a,b} a~", "rm -rf ? ? ? ? ? a~"),
            ("[ -f a ] && b", "[ -f a ]|b"),
            ("rm -rf '*' \\* \"~\"", "rm -rf * * ~"),
            ("echo $(git push) b", "git push|echo ? b"),
            (
                "echo \"x $(git push) $(a \"$(b)\")\"",
                "git push|b|a ?|echo ?",
            ),
            ("echo ${x} ${1}", "echo ? ?"),
            ("diff <(a) >(b)", "a|b|diff ? ?"),
            ("$x push", "…"),
            ("$(a) push", "a|…"),
            ("g* push", "…"),
            ("echo a{b", "echo ?"),
        ] {
            assert_eq!(render(text), want, "{text}");
        }
    }

    #[test]
    fn assignments_and_redirections_are_no_words() {
        for (text, want) in [
            ("PS4='$(git push)'; set -x", "!|set -x|…"),
            ("PS4=$x; a", "!|a|…"),
            ("x='b[$(a)]' b", "!b|…"),
            ("GIT_PAGER=cat git log", "!git log"),
            ("GIT_PAGER='sh -c x' git log", "!git log|…"),
            ("export LD_PRELOAD=x; a", "!export LD_PRELOAD=x|a|…"),
            ("for PS4 in x; do b; done", "!|b|…"),
            ("A=1 B+=2 git push", "!git push"),
            ("A=1", "!"),
            ("A[0]=1 a", "…"),
            ("A=\"x y\" B='c' git push", "!git push"),
            ("A=$x git push", "!git push"),
            ("A$x=1 git push", "…"),
            ("'A'=1 b", "A=1 b"),
            ("$x>y", "…"),
            ("a $x>y", "!a ?"),
            ("git A=1", "git A=1"),
            ("=a b", "=a b"),
            ("2A=1 b", "2A=1 b"),
            ("git push >log 2>&1", "!git push"),
            (">log git push", "!git push"),
            ("git push 2>&1 >/dev/null </dev/null", "git push"),
            ("git push &>/dev/null", "git push"),
            ("a <b <<<c", "a"),
            ("a >$x", "!a"),
            ("a 2>x", "!a"),
            ("a x2>y", "!a x2"),
            ("a '2'>y", "!a 2"),
            ("a >&2 b", "a b"),
            ("a <>f", "!a"),
            ("</dev/null if a", "if a"),
            ("A=1 if a", "!if a"),
            ("if </dev/null a; then b", "a|b"),
            ("a>|f", "!a"),
            ("A=$(b) c", "b|!c"),
        ] {
            assert_eq!(render(text), want, "{text}");
        }
    }

    #[test]
    fn shell_text_that_cannot_be_followed_is_unparsed() {
        for (text, want) in [
            ("a; case x in y) b;; esac", "a|…"),
            ("git() { rm; }; git", "…"),
            ("function git { rm; }", "…"),
            ("[[ a && b ]]", "…"),
            ("(( a ))", "…"),
            ("echo $((1))", "…"),
            ("x=(a b)", "…"),
            ("cat <<E\n$(git push)\nE", "…"),
            ("echo `git push`", "…"),
            ("echo \"`git push`\"", "…"),
            ("echo ${x:-$(git push)}", "…"),
            ("echo $'a\\'b'", "…"),
            ("echo 'a", "…"),
            ("echo \"a", "…"),
            ("(a", "a|…"),
            ("a)", "a|…"),
            ("echo $(a", "a|…"),
            ("a >", "…"),
            ("a <;b", "…"),
            ("for ((;;)); do a; done", "…"),
            ("time git push", "…"),
            ("env A=1 git push", "env A=1 git push|…"),
            ("/bin/sh -c 'git push'", "/bin/sh -c git push|…"),
            ("echo x | xargs rm", "echo x|xargs rm|…"),
            ("sudo git push", "sudo git push|…"),
        ] {
            assert_eq!(render(text), want, "{text}");
        }
    }

    /// Bash evaluates what stands in a subscript, also where it was quoted: `touch` runs in each of these.
    #[test]
    fn a_builtin_that_evaluates_its_arguments_is_doubted() {
        for (text, want) in [
            (
                "printf -v 'a[$(touch x)]' y",
                "!printf -v a[$(touch x)] y|…",
            ),
            ("printf -v'a[$(touch x)]' y", "!printf -va[$(touch x)] y|…"),
            (
                "builtin printf -v 'a[`touch x`]' y",
                "!printf -v a[`touch x`] y|…",
            ),
            ("test -v 'a[$(touch x)]'", "test -v a[$(touch x)]|…"),
            (
                "[ -n b -a -v \"a[\\$(touch x)]\" ]",
                "[ -n b -a -v a[$(touch x)] ]|…",
            ),
            ("let 'a[$(touch x)]'", "!let a[$(touch x)]|…"),
            ("declare 'a[$(touch x)]=1'", "!declare a[$(touch x)]=1|…"),
            ("read 'a[$(touch x)]' <<<y", "!read a[$(touch x)]|…"),
            ("unset 'a[$(touch x)]'", "!unset a[$(touch x)]|…"),
            ("wait -np 'a[$(touch x)]'", "!wait -np a[$(touch x)]|…"),
            (
                "mapfile -C 'touch x' -c 1 a",
                "!mapfile -C touch x -c 1 a|…",
            ),
            ("hash -p ./x ls", "hash -p ./x ls|…"),
            ("echo {a['$(touch x)']}>/dev/null", "…"),
            // They set a variable, or nobody knows whether they do.
            ("printf -v PATH x", "!printf -v PATH x"),
            ("printf \"$x\" y", "!printf ? y"),
            ("export PATH=x", "!export PATH=x"),
            ("unset PATH", "!unset PATH"),
            ("mapfile -t a", "!mapfile -t a"),
            ("test -v \"$x\"", "!test -v ?|…"),
            ("test -f \"$x\"", "!test -f ?"),
            ("wait -n $x", "!wait -n ?"),
            // And those do nothing of it.
            ("printf '%s [$5]\\n' a", "printf %s [$5]\\n a"),
            ("printf '%s\\n' \"$x\"", "printf %s\\n ?"),
            ("printf -- x", "printf -- x"),
            ("[ -f a ]", "[ -f a ]"),
            ("test a = '$b'", "test a = $b"),
            ("wait", "wait"),
            ("hash -r", "hash -r"),
            ("echo 'a[$(touch x)]' {a}", "echo a[$(touch x)] ?"),
        ] {
            assert_eq!(render(text), want, "{text}");
        }
    }

    #[test]
    fn wrappers_may_run_anything() {
        for program in [
            "prlimit",
            "setarch",
            "linux32",
            "flock",
            "taskset",
            "script",
            "busybox",
            "strace",
            "systemd-run",
        ] {
            assert_eq!(
                render(&format!("/usr/bin/{program} git push")),
                format!("/usr/bin/{program} git push|…")
            );
        }
        assert_eq!(
            render("printlimit git push"),
            "printlimit git push",
            "the control"
        );
    }

    #[test]
    fn arguments_are_words_as_they_are() {
        let arguments: [&[u8]; 3] = [b"git", b"$x;y", b"\xff"];
        let command = Command::Arguments(arguments.map(|bytes| bytes.to_vec().into()).into());
        let words = vec![Some("git".into()), Some("$x;y".into()), None];
        assert_eq!(
            units(&command),
            [Unit::Simple(SimpleCommand {
                words,
                sets_or_writes: false
            })]
        );
    }

    #[test]
    fn steps_are_at_most_a_few_for_each_byte() {
        let max = broker_protocol::limit::COMMAND;
        let parts = [
            "(",
            "$(",
            "a;",
            "\"$(",
            "'",
            "\\",
            "<(",
            "a=",
            "${",
            "{ ",
            "! ",
            "if ",
            "\n",
            ">a ",
            "((",
            "`",
            " ",
            "\\\n",
            "#",
            "# \n",
            "''",
            "\"\"",
            "a=b ",
            "2>&1 ",
            "$a",
            "${a}",
            "for a ",
            "for a in ",
            "1",
            "a",
            "\u{e9}",
            "eval ",
            "eval a;",
            "builtin ",
            "eval builtin ",
            "eval \"eval\" ",
        ];
        for part in parts {
            let command = Command::Shell(part.repeat(max / part.len()));
            let (steps, units) = steps::of(|| units(&command));
            assert!(units.len() <= UNITS_MAX + 2, "{part}: {}", units.len());
            assert!(steps <= 12 * max, "{part} took {steps}");
        }
        let deep = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
        assert_eq!(render(&deep(1)), "a");
        assert_eq!(
            render(&"( a ".repeat(DEPTH_MAX + 1)).matches('…').count(),
            1
        );
    }
}
