//! Where a user's files of Lazaret lie, outside every zone. Both programs ask here, so that neither looks elsewhere.
//!
//! By the XDG base directory rules: a variable with a relative path counts as none. `home` is the account's home and not
//! `HOME`, which programs point elsewhere for those that they start. Where the account has none, as in many containers, it is
//! `HOME` all the same: see [`home`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reads a variable of the program's environment.
pub type VariableLookup<'v> = &'v dyn Fn(&str) -> Option<OsString>;

/// The sockets for approvals, in a directory of the user's own.
const APPROVALS: &str = "lazaret-approve";

/// The socket of `lazaret warm`, in another one.
const WARM_SOCKET: &str = "lazaret-warm";

/// `/nonexistent`: the passwd home of accounts without one.
pub(crate) const NO_HOME: &str = "/nonexistent";

/// Why a directory of Lazaret's own is where it cannot be made or used, and what helps: for errors about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Advice {
    /// There is no home that it could lie in.
    #[error(
        "this user has no home directory, as /etc/passwd has no entry with one; set HOME, or set XDG_CONFIG_HOME, XDG_STATE_HOME \
         and XDG_DATA_HOME, to directories that may be written"
    )]
    NoHome,
    /// A variable says that it lies in this directory.
    #[error(
        "the variable {variable} says that it lies in {directory}; set that to a directory that may be written, or unset it",
        directory = .directory.display()
    )]
    Named {
        variable: &'static str,
        directory: PathBuf,
    },
}

/// Advice where `path`, in the directory of data or of records, cannot be made or used, if a cause is known.
pub fn advice(path: &Path, home: &Path, variable: VariableLookup) -> Option<Advice> {
    let lies_in = |name: &'static str| {
        let directory = named(name, variable)?;
        path.starts_with(directory.join(OWN))
            .then_some(Advice::Named {
                variable: name,
                directory,
            })
    };
    let is_homeless =
        || (home == Path::new(NO_HOME) && path.starts_with(home)).then_some(Advice::NoHome);
    [DATA, STATE]
        .into_iter()
        .find_map(lies_in)
        .or_else(is_homeless)
}

/// The variables that name the directory of data and that of records.
const DATA: &str = "XDG_DATA_HOME";
const STATE: &str = "XDG_STATE_HOME";
/// The name of Lazaret's own directory in each.
const OWN: &str = "lazaret";

/// The home that all of Lazaret means: that of the account, if it is a directory, as `is_directory` says; else `HOME`; else
/// [`NO_HOME`].
pub fn home(
    account: Option<PathBuf>,
    is_directory: &dyn Fn(&Path) -> bool,
    variable: VariableLookup,
) -> PathBuf {
    let usable =
        |home: &PathBuf| home.is_absolute() && home != Path::new("/") && is_directory(home);
    account
        .filter(usable)
        .or_else(|| named("HOME", variable).filter(usable))
        .unwrap_or_else(|| NO_HOME.into())
}

/// The policy: `lazaret` in `$XDG_CONFIG_HOME`, or in `.config` of the home.
pub fn configuration(home: &Path, variable: VariableLookup) -> PathBuf {
    named("XDG_CONFIG_HOME", variable)
        .unwrap_or_else(|| home.join(".config"))
        .join(OWN)
}

/// The records: `lazaret` in `$XDG_STATE_HOME`, or in `.local/state` of the home.
pub fn state(home: &Path, variable: VariableLookup) -> PathBuf {
    named(STATE, variable)
        .unwrap_or_else(|| home.join(".local/state"))
        .join(OWN)
}

/// The name, in the directory of data, of an empty directory that is the project of sessions without one.
pub const NO_PROJECT: &str = "no-project";

/// The data, a central root for each project: `lazaret` in `$XDG_DATA_HOME`, or in `.local/share` of the home.
pub fn data(home: &Path, variable: VariableLookup) -> PathBuf {
    named(DATA, variable)
        .unwrap_or_else(|| home.join(".local/share"))
        .join(OWN)
}

/// The directory of data by the variable, and the one without it: sessions in another environment have written there.
pub fn all_data(home: &Path, variable: VariableLookup) -> [PathBuf; 2] {
    [data(home, variable), data(home, &|_| None)]
}

/// Every directory that is a home of the user's: that of the account, and `HOME` where it is another.
pub fn homes(home: &Path, variable: VariableLookup) -> Vec<PathBuf> {
    let mut homes = vec![home.to_owned()];
    homes.extend(named("HOME", variable).filter(|other| other != home));
    homes
}

/// Where the sockets for approvals of this user's sessions may lie, the best place first: each is for use only if what
/// it lies in is the user's alone, but for the last.
pub fn approvals(home: &Path, uid: u32, variable: VariableLookup) -> Vec<PathBuf> {
    runtime(home, uid, variable, APPROVALS)
}

/// Where the socket of this user's `lazaret warm` may lie, in the same way.
pub fn warm(home: &Path, uid: u32, variable: VariableLookup) -> Vec<PathBuf> {
    runtime(home, uid, variable, WARM_SOCKET)
}

fn runtime(home: &Path, uid: u32, variable: VariableLookup, name: &str) -> Vec<PathBuf> {
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let all = [
        named("XDG_RUNTIME_DIR", variable),
        Some(usual),
        Some(home.join(".local/state/lazaret")),
    ];
    let mut all: Vec<PathBuf> = all
        .into_iter()
        .flatten()
        .map(|path| path.join(name))
        .collect();
    all.dedup();
    all
}

fn named(name: &str, variable: VariableLookup) -> Option<PathBuf> {
    variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_one_sentence_on_one_line() {
        let text = Advice::NoHome.to_string();
        assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn advice_names_what_leads_there() {
        let set = |name: &str| (name == DATA).then(|| OsString::from("/nonexistent"));
        let (home, path) = (
            Path::new("/home/u"),
            Path::new("/nonexistent/lazaret/projects/p"),
        );
        let named = Advice::Named {
            variable: DATA,
            directory: "/nonexistent".into(),
        };
        assert_eq!(advice(path, home, &set), Some(named.clone()));
        assert_eq!(advice(path, Path::new(NO_HOME), &set), Some(named));
        assert_eq!(advice(path, home, &|_| None), None);
        let path = Path::new("/nonexistent/.local/state/lazaret/audit");
        assert_eq!(advice(path, Path::new(NO_HOME), &set), Some(Advice::NoHome));
        assert_eq!(
            advice(Path::new("/srv/central"), Path::new(NO_HOME), &set),
            None
        );
    }

    #[test]
    fn relative_paths_in_variables_are_ignored() {
        let home = Path::new("/home/u");
        let all = |value: &'static str| {
            let variable =
                move |_: &str| Some(OsString::from(value)).filter(|value| !value.is_empty());
            let approvals = approvals(home, 7, &variable)[0].clone();
            [
                configuration(home, &variable),
                state(home, &variable),
                approvals,
            ]
        };
        let usual = [
            "/home/u/.config/lazaret",
            "/home/u/.local/state/lazaret",
            "/run/user/7/lazaret-approve",
        ];
        assert_eq!(all(""), usual.map(PathBuf::from));
        assert_eq!(all("x/y"), usual.map(PathBuf::from));
        assert_eq!(
            all("/x"),
            ["/x/lazaret", "/x/lazaret", "/x/lazaret-approve"].map(PathBuf::from)
        );
    }

    #[test]
    fn data_lie_where_the_records_do_and_every_home_is_known() {
        let home = Path::new("/home/u");
        for (set, data_in, homes_are) in [
            (&[][..], "/home/u/.local/share/lazaret", &["/home/u"][..]),
            (
                &[("HOME", "x")],
                "/home/u/.local/share/lazaret",
                &["/home/u"],
            ),
            (
                &[("HOME", "/h")],
                "/home/u/.local/share/lazaret",
                &["/home/u", "/h"],
            ),
            (
                &[("HOME", "/h"), ("XDG_DATA_HOME", "/d")],
                "/d/lazaret",
                &["/home/u", "/h"],
            ),
        ] {
            let variable =
                |name: &str| Some(OsString::from(set.iter().find(|(own, _)| *own == name)?.1));
            assert_eq!(data(home, &variable), Path::new(data_in), "{set:?}");
            let want: Vec<_> = homes_are.iter().map(PathBuf::from).collect();
            assert_eq!(homes(home, &variable), want, "{set:?}");
        }
    }

    #[test]
    fn user_without_account_gets_home_from_the_environment() {
        let is_directory = |path: &Path| {
            path.starts_with("/home") || path == Path::new("/work") || path == Path::new("/")
        };
        for (account, set, want) in [
            (Some("/home/u"), None, "/home/u"),
            (Some("/home/u"), Some("/work"), "/home/u"),
            (Some("/nonexistent"), Some("/work"), "/work"),
            (Some("/"), Some("/work"), "/work"),
            (Some(""), Some("/work"), "/work"),
            (None, Some("/work"), "/work"),
            (None, Some("work"), NO_HOME),
            (None, Some("/"), NO_HOME),
            (None, Some("/gone"), NO_HOME),
            (None, None, NO_HOME),
        ] {
            let variable = |name: &str| set.filter(|_| name == "HOME").map(OsString::from);
            let home = home(account.map(PathBuf::from), &is_directory, &variable);
            assert_eq!(home, Path::new(want), "{account:?} {set:?}");
        }
    }
}
