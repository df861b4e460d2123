//! Effects outside the executor: what the client does itself once it has permission. The broker has no network and no
//! server's tools; it decides, asks about and records such a call like any other, and then the client acts.

use crate::limit::{self, TooLarge, at_most};
use crate::scope::Risk;
use crate::state::StateTool;
use crate::suite::Framework;
use serde::{Deserialize, Serialize};

/// A call that the client carries out itself. It contains only what a decision needs and a person is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The tool `web_search`.
    WebSearch {
        /// The words to search for, at most [`limit::CONTENT`] bytes.
        query: String,
    },
    /// The tool `web_fetch`.
    WebFetch {
        /// The address, at most [`limit::CONTENT`] bytes.
        url: String,
    },
    /// A tool that is not built in: a server's, or one of the application that embeds the client. Also `subagent`, which a client
    /// with models answers.
    Added {
        /// Its name: 1 to [`limit::TOOL_NAME`] letters, digits, `_` and `-`, and not the name of a built-in tool.
        tool: String,
        /// How much harm it can do, according to the client: a client that lies here could as well not ask.
        risk: Risk,
        /// Its input as JSON, at most [`limit::CONTENT`] bytes.
        input: String,
    },
}

impl Effect {
    pub fn tool(&self) -> &str {
        match self {
            Effect::WebSearch { .. } => "web_search",
            Effect::WebFetch { .. } => "web_fetch",
            Effect::Added { tool, .. } => tool,
        }
    }

    /// How much harm the tool can do.
    pub fn risk(&self) -> Risk {
        match self {
            Effect::WebSearch { .. } | Effect::WebFetch { .. } => Risk::Low,
            Effect::Added { risk, .. } => *risk,
        }
    }

    /// `tools` are the names of the requests that are not effects.
    pub(crate) fn check(&self, tools: &[&str]) -> Result<(), TooLarge> {
        match self {
            Effect::WebSearch { query } => at_most("query", query.len(), limit::CONTENT, "bytes"),
            Effect::WebFetch { url } => at_most("url", url.len(), limit::CONTENT, "bytes"),
            Effect::Added { tool, input, .. } => {
                fits(tool, tools)?;
                at_most("input", input.len(), limit::CONTENT, "bytes")
            }
        }
    }
}

/// A grant covers a tool by its name: no effect may have the name of something else.
fn fits(tool: &str, tools: &[&str]) -> Result<(), TooLarge> {
    let refuse = |rule: String| {
        Err(TooLarge {
            field: "tool",
            rule,
        })
    };
    at_most("tool", tool.len(), limit::TOOL_NAME, "bytes")?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if tool.is_empty() || !tool.bytes().all(allowed) {
        return refuse("1 or more letters, digits, '_' and '-'".into());
    }
    let ours = tools
        .iter()
        .copied()
        .chain(StateTool::ALL.map(StateTool::name));
    if ours
        .chain(["web_search", "web_fetch", Framework::TOOL])
        .any(|name| name == tool)
    {
        return refuse(format!("`{tool}` is a tool of ours"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn added(tool: &str, bytes: usize) -> Effect {
        Effect::Added {
            tool: tool.into(),
            risk: Risk::High,
            input: "x".repeat(bytes),
        }
    }

    #[test]
    fn an_effect_has_a_name_of_its_own_and_is_bounded() {
        assert!(
            added("mcp__fs__read", limit::CONTENT)
                .check(&Request::TOOLS)
                .is_ok()
        );
        assert!(
            added("mcp__fs__read", limit::CONTENT + 1)
                .check(&Request::TOOLS)
                .is_err()
        );
        assert!(
            added(&"x".repeat(limit::TOOL_NAME), 0)
                .check(&Request::TOOLS)
                .is_ok()
        );
        assert!(
            added(&"x".repeat(limit::TOOL_NAME + 1), 0)
                .check(&Request::TOOLS)
                .is_err()
        );
        for bad in [
            "",
            "a b",
            "a\n",
            "bash",
            "file_write",
            "run_tests",
            "view_image",
            "memory",
            "web_fetch",
        ] {
            assert!(added(bad, 0).check(&Request::TOOLS).is_err(), "{bad:?}");
        }
        let search = |bytes| Effect::WebSearch {
            query: "x".repeat(bytes),
        };
        assert!(
            search(limit::CONTENT).check(&Request::TOOLS).is_ok()
                && search(limit::CONTENT + 1).check(&Request::TOOLS).is_err()
        );
        let fetch = |bytes| Effect::WebFetch {
            url: "x".repeat(bytes),
        };
        assert!(
            fetch(limit::CONTENT).check(&Request::TOOLS).is_ok()
                && fetch(limit::CONTENT + 1).check(&Request::TOOLS).is_err()
        );
    }
}
