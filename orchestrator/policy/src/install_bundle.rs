//! `lazaret policy install-bundle`: verifies a policy bundle and installs its files, so that a machine has all of them or none.
//!
//! The signature protects the way from the administrator to the machine. On the machine root's files are believed, as all programs of
//! Lazaret are: so the executor verifies nothing and links nothing for it. The number that was seen last is in the same directory as the
//! files and is exchanged with them, in one step; no user of the machine can write there.

use crate::bundle::{BUNDLE_MAX, BundleError, PolicyBundle, SignedBundle, UnsignedError};
use crate::sources::check_sources;
use broker_protocol::{ErrorKind, Failed};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::Uid;
use orchestrator_confine::Files;
use orchestrator_launch::launch::{ErrorForm, Prepared};
use orchestrator_launch::session_options::read_text_up_to;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, policy_files};
use orchestrator_lines::errors;
use orchestrator_signature::{
    KEYS_FILE_MAX, PublicKeyError, SIGNATURE_MAX, TrustedKey, trusted_keys,
};
use policies::source::{self, FILE_MAX, FileError, FileFault, SYSTEM_DIRECTORY};
use policies::{PolicySource, SourceKind};
use serde_json::json;
use std::cmp::Ordering;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

const BASE: &str = "/etc/lazaret";
/// The keys that may sign bundles for this machine.
const KEYS: &str = "bundle.pub";
const PARTS: &str = "policy.d";
/// A directory of the next files, or of the last ones, until it is removed.
const ASIDE: &str = ".policy.d.new";
const LOCK: &str = ".bundle.lock";
/// In the directory of the files: the bundle and its signature as they were installed. The policy's loader leaves out such names.
const KEPT: &str = ".bundle";
const KEPT_SIGNATURE: &str = ".bundle.sig";

#[derive(Debug, Error)]
pub(crate) enum InstallError {
    #[error("only root can install a policy for all users of this machine")]
    NotRoot,
    #[error("{}: {why}; put the administrator's public key there, as `ssh-keygen` writes it", .path.display())]
    KeyFile { path: PathBuf, why: FileFault },
    #[error("{}: {why}", .path.display())]
    Keys { path: PathBuf, why: PublicKeyError },
    #[error("{} is not installed: {why}", .path.display())]
    Unsigned { path: PathBuf, why: UnsignedError },
    #[error(
        "bundle {installed} is installed, and this is bundle {number}: a policy does not go back"
    )]
    Older { installed: u64, number: u64 },
    #[error("bundle {0} is installed with another content: the number of a bundle is used once")]
    Reused(u64),
    #[error("{} is of no bundle: move it away, or give --replace to remove what is there", .0.display())]
    Foreign(PathBuf),
    #[error("{} is not as the installed bundle has it: install a bundle again, with --replace", .0.display())]
    Changed(PathBuf),
    #[error("the bundle that was installed last cannot be read, so its number is not known: {}: {why}", .path.display())]
    Kept { path: PathBuf, why: KeptError },
    #[error(transparent)]
    Installed(#[from] FileError),
    #[error("{}: {why}", .path.display())]
    System { path: PathBuf, why: io::Error },
}

/// Why the copy of the installed bundle cannot be used.
#[derive(Debug, Error)]
pub(crate) enum KeptError {
    #[error(transparent)]
    File(#[from] FileFault),
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// The text of a bundle and its signature, which nobody has verified yet.
struct OfferedBundle {
    path: PathBuf,
    text: String,
    signature: String,
}

/// The directory of a machine's policy.
struct BundlePlace {
    base: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstallOutcome {
    Installed,
    /// This very bundle, with all its files.
    Already,
}

pub(crate) fn install(
    prepared: &Prepared,
    path: &Path,
    replace: bool,
    json: bool,
) -> Result<u8, Failed> {
    match try_install(prepared, path, replace, json) {
        Err(failed) if failed.kind == ErrorKind::DeniedPolicy => {
            print::problem(&failed.message);
            errors::print_failed(&ErrorForm::object(json), &failed);
            Ok(exit::REFUSED)
        }
        done => done,
    }
}

fn try_install(prepared: &Prepared, path: &Path, replace: bool, json: bool) -> Result<u8, Failed> {
    if !Uid::effective().is_root() {
        return Err(InstallError::NotRoot.into());
    }
    let place = BundlePlace::of_machine();
    let offered = OfferedBundle::read(prepared.files(), path)?;
    let signed = place.verified(&offered)?;
    check_sources(place.sources_with(&signed.bundle)?, &policy_files::host())?
        .iter()
        .for_each(|note| print::note(note));
    let outcome = place.install(&signed, &offered, replace)?;
    let (number, by) = (signed.bundle.number, signed.by);
    if json {
        let is_new = outcome == InstallOutcome::Installed;
        let key = by.to_string();
        print::json(&json!({ "number": number, "installed": is_new, "key": key }))?;
    } else {
        let done = match outcome {
            InstallOutcome::Installed => "installed",
            InstallOutcome::Already => "was installed already",
        };
        print::result(format!("policy bundle {number}, signed by {by}: {done}\n").as_bytes())?;
    }
    Ok(exit::OK)
}

/// Notes on the bundle of this machine, if it has one.
///
/// # Errors
/// It is not signed by a key of this machine, or the files are not its.
pub(crate) fn notes(_: &Files) -> Result<Vec<String>, Failed> {
    let place = BundlePlace::of_machine();
    let Some(kept) = place.kept()? else {
        return Ok(Vec::new());
    };
    let signed = place.verified(&kept)?;
    if let Some(other) = place.difference(&signed.bundle)? {
        return Err(InstallError::Changed(other).into());
    }
    let (number, by) = (signed.bundle.number, signed.by);
    let text = format!("{SYSTEM_DIRECTORY} is policy bundle {number}, signed by {by}");
    Ok(vec![text])
}

impl OfferedBundle {
    fn read(files: &Files, path: &Path) -> Result<Self, Failed> {
        let mut signature = path.as_os_str().to_owned();
        signature.push(".sig");
        Ok(Self {
            text: read_text_up_to(files, path, BUNDLE_MAX)?,
            signature: read_text_up_to(files, signature.as_ref(), SIGNATURE_MAX)?,
            path: path.to_owned(),
        })
    }
}

impl BundlePlace {
    fn of_machine() -> Self {
        let base = BASE.into();
        Self { base }
    }

    fn parts(&self) -> PathBuf {
        self.base.join(PARTS)
    }

    /// The keys that this machine trusts. Nobody else can have written them.
    fn keys(&self) -> Result<Vec<TrustedKey>, InstallError> {
        let path = self.base.join(KEYS);
        let text =
            source::check_place(&path).and_then(|()| source::read_named(&path, KEYS_FILE_MAX));
        match text {
            Ok(text) => trusted_keys(&text).map_err(|why| InstallError::Keys { path, why }),
            Err(why) => Err(InstallError::KeyFile { path, why }),
        }
    }

    fn verified(&self, offered: &OfferedBundle) -> Result<SignedBundle, InstallError> {
        let (text, signature) = (&offered.text, &offered.signature);
        SignedBundle::verified(text, signature, &self.keys()?).map_err(|why| {
            InstallError::Unsigned {
                path: offered.path.clone(),
                why,
            }
        })
    }

    /// The administrator's files once `bundle` is installed.
    fn sources_with(&self, bundle: &PolicyBundle) -> Result<Vec<PolicySource>, InstallError> {
        let path = self.base.join("policy.toml");
        let mut sources = match source::read_named(&path, FILE_MAX) {
            Ok(text) => vec![PolicySource {
                name: path.display().to_string(),
                kind: SourceKind::System,
                text,
            }],
            Err(FileFault::Kernel(Errno::ENOENT)) => Vec::new(),
            Err(why) => return Err(FileError { path, why }.into()),
        };
        sources.extend(bundle.sources());
        Ok(sources)
    }

    /// The bundle that was installed last, as it was then.
    fn kept(&self) -> Result<Option<OfferedBundle>, InstallError> {
        let [path, signature] = [KEPT, KEPT_SIGNATURE].map(|name| self.parts().join(name));
        let text = match source::read_named(&path, BUNDLE_MAX) {
            Ok(text) => text,
            Err(FileFault::Kernel(Errno::ENOENT)) => return Ok(None),
            Err(why) => return Err(unreadable(path, why)),
        };
        let signature = source::read_named(&signature, SIGNATURE_MAX)
            .map_err(|why| unreadable(signature, why))?;
        Ok(Some(OfferedBundle {
            path,
            text,
            signature,
        }))
    }

    /// The first policy file that is not as `bundle` has it, or that is missing.
    fn difference(&self, bundle: &PolicyBundle) -> Result<Option<PathBuf>, InstallError> {
        let found = source::parts(&self.parts())?;
        for path in &found {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let text = source::read_named(path, FILE_MAX).map_err(|why| FileError {
                path: path.clone(),
                why,
            })?;
            if bundle.files.get(name.as_ref()) != Some(&text) {
                return Ok(Some(path.clone()));
            }
        }
        let expected = bundle.files.keys().map(|name| self.parts().join(name));
        Ok(expected.into_iter().find(|path| !found.contains(path)))
    }

    /// Installs a bundle that was verified, if its number is greater than that of the last one.
    fn install(
        &self,
        signed: &SignedBundle,
        offered: &OfferedBundle,
        replace: bool,
    ) -> Result<InstallOutcome, InstallError> {
        let _lock = self.lock()?;
        let kept = self.kept()?;
        let installed = match &kept {
            // Its key may have been replaced since; root has written it.
            Some(kept) => {
                Some(
                    PolicyBundle::parse(&kept.text).map_err(|why| InstallError::Kept {
                        path: kept.path.clone(),
                        why: why.into(),
                    })?,
                )
            }
            None => None,
        };
        let bundle = &signed.bundle;
        if let Some(installed) = &installed {
            let number = bundle.number;
            match number.cmp(&installed.number) {
                Ordering::Greater => {}
                Ordering::Less => {
                    let installed = installed.number;
                    return Err(InstallError::Older { installed, number });
                }
                Ordering::Equal if bundle != installed => return Err(InstallError::Reused(number)),
                Ordering::Equal if self.difference(bundle)?.is_none() => {
                    return Ok(InstallOutcome::Already);
                }
                Ordering::Equal => {}
            }
        }
        if !replace {
            self.check_foreign(installed.as_ref())?;
        }
        self.write_aside(bundle, offered)?;
        self.exchange()?;
        Ok(InstallOutcome::Installed)
    }

    /// Refuses if something would go that no bundle has brought. A missing file of the last one is no reason.
    fn check_foreign(&self, installed: Option<&PolicyBundle>) -> Result<(), InstallError> {
        let parts = source::parts(&self.parts())?;
        let none = PolicyBundle::default();
        match self.difference(installed.unwrap_or(&none))? {
            Some(path) if parts.contains(&path) => Err(InstallError::Foreign(path)),
            Some(_) | None => Ok(()),
        }
    }

    /// Two installations at once could go back. In a file that nobody else can open: whoever can open one can hold its lock for ever.
    #[expect(clippy::disallowed_methods, reason = "the machine's settings, by root")]
    fn lock(&self) -> Result<File, InstallError> {
        let path = self.base.join(LOCK);
        let at_lock = system(&path);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(&at_lock)?;
        file.lock().map_err(&at_lock)?;
        Ok(file)
    }

    /// Writes the next directory, so that a power cut leaves it whole.
    #[expect(clippy::disallowed_methods, reason = "the machine's settings, by root")]
    fn write_aside(
        &self,
        bundle: &PolicyBundle,
        offered: &OfferedBundle,
    ) -> Result<(), InstallError> {
        let aside = self.base.join(ASIDE);
        self.remove_aside()?;
        let at_aside = system(&aside);
        DirBuilder::new()
            .mode(0o755)
            .create(&aside)
            .map_err(&at_aside)?;
        // Whatever the umask is: users read their policy.
        fs::set_permissions(&aside, Permissions::from_mode(0o755)).map_err(&at_aside)?;
        let kept = [(KEPT, &offered.text), (KEPT_SIGNATURE, &offered.signature)];
        let files = bundle
            .files
            .iter()
            .map(|(name, text)| (name.as_str(), text));
        for (name, text) in files.chain(kept) {
            let path = aside.join(name);
            write_new(&path, text).map_err(system(&path))?;
        }
        let directory = File::open(&aside).map_err(&at_aside)?;
        directory.sync_all().map_err(&at_aside)
    }

    /// Gives the next directory the name of the last one, in one step.
    #[expect(clippy::disallowed_methods, reason = "the machine's settings, by root")]
    fn exchange(&self) -> Result<(), InstallError> {
        let (aside, parts) = (self.base.join(ASIDE), self.parts());
        let rename = |flags| renameat2(AT_FDCWD, &aside, AT_FDCWD, &parts, flags);
        let renamed = match rename(RenameFlags::RENAME_EXCHANGE) {
            Err(Errno::ENOENT) => rename(RenameFlags::RENAME_NOREPLACE),
            renamed => renamed,
        };
        renamed.map_err(|errno| system(&parts)(errno.into()))?;
        let base = File::open(&self.base).and_then(|base| base.sync_all());
        base.map_err(system(&self.base))?;
        self.remove_aside()
    }

    #[expect(clippy::disallowed_methods, reason = "the machine's settings, by root")]
    fn remove_aside(&self) -> Result<(), InstallError> {
        let aside = self.base.join(ASIDE);
        match fs::remove_dir_all(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system(&aside)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the machine's settings, by root")]
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()
}

fn system(path: &Path) -> impl Fn(io::Error) -> InstallError {
    let path = path.to_owned();
    move |why| InstallError::System {
        path: path.clone(),
        why,
    }
}

fn unreadable(path: PathBuf, why: FileFault) -> InstallError {
    let why = why.into();
    InstallError::Kept { path, why }
}

impl From<InstallError> for Failed {
    fn from(error: InstallError) -> Self {
        let kind = match error {
            InstallError::NotRoot => ErrorKind::InvalidInput,
            InstallError::Unsigned { .. }
            | InstallError::Older { .. }
            | InstallError::Reused(_)
            | InstallError::Foreign(_)
            | InstallError::Changed(_)
            | InstallError::KeyFile { .. }
            | InstallError::Keys { .. } => ErrorKind::DeniedPolicy,
            InstallError::Kept { .. }
            | InstallError::Installed(_)
            | InstallError::System { .. } => ErrorKind::Internal,
        };
        let message = error.to_string();
        Failed { kind, message }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of a test")]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tempfile::TempDir;

    /// A directory of settings of our own, and bundles for it. Trust is tested with the program.
    struct Scratch {
        place: BundlePlace,
        _folder: TempDir,
    }

    impl Scratch {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let base = folder.path().to_owned();
            let place = BundlePlace { base };
            Self {
                place,
                _folder: folder,
            }
        }

        fn install(&self, number: u64, files: &[(&str, &str)]) -> Result<InstallOutcome, String> {
            let files: BTreeMap<&str, &str> = files.iter().copied().collect();
            let text = json!({ "format": 1, "number": number, "files": files });
            let text = toml::to_string(&text).unwrap();
            let signed = SignedBundle {
                bundle: PolicyBundle::parse(&text).unwrap(),
                by: trusted_keys(KEY).unwrap()[0],
            };
            let offered = OfferedBundle {
                path: "bundle".into(),
                text,
                signature: "signature".into(),
            };
            let installed = self.place.install(&signed, &offered, false);
            installed.map_err(|error| error.to_string())
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.place.parts()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICltphTHjkIA4MkOdo+wwOd5gfw9Awh8n+sKOVqtlg5v";

    #[test]
    fn a_number_only_grows() {
        let scratch = Scratch::new();
        let (installed, already) = (Ok(InstallOutcome::Installed), Ok(InstallOutcome::Already));
        assert_eq!(
            scratch.install(7, &[("a.toml", "1"), ("b.toml", "")]),
            installed
        );
        assert_eq!(
            scratch.install(7, &[("a.toml", "1"), ("b.toml", "")]),
            already
        );
        let refused = scratch.install(6, &[("a.toml", "1")]).unwrap_err();
        assert!(refused.contains("does not go back"), "{refused}");
        let refused = scratch.install(7, &[("a.toml", "1")]).unwrap_err();
        assert!(refused.contains("used once"), "{refused}");
        assert_eq!(scratch.install(9, &[("b.toml", "2")]), installed);
        assert_eq!(scratch.names(), [".bundle", ".bundle.sig", "b.toml"]);
        assert!(scratch.install(8, &[("a.toml", "1")]).is_err());
        // Where the number cannot be read, it is not taken for none.
        fs::write(scratch.place.parts().join(KEPT), "format = 1").unwrap();
        let refused = scratch.install(10, &[("a.toml", "1")]).unwrap_err();
        assert!(refused.contains("number is not known"), "{refused}");
    }

    #[test]
    fn files_of_no_bundle_stay() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.place.parts()).unwrap();
        let site = scratch.place.parts().join("site.toml");
        fs::write(&site, "").unwrap();
        assert!(scratch.install(1, &[("a.toml", "")]).is_err());
        fs::remove_file(&site).unwrap();
        scratch.install(1, &[("a.toml", "1")]).unwrap();
        let own = scratch.place.parts().join("a.toml");
        // A missing file of the last bundle is no reason against the next one, nor against this one again.
        fs::remove_file(&own).unwrap();
        let again = scratch.install(1, &[("a.toml", "1")]);
        assert_eq!(again, Ok(InstallOutcome::Installed));
        for (path, text) in [(&own, "2"), (&site, "")] {
            fs::write(path, text).unwrap();
            let refused = scratch.install(2, &[("a.toml", "3")]).unwrap_err();
            assert!(refused.contains("of no bundle"), "{refused}");
            assert_eq!(fs::read_to_string(path).unwrap(), text);
            fs::write(&own, "1").unwrap();
        }
    }
}
