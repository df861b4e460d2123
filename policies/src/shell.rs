//! A shell's command line as the simple commands in it, as far as that can be known without running it.
//!
//! A courtesy in front of the walls and never instead of them: what a command may touch is held by its cell. So this
//! reads little and doubts much. What it is sure of comes out as words; a word that the shell would still change (a variable,
//! a pattern, a substitution) is an unknown one; what it cannot follow at all is [`Unit::Unparsed`], with the reason.
//!
//! Bash's grammar is in its manual, section 3; the cases here are those that people and models write.

use crate::steps;
use broker_protocol::Command;

/// Most simple commands that are told apart in one line; what follows is not parsed.
pub const UNITS_MAX: usize = 256;
/// Most levels of `$( … )` and `( … )` in each other.
pub const DEPTH_MAX: usize = 16;

/// A part of a command line that runs by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A program and its arguments.
    Simple(Simple),
    /// Something else may run here.
    Unparsed(&'static str),
}

/// A simple command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    /// The program and its arguments, quotes taken off; `None` where only the shell knows, which may be several words or
    /// none.
    pub words: Vec<Option<String>>,
    /// Whether a variable is set in front of it, or an output goes to a file.
    pub marked: bool,
}

/// Programs that run what their arguments say.
const RUNNERS: [&str; 32] = [
    ".", "ash", "bash", "builtin", "chroot", "command", "csh", "dash", "doas", "env", "eval", "exec", "find",
    "fish", "ksh", "nice", "nohup", "parallel", "setsid", "sh", "source", "ssh", "stdbuf", "su", "sudo",
    "time", "timeout", "trap", "unshare", "watch", "xargs", "zsh",
];

/// Words after which a command begins.
const BEFORE: [&str; 9] = ["!", "{", "if", "then", "else", "elif", "while", "until", "do"];
/// Words that end a block, where a command could begin.
const AFTER: [&str; 3] = ["fi", "done", "}"];
/// Words with a grammar of their own.
const OWN: [&str; 5] = ["case", "select", "function", "coproc", "time"];
const GRAMMAR: &str = "a word with a grammar of its own, such as `case`";

/// The simple commands of `command`, in the order in which they stand there.
pub fn units(command: &Command) -> Vec<Unit> {
    let mut units = match command {
        Command::Shell(text) => parse(text),
        Command::Arguments(arguments) => {
            let words = arguments.iter().map(|bytes| String::from_utf8(bytes.to_vec()).ok());
            vec![Unit::Simple(Simple { words: words.collect(), marked: false })]
        }
    };
    let runs = |unit: &Unit| matches!(unit, Unit::Simple(simple) if simple.program().is_some_and(is_runner));
    if units.iter().any(runs) {
        units.push(Unit::Unparsed("it runs a program that runs another one"));
    }
    units
}

/// The name of a program without its directory.
pub fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_runner(program: &str) -> bool {
    RUNNERS.contains(&base_name(program))
}

impl Simple {
    /// The program, where it is known.
    pub fn program(&self) -> Option<&str> {
        self.words.first()?.as_deref()
    }
}

fn parse(text: &str) -> Vec<Unit> {
    let mut parser = Parser { rest: text, units: Vec::new(), depth: 0 };
    let done = parser.list(None);
    let mut units = parser.units;
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
}

/// A word under way.
#[derive(Default)]
struct Word {
    text: String,
    /// Whether there is a word at all: `''` is one.
    begun: bool,
    /// Bytes before its first quote and its first unknown part: only there are keywords and settings looked for.
    plain: Option<usize>,
    /// Whether the shell would still change it.
    unknown: bool,
}

impl Word {
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
    fn is_setting(&self) -> bool {
        let plain = &self.text[..self.plain.unwrap_or(self.text.len())];
        let Some((name, _)) = plain.split_once('=') else { return false };
        let name = name.strip_suffix('+').unwrap_or(name);
        let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    fn is_number(&self) -> bool {
        self.bare().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.go_on(&self.rest[c.len_utf8()..]);
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        steps::count(1);
        let rest = self.rest.strip_prefix(text);
        self.go_on(rest.unwrap_or(self.rest));
        rest.is_some()
    }

    fn go_on(&mut self, rest: &'a str) {
        steps::count(self.rest.len() - rest.len());
        self.rest = rest;
    }

    /// Commands up to `end`, or to the end of the text.
    fn list(&mut self, end: Option<char>) -> Parsed<()> {
        loop {
            self.simple()?;
            match self.bump() {
                None if end.is_none() => return Ok(()),
                None => return Err("a bracket is not closed"),
                Some(c) if Some(c) == end => return Ok(()),
                Some(';' | '&' | '|' | '\n') => {}
                Some('(') => self.nested(')')?,
                Some(_) => return Err("a bracket stands where none can"),
            }
        }
    }

    /// What stands in brackets, the first of which is taken.
    fn nested(&mut self, end: char) -> Parsed<()> {
        if self.depth == DEPTH_MAX {
            return Err("brackets stand too deep in each other");
        }
        self.depth += 1;
        self.list(Some(end))?;
        self.depth -= 1;
        Ok(())
    }

    /// One simple command, up to what ends it, which is left.
    fn simple(&mut self) -> Parsed<()> {
        let mut simple = Simple::default();
        // Whether a keyword can stand here: not after a setting or a redirection.
        let mut fresh = true;
        loop {
            self.blanks();
            match self.peek() {
                None | Some(';' | '|' | '\n' | ')') => break,
                Some('&') if !self.rest.starts_with("&>") => break,
                Some('(') if simple.words.is_empty() && !simple.marked => {
                    if self.rest.starts_with("((") {
                        return Err("arithmetic");
                    }
                    break;
                }
                Some('(') => return Err("a function, or a list of values"),
                Some('#') => {
                    self.go_on(self.rest.find('\n').map_or("", |end| &self.rest[end..]));
                    continue;
                }
                _ => {}
            }
            if self.redirection(&mut simple)? {
                fresh = false;
                continue;
            }
            let word = self.word()?;
            // A number right in front of a redirection is its descriptor.
            if matches!(self.peek(), Some('<' | '>')) && word.is_number() {
                continue;
            }
            fresh = self.take(word, &mut simple, fresh)?;
        }
        self.push(simple)
    }

    /// Adds a word to a command, where it is not the shell's own. Says whether a keyword can follow.
    fn take(&mut self, word: Word, simple: &mut Simple, fresh: bool) -> Parsed<bool> {
        if simple.words.is_empty() {
            if let Some(text) = word.bare().filter(|_| fresh) {
                if BEFORE.contains(&text) || AFTER.contains(&text) {
                    return Ok(true);
                }
                if OWN.contains(&text) {
                    return Err(GRAMMAR);
                }
                if text == "for" {
                    return self.names().map(|()| true);
                }
            }
            if word.text.starts_with("[[") {
                return Err(GRAMMAR);
            }
            if word.is_setting() {
                simple.marked = true;
                return Ok(false);
            }
        }
        simple.words.push((!word.unknown).then_some(word.text));
        Ok(false)
    }

    /// What stands between `for` and `do`: words, and what is run to find them.
    fn names(&mut self) -> Parsed<()> {
        loop {
            self.blanks();
            match self.peek() {
                Some(';' | '\n') | None => return Ok(()),
                Some('(' | ')' | '&' | '|' | '<' | '>') => return Err("a `for` of another kind"),
                _ => drop(self.word()?),
            }
        }
    }

    fn push(&mut self, simple: Simple) -> Parsed<()> {
        if simple == Simple::default() {
            return Ok(());
        }
        if self.units.len() == UNITS_MAX {
            return Err("more commands than are looked at");
        }
        let known = simple.words.first().is_none_or(Option::is_some);
        self.units.push(if known {
            Unit::Simple(simple)
        } else {
            Unit::Unparsed("a program whose name is not known")
        });
        Ok(())
    }

    fn blanks(&mut self) {
        while self.eat(" ") || self.eat("\t") || self.eat("\\\n") {}
    }

    /// Takes a redirection with its target, if one is next.
    fn redirection(&mut self, simple: &mut Simple) -> Parsed<bool> {
        if self.rest.starts_with("<(") || self.rest.starts_with(">(") {
            return Ok(false);
        }
        if self.rest.starts_with("<<") && !self.rest.starts_with("<<<") {
            return Err("a text that follows (`<<`)");
        }
        let reads = self.eat("<<<") || self.eat("<&") || (!self.rest.starts_with("<>") && self.eat("<"));
        let writes =
            !reads && [">>", ">&", ">|", "&>>", "&>", "<>", ">"].into_iter().any(|sign| self.eat(sign));
        if !reads && !writes {
            return Ok(false);
        }
        self.blanks();
        let target = self.word()?;
        if !target.begun {
            return Err("a redirection to nowhere");
        }
        let text = target.text.as_str();
        let harmless = text == "/dev/null"
            || (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'));
        simple.marked |= writes && (target.unknown || !harmless);
        Ok(true)
    }

    /// One word, quotes taken off. What runs inside it is added to the units.
    fn word(&mut self) -> Parsed<Word> {
        let mut word = Word::default();
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
                    self.bump();
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
    fn may_expand(&self, c: char, word: &Word) -> bool {
        match c {
            '*' | '?' => true,
            '~' => !word.begun,
            '{' | '[' => word.begun || self.peek().is_some_and(|next| !next.is_whitespace()),
            _ => false,
        }
    }

    /// `<( … )` and `>( … )`.
    fn process(&mut self, word: &mut Word) -> Parsed<bool> {
        if !self.eat("<(") && !self.eat(">(") {
            return Ok(false);
        }
        word.doubt();
        self.nested(')')?;
        Ok(true)
    }

    fn single(&mut self, word: &mut Word) -> Parsed<()> {
        self.bump();
        let (inner, rest) = self.rest.split_once('\'').ok_or("a quote is not closed")?;
        word.quote();
        word.text.push_str(inner);
        self.go_on(rest);
        Ok(())
    }

    fn double(&mut self, word: &mut Word) -> Parsed<()> {
        self.bump();
        word.quote();
        loop {
            match self.peek().ok_or("a quote is not closed")? {
                '"' => {
                    self.bump();
                    return Ok(());
                }
                '$' => self.dollar(word)?,
                '`' => return Err("a command in backquotes"),
                '\\' => {
                    self.bump();
                    match self.bump() {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.text.push(c),
                        Some(c) => word.text.extend(['\\', c]),
                        None => return Err("a quote is not closed"),
                    }
                }
                c => {
                    self.bump();
                    word.text.push(c);
                }
            }
        }
    }

    fn escaped(&mut self, word: &mut Word) {
        self.bump();
        match self.bump() {
            Some('\n') => {}
            Some(c) => {
                word.quote();
                word.text.push(c);
            }
            None => word.text.push('\\'),
        }
    }

    /// `$` and what belongs to it.
    fn dollar(&mut self, word: &mut Word) -> Parsed<()> {
        self.bump();
        if self.rest.starts_with("((") {
            return Err("arithmetic");
        }
        if self.eat("(") {
            word.doubt();
            return self.nested(')');
        }
        match self.peek() {
            // With operators of its own, and commands in them.
            Some('{') => self.variable(word),
            Some('\'' | '"' | '[') => Err("a quote or bracket after `$`"),
            Some(c) if c.is_ascii_alphanumeric() || "_@*#?-$!".contains(c) => {
                word.doubt();
                self.bump();
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                self.go_on(end.map_or("", |end| &self.rest[end..]));
                Ok(())
            }
            _ => {
                word.text.push('$');
                Ok(())
            }
        }
    }

    /// `${name}`, and nothing that is more than that.
    fn variable(&mut self, word: &mut Word) -> Parsed<()> {
        let (name, rest) = self.rest[1..].split_once('}').ok_or("a bracket is not closed")?;
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err("a variable with an operator");
        }
        word.doubt();
        self.go_on(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a b|c` for two commands, `?` for an unknown word, `!` before a marked command, `…` for what is not parsed.
    fn shown(text: &str) -> String {
        let word = |word: &Option<String>| word.clone().unwrap_or("?".into());
        let unit = |unit: &Unit| match unit {
            Unit::Simple(simple) => {
                let words = simple.words.iter().map(word).collect::<Vec<_>>().join(" ");
                format!("{}{words}", if simple.marked { "!" } else { "" })
            }
            Unit::Unparsed(_) => "…".into(),
        };
        units(&Command::Shell(text.into())).iter().map(unit).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn simple_commands_are_told_apart() {
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
            ("a {b} }", "a ? }"),
            ("done_it; iffy", "done_it|iffy"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn quotes_are_taken_off_as_the_shell_does_it() {
        for (text, want) in [
            ("g'i't \"st\"atus", "git status"),
            ("\\g\\it 'a b' \"a;b\" a\\ b", "git a b a;b a b"),
            ("echo '$x `a` \\' \"\\$x \\a \\\"\"", "echo $x `a` \\ $x \\a \""),
            ("'git push'", "git push"),
            ("echo '' \"\"", "echo  "),
            ("'if' a", "if a"),
            ("\\if a", "if a"),
            ("\"a=b\" c", "a=b c"),
            ("echo a\"b\nc\"d", "echo ab\ncd"),
            ("echo $", "echo $"),
            ("echo é\u{202e}", "echo é\u{202e}"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn what_the_shell_would_change_is_unknown_and_what_runs_inside_is_seen() {
        for (text, want) in [
            ("rm -rf $x \"$y\" a$z", "rm -rf ? ? ?"),
            ("rm -rf * ~ a? [ab] {a,b} a~", "rm -rf ? ? ? ? ? a~"),
            ("[ -f a ] && b", "[ -f a ]|b"),
            ("rm -rf '*' \\* \"~\"", "rm -rf * * ~"),
            ("echo $(git push) b", "git push|echo ? b"),
            ("echo \"x $(git push) $(a \"$(b)\")\"", "git push|b|a ?|echo ?"),
            ("echo ${x} ${1}", "echo ? ?"),
            ("diff <(a) >(b)", "a|b|diff ? ?"),
            ("$x push", "…"),
            ("$(a) push", "a|…"),
            ("g* push", "…"),
            ("echo a{b", "echo ?"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn settings_and_redirections_are_no_words() {
        for (text, want) in [
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
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn what_it_is_not_sure_of_is_said() {
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
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn arguments_are_words_as_they_are() {
        let arguments: [&[u8]; 3] = [b"git", b"$x;y", b"\xff"];
        let command = Command::Arguments(arguments.map(|bytes| bytes.to_vec().into()).into());
        let words = vec![Some("git".into()), Some("$x;y".into()), None];
        assert_eq!(units(&command), [Unit::Simple(Simple { words, marked: false })]);
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
        ];
        for part in parts {
            let command = Command::Shell(part.repeat(max / part.len()));
            let (steps, units) = steps::of(|| units(&command));
            assert!(units.len() <= UNITS_MAX + 2, "{part}: {}", units.len());
            assert!(steps <= 16 * max, "{part} took {steps}");
        }
        let deep = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
        assert_eq!(shown(&deep(1)), "a");
        assert_eq!(shown(&"( a ".repeat(DEPTH_MAX + 1)).matches('…').count(), 1);
    }
}
