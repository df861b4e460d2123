//! Where a user's files of Lazaret lie, outside every zone. Both programs ask here, so that neither looks elsewhere.
//!
//! By the XDG base directory rules: a variable with a relative path counts as none. `home` is the account's home and not
//! `HOME`, which programs point elsewhere for those that they start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reads a variable of the program's environment.
pub type Variable<'v> = &'v dyn Fn(&str) -> Option<OsString>;

/// The sockets for approvals, in a directory of the user's own.
const APPROVALS: &str = "lazaret-approve";

/// The policy: `lazaret` in `$XDG_CONFIG_HOME`, or in `.config` of the home.
pub fn configuration(home: &Path, variable: Variable) -> PathBuf {
    named("XDG_CONFIG_HOME", variable).unwrap_or_else(|| home.join(".config")).join("lazaret")
}

/// The records: `lazaret` in `$XDG_STATE_HOME`, or in `.local/state` of the home.
pub fn state(home: &Path, variable: Variable) -> PathBuf {
    named("XDG_STATE_HOME", variable).unwrap_or_else(|| home.join(".local/state")).join("lazaret")
}

/// Where the sockets for approvals of this user's sessions may lie, the best place first: each is for use only if what
/// it lies in is the user's alone, but for the last.
pub fn approvals(home: &Path, uid: u32, variable: Variable) -> Vec<PathBuf> {
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let all = [named("XDG_RUNTIME_DIR", variable), Some(usual), Some(home.join(".local/state/lazaret"))];
    let mut all: Vec<PathBuf> = all.into_iter().flatten().map(|path| path.join(APPROVALS)).collect();
    all.dedup();
    all
}

fn named(name: &str, variable: Variable) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_counts_as_none() {
        let home = Path::new("/home/u");
        let all = |value: &'static str| {
            let variable = move |_: &str| Some(OsString::from(value)).filter(|value| !value.is_empty());
            let approvals = approvals(home, 7, &variable)[0].clone();
            [configuration(home, &variable), state(home, &variable), approvals]
        };
        let usual =
            ["/home/u/.config/lazaret", "/home/u/.local/state/lazaret", "/run/user/7/lazaret-approve"];
        assert_eq!(all(""), usual.map(PathBuf::from));
        assert_eq!(all("x/y"), usual.map(PathBuf::from));
        assert_eq!(all("/x"), ["/x/lazaret", "/x/lazaret", "/x/lazaret-approve"].map(PathBuf::from));
    }
}
