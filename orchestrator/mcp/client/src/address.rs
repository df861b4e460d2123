//! The address of a server, after replacing the variables in its settings.

use crate::login::learn_secret;
use crate::settings::{LoginSettings, ServerAddress, ServerKind, ServerSettings, SettingsOwner};
use crate::store::{self, ServerFiles};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use orchestrator_http::ask::{HeldKey, HostOrigin, KeyUse};
use orchestrator_http::key::Key;
use orchestrator_http::{name_host, name_key, name_login, name_login_key, name_stranger};
use orchestrator_keys::held;
use orchestrator_reach::target::Target;
use orchestrator_text::secret_environment;
use orchestrator_text::variables;
use orchestrator_web::error::WebError;
use orchestrator_web::named::{NamedBy, NamedHost};
use policies::secret::looks_secret;

/// A server's address in the form that requests need.
pub struct NamedAddress {
    target: Target,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// Values of headers that the gateway has, with their names.
    held: Vec<(HeaderName, Key)>,
    held_secret: Option<Key>,
    /// The settings of its login, after replacing variables.
    pub login: LoginSettings,
}

impl NamedAddress {
    /// Replaces variables by those of our environment. Registers secrets among the results as known secrets.
    ///
    /// # Errors
    /// If a variable is not set, or the result is no valid address or header, as text.
    pub fn of(address: &ServerAddress) -> Result<Self, String> {
        let replaced = |text: &str| {
            let value = |name: &str| secret_environment::text(name);
            variables::replace(text, &value).map_err(|error| format!("cannot be reached: {error}"))
        };
        let target = Target::parse(&replaced(&address.url)?)
            .map_err(|error| format!("cannot be reached: its address is not {error}"))?;
        let mut headers = HeaderMap::new();
        let mut held = Vec::new();
        for (name, text) in &address.headers {
            let wrong = || format!("cannot be reached: the header `{name}` cannot be sent");
            let header = HeaderName::try_from(name).map_err(|_| wrong())?;
            let value = match held_value(name, text)? {
                Some(key) => {
                    held.push((header.clone(), key.clone()));
                    key.expose().to_owned()
                }
                None => {
                    let value = replaced(text)?;
                    if is_secret(name, text) {
                        held::secret_parts(&value).for_each(|part| learn_secret(name, part));
                    }
                    value
                }
            };
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let login = &address.login;
        let text = login.client_secret.as_deref();
        let held_secret = text.map(|text| held_value("clientSecret", text));
        let held_secret = held_secret.transpose()?.flatten();
        let client_secret = match &held_secret {
            Some(key) => Some(key.expose().to_owned()),
            None => text.map(replaced).transpose()?,
        };
        if held_secret.is_none() {
            let secret = client_secret.iter();
            secret.for_each(|secret| learn_secret("clientSecret", secret));
        }
        Ok(Self {
            target,
            headers,
            held,
            held_secret,
            login: LoginSettings {
                client_secret,
                ..login.clone()
            },
        })
    }

    /// Resolves its host. The origin of the settings determines which addresses are allowed.
    ///
    /// # Errors
    /// If it cannot be resolved, or such settings may not lead there.
    pub async fn find(&self, whose: SettingsOwner) -> Result<NamedHost, WebError> {
        let by = match whose {
            SettingsOwner::User => NamedBy::ServerSettings,
            SettingsOwner::Repository => NamedBy::RepositorySettings,
        };
        NamedHost::find(self.target.clone(), by).await
    }
}

/// Tells the gateway, when it begins, of the addresses that settings for `project` have, and where the logins there lead.
pub fn name_hosts(servers: &[ServerSettings], project: &str) {
    let has_address = |server: &ServerSettings| matches!(server.kind, ServerKind::Address(_));
    if servers.iter().any(has_address) {
        // Without it, requests for tokens of a login say so.
        let login_key = held::login_key(&store::login_key());
        login_key.iter().flatten().for_each(name_login_key);
    }
    for server in servers {
        if let ServerKind::Address(address) = &server.kind
            && let Ok(named) = NamedAddress::of(address)
        {
            let url = named.target.url();
            let used = match server.whose {
                SettingsOwner::User => {
                    name_host(url);
                    KeyUse::Server
                }
                SettingsOwner::Repository => {
                    name_stranger(url);
                    KeyUse::RepositoryServer
                }
            };
            for (name, key) in &named.held {
                let held = HeldKey::whole(key, used, url, name.as_str());
                held.into_iter().for_each(name_key);
            }
            if let Some(key) = &named.held_secret {
                let held = HeldKey::whole(key, KeyUse::Login, url, "client_secret");
                held.into_iter().for_each(name_key);
            }
            let place = ServerFiles::of_server(server, project);
            name_login(&HostOrigin::of(url), place.login_hosts());
        }
    }
}

/// The value of a header with variables, where another process has the secrets: only the gateway gets it.
fn held_value(name: &str, text: &str) -> Result<Option<Key>, String> {
    if variables::names(text).is_empty() {
        return Ok(None);
    }
    held::header(name, text).map_err(|error| format!("cannot be reached: {error}"))
}

/// Whether a header is secret: by its name, or because its value comes from the environment.
fn is_secret(name: &str, text: &str) -> bool {
    const NAMES: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
    NAMES.contains(&name.to_ascii_lowercase().as_str())
        || looks_secret(name.replace('-', "_").as_ref())
        || !variables::names(text).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_secrets_are_known_by_name_or_origin() {
        for (name, text) in [
            ("Authorization", "Bearer x"),
            ("X-Api-Key", "x"),
            ("cookie", "x"),
            ("X-Tenant", "${TENANT}"),
        ] {
            assert!(is_secret(name, text), "{name}");
        }
        assert!(!is_secret("X-Client", "lazaret"));
    }
}
