//! Names of tools that clients and servers register. Model vendors accept 1 to 64 letters, digits, `_` and `-`. A server's name for
//! its tool is changed to fit, and names that would then be equal get a number.

use std::fmt::Write;

/// Maximum length of a name.
pub const MAX: usize = 64;
/// Prefix of the names of remote servers' tools.
const PREFIX: &str = "mcp__";

/// `mcp__server__tool`, made to fit.
pub fn of_server(server: &str, tool: &str) -> String {
    fit(&format!("{PREFIX}{server}__{tool}"))
}

/// The server in a name of the form `mcp__server__tool`.
pub fn server(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?
        .split_once("__")
        .map(|(server, _)| server)
}

/// `name` with every invalid character replaced by `_`, cut at [`MAX`].
pub(crate) fn fit(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            c
        } else {
            '_'
        }
    };
    let fitting: String = name.chars().take(MAX).map(plain).collect();
    if fitting.is_empty() {
        "_".to_owned()
    } else {
        fitting
    }
}

/// Whether `name` is already valid.
pub(crate) fn is_fit(name: &str) -> bool {
    !name.is_empty() && fit(name) == name
}

/// `name`, or if it is `taken`, `name` with the first number that makes it free.
pub(crate) fn free(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut candidate = name.to_owned();
    for number in 2u32.. {
        if !taken(&candidate) {
            break;
        }
        let suffix = format!("_{number}");
        candidate.clear();
        candidate.push_str(&name[..name.len().min(MAX - suffix.len())]);
        let _ = candidate.write_str(&suffix);
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_fits() {
        for (server, tool, want) in [
            ("fs", "read", "mcp__fs__read"),
            ("my server", "réad/file", "mcp__my_server__r_ad_file"),
            ("a.b:c", "x\u{1b}[2J\n", "mcp__a_b_c__x__2J_"),
            ("", "", "mcp____"),
        ] {
            let name = of_server(server, tool);
            assert_eq!(name, want);
            assert!(is_fit(&name));
        }
        let long = of_server(&"s".repeat(100), "tool");
        assert_eq!(long.len(), MAX);
        assert!(
            !is_fit("a b") && !is_fit("") && !is_fit(&"x".repeat(65)) && is_fit(&"x".repeat(64))
        );
    }

    #[test]
    fn colliding_name_gets_a_number_and_still_fits() {
        assert_eq!(of_server("a__b", "c"), of_server("a", "b__c"));
        let taken = ["a", "a_2"];
        assert_eq!(free("a", |name| taken.contains(&name)), "a_3");
        assert_eq!(free("b", |name| taken.contains(&name)), "b");
        let long = "x".repeat(MAX);
        let other = free(&long, |name| name == long);
        assert_eq!((other.len(), other.ends_with("x_2")), (MAX, true));
    }

    #[test]
    fn a_name_tells_its_server() {
        assert_eq!(server("mcp__fs__read"), Some("fs"));
        assert_eq!(server("mcp__fs"), None);
        assert_eq!(server("file_read"), None);
    }
}
