//! `[gateway]` of the policy on this machine: a company's authorities, from their files, and its proxy, from the policy or
//! from the user's environment. Files are checked as sources of credentials are. Who chooses an authority reads every credential, and
//! who chooses the proxy sees where each connection leads, so what cannot be used ends the opening of the session.

use crate::owner::{Owner, SourceError};
use crate::pem::{self, blocks};
use crate::source::{FileSource, UserSource};
use broker_protocol::limit;
use policies::gateway::{DirectPlace, GatewayFault, ProxyAddress, ProxyChoice};
use policies::{GatewaySettings, ProxySettings};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use thiserror::Error;

/// The variables that name a proxy, as curl reads them: the first that is set.
const PROXY: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
/// The variables that name hosts which need no proxy.
const NO_PROXY: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// The remedy for an unusable file of authorities.
const REMEDY: &str = "name files of certificates in PEM form that only you or root may write, outside of what commands can write, or take the entry out";

/// Why `[gateway]` of the policy cannot be used.
#[derive(Debug, Error)]
pub enum CompanyError {
    #[error("`ca` in `[gateway]`: {0}; {REMEDY}")]
    Unusable(SourceError),
    #[error("`ca` in `[gateway]`: {0} contains no certificate in PEM form; {REMEDY}")]
    NoCertificate(String),
    #[error("`ca` in `[gateway]`: certificate {number} in {file} is broken; {REMEDY}")]
    Broken { file: String, number: usize },
    #[error("`ca` in `[gateway]`: {0} and the files before it have more than {kib} KiB; name the company's own certificates only", kib = limit::AUTHORITIES >> 10)]
    TooLarge(String),
    #[error("`proxy = \"environment\"` in `[gateway]` of {file}: the variable {variable}: {fault}")]
    Variable {
        file: String,
        variable: &'static str,
        fault: GatewayFault,
    },
    #[error("`proxy_from` in `[gateway]`: {0}")]
    Login(SourceError),
}

/// A company's part of a session's network.
#[derive(Debug, Default)]
pub(crate) struct Company {
    pub(crate) authorities: Vec<String>,
    pub(crate) proxy: Option<CompanyProxy>,
    /// Notices about it, for people.
    pub notices: Vec<String>,
}

/// The proxy of a session's connections.
#[derive(Debug)]
pub(crate) struct CompanyProxy {
    pub(crate) address: ProxyAddress,
    pub(crate) direct: Vec<DirectPlace>,
    pub names: bool,
    pub(crate) login: Option<UserSource>,
}

impl Company {
    /// Reads the files and the environment.
    ///
    /// # Errors
    /// Something of it cannot be used.
    pub(crate) fn find(settings: &GatewaySettings, owner: &Owner) -> Result<Self, CompanyError> {
        let mut company = Self::default();
        let mut length = 0;
        for path in &settings.authorities {
            for certificate in authorities(path, owner)? {
                length += certificate.len();
                if length > limit::AUTHORITIES {
                    return Err(CompanyError::TooLarge(path.display().to_string()));
                }
                company.authorities.push(certificate);
            }
        }
        if let Some(settings) = &settings.proxy {
            company.find_proxy(settings, owner)?;
        }
        Ok(company)
    }

    fn find_proxy(&mut self, settings: &ProxySettings, owner: &Owner) -> Result<(), CompanyError> {
        let mut direct = settings.direct.clone();
        let address = match &settings.choice {
            ProxyChoice::Address(address) => address.clone(),
            ProxyChoice::Environment => {
                let Some((variable, value)) = first(&PROXY, owner) else {
                    return Ok(());
                };
                let (of_variable, unknown) = match first(&NO_PROXY, owner) {
                    Some((_, value)) => DirectPlace::of_variable(&value),
                    None => Default::default(),
                };
                direct.extend(of_variable);
                self.notices.extend(unknown.iter().map(|entry| {
                    format!(
                        "NO_PROXY: {entry:?} is no host and no network, so the proxy is used for it"
                    )
                }));
                let address = ProxyAddress::of_variable(&value, settings.login.as_ref());
                address.map_err(|fault| CompanyError::Variable {
                    file: settings.file.clone(),
                    variable,
                    fault,
                })?
            }
        };
        if let Some(more @ 1..) = direct.len().checked_sub(limit::DIRECT_PLACES) {
            self.notices.push(format!(
                "NO_PROXY and `no_proxy`: only the first {} hosts and networks count, of which a name makes two, so the proxy is used for the other {more}",
                limit::DIRECT_PLACES
            ));
        }
        direct.truncate(limit::DIRECT_PLACES);
        let login = settings.login.as_ref();
        let login = login.map(|from| UserSource::of(from, owner)).transpose();
        self.proxy = Some(CompanyProxy {
            address,
            direct,
            names: settings.names,
            login: login.map_err(CompanyError::Login)?,
        });
        Ok(())
    }
}

/// The first of these variables that is set and not empty.
fn first(names: &[&'static str], owner: &Owner) -> Option<(&'static str, String)> {
    names.iter().find_map(|name| {
        let value = owner.variables.get(OsStr::new(name))?;
        let value = value.to_string_lossy();
        (!value.trim().is_empty()).then(|| (*name, value.trim().to_owned()))
    })
}

fn authorities(path: &Path, owner: &Owner) -> Result<Vec<String>, CompanyError> {
    let name = || path.display().to_string();
    let source = FileSource::new(path.to_owned(), owner).map_err(CompanyError::Unusable)?;
    let (file, size) = source.file().map_err(CompanyError::Unusable)?;
    if size > limit::AUTHORITIES {
        return Err(CompanyError::TooLarge(name()));
    }
    let mut content = String::new();
    File::from(file)
        .take(limit::AUTHORITIES as u64)
        .read_to_string(&mut content)
        .map_err(|error| CompanyError::Unusable(SourceError::Unopened(name(), error)))?;
    let found: Vec<String> = blocks(&content).collect();
    if found.is_empty() {
        return Err(CompanyError::NoCertificate(name()));
    }
    match found.iter().position(|one| pem::der(one).is_none()) {
        Some(index) => Err(CompanyError::Broken {
            file: name(),
            number: index + 1,
        }),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_spec::variables::Variables;
    use policies::CredentialSource;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    struct World {
        folder: tempfile::TempDir,
        variables: Variables,
    }

    fn world(variables: &[(&str, &str)]) -> World {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        World {
            folder,
            variables: variables.collect(),
        }
    }

    impl World {
        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join(name)
        }

        fn find(&self, settings: &GatewaySettings) -> Result<Company, CompanyError> {
            let home = self.at("");
            let owner = Owner {
                home: &home,
                variables: &self.variables,
                writable: vec![self.at("project")],
            };
            Company::find(settings, &owner)
        }

        fn authorities(&self, name: &str, content: &str) -> Result<Vec<String>, String> {
            fs::write(self.at(name), content).unwrap();
            let settings = GatewaySettings {
                authorities: vec![self.at(name)],
                proxy: None,
                from_client: false,
            };
            let found = self.find(&settings);
            found
                .map(|company| company.authorities)
                .map_err(|error| error.to_string())
        }

        fn proxy(&self, login: Option<CredentialSource>) -> Result<Company, String> {
            let settings = GatewaySettings {
                authorities: vec![],
                proxy: Some(ProxySettings {
                    choice: ProxyChoice::Environment,
                    direct: vec![],
                    names: false,
                    login,
                    file: "/p".into(),
                }),
                from_client: false,
            };
            self.find(&settings).map_err(|error| error.to_string())
        }
    }

    fn pem(body: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    }

    /// A sequence of 128 zeros: no certificate, but whole.
    fn certificate() -> String {
        pem(&format!(
            "MIGA{}",
            "A".repeat(128_usize.div_ceil(3) * 4 - 4) + "AAA="
        ))
    }

    #[test]
    fn authorities_are_read_from_files_that_commands_cannot_write() {
        let world = world(&[]);
        let found = world.authorities("ca.pem", &format!("# ours\n{}", certificate()));
        assert_eq!(found, Ok(vec![certificate()]));
        let refused = |name: &str, content: &str, want: &str| {
            let why = world.authorities(name, content).unwrap_err();
            let path = world.at(name).display().to_string();
            assert!(why.contains(want) && why.contains(&path), "{why}");
            assert!(why.contains("`ca` in `[gateway]`"), "{why}");
        };
        refused("project/ca.pem", &certificate(), "where commands can write");
        refused("text", "no certificate", "contains no certificate");
        refused("empty", "", "contains no certificate");
        refused(
            "cut",
            &certificate().replace("MIGA", "MIHA"),
            "certificate 1 in",
        );
        refused("key", &pem("bm8gREVSIGhlcmU="), "is broken");
        refused(
            "large",
            &"x".repeat(limit::AUTHORITIES + 1),
            "more than 256 KiB",
        );
        fs::write(world.at("shared"), "").unwrap();
        fs::set_permissions(world.at("shared"), fs::Permissions::from_mode(0o666)).unwrap();
        refused("shared", &certificate(), "others may write it");
    }

    #[test]
    fn a_missing_file_is_named() {
        let world = world(&[]);
        let settings = GatewaySettings {
            authorities: vec![world.at("absent.pem")],
            proxy: None,
            from_client: false,
        };
        let why = world.find(&settings).unwrap_err().to_string();
        assert!(why.contains("absent.pem: No such file"), "{why}");
    }

    #[test]
    fn only_valid_proxies_of_the_environment_are_used() {
        assert!(world(&[]).proxy(None).unwrap().proxy.is_none());
        let named = world(&[
            ("HTTPS_PROXY", "http://proxy.corp:3128"),
            ("NO_PROXY", "localhost,.corp,10.*"),
        ]);
        let company = named.proxy(None).unwrap();
        let proxy = company.proxy.unwrap();
        assert_eq!(
            (proxy.address.host.as_str(), proxy.address.port),
            ("proxy.corp", 3128)
        );
        assert!(proxy.direct.iter().any(|one| one.names("git.corp", 443)));
        assert_eq!(company.notices.len(), 1, "{:?}", company.notices);
        let why = world(&[("https_proxy", "http://u:p@proxy.corp:3128")]).proxy(None);
        let why = why.unwrap_err();
        assert!(
            why.contains("https_proxy") && why.contains("proxy_from") && !why.contains("u:p"),
            "{why}"
        );
    }

    #[test]
    fn hosts_without_the_proxy_beyond_the_bound_are_named() {
        let company = |count: usize| {
            let hosts: Vec<String> = (0..count).map(|n| format!("h{n}.corp")).collect();
            let variables = [
                ("HTTPS_PROXY", "http://proxy.corp:3128"),
                ("NO_PROXY", &*hosts.join(",")),
            ];
            world(&variables).proxy(None).unwrap()
        };
        // A name stands for itself and for its subdomains.
        let all = company(limit::DIRECT_PLACES / 2);
        assert!(all.notices.is_empty(), "{:?}", all.notices);
        let company = company(limit::DIRECT_PLACES / 2 + 3);
        let direct = company.proxy.unwrap().direct;
        assert_eq!(direct.len(), limit::DIRECT_PLACES);
        assert!(
            matches!(&*company.notices, [one] if one.ends_with("the other 6")),
            "{:?}",
            company.notices
        );
    }

    #[test]
    fn a_login_that_is_not_there_ends_the_opening() {
        let world = world(&[("HTTPS_PROXY", "http://u:p@proxy.corp:3128")]);
        let file = CredentialSource::File(world.at("login"));
        let why = world.proxy(Some(file.clone())).unwrap_err();
        assert!(why.contains("`proxy_from`"), "{why}");
        fs::write(world.at("login"), "user:password").unwrap();
        assert!(
            world
                .proxy(Some(file))
                .unwrap()
                .proxy
                .unwrap()
                .login
                .is_some()
        );
    }
}
