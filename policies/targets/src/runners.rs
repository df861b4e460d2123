//! Programs that run what their arguments say, and builtins of bash that evaluate theirs or set variables.
//!
//! Programs that run others can only be a list: wrappers, whose arguments are a command line. Not in it are interpreters, editors
//! and build tools, of which everybody who allows one knows that they run anything.

/// Programs that run what their arguments say. By their manuals; a symbolic link to one, such as `linux32`, is one too.
#[rustfmt::skip]
const RUNNERS: [&str; 128] = [
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
    // Supervisors, proxies, and what starts one program in another environment.
    "aa-exec", "capsh", "catchsegv", "chpst", "chronic", "daemonize", "dbus-run-session", "dumb-init", "eatmydata", "envdir",
    "fakechroot", "gosu", "hyperfine", "ifne", "lckdo", "nsjail", "proxychains", "proxychains4", "schroot", "setuidgid", "softlimit",
    "sshpass", "su-exec", "tini", "torsocks",
    // Arithmetic evaluates variables, and what stands in them.
    "let",
];

/// The subset that executes nothing without arguments, whatever is on stdin.
const BY_ARGUMENT: [&str; 7] = ["alias", "bind", "builtin", "command", "env", "nice", "trap"];

/// Programs that run something with this option only: a callback, a library, another file under the name of a program, a filter. For
/// the builtins that declare an integer, what its value evaluates.
const BY_OPTION: [(&str, char); 15] = [
    ("complete", 'C'),
    ("declare", 'i'),
    ("enable", 'f'),
    ("hash", 'p'),
    ("jobs", 'x'),
    ("local", 'i'),
    ("man", 'P'),
    ("mapfile", 'C'),
    ("readarray", 'C'),
    ("readonly", 'i'),
    ("rsync", 'e'),
    ("ssh-keygen", 'D'),
    ("tar", 'F'),
    ("typeset", 'i'),
    ("zip", 'T'),
];

/// Programs that run others by a long option, which may be shortened.
const BY_LONG_OPTION: [(&str, &str); 19] = [
    ("cpio", "--rsh-command"),
    ("install", "--strip-program"),
    ("man", "--html"),
    ("man", "--pager"),
    ("man", "--preprocessor"),
    ("rsync", "--rsh"),
    ("rsync", "--rsync-path"),
    ("sdiff", "--diff-program"),
    ("sort", "--compress-program"),
    ("split", "--filter"),
    ("tar", "--checkpoint-action"),
    ("tar", "--info-script"),
    ("tar", "--new-volume-script"),
    ("tar", "--rmt-command"),
    ("tar", "--rsh-command"),
    ("tar", "--to-command"),
    ("tar", "--use-compress-program"),
    ("wget", "--use-askpass"),
    ("zip", "--unzip-command"),
];

/// Variables whose value bash or programs run, or load into programs, and those in which tools find such options.
#[rustfmt::skip]
const RUN: [&str; 34] = [
    "BASH_ENV", "BROWSER", "EDITOR", "ENV", "GIT_ASKPASS", "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_SYSTEM", "GIT_EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR",
    "GIT_SSH", "GIT_SSH_COMMAND", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD", "LESSCLOSE", "LESSOPEN", "MANPAGER", "PAGER",
    "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS3", "PS4", "RSYNC_RSH", "SSH_ASKPASS", "TAR_OPTIONS", "VISUAL",
];

/// Of their values, those that run nothing of anybody's choice.
const QUIET: [&str; 8] = ["", ":", "cat", "less", "more", "true", "false", "echo"];

/// Words that a builtin takes as names of variables, or as arithmetic. In both bash evaluates a subscript such as `a[$( … )]` once
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

/// Whether a program is one that runs what its arguments say.
pub fn is_runner(program: &str) -> bool {
    RUNNERS.contains(&base_name(program))
}

/// Why a command may run something else than its program, as far as its words are known.
pub(crate) fn runs_others(words: &[Option<String>]) -> Option<&'static str> {
    let (Some(program), arguments) = words.split_first()? else {
        return None;
    };
    let name = base_name(program);
    let runs = RUNNERS.contains(&name) && !(arguments.is_empty() && BY_ARGUMENT.contains(&name));
    let by_option = || {
        BY_OPTION
            .iter()
            .any(|(by, option)| *by == name && may_have(arguments, *option))
    };
    let by_long = || {
        BY_LONG_OPTION
            .iter()
            .any(|(by, option)| *by == name && may_have_long(arguments, option))
    };
    let by_script = || match name {
        "sed" => arguments.iter().flatten().any(|word| sed_executes(word)),
        "sqlite3" => arguments
            .iter()
            .flatten()
            .any(|word| [".sh", ".sy"].iter().any(|run| word.contains(run))),
        // Old options stand without a sign.
        "tar" => arguments
            .first()
            .is_some_and(|first| first.as_ref().is_none_or(|word| is_old_option(word))),
        name => is_loader(name),
    };
    if runs || by_option() || by_long() || by_script() {
        return Some("it runs a program that can run others");
    }
    let words = evaluated(program, arguments)?;
    if words.iter().flatten().any(|word| variable_runs(word)) {
        return Some(VARIABLE);
    }
    let tests = matches!(evaluator(program), Some(Evaluates::Test));
    let looks = !tests || words.iter().flatten().any(|word| word == "-v");
    // A name that only the shell knows may have a subscript.
    let unknown = (tests || name == "unset") && words.iter().any(Option::is_none);
    let evaluated = looks && (unknown || words.iter().flatten().any(|word| has_subscript(word)));
    evaluated.then_some("it runs a builtin that evaluates a subscript again")
}

/// Why a command with a variable of [`RUN`] is doubted.
pub(crate) const VARIABLE: &str = "it sets a variable whose value is run";

/// Whether `name=value`, or a name alone, sets a variable whose value is run, and not to one that runs nothing.
pub(crate) fn variable_runs(word: &str) -> bool {
    let (name, value) = word
        .split_once('=')
        .map_or((word, None), |(name, value)| (name, Some(value)));
    RUN.contains(&name.trim_end_matches('+')) && value.is_none_or(|value| !QUIET.contains(&value))
}

/// The dynamic loader, which runs the program that its first argument names.
fn is_loader(name: &str) -> bool {
    name.strip_prefix("ld")
        .is_some_and(|rest| rest.contains(".so"))
}

/// `cfI` and the like, with the option for a filter of one's own or for a script.
fn is_old_option(word: &str) -> bool {
    word.contains(['I', 'F'])
        && !word.starts_with('-')
        && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a long option is among the words, shortened or with its value; one that only the shell knows may be it.
fn may_have_long(words: &[Option<String>], option: &str) -> bool {
    let is = |word: &String| {
        let name = word.split('=').next().unwrap_or(word);
        name.len() > 2 && option.starts_with(name)
    };
    words.iter().any(|word| word.as_ref().is_none_or(is))
}

/// Whether a word may be a script of sed with its command `e`, or with a substitution that has the flag `e`.
fn sed_executes(word: &str) -> bool {
    word.split([';', '\n', '{', '}']).any(|part| {
        let command = after_address(part);
        let mut rest = command.chars();
        match (rest.next(), rest.next()) {
            (Some('e'), None | Some(' ')) => true,
            (Some('s'), Some(sign)) if !sign.is_alphanumeric() => {
                let flags = command.split(sign).nth(3).unwrap_or_default();
                flags
                    .split(['w', ' '])
                    .next()
                    .is_some_and(|flags| flags.contains('e'))
            }
            _ => false,
        }
    })
}

/// A command of sed without the lines that it is for.
fn after_address(part: &str) -> &str {
    let numbers = |part: &'_ str| {
        part.trim_start_matches(|c: char| c.is_ascii_digit() || " \t,$!~+".contains(c))
            .len()
    };
    let mut rest = &part[part.len() - numbers(part)..];
    while let Some((_, after)) = rest
        .strip_prefix('/')
        .and_then(|expression| expression.split_once('/'))
    {
        let after = after.trim_start_matches(['I', 'M']);
        rest = &after[after.len() - numbers(after)..];
    }
    rest
}

/// Whether a command sets a variable, or may, or evaluates a word that only the shell knows.
pub(crate) fn sets_variables(words: &[Option<String>]) -> bool {
    let Some((Some(program), arguments)) = words.split_first() else {
        return false;
    };
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
        Evaluates::Set(_) => arguments
            .first()
            .is_some_and(is_option)
            .then_some(arguments),
    }
}

fn evaluator(program: &str) -> Option<Evaluates> {
    EVALUATORS
        .iter()
        .find(|(name, _)| *name == program)
        .map(|(_, evaluates)| *evaluates)
}

/// Whether this option is among the words, in a word with others or with its value too; a word that only the shell knows may have it.
fn may_have(words: &[Option<String>], option: char) -> bool {
    let has = |word: &String| word.starts_with('-') && word.contains(option);
    words.iter().any(|word| word.as_ref().is_none_or(has))
}

/// Whether a word has a subscript that is more than a number: something is substituted in it, or in the variable that it names.
fn has_subscript(word: &str) -> bool {
    word.split_once('[').is_some_and(|(name, subscript)| {
        let number = |c: char| c.is_ascii_digit() || "]-@*=".contains(c);
        let index = subscript
            .split_once(']')
            .map_or(subscript, |(index, _)| index);
        !name.is_empty() && !index.chars().all(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_` between words, `?` for one that only the shell knows.
    fn is_doubted(line: &str) -> bool {
        let words: Vec<_> = line
            .split('_')
            .map(|word| (word != "?").then(|| word.to_owned()))
            .collect();
        runs_others(&words).is_some()
    }

    #[test]
    fn programs_that_run_others_by_an_argument_are_doubted() {
        for line in [
            "jobs_-x_git_push",
            "split_--filter=git push_f",
            "split_--filt=git push_f",
            "tar_-cf_x_--checkpoint-action=exec=git push_f",
            "tar_--to-command=x_-xf_f",
            "tar_-xF_script",
            "tar_cfI_x_zstd_f",
            "sort_--compress-prog=x_f",
            "/lib64/ld-linux-x86-64.so.2_/bin/sh_-c_git push",
            "ld-musl-aarch64.so.1_sh",
            "/lib/ld.so_sh",
            "sed_1e git push_f",
            "sed_-n_/a/,/b/e git push_f",
            "sed_s/a/b/e_f",
            "sed_-e_p;e_f",
            "sqlite3_db_.shell git push",
            "man_-P_x_ls",
            "rsync_-ae_x_a_b",
            "declare_-i_z=x",
            "readonly_-i_z=x",
            "let_x",
            "test_-v_y[x]",
            "test_-v_?",
            "[_-v_y[x]_]",
            "unset_a[x]",
            "unset_?",
            "export_PS4=x",
            "capsh_--_-c_git push",
        ] {
            assert!(is_doubted(line), "{line}");
        }
        for line in [
            "jobs_-l",
            "split_-l_5_f",
            "tar_-xzf_x.tar.gz",
            "tar_xzf_Files.tar",
            "tar_-czf_x.tar.gz_src",
            "sort_-u_src/e",
            "ld_-o_x_y.o",
            "ld.lld_x.o",
            "sed_-n_1,5p_src/name",
            "sed_s/one/two/g_e2e/file",
            "sed_-i_s#a/b#c/e#_f",
            "sed_/re/d_src/store",
            "sqlite3_db_select 1",
            "man_ls",
            "declare_-x_A=1",
            "test_-f_x",
            "test_-f_?",
            "[_-f_[x]_]",
            "unset_x",
            "export_EDITOR=cat",
        ] {
            assert!(!is_doubted(line), "{line}");
        }
    }

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
