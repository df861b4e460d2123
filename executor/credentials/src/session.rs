//! The credentials of a session and the files by which its programs trust the gateway that uses them: found when the session opens.

use crate::certificates::{Certificates, JAVA_OPTIONS, NewCertificates};
use crate::company::{Company, CompanyError, CompanyProxy};
use crate::held::Credentials;
use crate::owner::Owner;
use crate::ssh::UserSsh;
use broker_protocol::gateway::{Authority, ProxySpec};
use executor_spec::certificates::{CellRoot, CertificateFiles};
use executor_spec::linked_repository::LinkedRepository;
use executor_spec::scratch::Scratch;
use executor_spec::variables::Variables;
use executor_spec::zones::Zones;
use policies::credential_table::AgentStateFile;
use policies::{EffectivePolicy, EnvironmentRules, GatewaySettings};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The paths that commands of a session can write, besides its private storage.
#[derive(Clone, Copy, Debug)]
pub struct WrittenPaths<'p> {
    pub zones: &'p Zones,
    pub linked: Option<&'p LinkedRepository>,
    /// Paths that the user lends to commands.
    pub lent: &'p [String],
    /// Directories of the machine for what is temporary, if commands use these.
    pub temporary: &'p [&'p Path],
    /// Projects of earlier sessions, whose commands have written there.
    pub earlier: &'p [PathBuf],
}

/// Why a session's credentials, or its way through a company's network, cannot be prepared.
#[derive(Debug, Error)]
pub enum FindError {
    #[error(transparent)]
    Company(#[from] CompanyError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Credentials and files of a session that does not stand yet.
#[derive(Debug)]
#[must_use]
pub struct NewCredentials {
    held: Credentials,
    decrypts: bool,
    company: GatewayCompany,
    ssh: UserSsh,
    certificates: Option<NewCertificates>,
}

/// The part of a company's network settings that the gateway gets.
#[derive(Clone, Debug, Default)]
pub struct GatewayCompany {
    /// Certificates in PEM form, one after the other.
    pub authorities: String,
    pub proxy: Option<ProxySpec>,
}

/// A company's network for what `lazaret` asks for itself: of no session, and with no credential but the proxy's login.
#[derive(Debug)]
pub struct ClientCompany {
    pub held: Credentials,
    pub company: GatewayCompany,
}

impl ClientCompany {
    /// Finds it as [`NewCredentials::find`] does.
    ///
    /// # Errors
    /// `[gateway]` of the policy cannot be used, or the kernel has no random bytes.
    pub fn find(settings: &GatewaySettings, owner: &Owner) -> Result<Self, FindError> {
        let company = Company::find(settings, owner)?;
        let mut held = Credentials::default();
        held.add_notices(company.notices);
        let proxy = company.proxy.map(|proxy| proxy_spec(proxy, &mut held));
        let company = GatewayCompany {
            authorities: company.authorities.concat(),
            proxy: proxy.transpose()?,
        };
        Ok(Self { held, company })
    }
}

/// Credentials and files of a session that stands.
#[derive(Debug)]
pub struct SessionCredentials {
    pub held: Credentials,
    /// Whether the gateway decrypts connections, so that programs have to trust it.
    pub decrypts: bool,
    pub company: GatewayCompany,
    /// Opens connections to the user's ssh agent for the gateway.
    pub ssh: UserSsh,
    certificates: Option<Certificates>,
}

impl SessionCredentials {
    /// Whether programs of the session can trust its gateway, if they have to.
    pub fn is_complete(&self) -> bool {
        self.certificates
            .as_ref()
            .is_none_or(Certificates::is_complete)
    }

    /// Completes the files with the gateway's authority.
    ///
    /// # Errors
    /// The kernel's.
    pub fn complete(&mut self, authority: &Authority) -> io::Result<()> {
        match &mut self.certificates {
            Some(certificates) => certificates.complete(&authority.certificate),
            None => Ok(()),
        }
    }
}

impl NewCredentials {
    /// Finds those that the user has, and makes the files if there is one. The user's home and environment are `home` and `ours`.
    ///
    /// # Errors
    /// `[gateway]` of the policy cannot be used, the files cannot be made, or the kernel has no random bytes.
    pub fn find(
        policy: &EffectivePolicy,
        written: WrittenPaths,
        scratch: &Scratch,
        (home, ours): (&Path, &Variables),
    ) -> Result<Self, FindError> {
        let WrittenPaths {
            zones,
            linked,
            lent,
            temporary,
            earlier,
        } = written;
        let roots = zones.roots().into_iter().map(PathBuf::from);
        let linked = linked.map(|linked| linked.common.clone());
        let lent = lent.iter().map(PathBuf::from);
        let temporary = temporary.iter().map(PathBuf::from);
        let earlier = earlier.iter().cloned();
        let writable = roots.chain(linked).chain(lent).chain(temporary);
        let writable = writable.chain(earlier);
        let owner = Owner::new(home, ours, writable.collect());
        let mut held = Credentials::resolve(policy, &owner)?;
        // Without a network there is no gateway that would need it.
        let company = match policy.has_network() {
            true => Company::find(&policy.gateway, &owner)?,
            false => Company::default(),
        };
        held.add_notices(company.notices);
        let (ssh, notices) = UserSsh::find(&policy.ssh, &owner);
        held.add_notices(notices);
        let decrypts = !held.is_empty() || policy.judges_requests();
        let certificates = (decrypts || !company.authorities.is_empty())
            .then(|| {
                let writable: Vec<&Path> = owner.writable.iter().map(PathBuf::as_path).collect();
                let user = (home, ours);
                let made = NewCertificates::make(scratch, &writable, user, &company.authorities)?;
                match decrypts {
                    true => Ok(made),
                    false => made.without_session(),
                }
            })
            .transpose()?;
        let proxy = company.proxy.map(|proxy| proxy_spec(proxy, &mut held));
        Ok(Self {
            held,
            decrypts,
            company: GatewayCompany {
                authorities: company.authorities.concat(),
                proxy: proxy.transpose()?,
            },
            ssh,
            certificates,
        })
    }

    /// The variables of cells that hold a placeholder, or nothing.
    pub fn placeholders(&self) -> &BTreeMap<String, Option<String>> {
        self.held.variables()
    }

    /// Files of the cells' home, by their paths below it, with which clients send a placeholder.
    pub fn home_files(&self) -> &BTreeMap<PathBuf, String> {
        self.held.files()
    }

    /// Files of agents' own state: see [`AgentStateFile`].
    pub fn initial_state(&self) -> &[AgentStateFile] {
        self.held.state()
    }

    /// Access to the user's ssh agent, and the keys of hosts.
    pub fn ssh(&self) -> &UserSsh {
        &self.ssh
    }

    /// The variables that name the files of certificates, in cells to which the policy gives these `rules` of variables.
    pub fn certificate_variables(
        &self,
        root: CellRoot,
        (rules, ours): (&EnvironmentRules, &Variables),
    ) -> Vec<(OsString, OsString)> {
        let of_user = rules.passes(JAVA_OPTIONS);
        let of_user = of_user
            .then(|| ours.get(OsStr::new(JAVA_OPTIONS)))
            .flatten();
        let set = rules.set.get(JAVA_OPTIONS).map(OsStr::new);
        let options = set.or(of_user.map(OsString::as_os_str));
        let made = self.certificates.iter();
        made.flat_map(|made| made.variables(root, options))
            .collect()
    }

    /// The files of certificates, for the description of the session's cells.
    pub fn files(&self) -> Option<CertificateFiles> {
        let made = self.certificates.as_ref();
        made.map(|made| made.paths().clone())
    }

    /// Goes on without the files' names on the host, which its cells do not need any more where they have mounts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn retain(mut self) -> io::Result<SessionCredentials> {
        let retained = self.certificates.as_mut().map(NewCertificates::retain);
        Ok(SessionCredentials {
            held: self.held,
            decrypts: self.decrypts,
            company: self.company,
            ssh: self.ssh,
            certificates: retained.transpose()?,
        })
    }
}

/// The proxy as the gateway is told of it; its login becomes one of `held`.
fn proxy_spec(proxy: CompanyProxy, held: &mut Credentials) -> io::Result<ProxySpec> {
    let login = proxy.login.map(|source| held.add_login(source));
    let direct = proxy.direct.iter();
    Ok(ProxySpec {
        host: proxy.address.host,
        port: proxy.address.port,
        names: proxy.names,
        direct: direct.map(|place| place.text().to_owned()).collect(),
        login: login.transpose()?,
    })
}
