//! Test suites: the command for each runner. They stand here so that the broker knows one when it sees it, and need not
//! believe a client that a command is no more than that.

use crate::command::{Bash, Command, Stdin};
use serde_bytes::ByteBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// The one whose files are there.
    Auto,
    Pytest,
    Cargo,
    Npm,
}

/// Directories of a project with a Python of its own, which has what its tests import. A link out of it is its Python too, where a cell
/// does not show the target: then that is the error, and not what another Python lacks.
const OWN_PYTHONS: [&str; 2] = [".venv/bin/python", "venv/bin/python"];

/// Chosen where the tests are, by a shell in the cell: who asks has no right to look. Simple commands, no `exec` and no variable as a
/// program, so that a policy's rules can tell what may run. Only a missing program of a toolchain is 127: what reads that code suggests a
/// profile that has the program, and a script of npm that lacks one ends with 127 too.
fn auto() -> String {
    let python = with_python(|python| {
        format!(
            "if {python} -m pytest --version >/dev/null 2>&1 || [ -f pytest.ini ] || [ -f .pytest.ini ] || [ -f conftest.py ] \
             || [ -f tests/conftest.py ] || grep -qs '^\\[tool[.]pytest' pyproject.toml || grep -qs '^\\[pytest\\]' tox.ini \
             || grep -qs '^\\[tool:pytest\\]' setup.cfg; then {python} -m pytest -q --color=no; \
             elif [ -d tests ] && [ ! -f tests/__init__.py ]; then {python} -m unittest discover -s tests; \
             else {python} -m unittest discover; fi"
        )
    });
    format!(
        "if [ -f Cargo.toml ]; then cargo test --no-fail-fast; \
         elif [ -f package.json ]; then if type npm >/dev/null 2>&1; then npm test || exit 1; else npm test; fi; \
         elif [ -f pyproject.toml ] || [ -f pytest.ini ] || [ -f setup.py ] || [ -f setup.cfg ] || [ -f tox.ini ] \
         || [ -f conftest.py ] || [ -d tests ]; then {python}; \
         else echo 'no Cargo.toml, package.json or Python project here' >&2; exit 1; fi"
    )
}

/// A command line with the project's own Python, or else the system's.
fn with_python(line: impl Fn(&str) -> String) -> String {
    let own = OWN_PYTHONS.iter().map(|python| {
        format!(
            "if [ -x {python} ] || [ -L {python} ]; then {}; el",
            line(python)
        )
    });
    // Each `el` makes the next `if` an `elif`, and the last one an `else`.
    format!("{}se {}; fi", own.collect::<String>(), line("python3"))
}

impl Framework {
    /// The tool that runs them.
    pub const TOOL: &str = "run_tests";
    /// Every runner, in the order of their names.
    pub const ALL: [Framework; 4] = [
        Framework::Auto,
        Framework::Pytest,
        Framework::Cargo,
        Framework::Npm,
    ];
    /// Names in the tool's input.
    pub const NAMES: [&str; 4] = ["auto", "pytest", "cargo", "npm"];

    /// By a name that was checked.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("pytest") => Framework::Pytest,
            Some("cargo") => Framework::Cargo,
            Some("npm") => Framework::Npm,
            _ => Framework::Auto,
        }
    }

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub fn command(self) -> Command {
        let words = |words: &[&str]| {
            Command::Arguments(
                words
                    .iter()
                    .map(|word| ByteBuf::from(word.as_bytes()))
                    .collect(),
            )
        };
        match self {
            Framework::Auto => Command::Shell(auto()),
            Framework::Pytest => Command::Shell(with_python(|python| {
                format!("{python} -m pytest -q --color=no")
            })),
            Framework::Cargo => words(&["cargo", "test", "--no-fail-fast"]),
            Framework::Npm => words(&["npm", "test"]),
        }
    }

    /// The one whose command this is, to the last byte.
    pub fn of(bash: &Bash) -> Option<Self> {
        let plain = bash.stdin == Stdin::Null && !bash.background;
        Self::ALL
            .into_iter()
            .find(|framework| plain && framework.command() == bash.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_runner() {
        assert_eq!(
            Framework::NAMES.map(|name| Framework::named(Some(name)).name()),
            Framework::NAMES
        );
        assert_eq!(Framework::named(None), Framework::Auto);
    }

    #[test]
    fn suite_needs_its_whole_command() {
        let bash = |command| Bash {
            command,
            directory: None,
            timeout_s: None,
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
            split: false,
            attended: false,
        };
        for framework in Framework::ALL {
            let suite = bash(framework.command());
            assert_eq!(Framework::of(&suite), Some(framework));
            assert_eq!(
                Framework::of(&Bash {
                    background: true,
                    ..suite.clone()
                }),
                None
            );
            assert_eq!(
                Framework::of(&Bash {
                    stdin: Stdin::Stream,
                    ..suite.clone()
                }),
                None
            );
            let more = match suite.command {
                Command::Shell(text) => Command::Shell(text + "; ls"),
                Command::Arguments(words) => {
                    Command::Arguments([words, vec![ByteBuf::from("x")]].concat())
                }
            };
            assert_eq!(Framework::of(&bash(more)), None);
        }
        assert_eq!(
            Framework::of(&bash(Command::Shell("cargo test --no-fail-fast".into()))),
            None
        );
    }
}
