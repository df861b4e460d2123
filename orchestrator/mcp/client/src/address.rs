//! The address of a server, after replacing the variables in its settings.

use crate::login::learn_secret;
use crate::settings::{
    LoginSettings, ServerAddress, ServerKind, ServerSettings, SettingsOwner, SettingsValue,
};
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
        let url = match address.held_path {
            Some(_) => address.url.clone(),
            None => replaced(&address.url)?,
        };
        let target = Target::parse(&url)
            .map_err(|error| format!("cannot be reached: its address is not {error}"))?;
        let mut headers = HeaderMap::new();
        let mut held = Vec::new();
        for (name, value) in &address.headers {
            let wrong = || format!("cannot be reached: the header `{name}` cannot be sent");
            let header = HeaderName::try_from(name).map_err(|_| wrong())?;
            let (value, key) = sent(name, value, &replaced)?;
            held.extend(key.map(|key| (header.clone(), key)));
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let client_secret = address.client_secret.as_ref();
        let client_secret = client_secret.map(|value| sent("clientSecret", value, &replaced));
        let (client_secret, held_secret) = client_secret.transpose()?.unzip();
        Ok(Self {
            target,
            headers,
            held,
            held_secret: held_secret.flatten(),
            login: LoginSettings {
                client_secret,
                ..address.login.clone()
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
            match server.whose {
                SettingsOwner::User => name_host(url),
                SettingsOwner::Repository => name_stranger(url),
            }
            if let Some(number) = address.held_path {
                name_key(HeldKey::in_path(number, KeyUse::Server, url));
            }
            for (name, key) in &named.held {
                let held = HeldKey::whole(key, KeyUse::Server, url, name.as_str());
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

/// Finds the value that is sent in the header `name`, with its key where the gateway has that. A secret that this process has is known from then on.
fn sent(
    name: &str,
    value: &SettingsValue,
    replaced: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(String, Option<Key>), String> {
    match value {
        SettingsValue::Text(text) => {
            let value = replaced(text)?;
            if held::is_secret_header(name, text) {
                held::secret_parts(&value).for_each(|part| learn_secret(name, part));
            }
            Ok((value, None))
        }
        SettingsValue::Held(number) => {
            let key = Key::held(*number);
            Ok((key.expose().to_owned(), Some(key)))
        }
        SettingsValue::Unusable(why) => Err(format!("cannot be reached: {why}")),
    }
}
