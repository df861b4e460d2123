//! The files by which programs in cells trust the session's authority: made before the session's first process, with the machine's
//! authorities in them, and completed by the broker when the gateway has made its own. Cells see them read-only.

use crate::pem::blocks;
use crate::trust_store::{self, TrustStore};
use broker_protocol::limit;
use executor_spec::certificates::{CellRoot, CertificateFiles, MACHINE};
use executor_spec::scratch::{Scratch, host_directory};
use executor_spec::variables::Variables;
use policies::leads_into;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of a file of certificates.
const CERTIFICATES_MAX: u64 = 4 << 20;

/// Variables that name a file of all authorities: Go, Python and OpenSSL, curl, git, requests, pip, Cargo, AWS, Nix, npm, gRPC, gcloud.
const ALL: [&str; 11] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "npm_config_cafile",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
];
/// Variables that name a file of further authorities: Node and Bun, Deno.
const ADDED: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
/// A variable with options for each Java program.
pub(crate) const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// The files of a session that does not stand yet. Dropped, they have no name on the host any more.
#[derive(Debug)]
#[must_use]
pub(crate) struct NewCertificates {
    paths: CertificateFiles,
    files: [File; 2],
    java: JavaFile,
    /// The directory that is made for them alone: where mounts show them, no path needs to.
    own: Option<PathBuf>,
}

/// The files of a session.
#[derive(Debug)]
pub struct Certificates {
    files: [File; 2],
    java: JavaFile,
    is_complete: bool,
}

/// The trust store, and the file that it becomes.
#[derive(Debug)]
struct JavaFile {
    store: TrustStore,
    file: File,
}

impl NewCertificates {
    /// Makes them, in the private storage of `scratch` where that lies on the host. `ours` is the user's environment, and `company` what
    /// the policy adds to the machine's authorities.
    ///
    /// # Errors
    /// They cannot be made.
    pub(crate) fn make(
        scratch: &Scratch,
        written: &[&Path],
        (home, ours): (&Path, &Variables),
        company: &[String],
    ) -> io::Result<Self> {
        let variable = |name: &str| ours.get(OsStr::new(name)).cloned();
        let own = match scratch.host {
            Some(_) => None,
            None => Some(host_directory(written, home, variable)?),
        };
        let directory = own.as_ref().or(scratch.host.as_ref());
        let directory = directory.ok_or(io::ErrorKind::NotFound)?;
        let paths = CertificateFiles {
            all: directory.join("all.pem"),
            added: directory.join("added.pem"),
            java: directory.join("java.jks"),
        };
        let new = |path: &Path| {
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o444).open(path)
        };
        let files = [new(&paths.all)?, new(&paths.added)?];
        let java = JavaFile {
            store: TrustStore::default(),
            file: new(&paths.java)?,
        };
        let mut made = Self {
            paths,
            files,
            java,
            own,
        };
        made.fill(written, &variable, company)?;
        Ok(made)
    }

    fn fill(
        &mut self,
        roots: &[&Path],
        variable: &impl Fn(&str) -> Option<OsString>,
        company: &[String],
    ) -> io::Result<()> {
        let mut known = BTreeSet::new();
        let machine = MACHINE
            .iter()
            .find_map(|path| certificates(Path::new(path), roots));
        let named = ALL.iter().chain(&ADDED).filter_map(|name| variable(name));
        let named = named.map(PathBuf::from).filter(|path| path.is_absolute());
        let users = named.filter_map(|path| certificates(&path, roots));
        let [all, added] = &mut self.files;
        for certificate in machine.into_iter().flatten() {
            if known.insert(certificate.clone()) {
                all.write_all(certificate.as_bytes())?;
                self.java.store.add(&certificate);
            }
        }
        for certificate in users.flatten().chain(company.iter().cloned()) {
            if known.insert(certificate.clone()) {
                all.write_all(certificate.as_bytes())?;
                added.write_all(certificate.as_bytes())?;
                self.java.store.add(&certificate);
            }
        }
        Ok(())
    }

    /// The files, for the description of the session's cells.
    pub(crate) fn paths(&self) -> &CertificateFiles {
        &self.paths
    }

    /// Ends the files of a session whose gateway has no authority of its own.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn without_session(self) -> io::Result<Self> {
        self.java.store.write(&self.java.file)?;
        Ok(self)
    }

    /// The variables by which programs find them. Options that Java programs have anyway are `options`.
    pub(crate) fn variables(
        &self,
        root: CellRoot,
        options: Option<&OsStr>,
    ) -> impl Iterator<Item = (OsString, OsString)> {
        let [(_, all), (_, added), (_, java)] = self.paths.seen(root);
        let set = |names: &'static [&str], path: PathBuf| {
            names
                .iter()
                .map(move |name| (name.into(), path.clone().into()))
        };
        let java = java_options(&java, options).map(|options| (JAVA_OPTIONS.into(), options));
        set(&ALL, all).chain(set(&ADDED, added)).chain(java)
    }

    /// The files of a session that stands.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn retain(&mut self) -> io::Result<Certificates> {
        let [all, added] = &self.files;
        Ok(Certificates {
            files: [all.try_clone()?, added.try_clone()?],
            java: JavaFile {
                store: std::mem::take(&mut self.java.store),
                file: self.java.file.try_clone()?,
            },
            is_complete: false,
        })
    }
}

impl Drop for NewCertificates {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            // The other files are public, in a directory that only the user enters.
            let _ = fs::remove_dir_all(own);
        }
    }
}

impl Certificates {
    /// Whether the authority of the session's gateway is in them.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Adds the authority of the session's gateway. A successor has the same one.
    ///
    /// # Errors
    /// It is no certificate, or the file cannot be written.
    pub fn complete(&mut self, certificate: &str) -> io::Result<()> {
        let found: Vec<String> = blocks(certificate).collect();
        if found.len() != 1 || certificate.len() > limit::CERTIFICATE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if std::mem::replace(&mut self.is_complete, true) {
            return Ok(());
        }
        let mut files = self.files.iter_mut();
        files.try_for_each(|file| file.write_all(found[0].as_bytes()))?;
        let mut store = std::mem::take(&mut self.java.store);
        store.add(&found[0]);
        store.write(&self.java.file)
    }
}

/// The options by which Java programs use this trust store, behind the user's: of two with the same name the last counts.
fn java_options(store: &Path, options: Option<&OsStr>) -> Option<OsString> {
    // It splits them at white space, and a quote begins what it does not split.
    let is_plain = |byte: &u8| !byte.is_ascii_whitespace() && !b"'\"".contains(byte);
    store.as_os_str().as_bytes().iter().all(is_plain).then(|| {
        let mut all = options.map(OsStr::to_owned).unwrap_or_default();
        if !all.is_empty() {
            all.push(" ");
        }
        all.push("-Djavax.net.ssl.trustStore=");
        all.push(store);
        // The user's store may have another password.
        all.push(" -Djavax.net.ssl.trustStorePassword=");
        all.push(trust_store::PASSWORD);
        all
    })
}

/// The certificates of a file that commands cannot have written; other parts of it, such as a key, are left out.
fn certificates(path: &Path, roots: &[&Path]) -> Option<Vec<String>> {
    let real = path.canonicalize().ok()?;
    if !path.is_absolute() || leads_into(path, roots) {
        return None;
    }
    // Without blocking for the other end, if it is a FIFO.
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(real)
        .ok()?;
    file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut content = Vec::new();
    file.take(CERTIFICATES_MAX).read_to_end(&mut content).ok()?;
    let found: Vec<String> = blocks(&String::from_utf8_lossy(&content)).collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pem::{BEGIN, END};
    use executor_spec::zones::Zones;
    use std::os::unix::fs::PermissionsExt;

    struct World {
        folder: tempfile::TempDir,
        zones: Zones,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().canonicalize().unwrap().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let zones = Zones {
            project: at("project"),
            central: at("central"),
        };
        at("run");
        World { folder, zones }
    }

    fn pem(text: &str) -> String {
        format!("{BEGIN}\n{text}\n{END}\n")
    }

    impl World {
        fn make(&self, host: Option<PathBuf>, variables: &[(&str, PathBuf)]) -> NewCertificates {
            let own = [("XDG_RUNTIME_DIR", self.folder.path().join("run"))];
            let all = variables.iter().chain(&own);
            let variables = all.map(|(name, path)| (name.into(), path.into())).collect();
            let scratch = Scratch {
                home: "/home/u".into(),
                tmp: "/tmp".into(),
                host,
            };
            NewCertificates::make(
                &scratch,
                &self.zones.roots(),
                (Path::new("/"), &variables),
                &[],
            )
            .unwrap()
        }

        fn run(&self) -> PathBuf {
            self.folder.path().join("run")
        }
    }

    #[test]
    fn a_session_has_the_machines_the_users_and_its_own() {
        let world = world();
        let company = world.run().join("company.pem");
        let text = format!(
            "# ours\n-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n{}{}",
            pem("Y29tcGFueQ=="),
            pem("bad line!")
        );
        fs::write(&company, text).unwrap();
        let mut new = world.make(
            None,
            &[
                ("NODE_EXTRA_CA_CERTS", company.clone()),
                ("SSL_CERT_FILE", company),
            ],
        );
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let (all, added) = (new.paths().all.clone(), new.paths().added.clone());
        assert_eq!(read(&added), pem("Y29tcGFueQ=="));
        assert!(read(&all).ends_with(&pem("Y29tcGFueQ==")) && !read(&all).contains("c2VjcmV0"));
        if let Some(machine) = MACHINE
            .iter()
            .find_map(|path| fs::read_to_string(path).ok())
        {
            assert_eq!(
                blocks(&read(&all)).count(),
                blocks(&machine).collect::<BTreeSet<_>>().len() + 1
            );
        }
        assert_eq!(
            fs::metadata(&all).unwrap().permissions().mode() & 0o777,
            0o444
        );
        let mut kept = new.retain().unwrap();
        assert!(kept.complete("no certificate").is_err());
        let mut kept = new.retain().unwrap();
        kept.complete(&pem("c2Vzc2lvbg==")).unwrap();
        kept.complete(&pem("b3RoZXI=")).unwrap();
        assert_eq!(read(&added), pem("Y29tcGFueQ==") + &pem("c2Vzc2lvbg=="));
        assert!(read(&all).ends_with(&pem("c2Vzc2lvbg==")));
    }

    #[test]
    fn a_file_that_commands_can_write_names_no_authority() {
        let world = world();
        let planted = world.zones.project.join("ca.pem");
        fs::write(&planted, pem("cGxhbnRlZA==")).unwrap();
        let linked = world.run().join("ca.pem");
        std::os::unix::fs::symlink(&planted, &linked).unwrap();
        for path in [planted, linked] {
            let new = world.make(None, &[("CURL_CA_BUNDLE", path)]);
            assert!(
                !fs::read_to_string(&new.paths().all)
                    .unwrap()
                    .contains("cGxhbnRlZA")
            );
        }
    }

    #[test]
    fn java_has_our_options_behind_its_own() {
        let given = |store: &str, options: Option<&str>| {
            java_options(Path::new(store), options.map(OsStr::new))
        };
        let ours =
            "-Djavax.net.ssl.trustStore=/s/java.jks -Djavax.net.ssl.trustStorePassword=changeit";
        assert_eq!(given("/s/java.jks", None).unwrap(), ours);
        assert_eq!(given("/s/java.jks", Some("")).unwrap(), ours);
        let both = format!("-Xmx1g {ours}");
        assert_eq!(given("/s/java.jks", Some("-Xmx1g")).unwrap(), &*both);
        for store in ["/a b/java.jks", "/a'/java.jks", "/a\"/java.jks"] {
            assert_eq!(given(store, None), None, "{store}");
        }
    }

    #[test]
    fn names_on_the_host_last_as_long_as_they_are_needed() {
        let world = world();
        let count = || fs::read_dir(world.run()).unwrap().count();
        let mut new = world.make(None, &[]);
        let mut kept = new.retain().unwrap();
        assert_eq!(count(), 1);
        drop(new);
        assert_eq!(count(), 0);
        kept.complete(&pem("c2Vzc2lvbg==")).unwrap();
        let host = world.run();
        let new = world.make(Some(host.clone()), &[]);
        assert_eq!(new.paths().all, host.join("all.pem"));
        assert!(
            new.variables(CellRoot::OfMachine, None)
                .any(|(name, path)| name == "CURL_CA_BUNDLE" && path == host.join("all.pem"))
        );
        assert!(
            new.variables(CellRoot::Own, None)
                .any(|(name, path)| name == "DENO_CERT" && path == "/.certificates/added.pem")
        );
        drop(new);
        assert!(host.join("all.pem").exists());
    }
}
