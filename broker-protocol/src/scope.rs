//! The scope that narrows a session, and its trust: how much it asks before it acts. A session never widens its policy.

use crate::limit::{self, TooLarge, at_most, in_range};
use serde::{Deserialize, Serialize};

/// How much is asked before a call runs. Ordered: a later one asks less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Trust {
    /// Every call is asked about.
    Supervised,
    /// Calls of medium and high risk are asked about.
    Guided,
    /// Nothing is asked. Scope and policy hold as ever.
    Autonomous,
}

impl Trust {
    /// Every level, in order.
    pub const ALL: [Trust; 3] = [Trust::Supervised, Trust::Guided, Trust::Autonomous];

    /// The name in policies and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Trust::Supervised => "supervised",
            Trust::Guided => "guided",
            Trust::Autonomous => "autonomous",
        }
    }

    /// Whether a call of `risk` is asked about.
    pub fn asks(self, risk: Risk) -> bool {
        match self {
            Trust::Supervised => true,
            Trust::Guided => risk >= Risk::Medium,
            Trust::Autonomous => false,
        }
    }
}

/// How much harm a call can do inside the zones. A tool is called dangerous from `medium` on. Policies, settings and clients write
/// its names; a frame has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    Low,
    Medium,
    High,
}

impl Risk {
    /// Every risk, in order.
    pub const ALL: [Risk; 3] = [Risk::Low, Risk::Medium, Risk::High];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        }
    }
}

/// The tools a session may use. A tool without a permission may not be used; without any permission at all these are the
/// tools of [`Scope::BARE`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// One for a tool, at most [`limit::PERMISSIONS`].
    pub permissions: Vec<Permission>,
}

/// Permissions of a session for one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// Canonical name of the tool: 1 to [`limit::TOOL_NAME`] letters, digits, `_`, `-` and `.`.
    pub tool: String,
    /// Whether it may be used at all.
    pub allowed: bool,
    /// Globs of the paths it may touch, such as `src/**` and `central:notes/**`; empty means all zones. At most
    /// [`limit::SCOPE_PATHS`], each of at most [`limit::SCOPE_PATH`] bytes.
    pub paths: Vec<String>,
    /// Maximum wall seconds of one call, 1 to [`limit::TIMEOUT_S`].
    pub timeout_s: Option<u32>,
    /// Whether it may use the network, as far as the policy lets it.
    pub network: bool,
}

impl Scope {
    /// The tools of a scope without a permission.
    pub const BARE: [&str; 2] = ["file_read", "web_search"];
    /// The tools that do nothing without the network.
    pub const NETWORK: [&str; 2] = ["web_search", "web_fetch"];

    /// Checks every limit that the type does not hold by itself. Whether the globs are globs is for the policy to say.
    pub fn check(&self) -> Result<(), TooLarge> {
        at_most(
            "scope",
            self.permissions.len(),
            limit::PERMISSIONS,
            "permissions",
        )?;
        for (index, permission) in self.permissions.iter().enumerate() {
            permission.check()?;
            if self.permissions[..index]
                .iter()
                .any(|earlier| earlier.tool == permission.tool)
            {
                return Err(TooLarge {
                    field: "scope.tool",
                    rule: format!("`{}` twice", permission.tool),
                });
            }
        }
        Ok(())
    }

    /// Whether `tool` may be used.
    pub fn permits(&self, tool: &str) -> bool {
        if self.permissions.is_empty() {
            return Self::BARE.contains(&tool);
        }
        let is_enough =
            |permission: &Permission| permission.network || !Self::NETWORK.contains(&tool);
        self.permissions.iter().any(|permission| {
            permission.tool == tool && permission.allowed && is_enough(permission)
        })
    }
}

impl Permission {
    fn check(&self) -> Result<(), TooLarge> {
        in_range(
            "scope.tool",
            self.tool.len() as u64,
            1,
            limit::TOOL_NAME as u64,
        )?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if !self.tool.bytes().all(plain) {
            let rule = "only letters, digits, `_`, `-` and `.`".into();
            return Err(TooLarge {
                field: "scope.tool",
                rule,
            });
        }
        at_most("scope.paths", self.paths.len(), limit::SCOPE_PATHS, "globs")?;
        for path in &self.paths {
            in_range(
                "scope.paths",
                path.len() as u64,
                1,
                limit::SCOPE_PATH as u64,
            )?;
        }
        match self.timeout_s {
            Some(seconds) => in_range("scope.timeout", seconds.into(), 1, limit::TIMEOUT_S.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(tool: &str) -> Permission {
        Permission {
            tool: tool.into(),
            allowed: true,
            paths: vec![],
            timeout_s: None,
            network: false,
        }
    }

    fn scope(permissions: Vec<Permission>) -> Scope {
        Scope { permissions }
    }

    #[test]
    fn each_trust_asks_about_its_risks() {
        let asked = |trust: Trust| Risk::ALL.map(|risk| trust.asks(risk));
        assert_eq!(asked(Trust::Supervised), [true, true, true]);
        assert_eq!(asked(Trust::Guided), [false, true, true]);
        assert_eq!(asked(Trust::Autonomous), [false, false, false]);
    }

    #[test]
    fn each_limit_of_a_scope_holds_at_its_edge() {
        let many = |count: usize| {
            scope(
                (0..count)
                    .map(|number| permission(&format!("t{number}")))
                    .collect(),
            )
        };
        assert!(many(limit::PERMISSIONS).check().is_ok());
        assert!(many(limit::PERMISSIONS + 1).check().is_err());
        let one = |change: &dyn Fn(&mut Permission)| {
            let mut permission = permission("bash");
            change(&mut permission);
            scope(vec![permission]).check()
        };
        let named = |tool: String| one(&|permission| permission.tool.clone_from(&tool));
        assert!(named("n".repeat(limit::TOOL_NAME)).is_ok());
        for tool in [
            String::new(),
            "n".repeat(limit::TOOL_NAME + 1),
            "a b".into(),
            "é".into(),
        ] {
            assert!(named(tool.clone()).is_err(), "{tool}");
        }
        let paths =
            |count, length| one(&|permission| permission.paths = vec!["p".repeat(length); count]);
        assert!(paths(limit::SCOPE_PATHS, limit::SCOPE_PATH).is_ok());
        assert!(paths(limit::SCOPE_PATHS + 1, 1).is_err());
        assert!(paths(1, limit::SCOPE_PATH + 1).is_err());
        assert!(paths(1, 0).is_err());
        let timeout = |seconds| one(&|permission| permission.timeout_s = Some(seconds));
        assert!(timeout(limit::TIMEOUT_S).is_ok());
        assert!(timeout(0).is_err() && timeout(limit::TIMEOUT_S + 1).is_err());
        assert!(
            scope(vec![permission("a"), permission("a")])
                .check()
                .is_err()
        );
    }

    #[test]
    fn a_scope_without_a_permission_has_two_tools_and_another_only_its_own() {
        let bare = Scope::default();
        assert!(bare.permits("file_read") && bare.permits("web_search") && !bare.permits("bash"));
        let refused = Permission {
            allowed: false,
            ..permission("grep")
        };
        let own = scope(vec![permission("bash"), refused]);
        assert!(own.permits("bash") && !own.permits("grep") && !own.permits("file_read"));
        // A tool that only uses the network is not permitted without it.
        let web = |tool: &str, network| {
            scope(vec![Permission {
                network,
                ..permission(tool)
            }])
            .permits(tool)
        };
        assert_eq!(
            Scope::NETWORK.map(|tool| (web(tool, true), web(tool, false))),
            [(true, false); 2]
        );
        assert!(web("bash", false) && web("mine", false));
    }
}
