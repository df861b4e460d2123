//! Whether the source of a credential is there, as far as it shows from outside: no file is opened, and no program started.

use nix::unistd::geteuid;
use policies::CredentialSource;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a source gives no value.
#[derive(Debug, Error)]
pub(super) enum SourceFault {
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    Unseen(PathBuf, io::Error),
    #[error("{path} is no regular file", path = .0.display())]
    NotRegular(PathBuf),
    #[error("{path} belongs to somebody else", path = .0.display())]
    Foreign(PathBuf),
    #[error("{path}: others may write it; `chmod go-w` closes it to them", path = .0.display())]
    Shared(PathBuf),
    #[error("{path} is empty", path = .0.display())]
    Empty(PathBuf),
    #[error("CREDENTIALS_DIRECTORY, which systemd sets for a service, is not set")]
    NoDirectory,
    #[error("the variable {0} is not set, or is empty")]
    Unset(String),
    #[error("there is no program `{0}` in PATH")]
    NoProgram(String),
}

/// Looks at a source. The executor looks again when it is used, and also refuses one where commands can write.
pub(super) fn check(
    from: &CredentialSource,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(), SourceFault> {
    match from {
        CredentialSource::File(path) => file(path),
        CredentialSource::Systemd(name) => {
            let directory = variable("CREDENTIALS_DIRECTORY").map(PathBuf::from);
            let directory = directory.filter(|path| path.is_absolute());
            file(&directory.ok_or(SourceFault::NoDirectory)?.join(name))
        }
        CredentialSource::Variable(name) => match variable(name) {
            Some(value) if !value.is_empty() => Ok(()),
            Some(_) | None => Err(SourceFault::Unset(name.clone())),
        },
        CredentialSource::Session => Ok(()),
        CredentialSource::Command(words) => {
            let name = words.first().map_or("", String::as_str);
            match program(name, variable("PATH")) {
                true => Ok(()),
                false => Err(SourceFault::NoProgram(name.to_owned())),
            }
        }
    }
}

fn file(path: &Path) -> Result<(), SourceFault> {
    let own = || path.to_owned();
    let metadata = fs::metadata(path).map_err(|error| SourceFault::Unseen(own(), error))?;
    if !metadata.is_file() {
        return Err(SourceFault::NotRegular(own()));
    }
    if ![0, geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(SourceFault::Foreign(own()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(SourceFault::Shared(own()));
    }
    match metadata.len() {
        0 => Err(SourceFault::Empty(own())),
        _ => Ok(()),
    }
}

/// Whether there is a program of this name, or at this full path.
pub(super) fn program(name: &str, path: Option<OsString>) -> bool {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return is_program(Path::new(name));
    }
    let path = path.unwrap_or_default();
    let mut directories = std::env::split_paths(&path).filter(|path| path.is_absolute());
    directories.any(|directory| is_program(&directory.join(name)))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of a test")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_source_that_gives_no_value_is_named_without_reading_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("token"), "value").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("shared"), "value").unwrap();
        let set = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("token", 0o400);
        set("empty", 0o600);
        set("shared", 0o622);
        let variable = |name: &str| match name {
            "PATH" => Some("/usr/bin:/bin".into()),
            "CREDENTIALS_DIRECTORY" => Some(folder.path().into()),
            _ => None,
        };
        let said =
            |from: CredentialSource| check(&from, &variable).err().map(|fault| fault.to_string());
        let file = |name: &str| said(CredentialSource::File(at(name)));
        assert_eq!(file("token"), None);
        assert!(file("empty").unwrap().ends_with("is empty"));
        assert!(file("shared").unwrap().contains("chmod go-w"));
        assert!(file("absent").unwrap().contains("No such file"));
        assert!(file("").unwrap().ends_with("is no regular file"));
        assert_eq!(said(CredentialSource::Systemd("token".into())), None);
        let command = |name: &str| said(CredentialSource::Command(vec![name.into()]));
        assert_eq!(command("sh"), None);
        assert_eq!(command("/bin/sh"), None);
        assert!(command("no-such-program").unwrap().contains("in PATH"));
    }
}
