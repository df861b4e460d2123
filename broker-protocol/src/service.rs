//! A program that lives as long as its session: it is fed and heard all the while, as a server of tools is.

use crate::command::Command;
use crate::limit::{self, TooLarge, at_most, in_range, no_nul};
use crate::path::ZonePath;
use serde::{Deserialize, Serialize};

/// Runs a program in a cell for as long as the session lasts, it ends by itself, or it is cancelled. To rules and scopes it is
/// a `bash`.
///
/// Its standard input is a pipe fed by [`ToBroker::Input`](crate::ToBroker::Input); what it prints comes only as
/// [`FromBroker::Output`](crate::FromBroker::Output), both streams apart, and is kept nowhere: the outcome holds none of it. It
/// has no time limit, but for what the session's scope gives commands, and no limit on the bytes that it prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name in questions and in the audit: 1 to [`limit::SERVICE_NAME`] letters, digits, `_` and `-`.
    pub name: String,
    pub command: Command,
    /// Working directory; the project root if absent.
    pub directory: Option<ZonePath>,
    /// Variables in addition to the session's, at most [`limit::VARIABLES`]. Each is named here: nothing of the client's
    /// own environment comes by itself. One replaces the session's of the same name.
    pub environment: Vec<Variable>,
}

/// A variable of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// 1 to [`limit::VARIABLE_NAME`] letters, digits and `_`, no digit first; none of [`Variable::RESERVED`].
    pub name: String,
    /// At most [`limit::VARIABLE`] bytes, without NUL. It may be a secret: only the user can have given it for this program.
    pub value: String,
}

impl Variable {
    /// Names that are the executor's to set.
    pub(crate) const RESERVED: [&'static str; 4] = ["PATH", "HOME", "TMPDIR", "PWD"];

    fn check(&self) -> Result<(), TooLarge> {
        let refuse = |rule: String| {
            Err(TooLarge {
                field: "environment",
                rule,
            })
        };
        in_range(
            "environment.name",
            self.name.len() as u64,
            1,
            limit::VARIABLE_NAME as u64,
        )?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !self.name.bytes().all(plain)
            || self.name.starts_with(|first: char| first.is_ascii_digit())
        {
            return refuse(
                "a name has only letters, digits and `_`, and begins with no digit".into(),
            );
        }
        if Self::RESERVED.contains(&self.name.as_str()) {
            return refuse(format!("`{}` is set by the executor", self.name));
        }
        at_most(
            "environment.value",
            self.value.len(),
            limit::VARIABLE,
            "bytes",
        )?;
        no_nul("environment", self.value.as_bytes())
    }
}

impl Service {
    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        in_range(
            "name",
            self.name.len() as u64,
            1,
            limit::SERVICE_NAME as u64,
        )?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !self.name.bytes().all(plain) {
            return Err(TooLarge {
                field: "name",
                rule: "only letters, digits, `_` and `-`".into(),
            });
        }
        self.command.check()?;
        at_most(
            "environment",
            self.environment.len(),
            limit::VARIABLES,
            "variables",
        )?;
        for (at, variable) in self.environment.iter().enumerate() {
            variable.check()?;
            if self.environment[..at]
                .iter()
                .any(|earlier| earlier.name == variable.name)
            {
                return Err(TooLarge {
                    field: "environment",
                    rule: format!("`{}` twice", variable.name),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(change: impl FnOnce(&mut Service)) -> Result<(), TooLarge> {
        let command = Command::Shell("server".into());
        let mut service = Service {
            name: "fs".into(),
            command,
            directory: None,
            environment: Vec::new(),
        };
        change(&mut service);
        service.check()
    }

    fn variable(name: &str, bytes: usize) -> Variable {
        Variable {
            name: name.into(),
            value: "v".repeat(bytes),
        }
    }

    #[test]
    fn each_limit_of_a_service_holds_at_its_edge() {
        let named = |name: String| service(|service| service.name = name);
        assert!(named("a-b_9".into()).is_ok() && named("n".repeat(limit::SERVICE_NAME)).is_ok());
        for name in [
            String::new(),
            "n".repeat(limit::SERVICE_NAME + 1),
            "a b".into(),
            "a/b".into(),
            "é".into(),
        ] {
            assert!(named(name.clone()).is_err(), "{name}");
        }
        let of = |count: usize| {
            let all = (0..count)
                .map(|number| variable(&format!("V{number}"), 1))
                .collect();
            service(|service| service.environment = all)
        };
        assert!(of(limit::VARIABLES).is_ok() && of(limit::VARIABLES + 1).is_err());
        let one = |variable: Variable| service(|service| service.environment = vec![variable]);
        assert!(one(variable("V", limit::VARIABLE)).is_ok());
        assert!(one(variable("V", limit::VARIABLE + 1)).is_err());
        assert!(one(variable(&"V".repeat(limit::VARIABLE_NAME), 1)).is_ok());
        assert!(one(variable(&"V".repeat(limit::VARIABLE_NAME + 1), 1)).is_err());
        assert!(
            one(Variable {
                name: "V".into(),
                value: "a\0b".into()
            })
            .is_err()
        );
        for name in ["", "9", "A B", "A=B", "é", "PATH", "HOME", "TMPDIR", "PWD"] {
            assert!(one(variable(name, 1)).is_err(), "{name}");
        }
        let twice = vec![variable("A", 1), variable("A", 2)];
        assert!(service(|service| service.environment = twice).is_err());
    }

    #[test]
    fn service_command_has_the_limits_of_any_command() {
        let runs = |command: Command| service(|service| service.command = command);
        let argument = |bytes: usize| runs(Command::Arguments(vec![vec![b'x'; bytes].into()]));
        assert!(argument(limit::ARGUMENT).is_ok() && argument(limit::ARGUMENT + 1).is_err());
        assert!(
            runs(Command::Arguments(vec![])).is_err()
                && runs(Command::Shell("a\0".into())).is_err()
        );
    }
}
