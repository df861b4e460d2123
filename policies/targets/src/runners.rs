//! Programs that run what their arguments say, and builtins of bash that evaluate theirs or set variables.
//!
//! Which programs run others can only be a list: wrappers, whose arguments are a command line. Not in it are interpreters, editors
//! and build tools, of which everybody who allows one knows that they run anything.

/// Programs that run what their arguments say. By their manuals; a symbolic link to one, such as `linux32`, is one too.
#[rustfmt::skip]
const RUNNERS: [&str; 102] = [
    // Shells.
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "ksh93", "lksh", "mksh", "nu", "posh", "pwsh", "rbash", "rksh", "sh", "tcsh",
    "xonsh", "yash", "zsh",
    // Builtins of bash, bash(1): `alias` decides what a later name runs, `compgen` expands and runs words.
    ".", "alias", "bind", "builtin", "command", "compgen", "eval", "exec", "fc", "source", "time", "trap",
    // GNU coreutils and findutils.
    "chroot", "env", "find", "nice", "nohup", "runcon", "stdbuf", "timeout", "xargs",
    // util-linux.
    "choom", "chrt", "flock", "i386", "ionice", "linux32", "linux64", "nsenter", "prlimit", "runuser", "script", "scriptlive", "setarch",
    "setpriv", "setsid", "taskset", "uclampset", "uname26", "unshare", "x86_64",
    // Other users, machines, times, terminals.
    "at", "batch", "doas", "expect", "newgrp", "pkexec", "rlwrap", "run0", "screen", "sg", "ssh", "start-stop-daemon", "su", "sudo",
    "systemd-inhibit", "systemd-run", "tmux", "unbuffer", "watch", "xvfb-run",
    // Tracers and debuggers.
    "gdb", "lldb", "ltrace", "perf", "rr", "strace", "valgrind",
    // Repetition, resources, other sandboxes; programs that are many in one.
    "busybox", "bwrap", "cgexec", "cpulimit", "entr", "fakeroot", "faketime", "firejail", "numactl", "parallel", "proot", "run-parts",
    "socat", "toybox",
];

/// Of these, those that run nothing where they stand alone, whatever they are given to read.
const BY_ARGUMENT: [&str; 7] = ["alias", "bind", "builtin", "command", "env", "nice", "trap"];

/// Builtins of bash that run something with this option only: a callback, a library, another file under the name of a program.
const BY_OPTION: [(&str, char); 4] = [("enable", 'f'), ("hash", 'p'), ("mapfile", 'C'), ("readarray", 'C')];

/// Which words a builtin takes as names of variables, or as arithmetic. In both bash evaluates a subscript such as `a[$( … )]` once
/// more, also where quotes have kept the shell from it.
#[derive(Clone, Copy)]
enum Evaluates {
    /// All of them; it sets variables, so that a later program may be another one.
    All,
    /// The value of this option: it sets that variable.
    Set(char),
    /// The value of `-v`, which may stand anywhere: it looks whether that variable is set.
    Test,
}

/// Bash, bash(1), SHELL BUILTIN COMMANDS.
const EVALUATORS: [(&str, Evaluates); 15] = [
    ("declare", Evaluates::All),
    ("export", Evaluates::All),
    ("getopts", Evaluates::All),
    ("let", Evaluates::All),
    ("local", Evaluates::All),
    ("mapfile", Evaluates::All),
    ("printf", Evaluates::Set('v')),
    ("read", Evaluates::All),
    ("readarray", Evaluates::All),
    ("readonly", Evaluates::All),
    ("test", Evaluates::Test),
    ("typeset", Evaluates::All),
    ("unset", Evaluates::All),
    ("wait", Evaluates::Set('p')),
    ("[", Evaluates::Test),
];

/// The name of a program without its directory.
pub fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Why a command may run something else than its program, as far as its words are known.
pub(crate) fn runs_others(words: &[Option<String>]) -> Option<&'static str> {
    let (Some(program), arguments) = words.split_first()? else { return None };
    let name = base_name(program);
    let runs = RUNNERS.contains(&name) && !(arguments.is_empty() && BY_ARGUMENT.contains(&name));
    let by_option = || BY_OPTION.iter().any(|(by, option)| *by == name && may_have(arguments, *option));
    if runs || by_option() {
        return Some("it runs a program that can run others");
    }
    let evaluated = evaluated(program, arguments)?.iter().flatten().any(|word| has_substitution(word));
    evaluated.then_some("it runs a builtin that evaluates a subscript again")
}

/// Whether a command sets a variable, or may, or evaluates a word that only the shell knows.
pub(crate) fn sets_variables(words: &[Option<String>]) -> bool {
    let Some((Some(program), arguments)) = words.split_first() else { return false };
    let unknown = |words: &[Option<String>]| words.iter().any(Option::is_none);
    match evaluator(program) {
        Some(Evaluates::All) => true,
        Some(Evaluates::Set(option)) => {
            evaluated(program, arguments).is_some_and(|words| may_have(words, option))
        }
        Some(Evaluates::Test) => unknown(arguments),
        None => false,
    }
}

/// The arguments of a builtin among which may be one that it evaluates.
fn evaluated<'w>(program: &str, arguments: &'w [Option<String>]) -> Option<&'w [Option<String>]> {
    let is_option = |word: &Option<String>| word.as_ref().is_none_or(|word| word.starts_with('-'));
    match evaluator(program)? {
        Evaluates::All | Evaluates::Test => Some(arguments),
        // Options come first.
        Evaluates::Set(_) => arguments.first().is_some_and(is_option).then_some(arguments),
    }
}

fn evaluator(program: &str) -> Option<Evaluates> {
    EVALUATORS.iter().find(|(name, _)| *name == program).map(|(_, evaluates)| *evaluates)
}

/// Whether this option is among the words, in a word with others or with its value too; a word that only the shell knows may have it.
fn may_have(words: &[Option<String>], option: char) -> bool {
    let has = |word: &String| word.starts_with('-') && word.contains(option);
    words.iter().any(|word| word.as_ref().is_none_or(has))
}

/// Whether a word has a subscript in which something is substituted.
fn has_substitution(word: &str) -> bool {
    word.split_once('[').is_some_and(|(_, subscript)| subscript.contains(['$', '`']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_program_is_listed_twice() {
        let names = || RUNNERS.into_iter().chain(BY_OPTION.map(|(name, _)| name));
        for name in names() {
            assert_eq!(names().filter(|other| *other == name).count(), 1, "{name}");
        }
        for name in BY_ARGUMENT {
            assert!(RUNNERS.contains(&name), "{name}");
        }
    }
}
